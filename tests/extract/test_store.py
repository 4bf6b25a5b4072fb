"""The feature store: right numbers, computed once, resumable, safe beside other processes and on full disks."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages, FileImages
from foveate.data.preprocess import Preprocess
from foveate.errors import DataError, ModelError, StorageError, UnreadableImage
from foveate.extract import Backbone, BackboneSpec, create_backbone, shelf
from foveate.extract.store import FeatureStore, default_root

VIEW = Preprocess((32, 32))
TINY = Preprocess((4, 4), mean=(0.0,) * 3, std=(1.0,) * 3)


def pixels(n: int, size: int = 32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, size, size, 3), dtype=np.uint8)


def dataset(images: np.ndarray) -> GroupedDataset:
    return GroupedDataset(ArrayImages(images), np.arange(len(images)) % 2, ["cat", "dog"])


@pytest.fixture
def net() -> Backbone:
    torch.manual_seed(0)
    backbone = create_backbone("micro_resnet", width=4)
    for module in backbone.modules():  # a fresh net has trivial statistics and its residual branches switched off
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2.0)
    return backbone


class Flat(nn.Module):
    """Maps are the image itself, twice over; pooled features their mean: known without any library."""

    num_features = 6

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.calls = 0

    def forward_features(self, x: Tensor) -> Tensor:
        self.calls += 1
        return torch.cat([x, -x], 1) * self.scale

    def forward_head(self, maps: Tensor, pre_logits: bool = False) -> Tensor:
        return maps.mean((2, 3))


def flat() -> Backbone:
    return Backbone(Flat(), BackboneSpec("flat"))


class Gaps(ArrayImages):
    """Some images cannot be read."""

    def __init__(self, array: np.ndarray, bad: set[int]):
        super().__init__(array)
        self.bad_ones = bad

    def read(self, i: int) -> np.ndarray:
        if i in self.bad_ones:
            raise UnreadableImage(self.where(i), "broken")
        return super().read(i)


def gappy(images: np.ndarray, bad: set[int]) -> GroupedDataset:
    return GroupedDataset(Gaps(images, bad), np.zeros(len(images), int), ["x"])


def plain(images: np.ndarray, view: Preprocess) -> Tensor:
    """Preprocessing by hand, for images that already have the right size."""
    x = torch.from_numpy(images.transpose(0, 3, 1, 2).copy()).float() / 255
    return (x - torch.tensor(view.mean).view(3, 1, 1)) / torch.tensor(view.std).view(3, 1, 1)


# -- the numbers ----------------------------------------------------------------------------


def test_equal_to_direct_computation_in_order(net, tmp_path):
    images = pixels(11)
    ds, store = dataset(images), FeatureStore(tmp_path)
    pooled = store.features(net, ds, VIEW, batch_size=4)
    maps = store.maps(net, ds, VIEW, batch_size=4)
    net.eval()
    with torch.no_grad():
        x = plain(images, VIEW)
        torch.testing.assert_close(pooled.batch(range(11)), net(x), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(maps.batch(slice(None)), net.maps(x), atol=1e-5, rtol=1e-5)
    assert pooled.array.shape == (11, net.dim)
    assert maps.channels == net.map_dim
    assert maps.grid == (4, 4)
    assert torch.equal(maps.batch([7, 2, 7])[1], maps.batch([2])[0])
    assert torch.equal(maps.batch([7, 2, 7])[0], maps.batch(slice(7, 8))[0])
    assert maps.valid.all()
    assert len(maps) == 11


def test_result_is_a_read_only_memory_map_and_batches_are_not(net, tmp_path):
    found = FeatureStore(tmp_path).features(net, dataset(pixels(4)), VIEW)
    assert isinstance(found.array, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        found.array[0] = 0
    for indices in ([0, 1], slice(0, 2)):
        before = found.array[0].copy()
        found.batch(indices).zero_()
        assert np.array_equal(found.array[0], before)


def test_computed_once(tmp_path):
    net, ds = flat(), dataset(pixels(10, 4))
    FeatureStore(tmp_path).maps(net, ds, TINY, batch_size=4)
    assert net.net.calls == 3
    again = FeatureStore(tmp_path).maps(net, ds, TINY, batch_size=4)
    assert net.net.calls == 3
    assert np.array_equal(again.array, torch.cat([plain(ds.images.array, TINY), -plain(ds.images.array, TINY)], 1))
    # the same images under other labels need no second extraction
    FeatureStore(tmp_path).maps(net, ds.with_labels([0] * 10, ["one"]), TINY, batch_size=4)
    assert net.net.calls == 3


def test_named_layers_and_readouts(net, tmp_path):
    images = pixels(5)
    store, ds = FeatureStore(tmp_path), dataset(images)
    layer = store.read(net, ds, VIEW, layer="net.layer2")
    ratio = store.read(net, ds, VIEW, readout=lambda b, x: b(x) * 2, key="twice")
    thrice = store.read(net, ds, VIEW, readout=lambda b, x: b(x) * 3, key="thrice")
    net.eval()
    with torch.no_grad():
        x = net.net.layer1(net.net.act1(net.net.bn1(net.net.conv1(plain(images, VIEW)))))
        torch.testing.assert_close(layer.batch(range(5)), net.net.layer2(x), atol=1e-5, rtol=1e-5)
    pooled = store.features(net, ds, VIEW).batch(range(5))
    torch.testing.assert_close(ratio.batch(range(5)), 2 * pooled)
    torch.testing.assert_close(thrice.batch(range(5)), 3 * pooled)
    assert len(store.entries()) == 4
    with pytest.raises(ModelError, match=r"no layer 'net.layer9'.*net.layer1"):
        store.read(net, ds, VIEW, layer="net.layer9")
    with pytest.raises(ModelError, match="needs a key"):
        store.read(net, ds, VIEW, readout=lambda b, x: b(x))
    with pytest.raises(ModelError, match="one row per image"):
        store.read(net, ds, VIEW, readout=lambda b, x: b(x).sum(), key="sum")


def test_float16_is_half_as_large_and_close(net, tmp_path):
    ds = dataset(pixels(40))
    full = FeatureStore(tmp_path / "a").maps(net, ds, VIEW)
    half_store = FeatureStore(tmp_path / "b", dtype="float16")
    half = half_store.maps(net, ds, VIEW)
    assert half.array.dtype == np.float16
    assert half.array.nbytes * 2 == full.array.nbytes
    assert half.batch([0]).dtype == torch.float32
    torch.testing.assert_close(half.batch([3]), full.batch([3]), atol=2e-3, rtol=2e-3)
    with pytest.raises(StorageError, match="too large for float16"):
        half_store.read(net, ds, VIEW, readout=lambda b, x: b(x) + 1e6, key="huge")
    with pytest.raises(StorageError, match="int8"):
        FeatureStore(tmp_path, dtype="int8")  # type: ignore[arg-type]


# -- frozen means frozen --------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
def test_backbone_is_left_bit_for_bit(net, tmp_path, training):
    net.train(training)
    net.net.layer2.train(not training)  # a mixture of modes comes back as it was
    modes = {n: m.training for n, m in net.named_modules()}
    state = {k: v.clone() for k, v in net.state_dict().items()}
    random = torch.get_rng_state()
    FeatureStore(tmp_path).maps(net, dataset(pixels(9)), VIEW, batch_size=4, copies=1)
    assert modes == {n: m.training for n, m in net.named_modules()}
    assert all(torch.equal(v, state[k]) for k, v in net.state_dict().items())
    assert all(p.requires_grad for p in net.parameters())
    assert torch.equal(random, torch.get_rng_state())


def test_weights_that_move_during_extraction_are_an_error(tmp_path):
    def learn(b: Backbone, x: Tensor) -> Tensor:
        b.net.scale.data += 1
        return b(x)

    store, net = FeatureStore(tmp_path), flat()
    with pytest.raises(ModelError, match="weights changed"):
        store.read(net, dataset(pixels(4, 4)), TINY, readout=learn, key="learn")
    assert list(tmp_path.iterdir()) == []
    assert net.training  # the mode is restored after an error as well


# -- changes are noticed --------------------------------------------------------------------


def test_changed_pixel_weight_or_transform_is_noticed(net, tmp_path):
    store, images = FeatureStore(tmp_path), pixels(6)
    ds = dataset(images)
    first = store.features(net, ds, VIEW).array.copy()
    images[3, 5, 5, 0] ^= 128  # in place, in the very same dataset object
    changed = store.features(net, ds, VIEW).array
    assert [i for i in range(6) if not np.array_equal(first[i], changed[i])] == [3]
    squeezed = Preprocess((32, 32), mean=(0.0,) * 3)
    assert not np.allclose(store.features(net, ds, squeezed).array, changed)
    with torch.no_grad():
        net.net.layer1[0].conv1.weight[0, 0, 0, 0] += 0.5
    assert not np.array_equal(store.features(net, ds, VIEW).array, changed)
    net.net.bn1.running_mean += 0.1  # a buffer is a weight too
    store.features(net, ds, VIEW)
    assert len(store.entries()) == 5


def test_changed_file_is_noticed(tmp_path):
    from PIL import Image

    path = tmp_path / "a.png"
    store, net = FeatureStore(tmp_path / "store"), flat()
    ds = GroupedDataset(FileImages([path]), [0], ["x"])
    for grey in (0, 255):
        Image.new("RGB", (4, 4), (grey,) * 3).save(path)
        assert store.features(net, ds, TINY).array[0, 0] == grey / 255


# -- bad images -----------------------------------------------------------------------------


def test_bad_image_stops_or_is_marked(tmp_path):
    images, store = pixels(7, 4), FeatureStore(tmp_path)
    ds = gappy(images, {0, 1, 2, 4, 6})  # a whole first batch, one in the middle, a whole last batch
    with pytest.raises(UnreadableImage, match=r"array\[0\].*on_bad='skip'"):
        store.maps(flat(), ds, TINY, batch_size=3)
    maps = store.maps(flat(), ds, TINY, batch_size=3, on_bad="skip")
    assert maps.valid.tolist() == [False, False, False, True, False, True, False]
    assert np.isnan(maps.array[~maps.valid]).all()
    x = plain(images, TINY)
    assert np.array_equal(maps.array[[3, 5]], torch.cat([x, -x], 1)[[3, 5]])
    with pytest.raises(UnreadableImage, match=r"array\[0\]"):  # the stored ones do not hide it either
        store.maps(flat(), ds, TINY, batch_size=3)
    with pytest.raises(DataError, match="none of its 2 images"):
        store.maps(flat(), gappy(images[:2], {0, 1}), TINY, on_bad="skip")


def test_nothing_to_do_is_said(net, tmp_path):
    store = FeatureStore(tmp_path)
    with pytest.raises(DataError, match="no images"):
        store.features(net, dataset(pixels(0)), VIEW)
    with pytest.raises(DataError, match="copies=-1"):
        store.features(net, dataset(pixels(1)), VIEW, copies=-1)


# -- augmented copies -----------------------------------------------------------------------


def test_copies_are_augmented_and_copy_zero_is_plain(tmp_path):
    view = Preprocess((4, 4), mean=(0.0,) * 3, std=(1.0,) * 3, flip=True, shift=0)
    images, net = pixels(24, 4), flat()
    store = FeatureStore(tmp_path)
    maps = store.maps(net, dataset(images), view, copies=2, batch_size=5)
    assert maps.array.shape == (24, 3, 6, 4, 4)
    assert maps.channels == 6
    x = plain(images, view).numpy()
    assert np.array_equal(maps.array[:, 0, :3], x)
    flipped = []
    for j in (1, 2):  # each copy of each image is the image or its mirror, and both happen
        same = (maps.array[:, j, :3] == x).all((1, 2, 3))
        mirror = (maps.array[:, j, :3] == x[..., ::-1]).all((1, 2, 3))
        assert (same | mirror).all()
        assert 0 < mirror.sum() < 24
        flipped.append(mirror.tolist())
    assert flipped[0] != flipped[1]
    assert torch.equal(maps.batch([5, 2], copy=2), torch.from_numpy(maps.array[[5, 2], 2]))
    with pytest.raises(DataError, match="no copy 3"):
        maps.batch([0], copy=3)
    other = store.maps(net, dataset(images), view, copies=2, seed=1, batch_size=5)
    assert not np.array_equal(other.array, maps.array)
    elsewhere = FeatureStore(tmp_path / "b").maps(net, dataset(images), view, copies=2, batch_size=24)
    assert np.array_equal(elsewhere.array, maps.array)  # whatever the batch size


# -- killed and resumed ---------------------------------------------------------------------

CHILD = """
import os, signal, sys, time
import numpy as np, torch
from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.data.preprocess import Preprocess
from foveate.extract import create_backbone
from foveate.extract.store import FeatureStore

root, stop = sys.argv[1], int(sys.argv[2])
images = np.random.default_rng(0).integers(0, 256, (30, 32, 32, 3), dtype=np.uint8)
ds = GroupedDataset(ArrayImages(images), np.zeros(30, int), ["x"])
torch.set_num_threads(1)
torch.manual_seed(0)
net = create_backbone("micro_resnet", width=4)

def progress(done, total):
    print(done, flush=True)
    if done == stop:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(float(sys.argv[3]))

maps = FeatureStore(root, flush_seconds=0).maps(
    net, ds, Preprocess((32, 32)), copies=1, batch_size=4, progress=progress)
print("finished", maps.key)
"""


def child(root: Path, stop: int, pause: float = 0.0) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(CHILD), str(root), str(stop), str(pause)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def same_as_child(root: Path):
    """What the child process does, here, and how many batches went through the network."""
    torch.manual_seed(0)
    net = create_backbone("micro_resnet", width=4)
    ran: list[int] = []
    net.net.conv1.register_forward_hook(lambda m, i, o: ran.append(len(o)))
    ds = GroupedDataset(ArrayImages(pixels(30)), np.zeros(30, int), ["x"])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = FeatureStore(root, flush_seconds=0).maps(net, ds, VIEW, copies=1, batch_size=4)
    finally:
        torch.set_num_threads(threads)
    return found, len(ran)


@pytest.fixture(scope="module", autouse=True)
def killed(tmp_path_factory):
    """A child that kills itself half way; started first, because starting takes longest."""
    root = tmp_path_factory.mktemp("killed")
    process = child(root, stop=16)
    yield process, root
    process.kill()
    process.communicate()


def test_killed_extraction_goes_on_bit_for_bit(killed, tmp_path):
    process, root = killed
    out, err = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL, err
    assert out.split() == ["4", "8", "12", "16"]
    (entry,) = FeatureStore(root).entries()
    assert not entry.complete
    resumed, ran = same_as_child(root)
    whole, all_of_them = same_as_child(tmp_path / "whole")
    assert all_of_them == 2 * 8  # 8 batches, each with one augmented copy
    assert ran == 2 * 4  # 16 of the 30 images were not computed again
    assert np.array_equal(resumed.array, whole.array)
    assert [p.name for p in root.iterdir()] == [resumed.key]


def test_two_processes_at_once_share_the_work(tmp_path):
    process = child(tmp_path / "shared", stop=-1, pause=0.15)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "4"  # it has begun
        mine, ran = same_as_child(tmp_path / "shared")
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert out.split()[-2:] == ["finished", mine.key]
    assert ran == 0  # this process waited and took what the other one had computed
    whole, _ = same_as_child(tmp_path / "whole")
    assert np.array_equal(mine.array, whole.array)


class StopError(Exception):
    pass


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_stopped_anywhere_with_any_gaps_gives_the_same(data):
    n, size, again = (data.draw(st.integers(1, k)) for k in (9, 4, 4))
    bad = data.draw(st.sets(st.integers(0, n - 1), max_size=n - 1))
    stop = data.draw(st.integers(1, n))
    images = pixels(n, 4)
    ds, net = gappy(images, bad), flat()

    def interrupt(done: int, total: int) -> None:
        if done >= stop:
            raise StopError

    with tempfile.TemporaryDirectory() as folder:
        store = FeatureStore(folder, flush_seconds=data.draw(st.sampled_from([0.0, 1e9])))
        # bad images at the end: no batch ends there, so nothing interrupts
        with contextlib.suppress(StopError):
            store.maps(net, ds, TINY, batch_size=size, on_bad="skip", progress=interrupt)
        found = store.maps(net, ds, TINY, batch_size=again, on_bad="skip")
        x = plain(images, TINY)
        expected = torch.cat([x, -x], 1).numpy()
        expected[sorted(bad)] = np.nan
        assert np.array_equal(found.array, expected, equal_nan=True)
        assert np.flatnonzero(~found.valid).tolist() == sorted(bad)


def test_stopped_extraction_of_another_shape_is_started_anew(tmp_path):
    store, ds, net = FeatureStore(tmp_path, flush_seconds=0), dataset(pixels(8, 4)), flat()

    def stop(done: int, total: int) -> None:
        raise StopError

    with pytest.raises(StopError):
        store.features(net, ds, TINY, batch_size=2, progress=stop)
    (part,) = tmp_path.iterdir()
    for damage in ("", "{}", '{"done": 99, "bad": []}', '{"done": 2, "bad": 5}'):
        (part / "progress.json").write_text(damage)
        net.net.calls = 0
        with pytest.raises(StopError):
            store.features(net, ds, TINY, batch_size=2, progress=stop)
        assert net.net.calls == 1
    (part / "data.npy").write_bytes(b"not an array")
    whole = store.features(net, ds, TINY, batch_size=2)
    np.testing.assert_allclose(whole.array[:, :3], plain(ds.images.array, TINY).mean((2, 3)), rtol=1e-5)


def test_damaged_entry_is_computed_anew(tmp_path):
    store, ds, net = FeatureStore(tmp_path), dataset(pixels(8, 4)), flat()
    right = store.features(net, ds, TINY)
    key, values = right.key, right.array.copy()
    del right
    for name in ("data.npy", "entry.json"):
        os.truncate(tmp_path / key / name, 40)
        assert np.array_equal(store.features(net, ds, TINY).array, values)
    # an array that would need pickle is never loaded
    np.save(tmp_path / key / "data.npy", np.array([{}] * 8, dtype=object), allow_pickle=True)
    assert np.array_equal(store.features(net, ds, TINY).array, values)


# -- a full disk, a wrong folder ------------------------------------------------------------


def full(*args: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_full_disk_is_noticed_before_the_work(tmp_path, monkeypatch):
    store, net, ds = FeatureStore(tmp_path), flat(), dataset(pixels(40, 4))
    monkeypatch.setattr(shelf.os, "posix_fallocate", full)
    with pytest.raises(StorageError, match="is full"):
        store.features(net, ds, TINY, batch_size=2)
    assert net.net.calls == 1
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    assert len(store.features(net, ds, TINY)) == 40


@pytest.mark.parametrize("where", ["fsync", "replace"])
def test_full_disk_later_leaves_nothing(tmp_path, monkeypatch, where):
    store, net, ds = FeatureStore(tmp_path, flush_seconds=1e9), flat(), dataset(pixels(8, 4))
    monkeypatch.setattr(shelf.os, where, full)
    with pytest.raises(StorageError, match="is full"):
        store.features(net, ds, TINY, batch_size=2)
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []
    assert store.entries() == []


def test_write_that_fails_half_way_leaves_nothing(tmp_path, monkeypatch):
    store, net, ds = FeatureStore(tmp_path), flat(), dataset(pixels(8, 4))
    begin = shelf.Writer.begin

    class Disk:
        """Takes a few bytes at a time, and no more than 100."""

        def __init__(self, file):
            self.file, self.room = file, 100

        def write(self, block):
            if self.room <= 0:
                full()
            self.room -= 30
            return self.file.write(block[:30])

        def __getattr__(self, name):
            return getattr(self.file, name)

    def small(self, *args):
        begin(self, *args)
        self._file = Disk(self._file)

    monkeypatch.setattr(shelf.Writer, "begin", small)
    with pytest.raises(StorageError, match="is full"):
        store.features(net, ds, TINY, batch_size=2)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(Disk, "room", property(lambda self: 1, lambda self, value: None), raising=False)
    found = store.features(net, ds, TINY, batch_size=2)  # short writes alone do no harm
    np.testing.assert_allclose(found.array[:, :3], plain(ds.images.array, TINY).mean((2, 3)), rtol=1e-5)


def test_root_that_is_a_file_or_default(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="a file stands where a folder is needed"):
        FeatureStore(tmp_path / "file").features(flat(), dataset(pixels(2, 4)), TINY)
    monkeypatch.setenv("FOVEATE_CACHE", str(tmp_path / "mine"))
    assert FeatureStore().root == tmp_path / "mine"
    monkeypatch.delenv("FOVEATE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_root() == tmp_path / "xdg" / "foveate" / "features"


# -- size and eviction ----------------------------------------------------------------------


def test_least_recently_used_goes_first_and_never_one_in_use(tmp_path):
    store, net = FeatureStore(tmp_path), flat()
    sets = [dataset(pixels(100, 4, seed)) for seed in range(5)]
    keys = []
    for age, ds in enumerate(sets[:3]):
        keys.append(store.features(net, ds, TINY).key)
        os.utime(tmp_path / keys[-1] / "entry.json", (1000 + age, 1000 + age))
    gc.collect()
    assert [e.key for e in store.entries()] == keys
    one = store.entries()[0].bytes
    assert store.size() == sum(e.bytes for e in store.entries()) >= 3 * 100 * 6 * 4
    store.features(net, sets[0], TINY)  # used again: now the youngest
    gc.collect()
    assert [e.key for e in store.entries()] == [keys[1], keys[2], keys[0]]

    limited = FeatureStore(tmp_path, max_bytes=3 * one + 100)
    held = limited.features(net, sets[1], TINY)
    os.utime(tmp_path / keys[1] / "entry.json", (500, 500))  # the oldest, but in use
    new = limited.features(net, sets[3], TINY)
    assert {e.key for e in limited.entries()} == {keys[1], keys[0], new.key}
    assert limited.size() <= 3 * one + 100
    assert np.isfinite(held.array).all()

    tight = FeatureStore(tmp_path, max_bytes=one + 100)
    assert len(tight.features(net, sets[4], TINY)) == 100  # the two in use stay, with a warning
    assert keys[1] in {e.key for e in tight.entries()}
    assert keys[0] not in {e.key for e in tight.entries()}
    with pytest.raises(StorageError, match="Raise max_bytes"):
        FeatureStore(tmp_path, max_bytes=100).maps(net, sets[0], TINY)


def test_clear(tmp_path):
    store, net = FeatureStore(tmp_path), flat()
    a = store.features(net, dataset(pixels(5, 4, 1)), TINY)
    b = store.features(net, dataset(pixels(5, 4, 2)), TINY)
    assert store.entries()[0].details["about"]["title"] == "dataset: 5 images, flat"
    assert store.clear() == 0  # both in use
    first, second, size = a.key, b.key, store.entries()[0].bytes
    del a, b
    gc.collect()
    (tmp_path / ".trash-of-a-killed-process").mkdir()
    assert store.clear(first) == size
    assert [e.key for e in store.entries()] == [second]
    with pytest.raises(StorageError, match="no entry"):
        store.clear(first)
    assert store.clear() > 0
    assert list(tmp_path.iterdir()) == []
    assert FeatureStore(tmp_path / "none").clear() == 0


# -- memory ---------------------------------------------------------------------------------


class Endless:
    """Images made when they are read, so that only the store could pile anything up."""

    def __init__(self, n: int):
        self.n = n

    def __len__(self) -> int:
        return self.n

    def read(self, i: int) -> np.ndarray:
        return np.full((16, 16, 3), i % 256, dtype=np.uint8)

    def where(self, i: int) -> str:
        return str(i)

    def digest(self, i: int) -> bytes:
        return bytes([i % 256])


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads memory from /proc")
def test_memory_stays_flat(tmp_path):
    view = Preprocess((16, 16))

    def peak(n: int) -> tuple[float, int]:
        seen: list[int] = []

        def look(done: int, total: int) -> None:
            seen.append(int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))

        ds = GroupedDataset(Endless(n), np.zeros(n, int), ["x"])
        maps = FeatureStore(tmp_path).maps(flat(), ds, view, batch_size=100, progress=look)
        return max(seen), maps.array.nbytes

    small, _ = peak(2_000)
    large, written = peak(20_000)
    assert written > 120e6
    assert large - small < 20e6

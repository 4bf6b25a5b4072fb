"""Planted faults: each is found exactly once and nothing else is reported; sound data gives no problems."""

import copy
import csv
import io
import itertools
import json
import shutil
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from rich.console import Console

from foveate.data.benchmark import Benchmark
from foveate.data.check import check
from foveate.data.dataset import GroupedDataset
from foveate.data.duplicates import close_pairs, clusters, content_hash, fingerprint, near_clusters, perceptual_hash
from foveate.data.images import ArrayImages
from foveate.errors import DataError

CELLS = list(itertools.product(("cat", "dog"), ("forest", "sea")))


def scene(seed, size=(32, 40)):
    """A smooth random picture: big blobs of colour, so that it survives scaling and JPEG like a photograph."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((size[1], size[0]), Image.Resampling.BICUBIC))


class Planter:
    """A sound benchmark on disk (3 splits × 4 groups × 5 images, masks and boxes) to plant faults in."""

    def __init__(self, root):
        self.root = root
        self.rows = []
        for split in ("train", "val", "test"):
            for label, attribute in CELLS:
                for _ in range(5):
                    self.add(label=label, attribute=attribute, split=split)

    def add(self, image=None, name=None, **cells):
        n = len(self.rows)
        name = name or f"{n:04d}.png"
        image = scene(n) if image is None else image
        Image.fromarray(image).save(self.root / name)
        mask = np.zeros(image.shape[:2], np.uint8)
        mask[8:20, 10:30] = 255
        Image.fromarray(mask).save(self.root / f"m{n:04d}.png")
        row = {"path": name, "label": "cat", "attribute": "sea", "split": "train", "mask": f"m{n:04d}.png",
               "x0": 10, "y0": 8, "x1": 30, "y1": 20} | cells  # fmt: skip
        self.rows.append(row)
        return row

    def write(self):
        path = self.root / "mine.csv"
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, self.rows[0].keys())
            writer.writeheader()
            writer.writerows(self.rows)
        return path

    def image(self, k):
        return np.asarray(Image.open(self.root / self.rows[k]["path"]))

    def save_mask(self, k, mask):
        Image.fromarray(mask).save(self.root / self.rows[k]["mask"])


def missing_file(p):
    (p.root / p.rows[3]["path"]).unlink()


def unreadable(p):
    (p.root / p.rows[3]["path"]).write_text("no picture")


def unknown_split(p):
    p.add(split="tset")


def empty_group(p):
    p.rows = [r for r in p.rows if (r["split"], r["label"], r["attribute"]) != ("val", "dog", "sea")]


def no_such_group(p):
    p.rows = [r for r in p.rows if (r["label"], r["attribute"]) != ("dog", "sea")]


def tiny_group(p):
    del p.rows[-1]


def one_class(p):
    p.rows = [r for r in p.rows if (r["split"], r["label"]) != ("test", "dog")]


def label_not_in_train(p):
    p.rows = [r for r in p.rows if (r["split"], r["label"]) != ("train", "dog")]
    for k, (split, attribute) in enumerate(itertools.product(("train", "val", "test"), ("forest", "sea"))):
        for i in range(5):  # a third class, so that train does not also become a split of one class
            image = scene(9000 + 10 * k + i)
            p.add(label="fox", split=split, attribute=attribute, image=image, name=f"fox{k}-{i}.png")


def leak(p):
    p.add(image=p.image(17), label="dog", split="test", name="copy.bmp")


def near_leak(p):
    small = Image.fromarray(p.image(17)).resize((30, 24), Image.Resampling.BICUBIC)
    p.add(label="dog", split="test", image=scene(1), mask="", x0="", y0="", x1="", y1="")
    small.save(p.root / p.rows[-1]["path"], "jpeg", quality=80)


def target_leak(p):
    for label, attribute in CELLS:
        for _ in range(5):
            p.add(label=label, attribute=attribute, split="target")
    p.add(image=p.image(17), label="dog", split="target")


def two_labels(p):
    p.add(image=p.image(17), label="cat", split="train")


def duplicate(p):
    p.add(image=p.image(17), label="dog", split="train")


def near_duplicate(p):
    noisy = p.image(17).astype(int) + np.random.default_rng(0).integers(-3, 4, (32, 40, 3))
    p.add(image=np.clip(noisy, 0, 255).astype(np.uint8), label="dog", split="train")


def uniform(p):
    for _ in range(3):
        p.add(image=np.full((32, 40, 3), 200, np.uint8))


def missing_mask(p):
    (p.root / p.rows[3]["mask"]).unlink()


def unreadable_mask(p):
    (p.root / p.rows[3]["mask"]).write_bytes(b"")


def mask_size(p):
    p.save_mask(3, np.full((40, 32), 255, np.uint8))


def empty_mask(p):
    p.save_mask(3, np.zeros((32, 40), np.uint8))


def bad_box(p):
    p.rows[3].update(x0=30, x1=10)


def box_outside(p):
    p.rows[3].update(x1=41)


def box_off_mask(p):
    p.rows[3].update(x0=31, x1=40)


def empty_label(p):
    p.add(label="")


def not_a_number(p):
    p.add(x0="left")


PLANTED = {  # fault: (kind, severity, how often)
    missing_file: ("missing-file", "error", 1),
    unreadable: ("unreadable-image", "error", 1),
    unknown_split: ("unknown-split", "error", 1),
    empty_group: ("empty-group", "error", 1),
    no_such_group: ("no-such-group", "warning", 1),
    tiny_group: ("tiny-group", "warning", 1),
    one_class: ("one-class", "error", 1),
    label_not_in_train: ("label-not-in-train", "error", 2),  # once for val, once for test
    leak: ("leak", "error", 1),
    near_leak: ("near-leak", "error", 1),
    target_leak: ("leak", "warning", 1),
    two_labels: ("two-labels", "error", 1),
    duplicate: ("duplicate", "warning", 1),
    near_duplicate: ("near-duplicate", "warning", 1),
    uniform: ("uniform-image", "warning", 3),
    missing_mask: ("missing-mask", "error", 1),
    unreadable_mask: ("unreadable-mask", "error", 1),
    mask_size: ("mask-size", "error", 1),
    empty_mask: ("empty-mask", "error", 1),
    bad_box: ("bad-box", "error", 1),
    box_outside: ("box-outside", "error", 1),
    box_off_mask: ("box-off-mask", "error", 1),
    empty_label: ("empty-label", "error", 1),
    not_a_number: ("not-a-number", "error", 1),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return Planter(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def planter(sound, tmp_path):
    """A copy of the sound benchmark, to be spoiled."""
    root = tmp_path / "data"
    shutil.copytree(sound.root, root)
    planter = copy.deepcopy(sound)
    planter.root = root
    return planter


def kinds(report):
    return sorted(p.kind for p in report.problems)


def test_sound_data_has_no_problems(planter):
    report = check(planter.write(), tiny=5)
    assert report.problems == []
    assert report.ok
    assert report.counts["images"] == report.counts["readable"] == 60
    assert report.counts["splits"]["val"] == {
        "images": 20,
        "groups": {"cat/forest": 5, "cat/sea": 5, "dog/forest": 5, "dog/sea": 5},
    }
    assert report.summary().endswith("60 images (train 20, val 20, test 20): no problems.")


@pytest.mark.parametrize("fault", PLANTED, ids=lambda f: f.__name__)
def test_each_fault_alone(planter, fault):
    fault(planter)
    report = check(planter.write(), tiny=5)
    kind, severity, times = PLANTED[fault]
    assert kinds(report) == [kind] * times
    assert {p.severity for p in report.problems} == {severity}
    assert report.ok == (severity == "warning")
    assert all(p.where and p.message for p in report.problems)


def test_many_faults_at_once(planter):
    """No fault hides another: all of these go into one file."""
    together = [missing_mask, unknown_split, leak, near_duplicate, uniform, empty_label, not_a_number]
    for fault in together:
        fault(planter)
    planter.rows[7].update(x1=10)
    (planter.root / planter.rows[9]["path"]).unlink()
    (planter.root / planter.rows[11]["path"]).write_bytes(b"\x89PNG")
    report = check(planter.write(), tiny=5)
    expected = [PLANTED[f][0] for f in together for _ in range(PLANTED[f][2])]
    assert kinds(report) == sorted([*expected, "bad-box", "missing-file", "unreadable-image"])
    assert report.counts["kinds"]["uniform-image"] == 3
    assert report.counts["errors"] == len(report.errors) == 8
    # two rows make no sense and are not read; two images cannot be read
    assert report.counts["readable"] == report.counts["images"] - 2 == len(planter.rows) - 4
    messages = " ".join(p.message for p in report.problems)
    assert planter.rows[9]["path"] in messages
    assert "copy.bmp" in messages


def test_a_missing_column_is_a_problem_and_files_are_still_checked(planter):
    missing_file(planter)
    path = planter.write()
    path.write_text(path.read_text().replace("label", "lable", 1))
    report = check(path, tiny=5)
    assert kinds(report) == ["missing-column", "missing-file"]
    path.write_text(path.read_text().replace("path", "pat", 1))
    assert kinds(check(path)) == ["missing-column", "missing-column"]


def test_nothing_to_check(tmp_path):
    (tmp_path / "mine.csv").write_text("")
    report = check(tmp_path / "mine.csv")
    assert kinds(report) == ["empty"]
    assert report.counts["images"] == 0
    assert "nothing" in report.summary()
    with pytest.raises(DataError, match="no file or folder"):
        check(tmp_path / "none")


def test_class_folders(tmp_path):
    for k, (split, label) in enumerate(itertools.product(("train", "test"), ("cat", "dog"))):
        for i in range(10):
            path = tmp_path / split / label / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(scene(100 * k + i)).save(path)
    assert check(tmp_path).problems == []
    Image.fromarray(scene(0)).save(tmp_path / "test" / "cat" / "again.png")
    (tmp_path / "extra" / "cat").mkdir(parents=True)
    Image.fromarray(scene(7777)).save(tmp_path / "extra" / "cat" / "1.png")
    (tmp_path / "train" / "cow").mkdir()
    assert kinds(check(tmp_path)) == ["empty-folder", "leak", "unknown-split"]


def test_benchmarks_in_memory_and_options():
    pixels = np.stack([scene(k) for k in range(40)])
    ds = GroupedDataset(ArrayImages(pixels), [0, 1] * 20, ["cat", "dog"], name="toy")
    assert check(ds).problems == []
    assert kinds(check(ds, tiny=21)) == ["tiny-group", "tiny-group"]
    noisy = np.clip(pixels.astype(int) + 2, 0, 255).astype(np.uint8)
    other = GroupedDataset(ArrayImages(noisy), [0, 1] * 20, ["cat", "dog"])
    benchmark = Benchmark("toy", {"train": ds, "test": other})
    assert kinds(check(benchmark)) == ["near-leak"] * 40
    assert check(benchmark, near=None).problems == []


def test_other_root(planter, tmp_path_factory):
    path = planter.write()
    elsewhere = tmp_path_factory.mktemp("other") / "mine.csv"
    elsewhere.write_text(path.read_text())
    assert check(elsewhere, root=planter.root, tiny=5).problems == []
    assert check(elsewhere).counts["kinds"]["missing-file"] == 60


def test_json_and_print(planter):
    for k in range(10):
        (planter.root / planter.rows[k]["path"]).unlink()
    planter.rows[12]["label"] = "[red]dog"
    report = check(planter.write(), tiny=5)
    back = json.loads(json.dumps(report.to_dict()))
    assert back["ok"] is False
    assert back["counts"]["kinds"]["missing-file"] == 10
    assert len(back["problems"]) == len(report.problems)
    assert set(back["problems"][0]) == {"kind", "severity", "where", "message"}
    out = io.StringIO()
    report.print(Console(file=out, width=200), limit=3)
    text = out.getvalue()
    assert "[red]dog/forest" in text
    assert "and 7 more of this kind" in text
    assert planter.rows[0]["path"] in text
    assert "error" in text


def test_progress_is_told(planter, capsys):
    calls = []
    check(planter.write(), progress=lambda done, of: calls.append((done, of)))
    assert calls == [(k, 60) for k in range(1, 61)]
    check(planter.write(), tiny=5)
    assert capsys.readouterr().err == ""


def test_memory_does_not_grow_with_the_images():
    class Big:
        """40 images of 3 MB each, made when asked for."""

        def __len__(self):
            return 40

        def read(self, i):
            return scene(i, (1000, 1000))

        def where(self, i):
            return f"big[{i}]"

        def digest(self, i):
            return bytes([i])

    ds = GroupedDataset(Big(), [0, 1] * 20, ["cat", "dog"])
    tracemalloc.start()
    assert check(ds).problems == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30e6  # a handful of images, not 120 MB


# -- duplicates -----------------------------------------------------------------------------


def test_content_hash_tells_size_and_pixels():
    a = np.zeros((4, 6, 3), np.uint8)
    b = a.copy()
    b[3, 5, 2] = 1
    assert content_hash(a) == content_hash(a.copy())
    assert len({content_hash(x) for x in (a, b, a.reshape(6, 4, 3))}) == 3


def test_perceptual_hash_survives_what_does_not_change_the_picture():
    for seed in range(20):
        image = scene(seed, (120, 160))
        buffer = io.BytesIO()
        Image.fromarray(image).resize((71, 53), Image.Resampling.BICUBIC).save(buffer, "jpeg", quality=60)
        other = np.asarray(Image.open(buffer))
        assert (perceptual_hash(image) ^ perceptual_hash(other)).bit_count() <= 6
        assert (perceptual_hash(image) ^ perceptual_hash(scene(seed + 1, (120, 160)))).bit_count() > 10


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 2**64 - 1), max_size=12), st.integers(0, 9), st.data())
def test_close_pairs_against_brute_force(words, distance, data):
    for word in list(words):  # neighbours, or hardly any pair would be close
        flips = data.draw(st.lists(st.integers(0, 63), max_size=10))
        words.append(word ^ sum(1 << f for f in set(flips)))
    hashes = np.array(words, np.uint64)
    found = {frozenset(p) for i, j in close_pairs(hashes, distance) for p in zip(i.tolist(), j.tolist(), strict=True)}
    n = range(len(words))
    brute = {frozenset((a, b)) for a in n for b in n if a < b and (words[a] ^ words[b]).bit_count() <= distance}
    assert found == brute


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=20))
def test_clusters_against_a_closure(pairs):
    reach = np.eye(13, dtype=bool)
    for a, b in pairs:
        reach[a, b] = reach[b, a] = True
    for _ in range(13):
        reach = reach @ reach
    expected = {tuple(np.flatnonzero(reach[a]).tolist()) for pair in pairs for a in pair}
    assert {tuple(c) for c in clusters(pairs)} == expected


def test_equal_hashes_need_equal_thumbnails():
    """The same structure in another colour is another picture."""
    red = np.zeros((32, 32, 3), np.uint8)
    red[8:24, 4:20, 0] = 200
    green = red[:, :, [1, 0, 2]]
    prints = [fingerprint(x) for x in (red, green, red)]
    hashes = np.array([7, 7, 7], np.uint64)
    assert near_clusters(hashes, np.stack([p.thumbnail for p in prints])) == [[0, 2]]


def test_uniform_and_plain():
    rng = np.random.default_rng(0)
    flat = np.full((20, 20, 3), 7, np.uint8)
    grain = rng.integers(100, 104, (20, 20, 3), dtype=np.uint8)
    assert fingerprint(flat).uniform
    assert fingerprint(flat).plain
    assert not fingerprint(grain).uniform
    assert fingerprint(grain).plain
    assert not fingerprint(scene(0)).plain

"""Archives as their publishers pack them, from download to loaded dataset; and the same unpacked by hand."""

from __future__ import annotations

import pickle
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import train_test_split

import foveate as fv
from foveate.data import sources
from foveate.data.sources import archives

DOCS = Path(__file__).parents[3] / "docs" / "datasets"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.fixture
def right_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Miniatures pass for the published files."""
    published = {a: m for s in sources.SOURCES.values() for a, m in s.archives.items()}
    published |= {a: m for s in sources.SOURCES.values() for a, (_, _, m) in s.besides.items()}

    monkeypatch.setattr(archives, "md5_of", lambda path: published[path.name])


def pack(archive: Path, content: Path) -> None:
    """Everything in ``content`` as a tar or a zip, paths from ``content`` on."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive, "w") as packed:
            for file in sorted(content.rglob("*")):
                packed.write(file, file.relative_to(content))
        return
    with tarfile.open(archive, "w:gz") as tar:
        for entry in sorted(content.iterdir()):
            tar.add(entry, entry.name)


# -- CUB: attributes.txt beside the folder, masks in an archive of their own ----------------------


def published_cub(miniatures: Any, made: Path) -> tuple[Path, Path]:
    """The content of CUB_200_2011.tgz and of segmentations.tgz."""
    birds, masks = made / "birds", made / "masks"
    miniatures.cub(birds)
    masks.mkdir(parents=True)
    shutil.move(birds / "segmentations", masks / "segmentations")
    (birds / "attributes.txt").write_text("1 has_bill_shape::curved_(up_or_down)\n")
    return birds, masks


def test_cub_archive_gives_birds_with_masks(miniatures: Any, root: Path, tmp_path: Path, right_sums: None) -> None:
    birds, masks = published_cub(miniatures, tmp_path / "made")
    pack(root / "CUB_200_2011.tgz", birds)
    pack(root / "segmentations.tgz", masks)
    found = sources.prepare("cub", root)
    assert found == root / "CUB_200_2011"
    assert (found / "images.txt").is_file()  # not CUB_200_2011/CUB_200_2011
    assert (found / "attributes.txt").is_file()
    cub = fv.data.load("cub", root)
    assert cub.notes["masks"]
    mask = cub.test[0].mask
    assert mask is not None
    assert 0 < mask.mean() < 1
    # Waterbirds under the same root has the boxes and masks of the same birds
    miniatures.waterbirds(root)
    sample = fv.data.load("waterbirds", root).test[0]
    assert sample.box is not None
    assert sample.mask is not None


def test_cub_without_masks_says_so(miniatures: Any, root: Path, tmp_path: Path, right_sums: None) -> None:
    birds, masks = published_cub(miniatures, tmp_path / "made")
    pack(root / "CUB_200_2011.tgz", birds)
    said: list[str] = []
    sources.prepare("cub", root, said.append)
    assert any("without masks" in line and "segmentations.tgz" in line for line in said)
    assert not fv.data.load("cub", root).notes["masks"]
    # the second download may come later
    pack(root / "segmentations.tgz", masks)
    said.clear()
    sources.prepare("cub", root, said.append)
    assert not any("without masks" in line for line in said)
    assert fv.data.load("cub", root).notes["masks"]
    said.clear()
    sources.prepare("cub", root, said.append)
    assert not any("unpacking" in line for line in said)


@pytest.mark.parametrize("outer", ["CUB_200_2011", "cub"])
def test_cub_unpacked_by_hand_into_a_folder(miniatures: Any, root: Path, tmp_path: Path, outer: str) -> None:
    birds, masks = published_cub(miniatures, tmp_path / "made")
    shutil.copytree(birds, root / outer)  # attributes.txt and CUB_200_2011/ in one folder
    shutil.copytree(masks, root, dirs_exist_ok=True)
    cub = fv.data.load("cub", root)
    assert cub.notes["folder"] == str(root / outer / "CUB_200_2011")
    assert cub.test[0].mask is not None
    miniatures.waterbirds(root)
    sample = fv.data.load("waterbirds", root).test[0]
    assert sample.box is not None
    assert sample.mask is not None


def test_a_wrong_archive_of_masks_is_refused(miniatures: Any, root: Path) -> None:
    miniatures.cub(root, masks=False)
    (root / "segmentations.tgz").write_bytes(b"not the masks")
    with pytest.raises(fv.errors.DataError, match="4d47ba1228eae64f2fa547c47bc65255"):
        sources.prepare("cub", root)


# -- Spawrious: names of the README, names of the loader ------------------------------------------


@pytest.mark.parametrize(
    ("name", "archive"),
    [
        ("spawrious-o2o-hard", "spawrious__o2o_hard.tar.gz"),
        ("spawrious-o2o-hard", "spawrious224__o2o_hard.tar.gz"),
        ("spawrious-o2o-hard", "spawrious224.tar.gz"),
        ("spawrious-m2m-hard", "spawrious224.tar.gz"),
        ("spawrious-m2m-hard", "spawrious224__entire_dataset.tar.gz"),
        ("spawrious-m2m-hard", "spawrious__m2m.tar.gz"),
        ("spawrious-dar", "spawrious__o2o_hard.tar.gz"),
    ],
)
def test_spawrious_archives(miniatures: Any, root: Path, tmp_path: Path, name: str, archive: str) -> None:
    miniatures.spawrious(tmp_path / "made", cell=1)
    pack(root / archive, tmp_path / "made")
    assert sources.prepare(name, root) == root / "spawrious224"
    assert archive in sources.SOURCES[name].archives


def test_a_second_spawrious_archive_leaves_the_first_alone(miniatures: Any, root: Path, tmp_path: Path) -> None:
    for kind, places in (("o2o", ("jungle", "beach", "mountain", "desert", "snow")), ("m2m", ("dirt", "snow"))):
        folder = miniatures.spawrious(tmp_path / kind, cell=1)
        for place in folder.glob("[01]/*"):
            if place.name not in places:
                shutil.rmtree(place)
    pack(root / "spawrious__o2o_hard.tar.gz", tmp_path / "o2o")
    first = sources.prepare("spawrious-o2o-hard", root)
    pack(root / "spawrious__m2m.tar.gz", tmp_path / "m2m")
    second = sources.prepare("spawrious-m2m-hard", root)
    assert first != second
    assert (first / "0" / "jungle" / "bulldog").is_dir()
    assert (second / "0" / "dirt" / "bulldog").is_dir()


# -- MetaShift: the zip of DISC, and its split ----------------------------------------------------


def published_metashift(made: Path, cats: int, dogs: int) -> Path:
    """The content of metashifts.zip; the files are empty, for nothing is decoded here."""
    folder = made / "metashifts" / "MetaDatasetCatDog"
    cells = {"train/cat/cat(sofa)": 3, "train/cat/cat(bed)": 2, "train/dog/dog(bench)": 2, "train/dog/dog(bike)": 3,
             "test/cat/cat(shelf)": cats, "test/dog/dog(shelf)": dogs}  # fmt: skip
    number = 2_300_000
    for cell, count in cells.items():
        (folder / cell).mkdir(parents=True)
        for _ in range(count):
            (folder / cell / f"{number}.jpg").touch()
            number += 7
    return made


def test_metashift_archive_of_disc(root: Path, tmp_path: Path) -> None:
    made = published_metashift(tmp_path / "made", 20, 20)
    (made / "metashifts" / "MetaDatasetOther").mkdir()
    (made / "metashifts" / "MetaDatasetOther" / "readme.txt").write_text("another one")
    pack(root / "metashifts.zip", made)
    found = sources.prepare("metashift-catdog-disc", root)
    assert (found / "train" / "cat" / "cat(sofa)").is_dir()
    packed = fv.data.load("metashift-catdog-disc", root)
    by_hand = tmp_path / "by-hand"
    shutil.copytree(made, by_hand)  # unzipped where it lies: metashifts/MetaDatasetCatDog
    unzipped = fv.data.load("metashift-catdog-disc", by_hand)
    for split in ("train", "val", "test"):
        names = [[Path(b[split].where(i)).name for i in range(len(b[split]))] for b in (packed, unzipped)]
        assert names[0] == names[1]


def test_metashift_split_is_that_of_disc(tmp_path: Path) -> None:
    published_metashift(tmp_path, 235, 306)
    pets = fv.data.load("metashift-catdog-disc", tmp_path)
    assert pets.val.class_counts.tolist() == [34, 47]  # as its paper counts
    assert pets.test.class_counts.tolist() == [201, 259]
    shelf = fv.data.load("metashift-catdog-disc", tmp_path, hold_out=0).test  # cats, then dogs, as DISC lists them
    files = np.array([shelf.where(i) for i in range(len(shelf))])
    held, _ = train_test_split(np.arange(541), test_size=0.85, random_state=0)
    assert {pets.val.where(i) for i in range(81)} == set(files[held])
    assert {pets.test.where(i) for i in range(460)} == set(np.delete(files, held))
    other = fv.data.load("metashift-catdog-disc", tmp_path, seed=1)
    assert {other.val.where(i) for i in range(81)} != set(files[held])
    assert not [p for p in sources.check("metashift-catdog-disc", tmp_path) if "shelf" in p.message]


# -- SIIM: everything under pneumothorax/, the tubes elsewhere ------------------------------------


def published_siim(miniatures: Any, made: Path) -> tuple[Path, Path]:
    """The content of Kaggle's zip, and the file of tubes, which is another project's."""
    folder = miniatures.siim(made)
    tubes = made / "cxr_tube_dict.pkl"
    shutil.move(folder / "cxr_tube_dict.pkl", tubes)
    packed = made / "packed"
    packed.mkdir()
    shutil.move(folder, packed / "pneumothorax")
    return packed, tubes


@pytest.mark.parametrize("more", [False, True])
def test_siim_archive_of_kaggle(miniatures: Any, root: Path, tmp_path: Path, more: bool) -> None:
    packed, tubes = published_siim(miniatures, tmp_path / "made")
    if more:  # a file beside the folder, so that it is not the only one
        (packed / "download_images.py").write_text("# nothing")
    pack(root / "siim-acr-pneumothorax-segmentation-data.zip", packed)
    with pytest.raises(fv.errors.DataError, match="siim-acr is not here"):
        sources.prepare("siim-acr", root)
    shutil.copy(tubes, root)
    said: list[str] = []
    folder = sources.prepare("siim-acr", root, said.append)
    assert not any("unpacking" in line for line in said)  # that was done the first time
    assert (folder / "chest_tubes.csv").is_file()
    assert len(fv.data.load("siim-acr", root).test) == 4


@pytest.mark.parametrize("place", ["siim-acr", "siim-acr-pneumothorax-segmentation-data", "."])
@pytest.mark.parametrize("within", [False, True])
def test_siim_unpacked_by_hand(miniatures: Any, root: Path, tmp_path: Path, place: str, within: bool) -> None:
    packed, tubes = published_siim(miniatures, tmp_path / "made")
    shutil.copytree(packed, root / place, dirs_exist_ok=True)
    shutil.copy(tubes, root / place / ("pneumothorax" if within else "."))
    xrays = fv.data.load("siim-acr", root)
    assert (len(xrays.train), len(xrays.test)) == (2, 4)
    assert xrays.test.attributes is not None
    assert xrays.test.attributes.tolist() == [0, 0, 1, 1]
    assert pickle.loads(tubes.read_bytes())["1.2.276.4"]


# -- what is written about them -------------------------------------------------------------------


def test_celeba_dar_draws_target_and_val_from_the_training_images(miniatures: Any, tmp_path: Path) -> None:
    folder = miniatures.celeba(tmp_path)
    lines = (folder / "list_eval_partition.txt").read_text().split()
    part = dict(zip(lines[::2], lines[1::2], strict=True))
    faces = fv.data.load("celeba-dar", tmp_path, majority=5, minority=2, per_group=2)
    for split, wanted in (("train", "0"), ("target", "0"), ("val", "0"), ("test", "2")):
        drawn = {part[Path(faces[split].where(i)).name] for i in range(len(faces[split]))}
        assert drawn == {wanted}, split


def test_cards_say_what_the_loaders_say() -> None:
    for name, source in sources.SOURCES.items():
        card = " ".join((DOCS / f"{name}.md").read_text(encoding="utf-8").split())
        assert source.licence[1:] in card, f"{name}: licence"
        assert source.get in card, f"{name}: where to get it"

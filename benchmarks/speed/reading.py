"""Reading images and predicting: decoding, embedding photos, exported models, Grad-CAM, group accuracies."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import foveate as fv
from benchmarks.speed.rows import ROOT, Row, against, alternating
from benchmarks.speed.training import photos
from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages, FileImages, decode
from foveate.data.loading import Loader
from foveate.data.preprocess import Preprocess
from foveate.extract import create_backbone
from foveate.extract.store import FeatureStore

LARGE = (4000, 3000)
"""Width and height of a picture of 12 megapixels."""


def large_photos(folder: Path, images: int) -> list[Path]:
    """JPEG files of 12 megapixels in two folders of classes: critters enlarged, with grain."""
    drawn = fv.data.critters(train=max(images, 16), target=0, val=0, test=0, size=128).train
    grain = np.random.default_rng(0).normal(0, 6, (LARGE[1], LARGE[0], 1)).astype(np.float32)
    paths = []
    for i in range(images):
        picture = Image.fromarray(drawn.images.read(i)).resize(LARGE, Image.Resampling.BICUBIC)
        pixels = np.clip(np.asarray(picture) + np.roll(grain, i * 37, 1), 0, 255).astype(np.uint8)
        path = folder / ("cat", "duck")[i % 2] / f"{i}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(path, quality=90)
        paths.append(path)
    return paths


def decoding() -> list[Row]:
    """One file at a time by one thread: Pillow alone, as before, against the decoder that is used."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        large = large_photos(folder, 3)
        small = [folder / f"{i}.jpg" for i in range(60)]
        for i, path in enumerate(small):
            Image.open(large[i % 3]).resize((256, 192)).save(path, quality=90)

        def plainly(paths: list[Path]) -> None:
            for path in paths:
                np.asarray(Image.open(io.BytesIO(path.read_bytes())).convert("RGB"))

        for told, paths, least in (
            ("a JPEG of 12 MP, whole", large, None), ("a JPEG of 12 MP for a network of 224 px", large, (448, 448)),
            ("a JPEG of 256 x 192 px", small, None),
        ):  # fmt: skip

            def quickly(paths: list[Path] = paths, least: tuple[int, int] | None = least) -> None:
                for path in paths:
                    decode(path, least)

            times = alternating({"Pillow": lambda paths=paths: plainly(paths), "ours": quickly})  # type: ignore[misc]
            whole = np.asarray(Image.open(paths[0]).convert("RGB"))
            view, found = Preprocess((224, 224)), decode(paths[0], least)
            same = "same pixels" if np.array_equal(whole, found) else f"at 224 px {_apart(view, whole, found):.2f} grey"
            rows.append(
                against(f"decoding {told}", "Pillow", times["ours"], times["Pillow"], note=f"{same}, one thread")
            )
    return rows


def reading_ahead(images: int = 24) -> list[Row]:
    """Photos of 12 MP read ahead in threads, as is done, against two processes."""
    with tempfile.TemporaryDirectory() as name:
        paths = large_photos(Path(name), images)
        data = GroupedDataset(FileImages(paths), np.arange(images) % 2, ["cat", "duck"])

        def read(workers: int) -> None:
            for _ in Loader(data, Preprocess((224, 224)), workers=workers, cache_bytes=0).in_order(8):
                pass

        times = alternating({"threads": lambda: read(0), "processes": lambda: read(2)})
    told = f"{images} photos, batches of 8; how many threads is found out while reading"
    return [against("reading photos of 12 MP ahead, in threads", "in two processes", times["threads"],
                    times["processes"], note=told)]  # fmt: skip


def _apart(view: Preprocess, whole: np.ndarray, draft: np.ndarray) -> float:
    a, b = (view.prepare(torch.tensor(p).permute(2, 0, 1)).float() for p in (whole, draft))
    return float((a - b).abs().mean())


def embedding(images: int = 48) -> list[Row]:
    """Vectors of MobileNetV2 for photos of 12 MP, from files to an array."""
    from torchvision import transforms
    from torchvision.datasets import ImageFolder
    from torchvision.models import mobilenet_v2

    from foveate.data.ahead import cores

    torch.manual_seed(0)
    network: Any = mobilenet_v2(weights=None)
    network.classifier = torch.nn.Identity()
    network.eval()
    backbone = create_backbone("mobilenetv2_100", image_size=(224, 224))
    with tempfile.TemporaryDirectory() as name:
        paths = large_photos(Path(name), images)
        data = GroupedDataset(FileImages(paths), np.arange(images) % 2, ["cat", "duck"])
        steps = [transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor()]
        normal = transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
        folder = ImageFolder(name, transforms.Compose([*steps, normal]))

        @torch.inference_mode()
        def plain() -> None:
            loader = torch.utils.data.DataLoader(folder, batch_size=16, num_workers=cores())
            np.concatenate([network(batch).numpy() for batch, _ in loader])

        def stored() -> None:
            with tempfile.TemporaryDirectory() as store:
                FeatureStore(store).features(
                    backbone, data, Preprocess((224, 224), fit="crop"), batch_size=16, progress=lambda *_: None
                )  # fmt: skip

        times = alternating({"plain": plain, "ours": stored})
    note = f"{images} photos; its loader decodes in {cores()} processes, the best it can do here"
    return [
        against(
            "embedding JPEG photos of 12 MP with MobileNetV2", "torchvision ImageFolder + DataLoader",
            times["ours"], times["plain"], target=2.0, note=note,
        )
    ]  # fmt: skip


def exported(images: int = 64) -> list[Row]:
    """Predictions of an exported model against the network it was made from, in PyTorch."""
    from foveate.export import Runner, to_folder

    rows = []
    pixels = np.random.default_rng(0).integers(0, 256, (images, 224, 224, 3), dtype=np.uint8)
    data = GroupedDataset(ArrayImages(pixels[:8]), np.arange(8) % 2, ["cat", "duck"])
    batch = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
    for name in ("resnet18", "mobilenetv2_100"):
        words = {"image_size": 224, "epochs": 1, "batch_size": 4, "augment": False, "progress": False}
        system = fv.ERM(name, pretrained=False, **words).fit(data)
        network, view = system.network_.eval(), system.preprocess_
        mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (view.mean, view.std))

        @torch.inference_mode()
        def plain(network: Any = network, mean: Any = mean, std: Any = std) -> np.ndarray:
            parts = [network((x.float() / 255 - mean) / std).numpy() for x in batch.split(16)]
            return np.concatenate(parts)

        with tempfile.TemporaryDirectory() as folder:
            to_folder(system, Path(folder) / "model", "onnx")
            runner = Runner(Path(folder) / "model")

            def ours(runner: Any = runner) -> np.ndarray:
                return np.concatenate([runner.predict_logits(x) for x in batch.split(16)])

            times = alternating({"plain": plain, "ours": ours})
            gap = float(np.abs(plain() - ours()).max())
        rows.append(
            against(
                f"predicting with an exported {name}, {images} images of 224 px (ONNX Runtime)", "the same in PyTorch",
                times["ours"], times["plain"], target=1.3, note=f"largest difference of a logit {gap:.1e}",
            )
        )  # fmt: skip
    return rows


def grad_cam(images: int = 256) -> list[Row]:
    """Heat maps of a ResNet-18 against grad-cam called as its README does."""
    import timm
    from pytorch_grad_cam import GradCAM
    from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

    from foveate.look import gradcam

    torch.manual_seed(0)
    network: Any = timm.create_model("resnet18", num_classes=2).eval()
    inputs = torch.randn(images, 3, 128, 128)
    last: dict[str, np.ndarray] = {}

    def readme() -> None:
        with GradCAM(model=network, target_layers=[network.layer4[-1]]) as cam:
            targets = [ClassifierOutputTarget(0)] * 32
            last["readme"] = np.concatenate([cam(input_tensor=x, targets=targets) for x in inputs.split(32)])

    def ours() -> None:
        zeros = torch.zeros(32, dtype=torch.long)
        gazes = [gradcam(network, x, network.layer4[-1], zeros).map for x in inputs.split(32)]
        last["ours"] = torch.cat(gazes).numpy()

    times = alternating({"readme": readme, "ours": ours})
    note = "ResNet-18, 128 px, batches of 32; the library also enlarges the maps, which takes little"
    return [
        against(
            f"Grad-CAM of {images} images", "grad-cam 1.5 as in its README", times["ours"], times["readme"], target=1.3,
            note=note,
        )
    ]  # fmt: skip


def group_accuracies(answers: int = 200_000) -> list[Row]:
    """Accuracy of every group against WILDS's metric; ours also gives intervals and every figure of a report."""
    from wilds.common.metrics.all_metrics import Accuracy

    from foveate.measure import group_report

    rng = np.random.default_rng(0)
    labels, attributes, guesses = (rng.integers(0, 2, answers) for _ in range(3))
    groups = torch.from_numpy(2 * labels + attributes)
    tensors = torch.from_numpy(guesses), torch.from_numpy(labels)
    times = alternating(
        {
            "WILDS": lambda: Accuracy().compute_group_wise(*tensors, groups, 4),
            "ours": lambda: group_report(guesses, labels, attributes),
        }
    )
    note = "ours also gives intervals and all figures of a report"
    return [
        against(f"group accuracies of {answers:,} answers", "WILDS 2.0.0", times["ours"], times["WILDS"], note=note)
    ]


def streaming(few: int = 500, many: int = 5000) -> list[Row]:
    """Peak memory of ``foveate predict`` on folders of files, the larger by the smaller; 1 is flat."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "files").mkdir()
        data = photos(folder / "files", many, 64)
        fv.ERM("micro_resnet", epochs=1, pretrained=False, progress=False).fit(data.subset(range(32))).save(
            folder / "model"
        )
        peaks, seconds = [], []
        for count in (few, many):
            rows = [f"files/{i}.jpg,{('cat', 'duck')[int(data.labels[i])]},test" for i in range(count)]
            table = folder / f"{count}.csv"
            table.write_text("\n".join(["path,label,split", *rows]) + "\n")
            script = (
                "import json, resource, sys, time; from foveate.cli import main\n"
                "began = time.perf_counter()\n"
                "try:\n    main()\nexcept SystemExit: pass\n"
                "peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
                "print(json.dumps([peak, time.perf_counter() - began]))"
            )
            call = [sys.executable, "-c", script, "predict", str(folder / "model"), str(table), "-o", f"{table}.out"]
            done = subprocess.run(call, capture_output=True, text=True, check=True, cwd=ROOT)
            peak, took = json.loads(done.stdout.strip().splitlines()[-1])
            peaks.append(peak / 1024)
            seconds.append(took)
    ratio = peaks[1] / peaks[0]
    note = f"peak memory {peaks[0]:.0f} MB and {peaks[1]:.0f} MB; {many / seconds[1]:.0f} images a second"
    return [
        Row(
            f"foveate predict on {many:,} files: memory", f"on {few:,} files", ratio, ratio, ratio, seconds[1],
            seconds[0], 1, note=note,
        )
    ]  # fmt: skip


def tiles() -> list[Row]:
    """S² by its authors' wrapper, which is on no package index."""
    raise RuntimeError("there is a package called s2wrapper now, and no measurement of it is written yet")

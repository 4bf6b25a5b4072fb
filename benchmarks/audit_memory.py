"""Memory of an audit with MobileNetV2: flat from 2,000 images to 20,000, and under 4 GB.

Generated pictures are written as JPEG files with a CSV file, and a MobileNetV2 with a linear head as a timm checkpoint
(the asset ``mobilenet-v2``, with random weights where it is not on the machine). Then a process of its own runs
``foveate audit`` on them, just as a person would, and its largest resident memory is read.

    python -m benchmarks audit_memory
    python -m benchmarks.audit_memory --images 5000 --few 0 --side 224       # one audit of larger pictures
"""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LIMIT_MB = 4096
"""Wanted: the largest resident memory of the audit, at most."""
FLAT = 1.1
"""Wanted: ten times the images take at most this many times the memory."""
SIDE = 224
CLASSES = ("disc", "square")
ARCH = "mobilenetv2_100"
SEEN = 64
"""Images the linear head is fitted on."""


def draw(number: int, label: int, side: int = SIDE) -> Any:
    """Picture ``number``: a disc or a square on a smooth scene that leans to the class's own colour."""
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(number)
    tint = np.array([[70, 130, 90], [90, 110, 160]][label if rng.random() < 0.9 else 1 - label])
    coarse = np.clip(tint + rng.normal(0, 35, (6, 6, 3)), 0, 255).astype(np.uint8)
    scene = np.asarray(Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC)).astype(np.float32)
    scene += rng.normal(0, 10, scene.shape)
    y, x = np.mgrid[:side, :side] / side
    cy, cx, r = rng.uniform(0.35, 0.65), rng.uniform(0.35, 0.65), rng.uniform(0.12, 0.2)
    away = np.hypot(y - cy, x - cx) if label == 0 else np.maximum(abs(y - cy), abs(x - cx))
    scene[away < r] = rng.uniform(120, 255, 3)
    return Image.fromarray(np.clip(scene, 0, 255).astype(np.uint8))


def prepare(images: int, folder: str, side: int = SIDE, arch: str = ARCH, asset: str | None = "mobilenet-v2") -> None:
    """Write ``images.csv`` with its pictures, and ``weights.safetensors`` of ``arch``, into ``folder``."""
    place = Path(folder)
    (place / "images").mkdir()
    with open(place / "images.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label", "split"])
        for i in range(images):
            draw(i, i % 2, side).save(place / "images" / f"{i:06d}.jpg", quality=90)
            writer.writerow([f"images/{i:06d}.jpg", CLASSES[i % 2], "test"])
    _write_model(place / "weights.safetensors", side, arch, asset)


def _write_model(path: Path, side: int, arch: str, asset: str | None) -> None:
    """A checkpoint of ``arch`` whose head tells the two classes of new pictures apart as well as it can."""
    import numpy as np
    import torch
    from safetensors.torch import save_file

    from foveate import assets
    from foveate.extract import open_backbone  # makes torchvision load where its operators do not, for timm

    timm = importlib.import_module("timm")
    torch.manual_seed(0)
    full = timm.create_model(arch, num_classes=len(CLASSES)).eval()
    ready = asset is not None and any(a.name == asset and a.ready for a in assets.status())
    if ready and asset is not None:
        backbone, _ = open_backbone(asset)
        missing = full.load_state_dict(backbone.net.state_dict(), strict=False).missing_keys
        assert all(name.startswith("classifier") for name in missing), missing
    pixels = [np.asarray(draw(10**9 + i, i % 2, side)) for i in range(SEEN)]  # none of those that are audited
    x = torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).float() / 255
    x = (x - torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)) / torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    with torch.no_grad():
        features = torch.cat([full.forward_head(full.forward_features(part), pre_logits=True) for part in x.split(16)])
        # ridge regression onto +1 and -1
        mean = features.mean(0)
        centred = features - mean
        kernel = centred @ centred.T
        sign = torch.tensor([1.0 if i % 2 == 0 else -1.0 for i in range(SEEN)])
        weight = centred.T @ torch.linalg.solve(kernel + 0.1 * kernel.diagonal().mean() * torch.eye(SEEN), sign)
        head = full.get_classifier()
        head.weight.copy_(torch.stack([weight, -weight]) * 2)
        head.bias.copy_(torch.stack([-(mean @ weight), mean @ weight]) * 2)
    save_file({name: value.contiguous() for name, value in full.state_dict().items()}, path)


def work(folder: str, side: int = SIDE, arch: str = ARCH) -> dict[str, Any]:
    """In a process of its own: ``foveate audit``, and what it took."""
    from foveate.cli.main import app

    place = Path(folder)
    began = time.perf_counter()
    app(
        ["audit", f"{arch}@{place / 'weights.safetensors'}", "--data", str(place / "images.csv"), "--size", str(side),
         "--classes", ",".join(CLASSES), "--out", str(place / "report.html")],
        standalone_mode=False,
    )  # fmt: skip
    return {"seconds": time.perf_counter() - began, "peak_mb": _memory()}


def _memory() -> float:
    """The largest resident memory of this process so far, in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak / 1e3


def _apart(task: str, **asked: Any) -> dict[str, Any]:
    """Run ``task`` in a new process. The bar it draws is shown when this is run on a terminal.

    This process must stay small: on Linux a new process starts from the peak of the one that made it.
    """
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.audit_memory", "--task", task, "--asked", json.dumps(asked)],
        check=True, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1],
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def _audited(images: int, side: int) -> tuple[dict[str, Any], int]:
    """What an audit of so many images took, and the bytes of its report."""
    with tempfile.TemporaryDirectory() as folder:
        _apart("prepare", images=images, folder=folder, side=side)
        took = _apart("work", folder=folder, side=side)
        return took, (Path(folder) / "report.html").stat().st_size


def run(images: int = 20_000, few: int = 2_000, side: int = 64) -> dict[str, Any]:
    """Measure; prints one line and returns its numbers. ``few`` images (0 for none) are audited to compare with."""
    before = _audited(few, side)[0]["peak_mb"] if few else None
    took, report = _audited(images, side)
    result = {
        "name": "audit_memory",
        "ratio": took["peak_mb"] / (before or LIMIT_MB),
        "target": FLAT if few else 1.0,
        "images": images,
        "side": side,
        "seconds": took["seconds"],
        "images_per_s": images / took["seconds"],
        "peak_mb": took["peak_mb"],
        "few": few,
        "few_peak_mb": before,
        "limit_mb": LIMIT_MB,
        "report_mb": report / 1e6,
    }
    compared = f", {took['peak_mb'] / before:.2f} × that of {few} images ({before:.0f} MB)" if before else ""
    print(
        f"audit_memory: {images} images of {side} px in {took['seconds']:.0f} s ({result['images_per_s']:.1f} images/s "
        f"with discovery), peak memory {took['peak_mb']:.0f} MB{compared} (limit {LIMIT_MB} MB)"
    )
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--few", type=int, default=2_000, help="images to compare with; 0 leaves that out")
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--task", choices=["prepare", "work"], help=argparse.SUPPRESS)
    parser.add_argument("--asked", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.task:
        print(json.dumps({"prepare": prepare, "work": work}[given.task](**json.loads(given.asked)) or {}))
    else:
        run(given.images, given.few, given.side)

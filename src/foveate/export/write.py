"""Writing the graphs of a system to a folder, and checking that they compute the same."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from foveate.assemble.system import Images, System
from foveate.data.dataset import GroupedDataset
from foveate.data.preprocess import as_images
from foveate.errors import FoveateError, MissingExtra, ModelError, StorageError, first_line
from foveate.export.card import intervention_of, model_card
from foveate.export.graphs import Graph, plan_of
from foveate.export.runner import SIDECAR, SUFFIX, Runner
from foveate.files import atomic_folder, write_json

log = logging.getLogger("foveate")
FORMATS = tuple(SUFFIX)
EXPORT_FORMAT = 1


@dataclass(frozen=True)
class Parity:
    """How closely the written graphs agree with the system.

    Attributes:
        images: how many were compared.
        largest: the largest absolute difference of a logit.
        spread: the largest absolute logit, to judge it by.
        same: share of images with the same predicted class.
    """

    images: int
    largest: float
    spread: float
    same: float

    def __str__(self) -> str:
        return (
            f"largest logit difference {self.largest:.2e} on {self.images} images (logits up to {self.spread:.1f}), "
            f"{100 * self.same:.0f} % the same class"
        )


def to_folder(
    system: System,
    out: str | Path,
    format: str = "onnx",
    *,
    images: Images | None = None,
    tolerance: float = 1e-3,
    data: GroupedDataset | None = None,
) -> Parity:
    """Write ``system`` as graphs to the folder ``out`` and compare them with it.

    The folder holds one file a graph, ``foveate-export.json`` (classes, preprocessing, what the graphs are called, how
    closely they agree) and a model card. :class:`Runner` runs it. Nothing stays on disk when the check fails.

    Args:
        system: fitted.
        out: a new folder, or one written by this function before.
        format: ``"onnx"`` (extra ``onnx``) or ``"torch-export"``.
        images: what to compare on, in any form ``predict`` takes; without them, 8 noise images.
        tolerance: the largest difference of a logit that is let pass, in units of the largest logit or 1.
        data: what the model card tells the accuracies on; without it, the card says that nothing was measured.

    >>> import tempfile, pathlib
    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=32)
    >>> base = fv.ERM("micro_resnet", epochs=1, progress=False).fit(data.train)
    >>> folder = pathlib.Path(tempfile.mkdtemp()) / "exported"
    >>> to_folder(base, folder, "torch-export").largest < 1e-4
    True
    >>> sorted(p.name for p in folder.iterdir())
    ['README.md', 'foveate-export.json', 'model.pt2']
    """
    from foveate import __version__

    if format not in SUFFIX:
        raise FoveateError(f"unknown format '{format}'; use {' or '.join(SUFFIX)}.")
    if format == "onnx":
        _require_onnx()
    place = Path(out)
    if place.exists() and not (place / SIDECAR).is_file() and (not place.is_dir() or any(place.iterdir())):
        raise StorageError(f"{place} is there and is not an export of foveate; choose a new folder.")
    plan = plan_of(system)
    graphs = plan.graphs
    described: dict[str, Any] = {
        "format": EXPORT_FORMAT, "foveate": __version__, "system": type(system).__name__, "written_as": format,
        "class_names": system.class_names_, "preprocess": system.preprocess_.to_dict(),
        "supervision": system.supervision(), "intervention": intervention_of(system), "steps": plan.steps,
        "graphs": [
            {"name": g.name, "file": g.name + SUFFIX[format], "outputs": list(g.outputs),
             "inputs": {k: ["batch", *v] for k, v in g.inputs.items()}, "boolean": sorted(g.bools)}
            for g in graphs
        ],
    }  # fmt: skip
    with atomic_folder(place) as folder:
        for graph in graphs:
            write_graph(graph, folder / (graph.name + SUFFIX[format]), format)
        write_json(folder / SIDECAR, described)
        parity = compare(system, Runner(folder, trust=True), images)
        if not parity.largest <= tolerance * max(1.0, parity.spread):
            raise ModelError(
                f"the exported graphs do not compute what the model computes: {parity}; allowed were "
                f"{tolerance:g} of the largest logit. Nothing was written. Try the other format or a larger tolerance."
            )
        described["parity"] = {**vars(parity), "tolerance": tolerance}
        write_json(folder / SIDECAR, described)
        (folder / "README.md").write_text(model_card(system, data, exported=described), encoding="utf-8")
    return parity


def compare(system: System, runner: Runner, images: Images | None = None) -> Parity:
    """The same images through the system and through the written graphs."""
    if images is None:
        rng = np.random.default_rng(0)
        images = rng.integers(0, 256, (8, *system.preprocess_.size, 3), dtype=np.uint8)
    extra: dict[str, Any] = {}
    if runner.steps.get("kind") == "masks":  # any masks will do: the same ones go both ways
        rng = np.random.default_rng(1)
        extra["masks"] = [torch.from_numpy((rng.random(system.preprocess_.size) < 0.5).astype(np.float32))] * len(
            images
        )
        given = torch.stack([system.preprocess_.prepare(i) for i in as_images(images)])
        images = [i for i in given]
    expected = system.predict_logits(images, **extra)
    # one by one and together: a graph that froze the batch size would only do one of them
    first, rest = ({k: v[:1] for k, v in extra.items()}, {k: v[1:] for k, v in extra.items()})
    found: NDArray[np.float32] = runner.predict_logits(images[:1], **first)
    if len(images) > 1:
        found = np.concatenate([found, runner.predict_logits(images[1:], **rest)])
    gap = np.abs(found - expected)
    largest = float(gap.max()) if np.isfinite(gap).all() else float("inf")
    return Parity(
        len(expected), largest, float(np.abs(expected).max()), float((found.argmax(1) == expected.argmax(1)).mean())
    )


def write_graph(graph: Graph, path: Path, format: str) -> None:
    """Trace ``graph`` with a free batch size and write it."""
    program = trace(graph)
    if format == "torch-export":
        buffer = io.BytesIO()  # the library's own writer ends the whole process when the disk is full
        torch.export.save(program, buffer)
        path.write_bytes(buffer.getbuffer())
        return
    with _quiet():
        made = torch.onnx.export(
            program, dynamo=True, input_names=list(graph.inputs), output_names=list(graph.outputs), verbose=False
        )
        assert made is not None
        made.save(str(path), external_data=False)


def write_soon(graph: Graph, path: Path) -> None:
    """Write ``graph`` as ONNX, recorded where that can be (:func:`record`) and else as :func:`write_graph` does it."""
    try:
        record(graph, path)
    except Exception as error:
        log.debug("'%s' is traced, not recorded: %s", graph.name, first_line(error))
        write_graph(graph, path, "onnx")


def record(graph: Graph, path: Path) -> None:
    """Write one run of ``graph`` as ONNX (PyTorch's older exporter), in a tenth of the time of :func:`write_graph`.

    For a graph that is used once and compared with its module. The recorder's warning that it may have frozen what
    depends on the images is an error here.
    """
    names, outputs = list(graph.inputs), list(graph.outputs)
    with _quiet(), torch.no_grad():
        warnings.simplefilter("error", torch.jit.TracerWarning)
        torch.onnx.export(
            graph.module, graph.example(3), str(path), dynamo=False, input_names=names, output_names=outputs,
            dynamic_axes={name: {0: "batch"} for name in (*names, *outputs)},
        )  # fmt: skip


def trace(graph: Graph) -> torch.export.ExportedProgram:
    """``graph`` as a ``torch.export`` program whose first axis is free."""
    batch = torch.export.Dim("batch", min=1)
    shapes = tuple({0: batch} for _ in graph.inputs)
    # three: one and two are sizes that tracing is tempted to take as fixed
    example = graph.example(3)
    first: Exception | None = None
    with _quiet(), torch.no_grad():
        # the strict tracer reads the Python code and keeps len(batch) free, but is several times slower
        for strict in (False, True):
            try:
                return torch.export.export(graph.module, example, dynamic_shapes=shapes, strict=strict)
            except Exception as error:
                first = first or error
    raise ModelError(
        f"the graph '{graph.name}' cannot be traced: {str(first).strip().splitlines()[0]} "
        "Some layer of the backbone does not allow it; export a model with another backbone."
    ) from first


def _require_onnx() -> None:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        try:
            __import__(package)
        except ImportError as error:
            raise MissingExtra(package, "onnx", "exporting to ONNX") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The exporters talk a lot, on every channel, and none of it is for the user."""
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(previous)

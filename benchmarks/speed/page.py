"""The page of the figures: Markdown from what was measured, and what to know to read it."""

from __future__ import annotations

from typing import Any

HEAD = """# Speed

What foveate's speed is compared with, measured in one run by

```
foveate bench speed
```

(`make bench`; from a clone, about 20 minutes on two cores). Every figure is a ratio of two times taken in alternating
turns of one process on one machine: the median of the turns, and in brackets the lowest and the highest. Above 1 is
quicker than what it is compared with. The figures as JSON: `benchmarks/results/speed.json`.
"""
FOOT = """
## What makes it quick

- **Convolutions** run with channels last in memory, weights included. The numbers are the same to the last bit as
  before, on the machine the known answers were made on (`FOVEATE_EXACT=1`).
- **`precision="auto"`** (`--set precision=auto`) trains in bf16 where the processor multiplies it in hardware and a
  trial in a process of its own goes well, in 16 bit on GPUs without bf16, and in 32 bit elsewhere. The default stays
  32 bit, which gives the same numbers on every machine.
- **Limits**: in 32 bit a convolutional network is bound by its multiplications. The table gives the GFLOP of a step,
  what the cores reach in a plain matrix product, and the share of it that a step reaches: where that is near 1, nothing
  is to be had without another arithmetic, neither here nor in the package compared with.
- **Images** are kept decoded in memory when they fit into a quarter of what is free. Those that do not are decoded
  ahead in threads, when two batches at the start show that threads are quicker; `workers=` decodes in processes.
- **JPEGs** are decoded by `simplejpeg` when it is there (`pip install "foveate[fast]"`): the pixels are Pillow's to
  the last bit. A JPEG at least twice as large as needed is decoded at a half, a quarter or an eighth of its size when
  that divides its sides; what the network sees differs by less than one grey level on average from the whole image.
- **Exported models** run in ONNX Runtime, which merges convolution, normalisation and activation.
- **Grad-CAM** goes back from the answer to the layer and no further: the values are the same, and nothing is computed
  backwards through the network before it.

## What did not help and is not in

- Fused optimisers: at most 3 % with ResNet-18 on a CPU, and the numbers change in their last digits. `foreach` takes
  the same steps to the last bit.
- `torch.compile`: 1.07x with the micro network, after one to four minutes of compiling. It is an option
  (`compile=True`) that goes on without compiling when it fails.
- `torch.inference_mode` in place of `no_grad`: within the noise, and what a network makes lazily in it could not be
  trained later.
- Channels-last arithmetic in the normalisation of a batch: three times slower than turning the result around.
- JPEGs reduced by factors that do not divide their sides: the picture is shifted by up to a third of a pixel against
  its mask, four grey levels on average at 32 px.
"""


def page(found: dict[str, Any]) -> str:
    """The whole page."""
    here = found["machine"]
    lines = [
        HEAD,
        f"Machine: {here['processor']}, {here['cores']} cores, {here['threads']} threads of PyTorch {here['torch']}, "
        f"{', '.join(here['instructions'])}, Python {here['python']}.",
        "",
        "| what | against | ratio | at least | seconds, ours / theirs | turns |",
        "|---|---|---|---|---|---|",
    ]
    skipped, notes = [], []
    for name, result in found["results"].items():
        if "skipped" in result:
            skipped.append(f"- `{name}`: {_plain(result['skipped'])}")
        for row in result.get("rows", []):
            if row["note"] not in notes:
                notes.append(row["note"])
            mark = f" [{notes.index(row['note']) + 1}]" if row["note"] else ""
            least = "" if row["target"] is None else f"{row['target']:g}x"
            lines.append(
                f"| {_plain(row['what'])}{mark} | {_plain(row['anchor'])} | {_ratio(row)} | {least} | "
                f"{_seconds(row)} | {row['turns']} |"
            )
    lines += ["", *(f"{i}. {_plain(note)}" for i, note in enumerate(notes, 1) if note)]
    if skipped:
        lines += ["", "Not measured:", "", *skipped]
    loads = sorted({r["load"] for r in found["results"].values() if r.get("load") is not None})
    if loads:
        lines += ["", f"Load of the machine when measurements began: {loads[0]:g} to {loads[-1]:g}."]
    commits = sorted({r["commit"] for r in found["results"].values()})
    lines += ["", f"Measured at commit {', '.join(commits)}.", FOOT]
    return "\n".join(lines)


def _ratio(row: dict[str, Any]) -> str:
    spread = "" if row["low"] is None else f" ({row['low']:.2f} to {row['high']:.2f})"
    met = "" if row["target"] is None else " ✓" if row["ratio"] >= row["target"] else " ✗"
    return f"**{row['ratio']:.2f}x**{spread}{met}"


def _seconds(row: dict[str, Any]) -> str:
    return "" if row["ours"] is None else f"{row['ours']:.2f} / {row['theirs']:.2f}"


def _plain(text: str) -> str:
    return " ".join(text.replace("|", "/").split())

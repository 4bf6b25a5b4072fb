"""The picture at the top of a method's page: its five decisions in a row, those that are its own in colour."""

# ruff: noqa: E501  (a path of a drawing is one line)
from __future__ import annotations

import math
from collections.abc import Callable
from html import escape

STEPS = ("look", "restrict", "extract", "pool", "decide")
Choice = tuple[str, str, bool]
"""What is drawn, what is written under it, and whether it is the method's own idea."""


def row(*choices: str) -> tuple[Choice, ...]:
    """Five choices, each ``"glyph: words"``; a star in front marks the method's own.

    >>> row("everywhere: everywhere", "nothing: –", "*frozen: frozen", "mean: mean", "line: a line")[2]
    ('frozen', 'frozen', True)
    """
    if len(choices) != len(STEPS):
        raise ValueError(f"a strip has {len(STEPS)} boxes, not {len(choices)}")
    pairs = [choice.partition(":") for choice in choices]
    return tuple((name.strip("* "), words.strip(), name.startswith("*")) for name, _, words in pairs)


SEES = ("everywhere: everywhere", "nothing: everything")
PROBE = ("frozen: frozen embedder", "cls: its own vector", "line: logistic regression")
CLIP = ("frozen: CLIP, frozen", "cls: its own vector", "text: text prompts")
PLAIN = (*SEES, "trained: trained network", "mean: average or CLS")

STRIPS = {
    "ERM": row(*PLAIN, "line: cross-entropy"),
    "Reweight": row(*PLAIN, "*weights: every group counts the same"),
    "Subsample": row(*PLAIN, "*weights: as many from every group"),
    "GroupDRO": row(*PLAIN, "*weights: the worst group counts most"),
    "CVaRDRO": row(*PLAIN, "*weights: the worst share of a batch"),
    "SpectralDecoupling": row(*PLAIN, "*line: squared logits cost"),
    "JTT": row(*SEES, "*twice: trained twice", "mean: average or CLS", "*weights: first errors count more"),
    "CnC": row(*SEES, "*twice: trained twice", "mean: average or CLS", "*contrast: contrast across guesses"),
    "DFR": row(*SEES, "frozen: the base, frozen", "mean: average or CLS", "*weights: refit on balanced groups"),
    "DAR": row(*SEES, "frozen: the base, frozen", "*queries: learned attention", "line: new head, balanced set"),
    "AIMProbe": row(*SEES, "frozen: frozen ViT", "*queries: one query per head", "line: cross-entropy"),
    "EPProbe": row(*SEES, "frozen: frozen ViT", "*queries: many queries, no projections", "line: cross-entropy"),
    "FullImage": row(*SEES, *PROBE),
    "CentreCrop": row("*centre: the middle", "*centre crop: a crop there", *PROBE),
    "RandomCrops": row("everywhere: anywhere", "*random crops: crops at random", *PROBE),
    "S2": row("everywhere: everywhere", "*tiles: tiles of several scales", "frozen: frozen embedder",
              "concat: scales side by side", "line: logistic regression"),
    "A2": row("*attention: a small ViT's attention", "*crops: crops around its peaks", "frozen: frozen embedder",
              "concat: crops side by side", "line: logistic regression"),
    "A2Adapter": row("*adapted: attention, corrected by an MLP", "*crops: the best candidates",
                     "frozen: frozen embedder", "concat: crops side by side", "line: logistic regression"),
    "A2ZeroShot": row("*attention: a small ViT's attention", "*crops: one crop", *CLIP),
    "ZeroShot": row(*SEES, *CLIP),
    "TTR": row("*clusters: clusters of CLIP patches", "*tokens: one cluster", *CLIP),
    "Glimpse": row("*attention: a small ViT's attention", "*tokens: the most attended patches",
                   "frozen: frozen ViT on those alone", "cls: its own vector", "line: logistic regression"),
    "EarlyMask": row("truth: a mask from outside", "*tokens: only its patches are read", "trained: ViT, trained",
                     "cls: CLS", "line: cross-entropy"),
    "LateMask": row("truth: a mask from outside", "*late: masked at the end", "trained: ViT, trained",
                    "mean: mean inside the mask", "line: cross-entropy"),
    "PDiscoFormer": row("*parts: discovered parts", "*late: soft part maps, late", "trained: ViT, tokens tuned",
                        "*part vectors: a vector per part", "line: cross-entropy + shaping"),
    "IFAM": row("*parts: discovered parts", "*tokens: only their patches are read", "*twice: a second ViT",
                "cls: CLS of the second", "line: cross-entropy + shaping"),
    "Pipeline": row("*attention: any look", "*crops: any restriction", "*frozen: any extractor", "*queries: any pool",
                    "*line: any decision"),
}  # fmt: skip
"""One row a system, as in the table of ``docs/systems.md``."""

W, H, GAP = 88, 66, 150
HOT, COLD, INK, ACCENT = "#e4572e", "#2e6fa3", "currentColor", "#c8601f"


def svg(name: str) -> str:
    """The strip of the system called ``name``, as SVG that takes its text colour from the page.

    >>> svg("A2").count("<g class") == len(STEPS)
    True
    """
    boxes = [_box(i, step, *choice) for i, (step, choice) in enumerate(zip(STEPS, STRIPS[name], strict=True))]
    arrows = [
        f'<path d="M{i * GAP - 16} 62h12m-5-4 5 4-5 4" fill="none" stroke="{INK}" opacity=".45"/>' for i in range(1, 5)
    ]
    words = ", ".join(f"{step}: {choice[1]}" for step, choice in zip(STEPS, STRIPS[name], strict=True))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {GAP * 5 - 12} 148" role="img" '
        f'aria-label="{escape(name)}. {escape(words)}" font-family="sans-serif">{"".join(boxes + arrows)}</svg>'
    )


def _box(place: int, step: str, kind: str, words: str, own: bool) -> str:
    x = place * GAP
    edge, width = (ACCENT, 2.4) if own else (INK, 0.8)
    weight = "bold" if own else "normal"
    frame = (
        f'<rect x="1.2" y="18" width="126" height="86" rx="7" fill="none" stroke="{edge}" stroke-width="{width}" '
        f'opacity="{1 if own else 0.35}"/>'
    )
    head = f'<text x="3" y="11" font-size="10" letter-spacing="1.2" fill="{INK}" opacity=".65">{step.upper()}</text>'
    lines = "".join(
        f'<text x="64" y="{119 + 13 * i}" font-size="11" font-weight="{weight}" text-anchor="middle" '
        f'fill="{INK}">{escape(line)}</text>'
        for i, line in enumerate(_wrapped(words))
    )
    return f'<g class="step" transform="translate({x} 0)">{head}{frame}<g transform="translate(20 28)">{GLYPHS[kind]()}</g>{lines}</g>'


def _wrapped(words: str, most: int = 22) -> list[str]:
    lines = [""]
    for word in words.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > most:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


# -- what is drawn: a small animal on a meadow, off the middle ------------------------------------


def _scene(opacity: float = 1.0) -> str:
    return (
        f'<g opacity="{opacity}"><rect width="{W}" height="{H}" rx="3" fill="#bcd9ea"/>'
        f'<path d="M0 38q22-8 44-2t44-4v31q0 3-3 3H3q-3 0-3-3z" fill="#8dbb74"/>'
        f'<circle cx="14" cy="12" r="6" fill="#f6dd7d"/>{_animal("#7a4a2b")}</g>'
    )


def _animal(colour: str, head: str | None = None, tail: str | None = None) -> str:
    return (
        f'<path d="M40 40q-9-2-8-9" fill="none" stroke="{tail or colour}" stroke-width="3"/>'
        f'<ellipse cx="51" cy="41" rx="13" ry="8" fill="{colour}"/>'
        f'<circle cx="65" cy="34" r="6.5" fill="{head or colour}"/>'
        f'<path d="M60 30l1-7 5 5zM66 28l5-5 0 7z" fill="{head or colour}"/>'
        f'<path d="M44 47v7m6-6v7m6-7v6m4-8v7" stroke="{colour}" stroke-width="3"/>'
    )


def _heat(x: float, y: float, r: float) -> str:
    rings = "".join(f'<circle cx="{x}" cy="{y}" r="{r * s}" fill="{HOT}" opacity=".28"/>' for s in (1, 0.72, 0.45))
    return _scene(0.75) + rings


def _square(x: float, y: float, side: float) -> str:
    return f'<rect x="{x}" y="{y}" width="{side}" height="{side}" fill="none" stroke="{HOT}" stroke-width="2"/>'


def _cut(*squares: tuple[float, float, float]) -> str:
    """The scene, pale, with squares of it as they are."""
    number = abs(hash(squares)) % 10**6
    holes = "".join(f'<rect x="{x}" y="{y}" width="{s}" height="{s}"/>' for x, y, s in squares)
    outlines = "".join(_square(*square) for square in squares)
    clip = f'<clipPath id="c{number}">{holes}</clipPath><g clip-path="url(#c{number})">{_scene()}</g>'
    return _scene(0.22) + clip + outlines


def _cells() -> str:
    """A grid of patches of which those on the animal are left."""
    side = 11
    kept = [
        (c, r)
        for r in range(6)
        for c in range(8)
        if (c * side + 5 - 54) ** 2 / 460 + (r * side + 5 - 39) ** 2 / 210 < 1
    ]
    holes = "".join(f'<rect x="{c * side}" y="{r * side}" width="{side - 1}" height="{side - 1}"/>' for c, r in kept)
    return (
        f'<rect width="{W}" height="{H}" rx="3" fill="{INK}" opacity=".1"/>'
        f'<clipPath id="cells">{holes}</clipPath><g clip-path="url(#cells)">{_scene()}</g>'
    )


def _regions() -> str:
    strokes = ((0, 0, 88, 36, "#7aa6c9"), (0, 36, 88, 30, "#96b46a"))
    back = "".join(f'<rect x="{x}" y="{y}" width="{w}" height="{h}" fill="{c}"/>' for x, y, w, h, c in strokes)
    return back + _animal(HOT)


def _net(x: float = 0, scale: float = 1.0) -> str:
    sizes = ((6, 54), (20, 42), (34, 28), (48, 18))
    bars = "".join(
        f'<rect x="{px}" y="{(H - h) / 2}" width="9" height="{h}" rx="2" fill="{COLD}" opacity=".75"/>'
        for px, h in sizes
    )
    return f'<g transform="translate({x} 0) scale({scale} 1)">{bars}</g>'


def _frozen() -> str:
    arms = "".join(
        f'<path d="M74 33L{74 + 9 * math.cos(a):.1f} {33 + 9 * math.sin(a):.1f}" stroke="{INK}" stroke-width="1.6"/>'
        for a in (k * math.pi / 3 for k in range(6))
    )
    return _net() + arms


def _trained() -> str:
    return _net() + f'<path d="M74 22q8 8 5 15-2 5-5 5t-5-5q-1-4 2-6 0 4 2 4 2-6 1-13z" fill="{HOT}"/>'


def _dots(sizes: tuple[float, ...]) -> str:
    spots = [(10 + 15 * (i % 3), 14 + 19 * (i // 3)) for i in range(9)]
    lines = "".join(
        f'<path d="M{x} {y}L74 33" stroke="{INK}" stroke-width="{0.5 + 2.2 * s:.1f}" opacity="{0.12 + 0.5 * s:.2f}"/>'
        for (x, y), s in zip(spots, sizes, strict=True)
    )
    spots_ = "".join(
        f'<circle cx="{x}" cy="{y}" r="{2.5 + 3 * s:.1f}" fill="{HOT if s > 0.5 else COLD}"/>'
        for (x, y), s in zip(spots, sizes, strict=True)
    )
    return lines + spots_ + f'<circle cx="76" cy="33" r="7" fill="{INK}" opacity=".75"/>'


def _bars(colours: tuple[str, ...]) -> str:
    return "".join(
        f'<rect x="12" y="{8 + 18 * i}" width="64" height="12" rx="3" fill="{c}" opacity=".8"/>'
        for i, c in enumerate(colours)
    )


POINTS = (
    (14, 16, 0),
    (24, 28, 0),
    (18, 44, 0),
    (34, 18, 0),
    (30, 38, 0),
    (58, 30, 1),
    (70, 20, 1),
    (66, 48, 1),
    (78, 36, 1),
)


def _scatter(large: tuple[int, ...] = ()) -> str:
    spots = "".join(
        f'<circle cx="{x}" cy="{y}" r="{6 if i in large else 3.2}" fill="{HOT if c else COLD}"/>'
        for i, (x, y, c) in enumerate(POINTS)
    )
    return spots + f'<path d="M40 64L50 2" stroke="{INK}" stroke-width="1.6" stroke-dasharray="4 3"/>'


def _contrast() -> str:
    return (
        f'<circle cx="20" cy="33" r="6" fill="{COLD}"/><circle cx="52" cy="16" r="6" fill="{COLD}"/>'
        f'<circle cx="62" cy="52" r="6" fill="{HOT}"/><path d="M26 30L46 19" stroke="{COLD}" stroke-width="2.4"/>'
        f'<path d="M26 36L56 50" stroke="{HOT}" stroke-width="2" stroke-dasharray="3 4"/>'
        f'<text x="34" y="18" font-size="10" fill="{INK}">near</text><text x="20" y="56" font-size="10" fill="{INK}">far</text>'
    )


def _text() -> str:
    lines = ("a photo of a cat", "a photo of a dog")
    return "".join(
        f'<rect x="-6" y="{10 + 26 * i}" width="100" height="19" rx="6" fill="{COLD}" opacity=".25"/>'
        f'<text x="44" y="{23 + 26 * i}" font-size="10.5" text-anchor="middle" fill="{INK}">{line}</text>'
        for i, line in enumerate(lines)
    )


def _tiles() -> str:
    return _scene() + f'<path d="M44 0v66M0 33h88" stroke="{HOT}" stroke-width="2"/>'


GLYPHS: dict[str, Callable[[], str]] = {
    "everywhere": lambda: _scene() + f'<rect width="{W}" height="{H}" rx="3" fill="{HOT}" opacity=".18"/>',
    "attention": lambda: _heat(55, 39, 21),
    "adapted": lambda: _heat(55, 39, 12) + f'<path d="M44 36L26 28m5-3-5 3 4 4" stroke="{INK}" fill="none" stroke-width="1.6"/>'
    + f'<circle cx="18" cy="26" r="9" fill="{HOT}" opacity=".6"/>',
    "centre": lambda: _heat(44, 33, 18),
    "parts": lambda: _scene(0.3) + _animal("#e4572e", "#3b7dd8", "#8f4fbf"),
    "clusters": _regions,
    "truth": lambda: _scene(0.3) + _animal("#1c1c1c"),
    "nothing": _scene,
    "crops": lambda: _cut((36, 22, 36)),
    "centre crop": lambda: _cut((27, 16, 34)),
    "random crops": lambda: _cut((4, 6, 24), (58, 38, 24)),
    "tokens": _cells,
    "late": lambda: _scene(0.7) + _square(34, 22, 40).replace('stroke-width="2"', 'stroke-width="2" stroke-dasharray="4 3"'),
    "tiles": _tiles,
    "frozen": _frozen,
    "trained": _trained,
    "twice": lambda: _net(0, 0.62) + _net(46, 0.62),
    "mean": lambda: _dots((0.3,) * 9),
    "queries": lambda: _dots((0, 0.1, 0, 0.1, 1, 0.8, 0, 0.6, 0.1)),
    "cls": lambda: _dots((0,) * 4 + (1,) + (0,) * 4),
    "concat": lambda: _bars((HOT, COLD)),
    "part vectors": lambda: _bars(("#e4572e", "#3b7dd8", "#8f4fbf")),
    "line": _scatter,
    "weights": lambda: _scatter((3, 5)),
    "contrast": _contrast,
    "text": _text,
}  # fmt: skip

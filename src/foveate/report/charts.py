"""Small drawings for the report: inline SVG that stretches with the page, with words for those who cannot see it.

Text stays outside the drawings, as HTML, so that it keeps its size on a phone and can be searched and copied.
"""

from __future__ import annotations

from markupsafe import Markup


def bar(
    value: float,
    low: float | None = None,
    high: float | None = None,
    *,
    words: str,
    tone: str = "plain",
    mark: float | None = None,
) -> Markup:
    """A horizontal bar on a scale from 0 to 1, with whiskers from ``low`` to ``high``.

    Args:
        value: length of the bar, in ``[0, 1]``.
        low, high: ends of the interval, or None for no whiskers.
        words: the same in words, read aloud instead of the drawing.
        tone: which colour of the style sheet (``t-<tone>``).
        mark: a reference value, drawn as a dashed line.

    >>> "whisker" in bar(0.5, 0.4, 0.6, words="half")
    True
    """
    parts = [
        '<svg class="bar t-{}" role="img" aria-label="{}" viewBox="0 0 100 16" preserveAspectRatio="none">',
        '<rect class="track" x="0" y="0" width="100" height="16"/>',
        *(f'<line class="tick" x1="{x}" x2="{x}" y1="0" y2="16"/>' for x in (25, 50, 75)),
        f'<rect class="fill" x="0" y="2" width="{_at(value)}" height="12"/>',
    ]
    if low is not None and high is not None:
        a, b = _at(low), _at(high)
        ends = ((a, b, 8, 8), (a, a, 5, 11), (b, b, 5, 11))
        for kind in ("halo", "whisker"):  # a halo first, so that the whisker shows on the bar and beside it
            parts += [f'<line class="{kind}" x1="{u}" x2="{v}" y1="{s}" y2="{t}"/>' for u, v, s, t in ends]
    if mark is not None:
        x = _at(mark)
        parts.append(f'<line class="mark" x1="{x}" x2="{x}" y1="0" y2="16"/>')
    parts.append("</svg>")
    return Markup("".join(parts)).format(tone, words)


def dumbbell(first: float, second: float, *, words: str) -> Markup:
    """Two dots on a scale from 0 to 1 with a line between them: right where a shortcut helps, and where it does not.

    >>> dumbbell(0.9, 0.4, words="90 and 40").count("circle")
    2
    """
    a, b = (8 + 1.44 * 100 * min(max(share, 0.0), 1.0) for share in (first, second))
    return Markup(
        '<svg class="dumbbell" role="img" aria-label="{}" viewBox="0 0 160 16">'
        '<line class="rail" x1="8" x2="152" y1="8" y2="8"/>'
        f'<line class="between" x1="{a:.1f}" x2="{b:.1f}" y1="8" y2="8"/>'
        f'<circle class="usual" cx="{a:.1f}" cy="8" r="6"/><circle class="unusual" cx="{b:.1f}" cy="8" r="4"/></svg>'
    ).format(words)


def _at(share: float) -> str:
    return f"{100 * min(max(share, 0.0), 1.0):.2f}".rstrip("0").rstrip(".")


def heat_style(share: float | None) -> Markup:
    """The ``style`` of a heat cell: how strongly it is tinted, from 0 to 1.

    >>> str(heat_style(0.5))
    '--h:0.500'
    """
    return Markup(f"--h:{0.0 if share is None else min(max(share, 0.0), 1.0):.3f}")

"""The page's own pieces of HTML. Every name from the data or a model is escaped here."""

from __future__ import annotations

from html import escape

from foveate.app.pictures import COLOURS, Picture, to_uri
from foveate.app.state import Session, Shown
from foveate.app.views import Change
from foveate.measure import GroupReport

LEAST = 224  # pixels that a picture is enlarged to


def message(text: str, kind: str = "note") -> str:
    """A line for the person: ``note``, ``good`` or ``bad``."""
    return f'<div class="fv-message fv-{kind}" role="status">{escape(text)}</div>' if text else ""


def figure(picture: Picture, caption: str) -> str:
    """A picture with a sentence under it."""
    told = escape(caption)
    return f'<figure><img src="{to_uri(picture, LEAST)}" alt="{told}"><figcaption>{told}</figcaption></figure>'


def verdict(model: str, shown: Shown, *, name: bool) -> str:
    """What a model says about an image: the class, right or wrong, and the chances as bars."""
    mark = {None: "", True: '<b class="fv-right">right</b>', False: '<b class="fv-wrong">wrong</b>'}[shown.correct]
    ranked = sorted(shown.chances.items(), key=lambda item: -item[1])[:5]
    bars = "".join(
        f'<div class="fv-chance"><span>{escape(c)}</span><i style="--share:{100 * p:.1f}%"></i>'
        f"<output>{100 * p:.1f} %</output></div>"
        for c, p in ranked
    )
    who = f'<span class="fv-model">{escape(model)}</span> ' if name else ""
    return (
        f'<div class="fv-verdict"><p>{who}says <strong class="fv-prediction" data-model="{escape(model)}">'
        f"{escape(shown.prediction)}</strong> {mark}</p>{bars}</div>"
    )


def detail(pairs: list[tuple[str, Shown]], title: str, group: str | None) -> str:
    """One image under every model."""
    image = pairs[0][1].image
    told = f"<b>{escape(title)}</b>" + (f", {escape(group)}" if group else ", your own image")
    rows = []
    for model, shown in pairs:
        pictures = []
        if shown.parts is None and shown.looking is not None:
            pictures.append(figure(shown.looking, f"where it looks ({shown.kind})"))
        if shown.parts is not None:
            pictures.append(figure(shown.parts, "its parts"))
        if shown.seen is not None:
            share = f" ({100 * shown.coverage:.0f} % of it)" if shown.coverage is not None else ""
            pictures.append(figure(shown.seen, f"what is let through{share}"))
        pictures += [figure(crop, f"crop {i + 1}") for i, crop in enumerate(shown.crops[:4])]
        rows.append(
            f'<section class="fv-row"><div class="fv-figures">{"".join(pictures)}</div>'
            f"{verdict(model, shown, name=len(pairs) > 1)}</section>"
        )
    first = figure(image, "the image")
    rows[0] = rows[0].replace('<div class="fv-figures">', f'<div class="fv-figures">{first}', 1)
    return f'<div class="fv-detail"><p class="fv-title">{told}</p>{"".join(rows)}</div>'


def figures(session: Session, model: str, change: Change) -> str:
    """Accuracy on validation, as loaded and as changed."""
    before = session.report(model)
    after = before if change == Change() else session.report(model, change=change)
    split = session.split
    n, whole = len(session.data[split]), session.whole[split]
    of = f"{n:,} {split} images" + (f" (of {whole:,}, an even sample)" if n < whole else "")
    cards = _card("worst group", before.worst_group, after.worst_group) if before.worst_group is not None else ""
    cards += _card("average", before.average, after.average)
    told = "".join(message(remark, "bad") for remark in after.remarks())
    return (
        f'<div class="fv-figs"><div class="fv-cards">{cards}</div>{told}{_table(before, after)}'
        f'<p class="fv-small">On {of}. Before, and the tick on each bar: without any intervention.</p></div>'
    )


def _card(name: str, before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return ""
    step = 100 * (after - before)
    kind = "up" if step > 0.05 else "down" if step < -0.05 else "same"
    moved = f'<span class="fv-{kind}">{step:+.1f}</span>' if kind != "same" else ""
    key = name.replace(" ", "-")
    return (
        f'<div class="fv-card"><span>{name}</span><strong data-figure="{key}">{100 * after:.1f} %</strong>'
        f"<small>{100 * before:.1f} % before {moved}</small></div>"
    )


def _table(before: GroupReport, after: GroupReport) -> str:
    rows_before = [(r.name, r.n, r.accuracy) for r in before.groups] or list(before.classes)
    rows_after = [(r.name, r.n, r.accuracy) for r in after.groups] or list(after.classes)
    lines = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{n:,}</td>'
        f'<td class="fv-bar"><i style="--share:{100 * now:.1f}%"></i><u style="--share:{100 * was:.1f}%"></u></td>'
        f"<td>{100 * now:.1f} %</td></tr>"
        for (name, n, was), (_, _, now) in zip(rows_before, rows_after, strict=True)
    )
    kind = "group" if before.groups else "class"
    head = f"<tr><th>{kind}</th><th>n</th><th></th><th>accuracy</th></tr>"
    return f"<table><thead>{head}</thead><tbody>{lines}</tbody></table>"


def part_css() -> str:
    """Colour chips beside the check boxes, in the colours of the parts picture."""
    rules = [
        f"#parts label:nth-of-type({len(COLOURS)}n+{k + 1}) span::before {{ background: rgb{colour}; }}"
        for k, colour in enumerate(COLOURS)
    ]
    return "\n".join(rules)

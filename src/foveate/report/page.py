"""From findings to the page: decides what is shown and in which order; the looks are in the folder ``looks``."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from foveate.measure import GroupRow, columns
from foveate.report.charts import bar, dumbbell, heat_style
from foveate.report.discovery import Discovery
from foveate.report.discovery.before_after import BeforeAfter
from foveate.report.discovery.tables import (
    MASK_TESTS,
    ExchangeShots,
    ExperimentRow,
    SliceCard,
    experiments,
    probe_table,
    shots,
    slice_cards,
)
from foveate.report.examples import FEW_MODELS, PICTURE_SIDE, SMALL_SIDE, Example, ExampleAnswer
from foveate.report.findings import Findings, ModelRecord
from foveate.report.levels import Level
from foveate.report.page_tables import (
    WORST_GROUPS,
    Confusion,
    GroupBars,
    accuracy_grid,
    confusions,
    experiment_matrix,
    group_bars,
    group_matrix,
)
from foveate.report.sentences import of_100, overall, percent, points, sections
from foveate.report.sentences.limits import not_covered, reach
from foveate.report.sentences.plain import LEVEL_MEANINGS, LEVEL_NAMES


def render(findings: Findings, pictures: Sequence[Example], discoveries: Mapping[str, Discovery] | None = None) -> str:
    """The whole page as text. Names from the data are escaped: they cannot add markup."""
    found = discoveries or {}
    looks = {entry.name: entry.read_text("utf-8") for entry in files("foveate.report").joinpath("looks").iterdir()}
    environment = Environment(
        loader=DictLoader(looks), autoescape=True, undefined=StrictUndefined, finalize=_keep_together,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(percent=percent, points=points, of_100=of_100)
    said = confusions(findings)
    models = in_order(
        [
            _model_page(model, findings, table, pictures, found.get(model.name))
            for model, table in zip(findings.models, said.tables, strict=True)
        ]
    )
    environment.globals.update(
        bar=bar, dumbbell=dumbbell, heat_style=heat_style, f=findings, d=findings.dataset, what=findings.attribute,
        several=len(models) > 1, level_names=LEVEL_NAMES, level_meanings=LEVEL_MEANINGS, mask_tests=MASK_TESTS,
        worst_groups=WORST_GROUPS,
    )  # fmt: skip
    names = [page.name for page in models]
    return environment.get_template("audit.html").render(
        title=findings.title,
        style=Markup(looks["style.css"]),
        script=Markup(looks["page.js"]),
        script_hash=base64.b64encode(hashlib.sha256(looks["page.js"].encode()).digest()).decode(),
        models=models,
        lead=models[0],
        proof=None if models[0].shown is None else shots(models[0].shown),
        heading=models[0].record.verdict.plain if len(models) == 1 else overall(_levels(models)),
        levels=[level for level in Level if level in _levels(models).values()],
        confusion=said,
        groups=group_matrix(findings.model_copy(update={"models": [page.record for page in models]})),
        exchanged=experiment_matrix(names, {page.name: page.experiments for page in models}),
        pictures=pictures,
        probes=probe_table(found) if found else None,
        object_source=next(iter(found.values())).base.objects.words if found else "",
        not_covered=not_covered(),
    )


def _keep_together(value: Any) -> Any:
    """No line break between a number and its per cent sign."""
    plain = isinstance(value, str) and not isinstance(value, Markup)
    return re.sub(r"(?<=\d) %", "\u00a0%", value) if plain else value


@dataclass(frozen=True)
class Tile:
    """A figure of one model: its key, name, value as text, and what it means."""

    key: str
    name: str
    text: str
    meaning: str


@dataclass(frozen=True)
class ModelPage:
    """What the page shows of one model.

    Attributes:
        shown: the exchange that shows the verdict.
        mistake: where there is none, its worst mistake among the examples, with its answer.
        tiles: its figures.
        reach: where nothing was found, what was tested and what it would have seen.
        turned: further answers that turned with the same cue.
    """

    record: ModelRecord
    shown: BeforeAfter | None
    mistake: tuple[Example, ExampleAnswer] | None
    tiles: list[Tile]
    groups: GroupBars
    grid: list[tuple[str, list[GroupRow | None]]]
    confusion: Confusion
    experiments: list[ExperimentRow]
    apart: str
    turned: list[ExchangeShots]
    slices: list[SliceCard]
    reach: list[str]

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def level(self) -> Level:
        return self.record.verdict.level

    @property
    def gap(self) -> float:
        """Between the two numbers of the verdict; 0 where there are none."""
        shares = [side.accuracy or 0.0 for side in self.record.verdict.numbers]
        return shares[0] - shares[1] if len(shares) == 2 else 0.0


def in_order(models: Sequence[ModelPage]) -> list[ModelPage]:
    """The models with the worst verdict first, and of equal ones the widest gap."""
    return sorted(models, key=lambda page: (page.level.rank, -page.gap))


def _levels(models: Sequence[ModelPage]) -> dict[str, Level]:
    return {page.name: page.level for page in models}


def _model_page(
    model: ModelRecord, findings: Findings, table: Confusion, pictures: Sequence[Example], found: Discovery | None
) -> ModelPage:
    many = len(findings.models)
    few = many <= FEW_MODELS  # the more models, the fewer and smaller pictures of each: the page stays a small file
    all_shown = [] if found is None else [*found.turned, *found.held]
    about = next((entry for entry in all_shown if _proves(model, entry.cue.key)), None)
    turned = [] if found is None else found.turned[: 4 if few else 2]
    masks = None if found is None else found.masks
    return ModelPage(
        record=model,
        shown=about,
        mistake=_mistake(model.name, pictures) if about is None else None,
        tiles=_tiles(model),
        groups=group_bars(model),
        grid=accuracy_grid(model, findings),
        confusion=table,
        experiments=[] if found is None else experiments(found),
        apart="" if masks is None else sections.taken_apart(model.name, masks),
        turned=[shots(entry, PICTURE_SIDE if few else SMALL_SIDE) for entry in turned],
        slices=[] if found is None else slice_cards(found, max(1, 6 // many)),
        reach=_reach(model, findings, found) if model.verdict.level is Level.NONE else [],
    )


def _proves(model: ModelRecord, cue: str) -> bool:
    """Whether an exchange of ``cue`` shows what the verdict says."""
    told = model.verdict
    return told.level is Level.NONE if not told.level.accuses else cue in told.cues


def _reach(model: ModelRecord, findings: Findings, found: Discovery | None) -> list[str]:
    return reach(None if found is None else found.judgement, model.verdict.smallest_gap, findings.attribute)


def _mistake(model: str, pictures: Sequence[Example]) -> tuple[Example, ExampleAnswer] | None:
    for example in pictures:
        for answer in example.answers:
            if answer.model == model and not answer.right:
                return example, answer
    return None


def _tiles(model: ModelRecord) -> list[Tile]:
    out = []
    for column in columns("audit"):
        value = model.figures.get(column.name)
        if value is not None:
            text = percent(value) if column.unit == "%" else column.text(value)
            meaning = (model.worst or "") if column.name == "worst_group" else column.note
            out.append(Tile(column.name, column.title.capitalize(), text, meaning))
    return out

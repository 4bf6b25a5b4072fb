"""The form a program has on disk, checked field by field."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from foveate.errors import ModelError
from foveate.extract.traced.program import DTYPES, FORMATS, MOST_STEPS

_NAME = re.compile(r"[\w.\-/]{1,180}")
_LARGEST = 2**40


class WeightForm(BaseModel):
    """Shape and type of one weight."""

    model_config = ConfigDict(extra="forbid")

    shape: list[Annotated[int, Field(ge=0, le=2**31, strict=True)]] = Field(max_length=8)
    dtype: str

    @field_validator("dtype")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in DTYPES:
            raise ValueError(f"a weight is one of {', '.join(DTYPES)}; found '{value[:30]}'")
        return value


class StepForm(BaseModel):
    """One call of an operator."""

    model_config = ConfigDict(extra="forbid")

    op: str = Field(max_length=80)
    args: list[Any] = Field(default_factory=list, max_length=64)
    kwargs: dict[str, Any] = Field(default_factory=dict, max_length=16)

    @field_validator("args", "kwargs")
    @classmethod
    def _plain(cls, value: Any) -> Any:
        for one in value if isinstance(value, list) else value.values():
            _check(one)
        return value


class ProgramForm(BaseModel):
    """Weights and steps."""

    model_config = ConfigDict(extra="forbid")

    weights: dict[str, WeightForm] = Field(max_length=MOST_STEPS)
    steps: list[StepForm] = Field(max_length=MOST_STEPS)

    @field_validator("weights")
    @classmethod
    def _named(cls, value: dict[str, WeightForm]) -> dict[str, WeightForm]:
        for name in value:
            if not _NAME.fullmatch(name):
                raise ValueError(f"'{name[:40]}' is no name of a weight")
        return value


def _check(value: Any, depth: int = 0) -> None:
    """An argument: a plain value, a list, or one of the words of a step."""
    if value is None or isinstance(value, (bool, float)):
        return
    if isinstance(value, int):
        if abs(value) > _LARGEST and value not in (2**63 - 1, -(2**63)):  # "to the end" of a slice
            raise ValueError(f"{value} is too large for an argument")
    elif isinstance(value, str):
        if not re.fullmatch(r"[\w ,>\-.]{0,60}", value):
            raise ValueError(f"'{value[:40]}' is no word for an argument")
    elif isinstance(value, list):
        if depth > 3 or len(value) > 4096:
            raise ValueError("an argument is a list of lists of lists, or too long")
        for one in value:
            _check(one, depth + 1)
    elif not isinstance(value, dict) or len(value) != 1 or not _known_word(*next(iter(value.items()))):
        raise ValueError(f"{str(value)[:60]} is no argument of a step")


def _known_word(word: str, value: Any) -> bool:
    if word in ("step", "batch"):
        return type(value) is int and abs(value) <= 2**31
    known: dict[str, Container[str]] = {
        "dtype": DTYPES,
        "format": FORMATS,
        "device": {""},
        "number": {"inf", "-inf", "nan"},
    }
    return isinstance(value, str) and (word == "weight" or value in known.get(word, {}))


def read_program(values: Any) -> ProgramForm:
    """The form, when ``values`` has it."""
    try:
        return ProgramForm.model_validate(values)
    except (ValidationError, RecursionError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": "nested too deeply"}
        place = ".".join(str(part) for part in first["loc"])
        raise ModelError(f"a saved network cannot be read: {place}: {first['msg']}.") from error

"""Types of recipe values: numbers in ranges, paths, language codes, and the base of sections."""

from pathlib import Path
from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
)

from metaxlm.errors import MetaXLMError
from metaxlm.files import check_name

Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]


def _parse_path(value: object) -> object:
    """Convert text to a path, which strict mode does not do."""
    if not isinstance(value, str):
        return value
    if "\0" in value or any(len(part.encode()) > 255 for part in value.split("/")):
        raise ValueError("is not the name of a file")
    return Path(value)


def _check(name: str, what: str) -> str:
    try:
        return check_name(name, what)
    except MetaXLMError as error:
        raise ValueError(str(error)) from error


def _parse_exponent(value: object) -> object:
    """Convert `1e-4`, which YAML 1.1 reads as text (it requires `1.0e-4`)."""
    try:
        return float(value) if isinstance(value, str) and "e" in value.lower() else value
    except ValueError:
        return value


Location = Annotated[Path, BeforeValidator(_parse_path)]
LanguageCode = Annotated[
    str,
    BeforeValidator(lambda v: "no" if v is False else v),  # YAML 1.1 reads Norwegian as false
    AfterValidator(lambda v: _check(v, "language")),
]
VariantName = Annotated[str, AfterValidator(lambda v: _check(v, "variant"))]
Real = Annotated[float, BeforeValidator(_parse_exponent), Field(ge=0)]

# The tags limit an error to the form that was written; `recipe_file.py` removes them from messages.
Scheduled = Annotated[
    Annotated[Fraction, Tag("<number>")]
    | Annotated[dict[Count, Fraction], Field(min_length=1), Tag("<steps>")],
    Discriminator(lambda value: "<steps>" if isinstance(value, dict) else "<number>"),
]
"""One value for the whole training run, or values at steps with linear interpolation."""


class Section(BaseModel):
    """Base of every part of a recipe: strict types, no unknown keys, immutable."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True
    )

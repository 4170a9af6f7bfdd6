"""What values of a recipe are made of: numbers in ranges, paths, language codes, and sections."""

from __future__ import annotations

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
    """Strict mode wants Path objects; YAML has only strings."""
    if not isinstance(value, str):
        return value
    if "\0" in value or any(len(part.encode()) > 255 for part in value.split("/")):
        raise ValueError("is not the name of a file")
    return Path(value)


Location = Annotated[Path, BeforeValidator(_parse_path)]


# YAML 1.1 reads an unquoted `no`, which is Norwegian, as false.
LanguageCode = Annotated[
    str,
    BeforeValidator(lambda v: "no" if v is False else v),
    AfterValidator(lambda v: _check(v, "language")),
]
VariantName = Annotated[str, AfterValidator(lambda v: _check(v, "variant"))]


def _check(name: str, what: str) -> str:
    try:
        return check_name(name, what)
    except MetaXLMError as error:
        raise ValueError(str(error)) from error


def _parse_exponent(value: object) -> object:
    """YAML 1.1 reads `1e-4` as text because it wants `1.0e-4`; people write the former."""
    try:
        return float(value) if isinstance(value, str) and "e" in value.lower() else value
    except ValueError:
        return value


Real = Annotated[float, BeforeValidator(_parse_exponent), Field(ge=0)]


# The tags keep a complaint to the kind that was written; `recipe_file` leaves them out.
Scheduled = Annotated[
    Annotated[Fraction, Tag("<number>")]
    | Annotated[dict[Count, Fraction], Field(min_length=1), Tag("<steps>")],
    Discriminator(lambda value: "<steps>" if isinstance(value, dict) else "<number>"),
]
"""One value for the whole training, or values at steps with straight lines between them."""


class Section(BaseModel):
    """Base of every part of a recipe: strict types, no unknown keys, immutable."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True
    )

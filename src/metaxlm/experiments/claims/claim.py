"""A claim and its verdict: `claims.yaml` comes in, claims go out.

The file is meant to be read and extended by a person; a mistake in it is named with its claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import yaml

from metaxlm.errors import MetaXLMError

Outcome = Literal["holds", "fails", "cannot be told"]

_TEXTS = ("name", "statement", "section", "paper", "test", "check")


@dataclass(frozen=True)
class Claim:
    """One thing the paper says, and how it is tested."""

    name: str
    statement: str
    section: str
    """Where in the paper."""
    paper: str
    """The paper's own numbers."""
    test: str
    """How it is judged, in words."""
    check: str
    """Name of the function that judges it (`judgment.CHECKS`)."""
    parameters: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """What the check is called with."""


@dataclass(frozen=True)
class Judgment:
    """What a check finds."""

    outcome: Outcome
    numbers: tuple[tuple[str, str], ...]
    reason: str


@dataclass(frozen=True)
class Verdict:
    """A claim with what our own numbers say about it."""

    claim: Claim
    outcome: Outcome
    numbers: tuple[tuple[str, str], ...]
    """Label and number, as text."""
    reason: str
    """One or two sentences."""


class MissingEvidenceError(Exception):
    """What a check needs is not among the results; the claim cannot be told."""


@cache
def list_claims() -> list[Claim]:
    """Return the paper's claims in the order of its sections."""
    text = (files("metaxlm.experiments.claims") / "claims.yaml").read_text(encoding="utf-8")
    return parse_claims(text, "claims.yaml")


def parse_claims(text: str, name: str) -> list[Claim]:
    """Read claims; an entry that is not whole, or a name used twice, is an error."""
    try:
        entries = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise MetaXLMError(f"{name}:{line}: not YAML: {error.problem}") from error
    if not isinstance(entries, list):
        raise MetaXLMError(f"{name}: a list of claims is expected")
    claims: dict[str, Claim] = {}
    for number, entry in enumerate(entries, start=1):
        known = entry if isinstance(entry, dict) else {}
        title = known.get("name", f"claim {number}")
        missing = [key for key in _TEXTS if not isinstance(known.get(key), str)]
        if missing:
            raise MetaXLMError(f"{name}: {title}: {missing[0]} must be there, and be text")
        if title in claims:
            raise MetaXLMError(f"{name}: {title}: there are two claims of this name")
        texts = {key: " ".join(known[key].split()) for key in _TEXTS}
        rest = {key: value for key, value in known.items() if key not in _TEXTS}
        claims[title] = Claim(**texts, parameters=rest)
    return list(claims.values())

"""The report's colors: one for each variant, everywhere the same, in a light and a dark tone.

The hues are told apart with the common color-vision deficiencies, and every variant has a marker
of its own as well; of two that share a hue, the lines are dashed in different ways. Light tones
stand on white at 3:1 or better, dark ones on the page's dark background. Saved figures use the
light tones; the page swaps them through CSS variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Tone:
    """A CSS variable with its value on a light and on a dark page."""

    variable: str
    light: str
    dark: str


INK = Tone("--figure-ink", "#3a3f47", "#c3c8d0")
GRID = Tone("--figure-grid", "#e3e5e9", "#32363d")

_VARIANTS = (
    Tone("--variant-0", "#6f7682", "#a4abb7"),
    Tone("--variant-1", "#0b6fad", "#5fb4ea"),
    Tone("--variant-2", "#c8500a", "#f59a57"),
    Tone("--variant-3", "#00805c", "#3ccb9f"),
    Tone("--variant-4", "#a2478a", "#e193cc"),
    Tone("--variant-5", "#857000", "#d9c142"),
    Tone("--variant-6", "#5a4fcf", "#a9a1fb"),
)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p", "h", "8", "*", "<", ">", "d")
_DASHES = ("--", "-", "-", "-.", "-.", ":", ":", "-", "--", "--", "-", "-", "-", "-")
"""Twice as many as colors: the second seven are for variants that take a color again."""
_FIXED_PLACES = {"xlm": 0, "metaxlm": 1, "metaxlm+dict": 2}

_RULES = {
    "special": Tone("--rule-special", "#2e3a36", "#e8efec"),
    "direct": Tone("--rule-direct", "#17795e", "#2fa583"),
    "normalized": Tone("--rule-normalized", "#8cc9b5", "#1f5d4b"),
    "dictionary": Tone("--rule-dictionary", "#8a6fc0", "#a88fe0"),
    "filler": Tone("--rule-filler", "#dcdfe4", "#3c4149"),
}
_OTHER_RULE = Tone("--rule-other", "#c9a227", "#d9b84a")

LINKS = {
    "sure": Tone("--link-sure", "#0b6fad", "#5fb4ea"),
    "possible": Tone("--link-possible", "#17795e", "#3ccb9f"),
    "wrong": Tone("--link-wrong", "#c8500a", "#f59a57"),
    "missed": Tone("--link-missed", "#7d838e", "#8d95a2"),
}


@dataclass(frozen=True)
class Look:
    """How a variant is drawn."""

    place: int
    tone: Tone
    marker: str
    dash: str

    @property
    def css_class(self) -> str:
        """The class of a swatch in this variant's color."""
        return f"v{self.place}"


def assign_looks(variants: Sequence[str]) -> dict[str, Look]:
    """Give every variant its look; the paper's three keep theirs whatever else is in the run."""
    taken = {_FIXED_PLACES[variant] for variant in variants if variant in _FIXED_PLACES}
    free = [place for place in range(len(_VARIANTS)) if place not in taken]
    looks, used = {}, 0
    for variant in variants:
        place = _FIXED_PLACES.get(variant)
        if place is None:
            times, chosen = divmod(used, len(free))
            place = free[chosen] + times % 2 * len(_VARIANTS)
            used += 1
        color = place % len(_VARIANTS)
        looks[variant] = Look(color, _VARIANTS[color], _MARKERS[place], _DASHES[place])
    return looks


def choose_rule_tone(kind: str) -> Tone:
    """Return the color of a kind of matching rule."""
    return _RULES.get(kind, _OTHER_RULE)


def list_tones() -> list[Tone]:
    """List every color of the report."""
    return [INK, GRID, *_VARIANTS, *_RULES.values(), _OTHER_RULE, *LINKS.values()]


def write_css_variables() -> str:
    """Return the rules that give every color its light and its dark value."""
    light = "".join(f"{tone.variable}:{tone.light};" for tone in list_tones())
    dark = "".join(f"{tone.variable}:{tone.dark};" for tone in list_tones())
    swatches = "".join(
        f".v{place}{{--own:var({tone.variable})}}" for place, tone in enumerate(_VARIANTS)
    )
    return (
        f":root{{{light}}}\n@media (prefers-color-scheme: dark){{:root{{{dark}}}}}\n"
        f"@media print{{:root{{{light}}}}}\n{swatches}\n"
    )

"""The look of reports: colors, the style of figures, SVG and PDF files, and page templates.

Every variant has one color, marker and dash everywhere. The hues differ for readers with the common
color-vision deficiencies; variants that share a hue are dashed differently. Files use the light
tones; a page's SVG has its colors as CSS variables, so that it follows the reader's light or dark
setting. The same figure gives the same bytes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from metaxlm.files import atomic_file, write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Link = tuple[int, int]  # places of a word and of its translation
TEMPLATES = Path(__file__).parent / "templates"
FONT_STACK = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


@dataclass(frozen=True)
class Tone:
    """A CSS variable with its value on a light and on a dark page."""

    variable: str
    light: str
    dark: str


INK = Tone("--figure-ink", "#3a3f47", "#c3c8d0")
GRID = Tone("--figure-grid", "#e3e5e9", "#32363d")
_HUES = (
    ("#6f7682", "#a4abb7"), ("#0b6fad", "#5fb4ea"), ("#c8500a", "#f59a57"), ("#00805c", "#3ccb9f"),
    ("#a2478a", "#e193cc"), ("#857000", "#d9c142"), ("#5a4fcf", "#a9a1fb"),
)  # fmt: skip
_VARIANTS = [Tone(f"--variant-{k}", *hue) for k, hue in enumerate(_HUES)]
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p", "h", "8", "*", "<", ">", "d")
_DASHES = ("--", "-", "-", "-.", "-.", ":", ":", "-", "--", "--", "-", "-", "-", "-")
"""Twice as many as colors: the second seven are for variants that share a color."""
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
LINK_KINDS = {
    "sure": ("●", "right"), "possible": ("○", "right (possible link)"), "wrong": ("×", "wrong"),
    "missed": ("–", "missed"),
}  # fmt: skip
"""Symbols and names of word links."""
_TONES = (INK, GRID, *_VARIANTS, *_RULES.values(), _OTHER_RULE, *LINKS.values())


@dataclass(frozen=True)
class Look:
    """How a variant is drawn."""

    css_class: str  # of a swatch in this variant's color
    color: str  # the color in files
    marker: str
    dash: str


def assign_looks(variants: Sequence[str]) -> dict[str, Look]:
    """Give every variant its look; the paper's three keep theirs in every run."""
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
        light = _VARIANTS[color].light
        looks[variant] = Look(f"v{color}", light, _MARKERS[place], _DASHES[place])
    return looks


def choose_rule_tone(kind: str) -> Tone:
    """Return the color of a kind of matching rule."""
    return _RULES.get(kind, _OTHER_RULE)


def classify_links(
    predicted: Iterable[Link], sure: Iterable[Link], possible: Iterable[Link]
) -> dict[str, list[Link]]:
    """Sort links into right and sure, right and only possible, wrong, and missed."""
    links, certain = set(predicted), set(sure)
    allowed = certain | set(possible)
    return {
        "missed": sorted(certain - links),
        "wrong": sorted(links - allowed),
        "possible": sorted((links & allowed) - certain),
        "sure": sorted(links & certain),
    }


def describe_links(links: Mapping[str, Sequence[Link]]) -> str:
    """Count the kinds of links in words."""
    right = len(links["sure"]) + len(links["possible"])
    return f"{right} right, {len(links['wrong'])} wrong, {len(links['missed'])} missed"


def write_css_variables() -> str:
    """Return the rules that give every color its light and its dark value."""
    light = "".join(f"{tone.variable}:{tone.light};" for tone in _TONES)
    dark = "".join(f"{tone.variable}:{tone.dark};" for tone in _TONES)
    own = {f"v{place}": tone for place, tone in enumerate(_VARIANTS)}
    own |= {f"link-{kind}": tone for kind, tone in LINKS.items()}
    swatches = "".join(f".{name}{{--own:var({tone.variable})}}" for name, tone in own.items())
    return (
        f":root{{{light}}}\n@media (prefers-color-scheme: dark){{:root{{{dark}}}}}\n"
        f"@media print{{:root{{{light}}}}}\n{swatches}\n"
    )


@contextmanager
def drawing_style() -> Iterator[None]:
    """Draw in the report's style; the settings of the process stay as they are."""
    from matplotlib import style

    with style.context(TEMPLATES / "figures.mplstyle", after_reset=True):
        yield


def render_pdf(figure: Figure) -> bytes:
    """Return the figure as PDF."""
    from matplotlib.backends.backend_pdf import FigureCanvasPdf

    buffer = io.BytesIO()
    with drawing_style(), _small_fonts():
        metadata = dict.fromkeys(("CreationDate", "Creator", "Producer"))
        FigureCanvasPdf(figure).print_pdf(buffer, metadata=metadata)
    figure.set_layout_engine("none")  # the next file need not compute the layout again
    return buffer.getvalue()


@contextmanager
def _small_fonts() -> Iterator[None]:
    """Embed fonts without the tables for text layout: PDF does not use them, subsetting is slow."""
    from fontTools.subset import Options  # type: ignore[import-untyped]

    before = getattr(Options, "_drop_tables_default", None)  # private: may be renamed one day
    if before is not None:
        Options._drop_tables_default = [*before, "GDEF", "GPOS", "GSUB"]
    try:
        yield
    finally:
        if before is not None:
            Options._drop_tables_default = before


def render_svg(figure: Figure) -> str:
    """Return the figure as an SVG file with text as text and the light colors."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    buffer = io.StringIO()
    with drawing_style():
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        FigureCanvasSVG(figure).print_svg(buffer, metadata=metadata)
    figure.set_layout_engine("none")

    def round_path(path: re.Match[str]) -> str:  # to a hundredth of a point
        return re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", path[0])

    text = re.sub(r' d="[^"]*"', round_path, buffer.getvalue())
    return text.replace("'DejaVu Sans'", FONT_STACK)


def embed_svg(svg: str, name: str, title: str) -> str:
    """Turn an SVG file into an element of a page: named, colored by CSS, with unique ids."""
    element = svg[svg.index("<svg") :]
    element = re.sub(r"<metadata>.*?</metadata>\s*|<!--.*?-->\s*", "", element, flags=re.DOTALL)
    element = element.replace("xlink:href", "href")
    element = re.sub(r'(\bid="|\bhref="#|url\(#)', rf"\1{name}-", element)
    element = element.replace("fill: #ffffff", "fill: none")  # the page has its own background
    for tone in _TONES:
        element = element.replace(tone.light, f"var({tone.variable})")
    box = re.search(r'viewBox="([^"]+)"', element)
    assert box is not None, "matplotlib writes a viewBox"
    opening = f'<svg viewBox="{box[1]}" role="img" aria-label="{escape(title)}">'
    return re.sub(r"^<svg[^>]*>", opening, element, count=1)


def write_figure(folder: Path, name: str, figure: Figure) -> str:
    """Write a figure as SVG and PDF; return the SVG."""
    svg = render_svg(figure)
    write_text(folder / f"{name}.svg", svg)
    with atomic_file(folder / f"{name}.pdf") as temporary:
        temporary.write_bytes(render_pdf(figure))
    return svg


def make_environment(*, is_html: bool = True) -> Environment:
    """Return the loader of templates; a value that a page needs and lacks is an error."""
    return Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=is_html, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip

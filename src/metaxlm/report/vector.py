"""A figure as SVG and PDF files, and as SVG inside the page.

In comes a matplotlib figure, out come bytes that are the same for the same figure: no dates, a
fixed salt for ids. Text stays text. The page's SVG has its colors as CSS variables, so that it
follows the reader's light or dark setting, and ids that do not clash with another figure's.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape

import matplotlib
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from metaxlm.report.palette import GRID, INK, list_tones

FONT_STACK = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

_SETTINGS = {
    "svg.hashsalt": "metaxlm",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": INK.light,
    "axes.labelcolor": INK.light,
    "axes.titlecolor": INK.light,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": GRID.light,
    "grid.linewidth": 0.8,
    "xtick.color": INK.light,
    "ytick.color": INK.light,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "legend.labelcolor": INK.light,
    "text.color": INK.light,
    "text.parse_math": False,
    "figure.constrained_layout.use": True,
}


@contextmanager
def drawing_style() -> Iterator[None]:
    """Draw in the report's style; the settings of the process are untouched afterwards."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        yield


def render_pdf(figure: Figure) -> bytes:
    """Return the figure as PDF."""
    buffer = io.BytesIO()
    with drawing_style():
        FigureCanvasPdf(figure).print_pdf(
            buffer, metadata={"CreationDate": None, "Creator": None, "Producer": None}
        )
    figure.set_layout_engine("none")  # once laid out, it need not be laid out again
    return buffer.getvalue()


def render_svg(figure: Figure) -> str:
    """Return the figure as an SVG file with its own fonts and the light colors."""
    buffer = io.StringIO()
    with drawing_style():
        FigureCanvasSVG(figure).print_svg(
            buffer, metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
        )
    figure.set_layout_engine("none")
    text = re.sub(r' d="[^"]*"', _round_path, buffer.getvalue())
    return text.replace("'DejaVu Sans'", FONT_STACK)


def _round_path(found: re.Match[str]) -> str:
    """Write a path's numbers with two digits: a hundredth of a point is seen by nobody."""
    return re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", found[0])


def embed_svg(svg: str, name: str, title: str) -> str:
    """Turn an SVG file into an element of the page: named, colored by CSS, free of clashes."""
    element = svg[svg.index("<svg") :]
    element = re.sub(r"<metadata>.*?</metadata>\s*", "", element, flags=re.DOTALL)
    element = re.sub(r"<!--.*?-->\s*", "", element, flags=re.DOTALL)
    element = element.replace("xlink:href", "href")
    element = re.sub(r'\bid="', f'id="{name}-', element)
    element = re.sub(r'\bhref="#', f'href="#{name}-', element)
    element = element.replace("url(#", f"url(#{name}-")
    # The page decides about the background, so the figure's own is dropped.
    element = element.replace("fill: #ffffff", "fill: none")
    for tone in list_tones():
        element = element.replace(tone.light, f"var({tone.variable})")
    box = re.search(r'viewBox="([^"]+)"', element)
    assert box is not None, "matplotlib writes a viewBox"
    opening = f'<svg viewBox="{box[1]}" role="img" aria-label="{escape(title)}">'
    return re.sub(r"^<svg[^>]*>", opening, element, count=1)

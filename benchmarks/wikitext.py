"""Cleaning of wikitext beside mwparserfromhell's own `parse` and `strip_code`, in one run.

    python benchmarks/wikitext.py

Both get the pages of the hand-written dumps in `tests/data/dumps` again and again, then two hard
pages: web links that are not closed, and templates nested ten thousand deep. The peer only strips
markup; ours also drops tables, files, references and list items that are not prose.
"""

from __future__ import annotations

import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable
from pathlib import Path

import mwparserfromhell

from metaxlm.data.wikitext import clean_page
from metaxlm.data.wikitext.site import Site

DUMPS = Path(__file__).parent.parent / "tests" / "data" / "dumps"
REPEATS = 20


def read_pages() -> list[tuple[str, Site]]:
    """Return the text of every article with its language."""
    pages = []
    for path in sorted(DUMPS.glob("*.xml")):
        for text in ElementTree.parse(path).iterfind(".//{*}text"):
            pages.append((text.text or "", Site(path.stem, {})))
    return pages


def measure(clean: Callable[[str, Site], object], pages: Iterable[tuple[str, Site]]) -> float:
    """Return the seconds of CPU time that cleaning takes."""
    start = time.process_time()
    for text, site in pages:
        clean(text, site)
    return time.process_time() - start


def strip(text: str, _: Site) -> str:
    """Clean a page with the peer."""
    return str(mwparserfromhell.parse(text).strip_code())


def main() -> None:
    """Print seconds of CPU time, and the ratio."""
    english = Site("en", {})
    cases = {
        "hand-written pages": read_pages() * REPEATS,
        "open web links": [("[http://example.org label " * 4_000, english)],
        "nested templates": [("{{a|" * 10_000 + "}}" * 10_000, english)],
    }
    print(f"{'':<20} {'MB':>6} {'metaxlm':>10} {'mwparserfromhell':>18} {'ratio':>6}")
    for name, pages in cases.items():
        size = sum(len(text.encode()) for text, _ in pages) / 1e6
        ours, theirs = measure(clean_page, pages), measure(strip, pages)
        print(f"{name:<20} {size:>6.2f} {ours:>8.2f} s {theirs:>16.2f} s {theirs / ours:>6.1f}")


if __name__ == "__main__":
    main()

"""A page of wikitext becomes paragraphs: the five steps, one after the other."""

from __future__ import annotations

from metaxlm.data.wikitext.blocks import split_blocks
from metaxlm.data.wikitext.brackets import remove_brackets
from metaxlm.data.wikitext.elements import remove_elements
from metaxlm.data.wikitext.inline import render
from metaxlm.data.wikitext.marks import remove_marks
from metaxlm.data.wikitext.prose import is_prose
from metaxlm.data.wikitext.site import Site
from metaxlm.data.wikitext.tidying import tidy
from metaxlm.data.wikitext.variants import choose_variants


def clean_page(wikitext: str, site: Site) -> list[str]:
    """Return the paragraphs of a page as plain text, one line each, single spaces."""
    text = remove_elements(remove_marks(wikitext.replace("\r\n", "\n").replace("\r", "\n")))
    text = choose_variants(remove_brackets(text, site), site.language)
    paragraphs = []
    for block in split_blocks(text):
        shown = tidy(render(block.text, site))
        if shown and (not block.is_item or is_prose(shown)):
            paragraphs.append(shown)
    return paragraphs

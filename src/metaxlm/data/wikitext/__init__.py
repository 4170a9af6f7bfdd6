"""Clean wikitext: a page becomes paragraphs of plain text.

The steps are `elements`, `templates`, `blocks` and `inline`. Each takes time linear in the length
of the page. List items stay if they read like prose.
"""

from metaxlm.data.wikitext.elements import remove_elements, remove_marks
from metaxlm.data.wikitext.inline import render, tidy
from metaxlm.data.wikitext.paragraphs import choose_variants, is_prose, split_blocks
from metaxlm.data.wikitext.site import Site, is_disambiguation, is_redirect, read_site
from metaxlm.data.wikitext.templates import remove_brackets

__all__ = ["Site", "clean_page", "is_disambiguation", "is_redirect", "read_site"]


def clean_page(wikitext: str, site: Site) -> list[str]:
    """Return the paragraphs of a page as plain text, one line each, with single spaces."""
    text = remove_elements(remove_marks(wikitext.replace("\r\n", "\n").replace("\r", "\n")))
    text = choose_variants(remove_brackets(text, site), site.language)
    shown = ((tidy(render(block.text, site)), block.is_item) for block in split_blocks(text))
    return [text for text, is_item in shown if text and (not is_item or is_prose(text))]

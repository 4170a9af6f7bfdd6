"""Clean wikitext: a page becomes paragraphs of plain text.

`removal` removes elements and templates, `plain_text` splits the rest into paragraphs and renders
them. Each step takes time linear in the length of the page.
"""

from metaxlm.data.wikitext.plain_text import choose_variants, is_prose, render, split_blocks, tidy
from metaxlm.data.wikitext.removal import remove_brackets, remove_elements, remove_marks
from metaxlm.data.wikitext.site import Site

__all__ = ["Site", "clean_page"]


def clean_page(wikitext: str, site: Site) -> list[str]:
    """Return the paragraphs of a page as plain text, one line each, with single spaces."""
    text = remove_elements(remove_marks(wikitext.replace("\r\n", "\n").replace("\r", "\n")))
    text = choose_variants(remove_brackets(text, site), site.language)
    shown = ((tidy(render(block, site)), is_item) for block, is_item in split_blocks(text))
    return [text for text, is_item in shown if text and (not is_item or is_prose(text))]

"""Wikitext becomes paragraphs a person would read.

Comes in: the wikitext of a page and its `Site`. Goes out: paragraphs of plain text. Five steps,
each in time linear in the length of the page:

1. `elements`: comments, references, formulas, galleries, tags;
2. `brackets`: templates, links to files, categories and other languages;
3. `blocks`: tables and headings go, lines become paragraphs and list items;
4. `inline`: links become their labels, with mwparserfromhell where they are not plain;
5. `tidying`: invisible characters, and what removed markup leaves behind.

List items stay if they read like prose (`prose`). Headings, tables, formulas and code do not.
"""

from metaxlm.data.wikitext.cleaning import clean_page
from metaxlm.data.wikitext.kinds import is_disambiguation, is_redirect
from metaxlm.data.wikitext.site import Site, read_site

__all__ = ["Site", "clean_page", "is_disambiguation", "is_redirect", "read_site"]

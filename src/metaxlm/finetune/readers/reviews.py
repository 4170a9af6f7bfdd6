"""Product reviews: a Webis-CLS-10 file comes in, texts with their sentiment go out.

The layout of the Amazon reviews in the paper's Section 4.3: `<items>` of `<item>`s with `<summary>`
(the headline), `<text>` and `<rating>` from 1 to 5. The text of an example is the headline and the
text after it, with white space made single spaces; the product's `<title>` is not used. The files
are read with patterns rather than an XML parser, so that a bare `&` does no harm, and entities are
undone twice, because the release has thousands that were escaped twice (`&amp;quot;`).
"""

from __future__ import annotations

import html
import re
from pathlib import Path

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.readers.labeled import LabeledText
from metaxlm.finetune.readers.lines import read_lines, tell_unlabeled
from metaxlm.finetune.task import Examples

NEGATIVE, POSITIVE = "negative", "positive"
SENTIMENTS = {1.0: NEGATIVE, 2.0: NEGATIVE, 4.0: POSITIVE, 5.0: POSITIVE}
"""By rating; 3 is neither, and the release has none."""

_ITEM = re.compile(r"<item>(.*?)</item>", re.DOTALL)
_LONG_ENTITY = re.compile(r"(?:&amp;|&)#x?[0-9a-fA-F]{9,};?")
_FIELD = {
    name: re.compile(rf"<{name}>(.*?)</{name}>", re.DOTALL)
    for name in ("summary", "text", "rating")
}


def read_reviews(path: Path) -> Examples[LabeledText]:
    """Read reviews; one without a rating has no label."""
    content = "\n".join(read_lines(path))
    reviews: list[LabeledText] = []
    unlabeled: list[int] = []
    number = 1
    place = 0
    for item in _ITEM.finditer(content):
        number += content.count("\n", place, item.start())
        place = item.start()
        where = f"{path}:{number}: item {len(reviews) + 1}"
        if "<item>" in item[1]:
            raise MetaXLMError(f"{where} has no </item>; restore the file")
        text = " ".join(f"{_find(item[1], 'summary')} {_find(item[1], 'text')}".split())
        if not text:
            raise MetaXLMError(f"{where} has neither summary nor text; fill or delete it")
        label = _find_sentiment(_find(item[1], "rating").strip(), where)
        if label is None:
            unlabeled.append(number)
        reviews.append(LabeledText(text, None, label))
    _check_whole(path, content, len(reviews))
    return Examples(reviews, tell_unlabeled(path, unlabeled, len(reviews), "reviews"))


def _find(item: str, name: str) -> str:
    found = _FIELD[name].search(item)
    # No code point has this many digits, and Python reads at most 4,300.
    text = _LONG_ENTITY.sub("", found[1]) if found else ""
    return html.unescape(html.unescape(text))


def _find_sentiment(rating: str, where: str) -> str | None:
    if not rating:
        return None
    try:
        return SENTIMENTS[float(rating)]
    except (KeyError, ValueError) as error:
        raise MetaXLMError(
            f"{where} has the rating {rating!r}; expected 1 or 2 (negative), 4 or 5 (positive)"
        ) from error


def _check_whole(path: Path, content: str, num_reviews: int) -> None:
    """Refuse a file that is cut short or is something else."""
    num_opened = content.count("<item>")
    last = content.count("\n") + 1
    if not num_opened:
        raise MetaXLMError(f"{path}:1: no <item> in it; a Webis-CLS-10 file of reviews is needed")
    if num_opened != num_reviews or not content.rstrip().endswith("</items>"):
        raise MetaXLMError(
            f"{path}:{last}: {num_opened:,} reviews begin and {num_reviews:,} end, and the last "
            f"line has to be </items>; the file is cut short, restore it"
        )

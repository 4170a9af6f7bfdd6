from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import pytest

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.readers.labeled import LabeledText
from metaxlm.finetune.readers.reviews import read_reviews
from tests.finetune.readers.files import Published, refuse, write

HEAD = '<?xml version="1.0" encoding="utf-8"?>\n<items>'


def make(*items: str) -> str:
    return HEAD + "\n".join(f"<item>{item}</item>" for item in items) + "\n</items>\n"


def review(rating: str, text: str = "Fine.", summary: str = "Good") -> str:
    rated = f"<rating>{rating}</rating>" if rating else ""
    return f"<summary>{summary}\n</summary>{rated}<title>T</title><text>{text}</text>"


def test_headline_text_and_sentiment(tmp_path: Path) -> None:
    text = make(*(review(rating) for rating in ("1.0", "2.0", "4.0", "5")))
    found = read_reviews(write(tmp_path / "a.review", text))
    labels = ["negative", "negative", "positive", "positive"]
    assert found.items == [LabeledText("Good Fine.", None, label) for label in labels]
    assert found.notices == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("two\n  lines\t here ", "two lines here"),
        ("Q &amp; A &lt;3", "Q & A <3"),
        ("&amp;quot;Q&amp;quot; &amp;amp; A", '"Q" & A'),  # escaped twice, as in the release
        ("AT&T &nbsp;& co; &#8212;", "AT&T & co; —"),  # no XML, but it does occur on the web
    ],
)
def test_entities_and_white_space(tmp_path: Path, text: str, expected: str) -> None:
    path = write(tmp_path / "a.review", make(review("5.0", text)))
    assert read_reviews(path).items[0].first == f"Good {expected}"


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("<text>x</text><rating>5.0</rating>", "x"),
        ("<summary>y</summary><text /><rating>5.0</rating>", "y"),
    ],
)
def test_one_of_headline_and_text(tmp_path: Path, item: str, expected: str) -> None:
    (found,) = read_reviews(write(tmp_path / "a.review", make(item))).items
    assert found == LabeledText(expected, None, "positive")


def test_without_ratings(tmp_path: Path) -> None:
    path = write(tmp_path / "a.review", make(review("5.0"), review(""), review("")))
    found = read_reviews(path)
    assert [item.label for item in found.items] == ["positive", None, None]
    assert found.notices == (
        f"{path}:4: no label, as in 2 of 3 reviews; these are predicted, not scored",
    )


@pytest.mark.parametrize("rating", ["3.0", "6", "good"])
def test_other_ratings(tmp_path: Path, rating: str) -> None:
    path = write(tmp_path / "a.review", make(review("5.0"), review(rating)))
    with refuse(
        "{}:4: item 2 has the rating '{}'; expected 1 or 2 (negative), 4 or 5 (positive)",
        path,
        rating,
    ):
        read_reviews(path)


def test_empty_review(tmp_path: Path) -> None:
    path = write(tmp_path / "a.review", make(review("5.0"), review("5.0", " ", "")))
    with refuse("{}:4: item 2 has neither summary nor text; fill or delete it", path):
        read_reviews(path)


def test_cut_short(tmp_path: Path) -> None:
    whole = make(review("5.0"), review("5.0"), review("5.0"))
    path = write(tmp_path / "a.review", whole[: whole.rindex("</item>")])
    with refuse(
        "{}:7: 3 reviews begin and 2 end, and the last line has to be </items>; the file is cut "
        "short, restore it",
        path,
    ):
        read_reviews(path)
    path = write(tmp_path / "a.review", whole.replace("</items>", ""))
    with refuse(
        "{}:8: 3 reviews begin and 3 end, and the last line has to be </items>; the file is cut "
        "short, restore it",
        path,
    ):
        read_reviews(path)
    path = write(tmp_path / "a.review", "".join(whole.rsplit("</item>", 1)))
    with pytest.raises(MetaXLMError, match=":8: 3 reviews begin and 2 end"):
        read_reviews(path)
    path = write(tmp_path / "a.review", whole.replace("</item>", "", 1))
    with refuse("{}:2: item 1 has no </item>; restore the file", path):
        read_reviews(path)


def test_something_else(tmp_path: Path) -> None:
    path = write(tmp_path / "a.review", "great:1 book:2 #label#:positive\n")
    with refuse("{}:1: no <item> in it; a Webis-CLS-10 file of reviews is needed", path):
        read_reviews(path)


def test_published(published: Published) -> None:
    """All 24 files; what a real XML parser finds in four of them is what we find."""
    folder = published("cls") / "cls"
    paths = sorted(folder.glob("*/*/*.review"))
    assert len(paths) == 24
    for path in paths:
        found = read_reviews(path)
        labels = Counter(item.label for item in found.items)
        assert labels == {"negative": 1_000, "positive": 1_000}
        if path.parts[-3:-1] in (("jp", "books"), ("en", "dvd")):
            for item, review in zip(ElementTree.parse(path).getroot(), found.items, strict=True):
                text = f"{item.findtext('summary') or ''} {item.findtext('text') or ''}"
                if "&" not in text:
                    assert review.first == " ".join(text.split())

"""F1 and exact match of answers: predicted and gold texts come in, two fractions go out.

The scores of XQuAD, MLQA and TyDiQA (the paper's Section 4.2) compare normalized texts. XQuAD and
TyDiQA take the rules of SQuAD 1.1 in every language: lower case, ASCII punctuation and English
articles removed, split on white space. MLQA has rules by language: all punctuation of Unicode, the
language's own articles, and Chinese split by character. Both equal the official scripts to the last
digit, in their oddities too: two texts that are empty after normalization match exactly and have an
F1 of 0, and MLQA's Arabic rule removes the article's two letters wherever they stand.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache

from metaxlm.errors import MetaXLMError

Normalize = Callable[[str], str]
"""Makes texts alike that count as the same answer; words have one space between them."""

_ASCII_PUNCTUATION = str.maketrans("", "", string.punctuation)


def _match_words(words: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(words.split())})\b")


_MLQA_ARTICLES = {
    "ar": re.compile("ال"),
    "de": _match_words("ein eine einen einem eines einer der die das den dem des"),
    "en": _match_words("a an the"),
    "es": _match_words("un una unos unas el la los las"),
    "hi": None,
    "vi": _match_words("của là cái chiếc những"),
    "zh": None,
}
_ENGLISH_ARTICLES = _match_words("a an the")
_CHINESE_CHARACTER = re.compile("[\u4e00-\u9fa5]")

MLQA_LANGUAGES = tuple(_MLQA_ARTICLES)
"""The languages that MLQA has rules for."""


def normalize_squad(text: str) -> str:
    """Normalize as SQuAD 1.1 does, whatever the language."""
    text = text.lower().translate(_ASCII_PUNCTUATION)
    return " ".join(_ENGLISH_ARTICLES.sub(" ", text).split())


def normalize_mlqa(text: str, language: str) -> str:
    """Normalize as MLQA does for answers in a language."""
    if language not in _MLQA_ARTICLES:
        known = ", ".join(MLQA_LANGUAGES)
        raise MetaXLMError(f"MLQA has no rules for answers in {language!r}; known: {known}")
    text = "".join(char for char in text.lower() if not _is_punctuation(char))
    articles = _MLQA_ARTICLES[language]
    if articles is not None:
        text = articles.sub(" ", text)
    if language == "zh":
        text = _CHINESE_CHARACTER.sub(r" \g<0> ", text)
    return " ".join(text.split())


@cache
def _is_punctuation(char: str) -> bool:
    """Say whether Unicode or ASCII takes it for punctuation; ASCII counts `$+<=>^`|~` too."""
    return unicodedata.category(char).startswith("P") or char in string.punctuation


def score_answer(
    prediction: str, answers: Sequence[str], normalize: Normalize
) -> tuple[float, float]:
    """Return F1 and exact match, each with the gold answer that it is best with."""
    assert answers, "a question without a gold answer cannot be scored"
    predicted = normalize(prediction)
    expected = [normalize(answer) for answer in answers]
    f1 = max(_compute_f1(predicted.split(), words.split()) for words in expected)
    return f1, float(predicted in expected)


def _compute_f1(predicted: Sequence[str], expected: Sequence[str]) -> float:
    """Return the F1 of two bags of words, with the operations in the official order."""
    num_same = (Counter(predicted) & Counter(expected)).total()
    if num_same == 0:
        return 0.0
    precision = num_same / len(predicted)
    recall = num_same / len(expected)
    return (2 * precision * recall) / (precision + recall)

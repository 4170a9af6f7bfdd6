"""Metrics: F1 of labels, correlations, chunk F1 of tags, and F1 and exact match of answers.

Chunk F1 equals seqeval 1.2.2 in its default mode, on named entities and, as in XTREME, parts of
speech. Answers of XQuAD and TyDiQA are compared by SQuAD 1.1's rules in every language, those of
MLQA by its rules for the language. Both equal the official scripts to the last digit, with their
oddities: two texts that are empty after normalization match exactly and have an F1 of 0, and MLQA's
Arabic rule removes the article's two letters everywhere. Scores are fractions.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain

import numpy as np
import numpy.typing as npt

from metaxlm.errors import MetaXLMError

Counts = npt.NDArray[np.float64]
"""Counts of each example, [examples, counts], or their sums, [..., counts]."""

_OUTSIDE = "O"
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


def count_chunks(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> Counts:
    """Count correct, predicted and gold chunks per sentence, where they end.

    As in seqeval, a tag is a letter and a type: NOUN has the type OUN, and neighbors of one type
    form one chunk. A bare letter and O have the same type "_", so the UD tag X does not open a
    chunk after O; if it is closed later, it reaches back to the last opening, even across
    sentences. Therefore the corpus is one stream, with an O after each sentence.
    """
    lengths = np.array([len(tags) for tags in gold], dtype=np.int64)
    sentence_of_place = np.repeat(np.arange(len(lengths)), lengths + 1)
    is_word = np.ones(len(sentence_of_place), dtype=np.bool_)
    is_word[np.cumsum(lengths + 1) - 1] = False
    tags = sorted({_OUTSIDE, *chain.from_iterable(gold), *chain.from_iterable(predicted)})
    true_ends, *true = _find_chunks(gold, tags, is_word)
    ends, *found = _find_chunks(predicted, tags, is_word)
    # Chunks of both sides that end here are equal if their starts and types are.
    is_same = (true[0] == found[0]) & (true[1] == found[1])
    columns = (true_ends & ends & is_same, ends, true_ends)
    return np.stack(
        [np.bincount(sentence_of_place[at], minlength=len(lengths)) for at in columns], axis=1
    ).astype(np.float64)


def score_chunks(totals: Counts) -> tuple[Counts, Counts, Counts]:
    """Return precision, recall and F1 from sums [..., 3]; 0 for a zero denominator."""
    right, predicted, gold = (totals[..., k] for k in range(3))
    precision, recall = _divide(right, predicted), _divide(right, gold)
    return precision, recall, _divide(2 * precision * recall, precision + recall)


def score_labels(totals: Counts) -> dict[str, Counts]:
    """Return F1 from sums [..., 3 * labels]: of labels that are both, predicted, gold.

    Macro F1 is the mean over the labels that are predicted or gold.
    """
    right, predicted, gold = np.split(totals, 3, axis=-1)
    is_used = predicted + gold > 0
    macro = _divide(2 * right, predicted + gold).sum(axis=-1)
    micro = _divide(2 * right.sum(axis=-1), (predicted + gold).sum(axis=-1))
    return {"micro_f1": micro, "macro_f1": _divide(macro, is_used.sum(axis=-1))}


def correlate(counts: Counts, moments: Counts) -> Counts:
    """Return Pearson's correlation from sums [..., 5] of x, y, x², y² and xy; 0 if undefined."""
    x, y, xx, yy, xy = (moments[..., k] / counts for k in range(5))
    squares, variances = xx * yy, (xx - x * x) * (yy - y * y)
    # A constant side has a variance of 0 up to rounding.
    is_defined = (xx - x * x > 1e-12 * xx) & (yy - y * y > 1e-12 * yy) & (squares > 0)
    found = (xy - x * y) / np.sqrt(np.where(is_defined, variances, 1.0))
    return np.where(is_defined, np.clip(found, -1.0, 1.0), 0.0)


def _divide(numerator: Counts, denominator: Counts) -> Counts:
    safe = np.where(denominator > 0, denominator, 1.0)
    return np.where(denominator > 0, numerator / safe, 0.0)


def _find_chunks(
    sentences: Sequence[Sequence[str]], tags: Sequence[str], is_word: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return whether a chunk ends before each place, its start and its type.

    `is_word` is False at the Os that end sentences.
    """
    ids = {tag: k for k, tag in enumerate(tags)}
    stream = np.full(len(is_word), ids[_OUTSIDE], dtype=np.int32)
    stream[is_word] = np.fromiter(
        map(ids.__getitem__, chain.from_iterable(sentences)), dtype=np.int32
    )
    previous = np.concatenate([stream[-1:], stream[:-1]])
    pairs = previous * len(tags) + stream
    opens, closes = _tabulate(tags)
    places = np.arange(len(stream), dtype=np.int32)
    openings = np.maximum.accumulate(places * opens.ravel().take(pairs))
    types = [_find_type(tag) for tag in tags]
    type_of_tag = np.array([types.index(name) for name in types], dtype=np.int32)
    starts = np.concatenate([openings[:1], openings[:-1]])
    return closes.ravel().take(pairs), starts, type_of_tag.take(previous)


def _tabulate(tags: Sequence[str]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Tabulate for each (previous tag, tag) whether a chunk opens and whether one closes."""
    opens = np.zeros((len(tags), len(tags)), dtype=np.bool_)
    closes = np.zeros_like(opens)
    for i, before in enumerate(tags):
        for j, tag in enumerate(tags):
            old, new, changes = before[0], tag[0], _find_type(before) != _find_type(tag)
            starts = new in "BS" or (new in "EI" and old in "ESO") or changes
            ends = old in "ES" or (old in "BI" and new in "BSO") or changes
            opens[i, j] = starts and new not in "O."
            closes[i, j] = ends and old not in "O."
    return opens, closes


def _find_type(tag: str) -> str:
    return tag[1:].split("-", 1)[-1] or "_"


def normalize_squad(text: str) -> str:
    """Normalize as SQuAD 1.1 does, in any language."""
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
    """Return whether it is punctuation in Unicode or ASCII, which includes `$+<=>^`|~`."""
    return unicodedata.category(char).startswith("P") or char in string.punctuation


def score_answer(
    prediction: str, answers: Sequence[str], normalize: Callable[[str], str]
) -> tuple[float, float]:
    """Return F1 and exact match, each for the best gold answer."""
    predicted = normalize(prediction)
    expected = [normalize(answer) for answer in answers]
    f1 = max(_compute_f1(predicted.split(), words.split()) for words in expected)
    return f1, float(predicted in expected)


def _compute_f1(predicted: Sequence[str], expected: Sequence[str]) -> float:
    """Return the F1 of two bags of words, with the operations in the official order."""
    num_same = (Counter(predicted) & Counter(expected)).total()
    if num_same == 0:
        return 0.0
    precision, recall = num_same / len(predicted), num_same / len(expected)
    return (2 * precision * recall) / (precision + recall)

"""Chunk F1 against seqeval; answers against ports of the official scripts and cases by hand."""

from __future__ import annotations

import itertools
import random
import unicodedata
import warnings
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.data_sets import UPOS
from metaxlm.finetune.metrics import (
    MLQA_LANGUAGES,
    count_chunks,
    normalize_mlqa,
    normalize_squad,
    score_answer,
    score_chunks,
)
from metaxlm.languages import task_languages

BIO = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG"]
ODD = [
    *("B-A", "I-A", "E-A", "S-A", "I-B", "O", "X", "NOUN", "B", "I", ".", "I-A-B"),
    *("E", "S", "B-", "-", "X-A", "L-A"),
]
TAG_SETS = [BIO, list(UPOS), ["X", "NOUN", "SCONJ", "CCONJ", "O"], ODD, ["B-PER"], [*ODD, *BIO]]
CASES = 2_400

Corpus = list[list[str]]


def draw_corpora(tags: list[str], seed: int) -> tuple[Corpus, Corpus]:
    draw = random.Random(seed)
    gold = [draw.choices(tags, k=draw.randint(0, 9)) for _ in range(draw.randint(1, 5))]
    predicted = [
        [tag if draw.random() < 0.6 else draw.choice(tags) for tag in sentence] for sentence in gold
    ]
    return gold, predicted


@pytest.mark.parametrize("tags", TAG_SETS)
def test_chunk_scores_equal_seqeval(tags: list[str]) -> None:
    """To the last digit, for sentences with every kind of odd tag and without words."""
    seqeval = pytest.importorskip("seqeval.metrics.sequence_labeling")
    for seed in range(CASES // len(TAG_SETS)):
        gold, predicted = draw_corpora(tags, seed)
        if not any(gold):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = seqeval.precision_recall_fscore_support(gold, predicted, average="micro")
        assert score_chunks(count_chunks(gold, predicted).sum(axis=0)) == theirs[:3]


def test_chunks_are_counted_where_they_end() -> None:
    """The bare X is closed by the NOUN and reaches back to the last opening, a sentence before."""
    gold = [["DET"], ["NOUN"], ["X", "NOUN"], ["DET"]]
    assert count_chunks(gold, gold).tolist() == [[1] * 3, [1] * 3, [2] * 3, [1] * 3]
    # The other side opens nothing in the second sentence, so that its X starts in the first.
    counts = count_chunks(gold, [["DET"], ["O"], ["X", "NOUN"], ["VERB"]]).tolist()
    assert counts == [[1, 1, 1], [0, 0, 1], [1, 2, 2], [0, 1, 1]]
    assert count_chunks([], []).shape == (0, 3)


ASCII_MARKS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
ARTICLES = {
    "en": {"a", "an", "the"},
    "es": {"un", "una", "unos", "unas", "el", "la", "los", "las"},
    "vi": {"của", "là", "cái", "chiếc", "những"},
    "de": {"ein", "eine", "einen", "einem", "eines", "einer"}
    | {"der", "die", "das", "den", "dem", "des"},
}
WORDS = """
A AN The THE Der Las Las. an, -the- thea athe the_ la'la á über ÜBER Straße ẞ İstanbul
1,000 10.5 $5 5€ 50% C++ U.S. x^2 <b> ~ ` | = + don't ' '' - _ . – — … ¿qué? ¡no! «да» Москва
我 喜欢 北京。 NBA球队 2008年 ，中 「引」 《书》 ～ 𠀀 鿿 ー テスト、
ال الكتاب كتاب، حال والسلام المال؟ قال
सरकार का प्रस्ताव। ॥ กรุงเทพ ฯลฯ ๆ บ้าน Người những. của, ΑΘΗΝΑ ς
"""
POOL = [
    *itertools.chain(*(sorted(words) for words in ARTICLES.values())),
    *WORDS.split(),
    *["", " ", "\t", "\n", "\u00a0", "\u200b", "\u2028", "\u3000", "\u0301"],
]


def drop_articles(text: str, articles: set[str]) -> str:
    """Blank each run of letters and digits that is an article as a whole."""
    runs = itertools.groupby(text, key=lambda char: char.isalnum() or char == "_")
    words = ("".join(run) for _, run in runs)
    return "".join(" " if word in articles else word for word in words)


def port_squad(text: str) -> list[str]:
    kept = [char for char in text.lower() if char not in ASCII_MARKS]
    return drop_articles("".join(kept), ARTICLES["en"]).split()


def port_mlqa(text: str, language: str) -> list[str]:
    marks = {char for char in text.lower() if unicodedata.category(char)[0] == "P"} | {*ASCII_MARKS}
    kept = "".join(char for char in text.lower() if char not in marks)
    if language == "ar":
        kept = " ".join(kept.split("ال"))
    kept = drop_articles(kept, ARTICLES.get(language, set()))
    if language != "zh":
        return kept.split()
    return "".join(f" {char} " if "一" <= char <= "龥" else char for char in kept).split()


def port_score(
    prediction: str, answers: list[str], split: Callable[[str], list[str]]
) -> tuple[float, float]:
    best_f1 = best_exact = 0.0
    for answer in answers:
        mine, theirs = split(prediction), split(answer)
        best_exact = max(best_exact, 1.0 if mine == theirs else 0.0)
        left, shared = list(theirs), 0
        for word in mine:
            if word in left:
                left.remove(word)
                shared += 1
        if shared:
            precision, recall = shared / len(mine), shared / len(theirs)
            best_f1 = max(best_f1, 2 * precision * recall / (precision + recall))
    return best_f1, best_exact


def draw_text(random: np.random.Generator) -> str:
    size = random.integers(0, 9)
    words = [POOL[k] for k in random.integers(len(POOL), size=size)]
    spaces = np.where(random.random(size) < 0.7, " ", "")
    return "".join(word + space for word, space in zip(words, spaces, strict=True))


def draw_case(random: np.random.Generator) -> tuple[str, list[str]]:
    """Draw an answer near one of the gold ones, or anywhere."""
    answers = [draw_text(random) for _ in range(random.integers(1, 4))]
    words = answers[0].split(" ")[random.integers(0, 2) :]
    near = " ".join([*words, draw_text(random)[:3]])
    return [near, answers[-1].upper(), draw_text(random)][random.integers(3)], answers


@pytest.mark.parametrize("rules", ["squad", *MLQA_LANGUAGES])
def test_answers_equal_an_independent_port(rules: str) -> None:
    draw = np.random.default_rng(len(rules))
    normalize: Callable[[str], str] = normalize_squad
    port: Callable[[str], list[str]] = port_squad
    if rules != "squad":
        normalize = partial(normalize_mlqa, language=rules)
        port = partial(port_mlqa, language=rules)
    scores = []
    for _ in range(400):
        prediction, answers = draw_case(draw)
        scores.append(score_answer(prediction, answers, normalize))
        assert scores[-1] == port_score(prediction, answers, port), (prediction, answers)
    f1, exact = np.array(scores).T
    assert 0.1 < exact.mean() < 0.9 and ((f1 > 0) & (f1 < 1)).mean() > 0.2, "cases of all kinds"


def test_mlqa_has_rules_for_its_languages_and_no_others() -> None:
    assert task_languages("mlqa") == MLQA_LANGUAGES
    with pytest.raises(MetaXLMError, match=r"no rules for answers in 'fr'; known: ar, de, en, es"):
        normalize_mlqa("la maison", "fr")

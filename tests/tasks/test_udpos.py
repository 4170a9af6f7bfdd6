from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedTokenizerBase

from metaxlm.tasks.readers import TaggedSentence
from metaxlm.tasks.task import IGNORED, Features
from metaxlm.tasks.udpos import TAGS, UdposTask, group_by_word, split_words
from tests.tasks.conftest import TEXT

TASK = UdposTask()


def tag(*lines: str) -> list[TaggedSentence]:
    """Tag word k of a sentence with tag k, so that a shifted tag shows."""
    return [
        TaggedSentence(words, tuple(TAGS[k % len(TAGS)] for k in range(len(words))))
        for words in (tuple(line.split(" ")) for line in lines)
    ]


def answer_gold(
    features: list[Features],
) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    """Logits that are right on labeled tokens and loud nonsense on all others."""
    logits = []
    for sequence in features:
        rows = np.zeros((len(sequence.ids), len(TAGS)), dtype=np.float32)
        rows[np.arange(len(rows)), sequence.labels.clip(min=0)] = 1.0
        rows[sequence.labels == IGNORED, 3] = 9.0
        logits.append(rows)
    return logits


def test_first_pieces_carry_the_tags(any_tokenizer: PreTrainedTokenizerBase) -> None:
    (sentence,) = tag(TEXT[2])
    encoded = TASK.featurize([sentence], any_tokenizer, 128)
    (sequence,) = encoded.features
    assert encoded.notice == ""
    text = any_tokenizer(TEXT[2])["input_ids"]
    assert sequence.ids.tolist() == text
    labeled = [TAGS[k] for k in sequence.labels if k != IGNORED]
    assert labeled == list(sentence.tags)
    assert sequence.labels[0] == sequence.labels[-1] == IGNORED
    # The words before a labeled token are whole: decoding up to it gives whole words.
    for count, place in enumerate(np.flatnonzero(sequence.labels != IGNORED)):
        before = any_tokenizer.decode(text[1:place]).strip()
        expected = " ".join(sentence.words[:count])
        assert before.replace(" ", "").lower() == expected.replace(" ", "").lower()


@pytest.mark.parametrize("length", [6, 9, 20, 128])
def test_long_sentences_are_split_and_no_word_is_lost(
    any_tokenizer: PreTrainedTokenizerBase, length: int
) -> None:
    examples = tag(*TEXT, " ".join(TEXT))
    encoded = TASK.featurize(examples, any_tokenizer, length)
    assert all(len(sequence.ids) <= length for sequence in encoded.features)
    assert all(len(sequence.ids) == len(sequence.labels) for sequence in encoded.features)
    assert all(sequence.ids[0] == any_tokenizer.cls_token_id for sequence in encoded.features)
    assert all(sequence.ids[-1] == any_tokenizer.sep_token_id for sequence in encoded.features)
    predictions = TASK.decode(examples, encoded.features, answer_gold(encoded.features))
    assert predictions == [sentence.tags for sentence in examples]
    assert TASK.score(examples, predictions) == {"f1": 1.0, "f1_token": 1.0}


def test_splitting_is_said(tokenizer: PreTrainedTokenizerBase) -> None:
    encoded = TASK.featurize(tag(TEXT[0], "we"), tokenizer, 9)
    assert encoded.notice == "1 of 2 sentences are longer than 9 tokens; split"


def test_a_word_without_pieces_is_unknown(tokenizer: PreTrainedTokenizerBase) -> None:
    examples = tag("the \u200b hill")
    encoded = TASK.featurize(examples, tokenizer, 128)
    (sequence,) = encoded.features
    assert tokenizer.unk_token_id in sequence.ids.tolist()
    assert TASK.decode(examples, [sequence], answer_gold([sequence])) == [examples[0].tags]


def test_split_words_fills_each_part() -> None:
    assert list(split_words([2, 2, 2, 4, 1], 4)) == [(0, 2), (2, 3), (3, 4), (4, 5)]
    assert list(split_words([1, 1], 4)) == [(0, 2)]


def test_group_by_word_cuts_giant_words(tokenizer: PreTrainedTokenizerBase) -> None:
    from metaxlm.tasks.encoding import WordPieces

    groups = group_by_word(WordPieces([5, 6, 7, 8], [0, 0, 0, 2]), 3, unknown_id=3, longest=2)
    assert groups == [[5, 6], [3], [8]]


def test_majority_answers_the_most_frequent_tag() -> None:
    train = [TaggedSentence(("a", "b", "c"), ("DET", "NOUN", "NOUN"))]
    test = [TaggedSentence(("a", "b"), ("NOUN", "VERB"))]
    answers = TASK.answer_majority(train, test)
    assert answers == [("NOUN", "NOUN")]
    assert TASK.score(test, answers)["f1_token"] == 0.5


def test_published(published: Callable[[str], Path], tokenizer: PreTrainedTokenizerBase) -> None:
    folder = published("udpos")
    assert TASK.list_languages(folder, "test") == sorted(TASK.languages)
    for language in ("zh", "th", "ar"):
        examples = TASK.read(folder, "test", language)[:200]
        encoded = TASK.featurize(examples, tokenizer, 64)
        predictions = TASK.decode(examples, encoded.features, answer_gold(encoded.features))
        assert predictions == [sentence.tags for sentence in examples]

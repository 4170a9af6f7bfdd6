"""Classification of texts and tagging of words: features, loss, scores and baselines."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerBase

from metaxlm.finetune.catalog import TASKS
from metaxlm.finetune.data_sets import NLI_LABELS, UPOS
from metaxlm.finetune.readers.conll import TaggedSentence
from metaxlm.finetune.readers.texts import LabeledText
from metaxlm.finetune.task import IGNORED, Features, FinetuneSettings, Logits
from tests.finetune.conftest import TEXT

XNLI, REVIEWS, POS, ENTITIES = (TASKS[n] for n in ("xnli", "amazon-books", "udpos", "panx"))
PAIRS = [LabeledText(TEXT[k], TEXT[k + 1], NLI_LABELS[k % 3]) for k in range(6)]


def settings(length: int) -> FinetuneSettings:
    return FinetuneSettings(epochs=1, learning_rate=1e-5, length=length)


def tag(*lines: str) -> list[TaggedSentence]:
    """Tag word k of a sentence with tag k, so that a shifted tag shows."""
    return [
        TaggedSentence(words, tuple(UPOS[k % len(UPOS)] for k in range(len(words))))
        for words in (tuple(line.split(" ")) for line in lines)
    ]


def answer_gold(features: list[Features]) -> list[Logits]:
    """Logits that are right on labeled tokens and loud nonsense on all others."""
    logits = []
    for sequence in features:
        rows = np.zeros((len(sequence.ids), len(UPOS)), dtype=np.float32)
        rows[np.arange(len(rows)), sequence.labels.clip(min=0)] = 1.0
        rows[sequence.labels == IGNORED, 3] = 9.0
        logits.append(rows)
    return logits


def test_texts_and_pairs_are_the_tokenizers_own(any_tokenizer: PreTrainedTokenizerBase) -> None:
    encoded = XNLI.featurize(PAIRS, any_tokenizer, settings(256))
    assert encoded.notice == ""
    assert [sequence.labels.tolist() for sequence in encoded.features] == [[0], [1], [2]] * 2
    assert [sequence.example for sequence in encoded.features] == list(range(6))
    for pair, sequence in zip(PAIRS, encoded.features, strict=True):
        expected = any_tokenizer(pair.first, pair.second, return_token_type_ids=True)
        assert sequence.ids.tolist() == expected["input_ids"]
        assert sequence.token_types is not None
        assert sequence.token_types.tolist() == expected["token_type_ids"]
    texts = [LabeledText(TEXT[0], None, "positive"), LabeledText(TEXT[1], None, None)]
    features = REVIEWS.featurize(texts, any_tokenizer, settings(256)).features
    assert [sequence.labels.tolist() for sequence in features] == [[1], [IGNORED]]
    for text, sequence in zip(texts, features, strict=True):
        assert sequence.ids.tolist() == any_tokenizer(text.first)["input_ids"]


def test_long_texts_are_truncated_with_a_notice(any_tokenizer: PreTrainedTokenizerBase) -> None:
    long = " ".join(TEXT)
    whole = any_tokenizer(long)["input_ids"]
    texts = [LabeledText("we", None, None), LabeledText(long, None, None)]
    encoded = REVIEWS.featurize(texts, any_tokenizer, settings(60))
    assert encoded.features[1].ids.tolist() == [*whole[:59], whole[-1]]
    assert encoded.notice == "1 of 2 texts are longer than 60 tokens; truncated"
    # The next caller of the tokenizer gets the whole text.
    assert any_tokenizer.backend_tokenizer.encode(long).ids == whole
    # The longer side of a pair is truncated first.
    short = any_tokenizer(TEXT[0], add_special_tokens=False)["input_ids"]
    encoded = XNLI.featurize([LabeledText(TEXT[0], long, None)], any_tokenizer, settings(120))
    ids = encoded.features[0].ids.tolist()
    assert (len(ids), ids[1 : len(short) + 1]) == (120, short)
    assert encoded.notice == "1 of 1 pairs are longer than 120 tokens; truncated"


def test_first_tokens_of_words_have_the_tags(any_tokenizer: PreTrainedTokenizerBase) -> None:
    (sentence,) = tag(TEXT[2])
    encoded = POS.featurize([sentence], any_tokenizer, settings(128))
    (sequence,) = encoded.features
    text = any_tokenizer(TEXT[2])["input_ids"]
    assert (encoded.notice, sequence.ids.tolist()) == ("", text)
    assert tuple(UPOS[k] for k in sequence.labels if k != IGNORED) == sentence.tags
    # The words before a labeled token are whole: decoding up to it gives whole words.
    for count, place in enumerate(np.flatnonzero(sequence.labels != IGNORED)):
        before = any_tokenizer.decode(text[1:place]).replace(" ", "")
        assert before.lower() == "".join(sentence.words[:count]).lower()


@pytest.mark.parametrize("length", [6, 20])
def test_long_sentences_are_split_and_no_word_is_lost(
    any_tokenizer: PreTrainedTokenizerBase, length: int
) -> None:
    examples = tag(*TEXT, " ".join(TEXT), "the \u200b hill")
    features = POS.featurize(examples, any_tokenizer, settings(length)).features
    for sequence in features:
        assert len(sequence.ids) == len(sequence.labels) <= length
        ends = any_tokenizer.cls_token_id, any_tokenizer.sep_token_id
        assert (sequence.ids[0], sequence.ids[-1]) == ends
    predictions = POS.decode(examples, features, answer_gold(features))
    assert predictions == [sentence.tags for sentence in examples]
    assert POS.score(examples, predictions, "de") == {"f1": 1.0, "f1_token": 1.0}
    # Sentences without tags are predicted all the same.
    blanked = [replace(sentence, tags=None) for sentence in examples]
    hidden = POS.featurize(blanked, any_tokenizer, settings(length)).features
    assert all((sequence.labels == IGNORED).all() for sequence in hidden)
    assert POS.decode(blanked, hidden, answer_gold(features)) == predictions


def test_a_word_that_the_tokenizer_drops_is_unknown(tokenizer: PreTrainedTokenizerBase) -> None:
    (sequence,) = POS.featurize(tag("the \u200b hill"), tokenizer, settings(128)).features
    assert tokenizer.unk_token_id in sequence.ids.tolist()


def test_loss_is_cross_entropy_over_labels() -> None:
    logits = torch.randn(3, 3, requires_grad=True)
    labels, lengths = torch.tensor([[0], [IGNORED], [1]]), torch.ones(3)
    expected = -torch.log_softmax(logits, dim=1)[[0, 2], [0, 1]].mean()
    torch.testing.assert_close(XNLI.compute_loss(logits, labels, lengths), expected)
    loss = XNLI.compute_loss(logits, torch.full((3, 1), IGNORED), lengths)
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert logits.grad is not None and not logits.grad.any()
    words = torch.randn(2, 3, len(UPOS))
    tags = torch.tensor([[IGNORED, 4, IGNORED], [7, 2, IGNORED]])
    chances = torch.log_softmax(words, dim=-1)
    expected = -(chances[0, 1, 4] + chances[1, 0, 7] + chances[1, 1, 2]) / 3
    torch.testing.assert_close(POS.compute_loss(words, tags, torch.ones(2)), expected)


def test_accuracy_and_submission_of_classes(tokenizer: PreTrainedTokenizerBase) -> None:
    features = XNLI.featurize(PAIRS, tokenizer, settings(256)).features
    logits = [np.eye(3, dtype=np.float32)[int(s.labels[0])] for s in features]
    predictions = XNLI.decode(PAIRS, features, logits)
    assert predictions == [pair.label for pair in PAIRS]
    predictions[0] = "contradiction"
    assert XNLI.tally(PAIRS, predictions, "de").tolist() == [[0, 1], *[[1, 1]] * 5]
    assert XNLI.score(PAIRS, predictions, "de") == {"accuracy": 5 / 6}
    assert XNLI.tally([], [], "de").shape == (0, 2)
    assert XNLI.format_predictions(PAIRS[:2], predictions[:2]) == "contradiction\nneutral\n"


def test_chunk_scores_and_submission_of_tags() -> None:
    examples = [
        TaggedSentence(("a", "b", "c"), ("B-PER", "I-PER", "O")),
        TaggedSentence(("d",), ("B-LOC",)),
    ]
    predictions = [("B-PER", "I-PER", "B-ORG"), ("O",)]
    tally = ENTITIES.tally(examples, predictions, "de")
    assert tally.tolist() == [[1, 2, 1, 2, 3], [0, 0, 1, 0, 1]]
    assert ENTITIES.tally([], [], "de").shape == (0, 5)
    scores = ENTITIES.score(examples, predictions, "de")
    assert scores == dict.fromkeys(("f1", "precision", "recall"), 0.5)
    text = ENTITIES.format_predictions(examples, predictions)
    assert text == "B-PER\nI-PER\nB-ORG\n\nO\n\n"


def test_majority_and_chance() -> None:
    train = [LabeledText("a", "b", label) for label in ("neutral", *["entailment"] * 2)]
    assert XNLI.answer_majority(train, PAIRS) == ["entailment"] * 6
    answers = POS.answer_majority([TaggedSentence(("a", "b", "c"), ("X", "DET", "X"))], tag("a b"))
    assert answers == [("X", "X")]
    examples = tag(*["a b c d"] * 4_250, "a")
    answers = POS.answer_randomly([], examples, np.random.default_rng(3))
    assert [len(tags) for tags in answers] == [4] * 4_250 + [1]
    counts = Counter(word_tag for tags in answers for word_tag in tags)
    assert counts.keys() == {*UPOS}
    assert all(abs(count - 1_000) < 150 for count in counts.values())

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import torch
from transformers import PreTrainedTokenizerBase

from metaxlm.finetune.catalog import TASKS
from metaxlm.finetune.data_sets import UPOS as TAGS
from metaxlm.finetune.readers.conll import TaggedSentence
from metaxlm.finetune.task import IGNORED, Features, FinetuneSettings
from tests.finetune.conftest import TEXT

TASK = TASKS["udpos"]
ENTITIES = TASKS["panx"]


def settings(length: int) -> FinetuneSettings:
    return FinetuneSettings(epochs=1, learning_rate=1e-5, length=length)


def tag(*lines: str) -> list[TaggedSentence]:
    """Tag word k of a sentence with tag k, so that a shifted tag shows."""
    return [
        TaggedSentence(words, tuple(TAGS[k % len(TAGS)] for k in range(len(words))))
        for words in (tuple(line.split(" ")) for line in lines)
    ]


def answer_gold(features: list[Features]) -> list[npt.NDArray[np.float32]]:
    """Logits that are right on labeled tokens and loud nonsense on all others."""
    logits = []
    for sequence in features:
        rows = np.zeros((len(sequence.ids), len(TAGS)), dtype=np.float32)
        rows[np.arange(len(rows)), sequence.labels.clip(min=0)] = 1.0
        rows[sequence.labels == IGNORED, 3] = 9.0
        logits.append(rows)
    return logits


class TestFeatures:
    def test_first_pieces_carry_the_tags(self, any_tokenizer: PreTrainedTokenizerBase) -> None:
        (sentence,) = tag(TEXT[2])
        assert sentence.tags is not None
        encoded = TASK.featurize([sentence], any_tokenizer, settings(128))
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
        self, any_tokenizer: PreTrainedTokenizerBase, length: int
    ) -> None:
        examples = tag(*TEXT, " ".join(TEXT))
        features = TASK.featurize(examples, any_tokenizer, settings(length)).features
        assert all(len(sequence.ids) <= length for sequence in features)
        assert all(len(sequence.ids) == len(sequence.labels) for sequence in features)
        assert all(sequence.ids[0] == any_tokenizer.cls_token_id for sequence in features)
        assert all(sequence.ids[-1] == any_tokenizer.sep_token_id for sequence in features)
        predictions = TASK.decode(examples, features, answer_gold(features))
        assert predictions == [sentence.tags for sentence in examples]
        assert TASK.score(examples, predictions, "de") == {"f1": 1.0, "f1_token": 1.0}

    @pytest.mark.parametrize("length", [6, 128])
    def test_sentences_without_tags_are_predicted_all_the_same(
        self, tokenizer: PreTrainedTokenizerBase, length: int
    ) -> None:
        known = tag(*TEXT)
        blanked = [replace(sentence, tags=None) for sentence in known]
        features = TASK.featurize(known, tokenizer, settings(length)).features
        hidden = TASK.featurize(blanked, tokenizer, settings(length)).features
        for sequence, other in zip(features, hidden, strict=True):
            assert sequence.ids.tolist() == other.ids.tolist()
            assert sequence.example == other.example
            assert (other.labels == IGNORED).all()
        assert TASK.decode(blanked, hidden, answer_gold(features)) == [s.tags for s in known]

    def test_a_word_without_pieces_is_unknown(self, tokenizer: PreTrainedTokenizerBase) -> None:
        examples = tag("the \u200b hill")
        (sequence,) = TASK.featurize(examples, tokenizer, settings(128)).features
        assert tokenizer.unk_token_id in sequence.ids.tolist()
        assert TASK.decode(examples, [sequence], answer_gold([sequence])) == [examples[0].tags]


def test_loss_is_cross_entropy_over_words() -> None:
    logits = torch.randn(2, 3, len(TAGS), generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([[IGNORED, 4, IGNORED], [7, 2, IGNORED]])
    chances = torch.log_softmax(logits, dim=-1)
    expected = -(chances[0, 1, 4] + chances[1, 0, 7] + chances[1, 1, 2]) / 3
    assert TASK.compute_loss(logits, labels, torch.ones(2)) == pytest.approx(float(expected))


class TestScores:
    def test_tally_by_hand(self) -> None:
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

    def test_chance_draws_each_tag_of_each_word_equally_often(self) -> None:
        examples = tag(*["a b c d"] * 4_250, "a")
        answers = TASK.answer_randomly([], examples, np.random.default_rng(3))
        assert [len(tags) for tags in answers] == [4] * 4_250 + [1]
        counts = Counter(word_tag for tags in answers for word_tag in tags)
        assert counts.keys() == {*TAGS}
        assert all(abs(count - 1_000) < 150 for count in counts.values())
        assert len({tags[0] == tags[1] for tags in answers[:-1]}) == 2

    def test_submission_has_one_tag_per_line_and_blank_lines(self) -> None:
        text = TASK.format_predictions(tag("a b", "c"), [("DET", "NOUN"), ("X",)])
        assert text == "DET\nNOUN\n\nX\n\n"

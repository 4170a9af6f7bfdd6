"""Tagging of words (parts of speech, named entities, custom tasks).

The first token of a word has its tag. Long sentences are split between words, never truncated, and
a word that the tokenizer drops becomes the unknown token, so every word gets a tag. Scores: `f1`,
`precision` and `recall` over chunks as in seqeval; `f1_token` over words, which is accuracy. Custom
tasks have `span_f1` and `accuracy` for `f1` and `f1_token`.
"""

# ruff: noqa: ARG002  # the interface has parameters that not every task needs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from statistics import mode
from typing import ClassVar

import numpy as np
from torch import Tensor
from transformers import PreTrainedTokenizerBase as Tokenizer

from metaxlm.finetune.batches import compute_cross_entropy
from metaxlm.finetune.encoding import tokenize_flat
from metaxlm.finetune.metrics import Counts, count_chunks, score_chunks
from metaxlm.finetune.readers.conll import TaggedSentence
from metaxlm.finetune.task import IGNORED, Features, FeatureSet, FinetuneSettings, Logits, Task
from metaxlm.model.heads import HeadKind

Tags = tuple[str, ...]
Sentences = Sequence[TaggedSentence]

SPAN_SCORES = ("f1", "precision", "recall")
POS_SCORES = ("f1", "f1_token")


@dataclass(kw_only=True, eq=False)
class TaggingTask(Task[TaggedSentence, Tags]):
    """Assign a tag to each word."""

    kind: ClassVar[HeadKind] = "tagging"
    scores: tuple[str, ...] = SPAN_SCORES
    """Scores to report; the first one selects checkpoints."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.metric = self.scores[0]
        self._ids = {tag: k for k, tag in enumerate(self.labels)}

    def featurize(
        self, examples: Sentences, tokenizer: Tokenizer, settings: FinetuneSettings
    ) -> FeatureSet:
        """Encode sentences, long ones as several sequences."""
        pieces = tokenize_flat(tokenizer, [sentence.words for sentence in examples])
        tokens_of, words_of = (
            np.split(values_N, pieces.starts_P[1:]) for values_N in (pieces.ids_N, pieces.words_N)
        )
        features: list[Features] = []
        num_split, room = 0, settings.length - 2
        for number, sentence in enumerate(examples):
            words: list[list[int]] = [[] for _ in sentence.words]
            for token, word in zip(tokens_of[number], words_of[number], strict=True):
                words[word].append(int(token))
            words = [tokens[:room] or [tokenizer.unk_token_id] for tokens in words]
            sizes = [len(word) for word in words]
            ranges = list(split_words(sizes, room))
            num_split += len(ranges) > 1
            for begin, end in ranges:
                ids = [tokenizer.cls_token_id, *chain(*words[begin:end]), tokenizer.sep_token_id]
                firsts = 1 + np.cumsum([0, *sizes[begin : end - 1]])
                labels = np.full(len(ids), IGNORED, dtype=np.int32)
                offsets = None
                if sentence.tags is None:
                    # Without labels, the offsets mark the first tokens of the words to predict.
                    offsets = np.full((len(ids), 2), -1, dtype=np.int32)
                    offsets[firsts] = np.arange(begin, end)[:, None]
                else:
                    labels[firsts] = [self._ids[tag] for tag in sentence.tags[begin:end]]
                sequence = np.array(ids, dtype=np.int32)
                features.append(Features(sequence, labels, example=number, offsets=offsets))
        notice = (
            f"{num_split:,} of {len(examples):,} sentences are longer than {settings.length} "
            f"tokens; split"
        )
        return FeatureSet(features, notice if num_split else "")

    def compute_loss(self, logits: Tensor, labels: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the mean cross entropy over the words of the batch."""
        return compute_cross_entropy(logits.flatten(0, 1), labels.flatten())

    def decode(
        self, examples: Sentences, features: Sequence[Features], logits: Sequence[Logits]
    ) -> list[Tags]:
        """Return the tags of the words' first tokens; sequences are in the order of the words."""
        found: list[list[str]] = [[] for _ in examples]
        for sequence, rows in zip(features, logits, strict=True):
            offsets = sequence.offsets
            is_first = sequence.labels != IGNORED if offsets is None else offsets[:, 0] >= 0
            found[sequence.example] += [self.labels[k] for k in rows[is_first].argmax(axis=-1)]
        for sentence, tags in zip(examples, found, strict=True):
            assert len(tags) == len(sentence.words), "every word has exactly one predicted tag"
        return [tuple(tags) for tags in found]

    def tally(self, examples: Sentences, predictions: Sequence[Tags], language: str) -> Counts:
        """Return correct, predicted and gold chunks, correct words and all words."""
        gold = [sentence.tags or () for sentence in examples]
        words = [
            (sum(map(str.__eq__, tags, answers)), len(tags))
            for tags, answers in zip(gold, predictions, strict=True)
        ]
        tokens = np.array(words, dtype=np.float64).reshape(len(words), 2)
        return np.concatenate([count_chunks(gold, predictions), tokens], axis=1)

    def summarize(self, totals: Counts) -> dict[str, Counts]:
        """Return the task's scores."""
        precision, recall, f1 = score_chunks(totals[..., :3])
        accuracy = totals[..., 3] / totals[..., 4]
        scores = {"f1": f1, "span_f1": f1, "precision": precision, "recall": recall}
        scores |= {"f1_token": accuracy, "accuracy": accuracy}
        return {name: scores[name] for name in self.scores}

    def answer_majority(self, train: Sentences, examples: Sentences) -> list[Tags]:
        """Answer with the training set's most frequent tag."""
        tag = mode(tag for sentence in train for tag in sentence.tags or ())
        return [(tag,) * len(sentence.words) for sentence in examples]

    def answer_randomly(
        self, train: Sentences, examples: Sentences, random: np.random.Generator
    ) -> list[Tags]:
        """Draw each tag of each word with the same probability."""
        draws = random.integers(len(self.labels), size=sum(len(s.words) for s in examples))
        tags = iter([self.labels[k] for k in draws])
        return [tuple(islice(tags, len(sentence.words))) for sentence in examples]

    def format_predictions(self, examples: Sentences, predictions: Sequence[Tags]) -> str:
        """Return one tag per line and a blank line after each sentence."""
        return "".join("\n".join(tags) + "\n\n" for tags in predictions)


def split_words(sizes: Sequence[int], room: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of words with at most `room` tokens; each word fits by itself."""
    begin, used = 0, 0
    for index, size in enumerate(sizes):
        if used + size > room:
            yield begin, index
            begin, used = index, 0
        used += size
    yield begin, len(sizes)

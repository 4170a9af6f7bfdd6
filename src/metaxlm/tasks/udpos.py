"""Part-of-speech tagging (UD 2.5): words come in, F1 by language goes out.

Trained on English, tested in 33 languages (the paper's Section 4.2 and its POS table). The first
piece of a word carries its tag; sentences longer than the input are split between words, never cut,
so every word gets a tag. Batch 32, learning rate 1e-5, 10 epochs and no weight decay are the
paper's; the length of 128 is xTune's. The score `f1` is the `xtreme` mode, which the paper reports;
`f1_token` beside it is plain accuracy over words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from metaxlm.model.encoder import EncoderConfig
from metaxlm.model.heads import TaggingHead
from metaxlm.tasks.encoding import WordPieces, tokenize_words
from metaxlm.tasks.metrics import compute_tagging_f1, find_majority
from metaxlm.tasks.readers import TaggedSentence, find_split, read_tagged_sentences
from metaxlm.tasks.task import IGNORED, Features, FeatureSet, FinetuneSettings, Logits, Split, Task

TAGS = (
    *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM"),
    *("PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM", "VERB", "X"),
)

Tags = tuple[str, ...]


class UdposTask(Task[TaggedSentence, Tags]):
    """Which of 17 parts of speech each word is."""

    name = "udpos"
    metric = "f1"
    languages = (
        *("af", "ar", "bg", "de", "el", "en", "es", "et", "eu", "fa", "fi", "fr", "he", "hi"),
        *("hu", "id", "it", "ja", "kk", "ko", "mr", "nl", "pt", "ru", "ta", "te", "th", "tl"),
        *("tr", "ur", "vi", "yo", "zh"),
    )
    settings = FinetuneSettings(epochs=10, learning_rate=1e-5, length=128)

    def read(self, data_dir: Path, split: Split, language: str) -> list[TaggedSentence]:
        """Read `udpos/SPLIT-XX.tsv`."""
        return read_tagged_sentences(find_split(data_dir, self.name, split, language), TAGS)

    def featurize(
        self,
        examples: Sequence[TaggedSentence],
        tokenizer: PreTrainedTokenizerBase,
        length: int,
    ) -> FeatureSet:
        """Encode sentences, the long ones in several sequences; no label is lost."""
        first, last = tokenizer.cls_token_id, tokenizer.sep_token_id
        pieces = tokenize_words(tokenizer, [sentence.words for sentence in examples])
        features: list[Features] = []
        num_split = 0
        for sentence, sentence_pieces in zip(examples, pieces, strict=True):
            words = group_by_word(
                sentence_pieces, len(sentence.words), tokenizer.unk_token_id, length - 2
            )
            start = len(features)
            for begin, end in split_words([len(word) for word in words], length - 2):
                ids, labels = [first], [IGNORED]
                for word, tag in zip(words[begin:end], sentence.tags[begin:end], strict=True):
                    ids += word
                    labels += [TAGS.index(tag)] + [IGNORED] * (len(word) - 1)
                features.append(
                    Features(
                        np.array([*ids, last], dtype=np.int32),
                        np.array([*labels, IGNORED], dtype=np.int32),
                    )
                )
            num_split += len(features) > start + 1
        notice = (
            f"{num_split:,} of {len(examples):,} sentences are longer than {length} tokens; split"
        )
        return FeatureSet(features, notice if num_split else "")

    def make_head(self, config: EncoderConfig) -> nn.Module:
        """Tag each token."""
        return TaggingHead(config, len(TAGS))

    def compute_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross entropy over the words of the batch."""
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)

    def decode(
        self,
        examples: Sequence[TaggedSentence],
        features: Sequence[Features],
        logits: Sequence[Logits],
    ) -> list[Tags]:
        """Read the tags off the words' first pieces; sequences are in the order of the words."""
        tags = [
            TAGS[best]
            for sequence, rows in zip(features, logits, strict=True)
            for best in rows[sequence.labels != IGNORED].argmax(axis=-1)
        ]
        predictions: list[Tags] = []
        start = 0
        for sentence in examples:
            predictions.append(tuple(tags[start : start + len(sentence.words)]))
            start += len(sentence.words)
        assert start == len(tags), "every word has exactly one predicted tag"
        return predictions

    def score(
        self, examples: Sequence[TaggedSentence], predictions: Sequence[Tags]
    ) -> dict[str, float]:
        """Return F1 in both modes."""
        gold = [sentence.tags for sentence in examples]
        return {
            "f1": compute_tagging_f1(gold, predictions, "xtreme"),
            "f1_token": compute_tagging_f1(gold, predictions, "token"),
        }

    def answer_majority(
        self, train: Sequence[TaggedSentence], examples: Sequence[TaggedSentence]
    ) -> list[Tags]:
        """Answer the training set's most frequent tag."""
        tag = find_majority(tag for sentence in train for tag in sentence.tags)
        return [(tag,) * len(sentence.words) for sentence in examples]


def group_by_word(
    pieces: WordPieces, num_words: int, unknown_id: int, longest: int
) -> list[list[int]]:
    """Return the pieces of each word: at least one (the unknown), at most `longest`."""
    groups: list[list[int]] = [[] for _ in range(num_words)]
    for piece, word in zip(pieces.ids, pieces.words, strict=True):
        groups[word].append(piece)
    return [group[:longest] or [unknown_id] for group in groups]


def split_words(sizes: Sequence[int], room: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of words whose pieces fill at most `room`; each word fits by itself."""
    begin, used = 0, 0
    for index, size in enumerate(sizes):
        if used + size > room:
            yield begin, index
            begin, used = index, 0
        used += size
    yield begin, len(sizes)

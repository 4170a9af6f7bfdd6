"""Real tokenizers trained in the test, small random encoders, and the published data if present."""

from __future__ import annotations

import functools
import io
import json
import re
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    BertTokenizer,
    PreTrainedTokenizerBase,
    RobertaTokenizer,
    XLMRobertaTokenizer,
)

from metaxlm.errors import MetaXLMError
from metaxlm.model import masked_lm
from metaxlm.model.encoder import EncoderConfig, NativeEncoder
from metaxlm.progress import console
from metaxlm.vocab.tokenizer import train_byte_bpe
from metaxlm.vocab.unigram import train_unigram

EVALUATION_DATA = Path(__file__).parents[3] / "shared" / "data" / "eval"

TEXT = [
    "We do not believe that we should cherry-pick .",
    "But this is not what happens , is it ?",
    "The small house sits on the green hill near the river .",
    "Wir glauben nicht , daß wir nur Rosinen herauspicken sollten .",
    "Das kleine Haus steht auf dem grünen Hügel am Fluss .",
    "Nous ne croyons pas que nous devrions choisir .",
    "我 喜欢 你 。 他 不 喜欢 我 。",
    "我喜欢你。小房子在河边的绿色山上。",
    "सरकार का प्रस्ताव है कि कानून बदले ।",
    "นี่คือบ้านหลังเล็ก",
]

WORDS = [word for line in TEXT[:6] for word in line.split() if word.isalpha()]

CPU = torch.device("cpu")
Messages = Callable[[], str]
Published = Callable[[str], Path]


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@dataclass(frozen=True)
class WordPieces:
    """The tokens of one sentence, and the word of each token."""

    ids: list[int]
    words: list[int]

    def __len__(self) -> int:
        return len(self.ids)


def tokenize_words(
    tokenizer: PreTrainedTokenizerBase, sentences: Sequence[Sequence[str]]
) -> list[WordPieces]:
    """Tokenize sentence by sentence; a space belongs to the word after it."""
    found = []
    for text in map(" ".join, sentences):
        encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        lasts = [max(end - 1, start) for start, end in encoded["offset_mapping"]]
        words = [text.count(" ", 0, last + 1) for last in lasts]
        found.append(WordPieces(encoded["input_ids"], words))
    return found


def refuse(message: str, *parts: object) -> pytest.RaisesExc[MetaXLMError]:
    """Expect exactly this error."""
    return pytest.raises(MetaXLMError, match="^" + re.escape(message.format(*parts)) + "$")


def _make_xlmr() -> PreTrainedTokenizerBase:
    """transformers' own XLM-R class, which splits on white space first and normalizes nothing."""
    unigram = json.loads(train_unigram(iter(TEXT * 4), 150).backend_tokenizer.to_str())
    return XLMRobertaTokenizer(vocab=[tuple(row) for row in unigram["model"]["vocab"]])


def _make_roberta() -> PreTrainedTokenizerBase:
    """transformers' own RoBERTa class, which puts no space before the first word."""
    byte_bpe = json.loads(train_byte_bpe(iter(TEXT * 4), 400).backend_tokenizer.to_str())
    vocabulary = {**byte_bpe["model"]["vocab"], "<mask>": len(byte_bpe["model"]["vocab"])}
    merges = [tuple(pair) for pair in byte_bpe["model"]["merges"]]
    return RobertaTokenizer(vocab=vocabulary, merges=merges)


def _make_bert() -> PreTrainedTokenizerBase:
    """WordPiece with BERT's special tokens, which numbers the two sides of a pair."""
    characters = sorted({c for c in "".join(TEXT).lower() if not c.isspace()})
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters]
    tokens += ["the", "house", *(f"##{c}" for c in characters)]
    return BertTokenizer(vocab={token: k for k, token in enumerate(tokens)})


def _make_words() -> PreTrainedTokenizerBase:
    """A unigram vocabulary with a piece for each word, so that a tiny model learns fast."""
    special = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    words = [(f"▁{word}", -2.0) for word in sorted(set(WORDS))]
    characters = [(c, -9.0) for c in sorted({*"".join(WORDS), "▁"})]
    return XLMRobertaTokenizer(vocab=[*special, *words, *characters, ("<mask>", 0.0)])


@functools.cache
def make_tokenizer(kind: str) -> PreTrainedTokenizerBase:
    makers: dict[str, Callable[[], PreTrainedTokenizerBase]] = {
        "unigram": lambda: train_unigram(iter(TEXT * 4), 150),
        "byte_bpe": lambda: train_byte_bpe(iter(TEXT * 4), 400),
        "xlmr": _make_xlmr,
        "roberta": _make_roberta,
        "bert": _make_bert,
        "words": _make_words,
    }
    return makers[kind]()


@pytest.fixture(scope="session", params=["unigram", "byte_bpe", "xlmr", "roberta", "bert"])
def any_tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerBase:
    """Each kind of tokenizer in turn."""
    return make_tokenizer(request.param)


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerBase:
    """The kind that cross-lingual pretraining uses."""
    return make_tokenizer("unigram")


MakeEncoder = Callable[..., NativeEncoder]


@pytest.fixture(scope="session")
def make_encoder() -> MakeEncoder:
    """Return a maker of small random encoders that fit a tokenizer."""

    def make(
        tokenizer: PreTrainedTokenizerBase, scale: float = 10.0, **changes: object
    ) -> NativeEncoder:
        is_bert = tokenizer.pad_token == "[PAD]"
        sizes: dict[str, Any] = {
            "vocab_size": len(tokenizer),
            "pad_id": tokenizer.pad_token_id,
            "position_offset": 0 if is_bert else 2,
            "num_token_types": 2 if is_bert else 1,
            "family": "bert" if is_bert else "xlm-roberta",
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 2,
            "ffn_size": 64,
            "max_positions": 64,
        }
        with torch.random.fork_rng([]):
            torch.manual_seed(0)
            encoder = masked_lm.make_encoder(EncoderConfig(**(sizes | changes)))
            # Fresh weights of N(0, 0.02) leave the residual stream almost untouched; ten times
            # larger ones make the layers differ as they do after training.
            with torch.no_grad():
                for parameter in encoder.parameters():
                    if parameter.ndim > 1:
                        parameter.mul_(scale)
        return encoder

    return make


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> Messages:
    """Capture the log; long lines stay in one piece."""
    sink = io.StringIO()
    # Not `file`: undoing that would pin the console to the standard output of this test.
    monkeypatch.setattr(console, "_file", sink)
    return sink.getvalue


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """Return a function that unpacks a published test set, and skips where it is absent."""
    folder = tmp_path_factory.mktemp("eval")

    def unpack(name: str) -> Path:
        archive = EVALUATION_DATA / f"{name}.tar.xz"
        if not archive.exists():
            pytest.skip(f"{name}.tar.xz is not in shared/data/eval beside the checkout")
        if not (folder / name).exists():
            with tarfile.open(archive) as tar:
                tar.extractall(folder, filter="data")
        return folder

    return unpack

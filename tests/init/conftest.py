"""Small real tokenizers of the three kinds, and dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, WordPiece
from tokenizers.trainers import BpeTrainer, WordPieceTrainer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from metaxlm.init.dictionaries import Dictionaries, load_dictionaries
from metaxlm.init.match_plan import Counts, Plan, make_plan
from metaxlm.recipe import MatchingRecipe
from metaxlm.vocab.tokenizer import train_byte_bpe

ENGLISH = "cat dog house girl city river sees loves love hotel cafe London Paris NATO red book"
FOREIGN = (
    "Katze Hund Haus Mädchen Straße London Hotel chat chien maison café paris nato "
    "кошка дом любит 猫 河 城市"
)
DICTIONARIES = {
    "de": "cat katze\ndog hund\nhouse haus\ngirl mädchen\nstreet straße\ncity straße\n",
    "fr": "cat chat\ndog chien\nhouse maison\n",
    "ru": "cat кошка\nhouse дом\nloves любит\nlove любит\n",
    "zh": "cat 猫\nriver 河\ncity 城市\n",
}


@pytest.fixture(scope="session")
def byte_bpe() -> PreTrainedTokenizerBase:
    """RoBERTa's kind, over English; each word is one token."""
    return train_byte_bpe(iter([ENGLISH] * 3), 400)


def wrap(tokenizer: Tokenizer, roles: Mapping[str, str]) -> PreTrainedTokenizerBase:
    named = {f"{role}_token": token for role, token in roles.items()}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named)


@pytest.fixture(scope="session")
def pieces() -> PreTrainedTokenizerBase:
    """XLM-R's kind, over the other languages; each word is one piece, and so is each letter."""
    tokenizer = Tokenizer(BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer = BpeTrainer(vocab_size=1_000, special_tokens=specials, show_progress=False)
    tokenizer.train_from_iterator([FOREIGN] * 3, trainer)
    tokenizer.add_special_tokens(["<mask>"])
    roles = {"bos": "<s>", "eos": "</s>", "pad": "<pad>", "unk": "<unk>", "mask": "<mask>"}
    return wrap(tokenizer, roles)


@pytest.fixture(scope="session")
def wordpiece() -> PreTrainedTokenizerBase:
    """BERT's kind, uncased, with BERT's special tokens in BERT's order."""
    tokenizer = Tokenizer(WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = WordPieceTrainer(vocab_size=1_000, special_tokens=specials, show_progress=False)
    tokenizer.train_from_iterator([ENGLISH] * 3, trainer)
    return wrap(tokenizer, {name.strip("[]").lower(): name for name in specials})


WriteDictionaries = Callable[[Mapping[str, str | bytes]], Path]


@pytest.fixture
def write(tmp_path: Path) -> WriteDictionaries:
    """Write files by name into a folder."""

    def write_files(files: Mapping[str, str | bytes]) -> Path:
        folder = tmp_path / "dictionaries"
        folder.mkdir(exist_ok=True)
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            (folder / name).write_bytes(data)
        return folder

    return write_files


@pytest.fixture
def dictionaries(write: WriteDictionaries) -> Dictionaries:
    """Dictionaries of the four languages."""
    return load_dictionaries(write({f"en-{k}.txt": text for k, text in DICTIONARIES.items()}))


MakePlan = Callable[..., Plan]


@pytest.fixture
def make(
    write: WriteDictionaries, pieces: PreTrainedTokenizerBase, byte_bpe: PreTrainedTokenizerBase
) -> MakePlan:
    """Make a plan from `byte_bpe` to `pieces` with English dictionaries and settings."""

    def make_it(
        texts: Mapping[str, str] | None = None, counts: Counts | None = None, **settings: object
    ) -> Plan:
        files = {f"en-{language}.txt": text for language, text in (texts or {}).items()}
        loaded = load_dictionaries(write(files)) if files else None
        return make_plan(pieces, byte_bpe, MatchingRecipe(**settings), loaded, counts)

    return make_it


@pytest.fixture
def plan(make: MakePlan) -> Plan:
    """A plan with all four dictionaries."""
    return make(DICTIONARIES)


def describe(plan: Plan, token: str) -> tuple[str, dict[str, float]]:
    """Return the rule of a token, and its source tokens with their weights."""
    origin = plan.origin(plan.tokens.index(token))
    assert origin.token == token
    return origin.rule, dict(zip(origin.source_tokens, origin.weights, strict=True))

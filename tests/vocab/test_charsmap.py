"""The shared vocabulary's ids are SentencePiece's own, whatever the text."""

from __future__ import annotations

import tarfile
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.vocab.languages import SENTENCES
from transformers import PreTrainedTokenizerBase

from metaxlm.vocab.unigram import fast_tokenizer, train_model

EVAL = Path(__file__).parents[3] / "shared" / "data" / "eval"
MORE_LANGUAGES = ("ben", "fin", "heb", "jpn", "kat", "kor", "mal", "mar", "pes", "tam", "tel")
needs_data = pytest.mark.skipif(
    not (EVAL / "xnli.tar.xz").is_file(), reason="needs XNLI and Tatoeba beside the repository"
)


class Pair:
    """A SentencePiece model and the fast tokenizer made of it."""

    def __init__(self, lines: Sequence[str], size: int) -> None:
        self.model = train_model(lines, size)
        self.oracle = sentencepiece.SentencePieceProcessor(model_proto=self.model)
        self.tokenizer: PreTrainedTokenizerBase = fast_tokenizer(self.model)

    def expected(self, lines: Sequence[str]) -> list[list[int]]:
        # SentencePiece has <unk> <s> </s> first, XLM-R's layout one more.
        return [[3 if i == 0 else i + 1 for i in ids] for ids in self.oracle.encode(list(lines))]

    def found(self, lines: Sequence[str]) -> list[list[int]]:
        backend = self.tokenizer.backend_tokenizer
        encodings = backend.encode_batch_fast(list(lines), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def differing(self, lines: Sequence[str]) -> list[str]:
        """Return the lines whose ids differ."""
        both = zip(lines, self.found(lines), self.expected(lines), strict=True)
        return [line for line, ours, theirs in both if ours != theirs]


@pytest.fixture(scope="module")
def pair() -> Pair:
    return Pair([*(line for lines in SENTENCES.values() for line in lines), "5 < 6 > 4 / 2"], 600)


def test_ids_are_sentencepieces_in_many_languages(pair: Pair) -> None:
    assert len(SENTENCES) >= 17
    for language, lines in SENTENCES.items():
        assert pair.found(lines) == pair.expected(lines), language
        assert all(3 not in ids for ids in pair.found(lines[:2])), language


HARD = [
    *("", " ", "\u3000 \t", "  a   b  ", "\u0301", "\u0301a"),
    "a\u0323\u0302 o\u0302\u0323 \u1ea1\u0302 \u00e2\u0323",  # only the first is composed
    "①\u0301 \ufffd\u0301 ﬁ\u0302 ª\u0302 Ａ\u0302\u0323",  # rewritten bases
    "e\u0344 e\x01\u0301 e\u200b\u0301 e\u200d\u0301",
    "\u0628\u0651\u064e \u0628\u064e\u0651",  # SentencePiece keeps the order of marks
    "\ufdfa \ufdfb ㍿ ㌖ ½",
    "👩\u200d👩\u200d👧 🏳\ufe0f\u200d🌈 ©\ufe0f 🇩🇪",
    *("a\u0085b\u0085", "x\ufeffy\u200ez\u202e", "▁a▁▁b", "\r\n a\r\nb\n"),
    "२\u0e33 ²\u0e33 \xa8\u0301",
    "0000 30000 10000000 0000000",  # cuts that are equally good
    "\ud55c \u1112\u1161\u11ab ㅎㅏㄴ \uffb0\uffc2 가\u11a8",
]


def test_ids_are_sentencepieces_for_hard_text(pair: Pair) -> None:
    assert pair.differing(HARD) == []


def _characters(*ranges: tuple[int, int]) -> st.SearchStrategy[str]:
    """Characters of these ranges that Unicode has assigned."""
    return st.one_of(
        st.characters(min_codepoint=low, max_codepoint=high, exclude_categories=("Cs", "Cn"))
        for low, high in ranges
    )


MARKS = _characters((0x300, 0x36F), (0x591, 0x5BD), (0x64B, 0x670), (0x1DC0, 0x1DFF))
POOLS = [
    _characters((0, 0x10FFFF)),
    _characters((0, 0x24F)),
    _characters((0x250, 0x5FF)),
    _characters((0x600, 0x8FF)),
    _characters((0x900, 0xDFF)),
    _characters((0xE00, 0x10FF)),
    _characters((0x1100, 0x11FF), (0x3130, 0x318F), (0xAC00, 0xAC40), (0xFFA0, 0xFFDC)),
    _characters((0x1E00, 0x1FFF)),
    _characters((0x2000, 0x2BFF)),
    _characters((0x3040, 0x30FF), (0x3099, 0x309A), (0x3200, 0x33FF), (0xFF00, 0xFFEF)),
    _characters((0xF900, 0xFDFF), (0xFE00, 0xFE0F)),
    _characters((0x1D400, 0x1D7FF), (0x1F100, 0x1F64F), (0x200D, 0x200D)),
    st.sampled_from("aeiouAEIOUyY αιυω каи 각 ｶﾞﾊﾟ"),
]
TEXTS = st.one_of(st.lists(pool | MARKS, max_size=12).map("".join) for pool in POOLS)


@settings(max_examples=200, deadline=None, database=None)
@given(text=TEXTS)
def test_ids_are_sentencepieces_for_any_text(pair: Pair, text: str) -> None:
    assert pair.found([text]) == pair.expected([text])


def test_text_that_spells_a_special_token_is_text_when_asked_for(pair: Pair) -> None:
    backend = pair.tokenizer.backend_tokenizer
    text = "cat <s> x </s><mask> <unk> <pad>"
    assert backend.encode(text, add_special_tokens=False).ids.count(0) == 1
    backend.encode_special_tokens = True
    try:
        assert pair.found([text]) == pair.expected([text])
    finally:
        backend.encode_special_tokens = False


@pytest.mark.parametrize(
    "text",
    ["the cat", "a\u0323\u0302b ﬁne  Viê\u0323t \u0628\u0651\u064e cat", "ｶﾞ가\u11a8 ①\u0301 cat"],
)
def test_offsets_point_into_the_text(pair: Pair, text: str) -> None:
    encoded = pair.tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    spans = encoded["offset_mapping"]
    covered = [place for start, end in spans for place in range(start, end)]
    assert covered == sorted(covered)
    letters = [i for i, c in enumerate(text) if unicodedata.category(c) in ("Ll", "Lu", "Lo")]
    assert set(letters) - {text.find("\u11a8")} <= set(covered)
    start = min(start for start, end in spans if end > text.index("cat"))
    assert text[start : spans[-1][1]].strip() == "cat"


def _read_archive(name: str, wanted: str) -> dict[str, list[str]]:
    """Return the lines of an archive's files whose names start with `wanted`."""
    with tarfile.open(EVAL / name) as archive:
        return {
            Path(member.name).name: file.read().decode().splitlines()
            for member in archive
            if Path(member.name).name.startswith(wanted) and (file := archive.extractfile(member))
        }


@pytest.fixture(scope="module")
def test_sets() -> dict[str, list[str]]:
    """All distinct lines of XNLI's test sets and of Tatoeba's other languages."""
    sets = {}
    for name, rows in _read_archive("xnli.tar.xz", "test-").items():
        columns = [column for row in rows for column in row.split("\t")[:2]]
        sets[name] = list(dict.fromkeys(columns))
    for name, rows in _read_archive("tatoeba.tar.xz", "tatoeba").items():
        if not name.endswith(".eng"):
            sets[name] = rows
    return sets


@needs_data
@pytest.mark.parametrize(
    ("size", "is_whole"), [(4_000, False), pytest.param(8_000, True, marks=pytest.mark.slow)]
)
def test_ids_are_sentencepieces_on_real_lines(
    test_sets: dict[str, list[str]], size: int, is_whole: bool
) -> None:
    assert len(test_sets) == 15 + 36
    if not is_whole:
        wanted = (".tsv", *MORE_LANGUAGES)
        samples = {name: rows[:: len(rows) // 300 or 1] for name, rows in test_sets.items()}
        test_sets = {name: rows for name, rows in samples.items() if name.endswith(wanted)}
    pair = Pair([line for rows in test_sets.values() for line in rows[::4]], size)
    for name, rows in test_sets.items():
        assert pair.differing(rows) == [], name

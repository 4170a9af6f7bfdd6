"""Trimming: kept tokens are used as before; ids, roles and templates follow; the loss is exact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.conftest import sentences
from tests.vocab.kinds import KINDS, LINES, count_pieces, make_tokenizer
from tests.vocab.languages import SENTENCES
from tokenizers import AddedToken, Tokenizer, processors
from tokenizers.models import BPE, Unigram, WordLevel
from transformers import (
    AutoTokenizer,
    ByT5Tokenizer,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from metaxlm.data.encode import SentenceEncoder
from metaxlm.errors import MetaXLMError
from metaxlm.vocab.trim import TrimLoss, choose_pieces, measure_loss, trim_tokenizer

ROLES = ("bos", "eos", "sep", "cls", "pad", "unk", "mask")
every_kind = pytest.mark.parametrize("kind", KINDS)
TEMPLATE = processors.TemplateProcessing("<s> $A </s>", None, [("<s>", 7), ("</s>", 8)])
words = st.sampled_from(sorted({word for line in LINES for word in line.split()}))
texts = st.one_of(
    st.lists(words, min_size=1, max_size=6).map(" ".join),
    st.text(st.sampled_from(sorted(set("".join(LINES)))), min_size=1, max_size=12),
    st.text(min_size=1, max_size=8),
)


def _trim(
    tokenizer: PreTrainedTokenizerBase, lines: list[str], min_count: int = 1
) -> tuple[NDArray[np.int64], PreTrainedTokenizerBase]:
    rows = choose_pieces(count_pieces(tokenizer, lines), tokenizer, min_count)
    return rows, trim_tokenizer(tokenizer, rows)


def _wrap(backend: Tokenizer, **options: Any) -> PreTrainedTokenizerBase:
    return PreTrainedTokenizerFast(tokenizer_object=backend, **options)


def _cut(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def _is_writable(text: str) -> bool:
    return text.isprintable() and not any("\ud800" <= letter <= "\udfff" for letter in text)


@every_kind
@settings(max_examples=30, deadline=None)
@given(counted=st.lists(texts, min_size=1, max_size=4), others=st.lists(texts, max_size=8))
def test_a_text_with_kept_tokens_only_is_tokenized_as_before(
    kind: str, counted: list[str], others: list[str]
) -> None:
    counted, others = (list(filter(_is_writable, part)) for part in (counted, others))
    tokenizer = make_tokenizer(kind)
    assume(any(set(_cut(tokenizer, text)) - set(tokenizer.all_special_ids) for text in counted))
    rows, trimmed = _trim(tokenizer, counted)
    kept = set(rows.tolist())
    for text in counted:
        assert set(_cut(tokenizer, text)) <= kept
    for text in [*counted, *others, *sentences("en")[::16]]:
        ids = _cut(tokenizer, text)
        # In WordPiece a whole word is unknown, and may become known without a wrong start.
        if kept.issuperset(ids) and not (kind == "bert" and tokenizer.unk_token_id in ids):
            assert rows[_cut(trimmed, text)].tolist() == ids


@every_kind
def test_nothing_known_becomes_unknown(kind: str) -> None:
    tokenizer = make_tokenizer(kind)
    _, trimmed = _trim(tokenizer, list(LINES), min_count=50)
    assert len(trimmed) < len(tokenizer)
    shorter = 0
    for line in LINES:
        before, after = _cut(tokenizer, line), _cut(trimmed, line)
        assert after.count(trimmed.unk_token_id) <= before.count(tokenizer.unk_token_id)
        shorter += len(before) < len(after)
    assert shorter > len(LINES) / 4


@every_kind
def test_order_and_special_tokens_are_kept_also_when_it_is_saved(kind: str, tmp_path: Path) -> None:
    tokenizer = make_tokenizer(kind)
    rows, trimmed = _trim(tokenizer, sentences("de"))
    trimmed.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.get_vocab() == trimmed.get_vocab()
    for sample in LINES[::7]:
        assert loaded(sample, sample).data == trimmed(sample, sample).data
    assert loaded.special_tokens_map == trimmed.special_tokens_map
    assert len(rows) == len(trimmed) < len(tokenizer) * 0.7
    new = trimmed.convert_ids_to_tokens(list(range(len(rows))))
    assert new == tokenizer.convert_ids_to_tokens(rows.tolist())
    assert trimmed.special_tokens_map == tokenizer.special_tokens_map
    for role in ROLES:
        old, new = (getattr(t, f"{role}_token_id") for t in (tokenizer, trimmed))
        assert (old is None) == (new is None)
        assert old is None or rows[new] == old, role
    assert rows[trimmed.all_special_ids].tolist() == tokenizer.all_special_ids
    if kind in ("unigram", "xlmr", "byte_bpe", "roberta"):
        assert trimmed.convert_tokens_to_ids(["<s>", "<pad>", "</s>", "<unk>"]) == [0, 1, 2, 3]
        assert trimmed.mask_token_id == len(trimmed) - 1
    line = sentences("de")[5]
    for arguments in ([line], [line, "ein Hund"], [f"{line} {tokenizer.mask_token} ein Haus"]):
        before, after = tokenizer(*arguments), trimmed(*arguments)
        assert rows[after.pop("input_ids")].tolist() == before.pop("input_ids")
        assert after == before
        skip = {"skip_special_tokens": True}
        assert trimmed.decode(trimmed(*arguments)["input_ids"], **skip) == tokenizer.decode(
            tokenizer(*arguments)["input_ids"], **skip
        )


@every_kind
def test_with_all_rows_nothing_changes(kind: str) -> None:
    tokenizer = make_tokenizer(kind)
    same = trim_tokenizer(tokenizer, np.arange(len(tokenizer)))
    before, after = (json.loads(t.backend_tokenizer.to_str()) for t in (tokenizer, same))
    before |= {"padding": None, "truncation": None}
    assert after == before


def test_added_tokens_are_kept_if_they_are_used_or_special() -> None:
    source = make_tokenizer("unigram")
    tokenizer = _wrap(source.backend_tokenizer, **source.special_tokens_map)
    tokenizer.add_tokens(["Unbenutztes", "Benutztes", AddedToken("<tag>", special=True), "Zuletzt"])
    rows, trimmed = _trim(tokenizer, ["ein Benutztes Haus"])
    assert rows[-2:].tolist() == tokenizer.convert_tokens_to_ids(["Benutztes", "<tag>"])
    removed = tokenizer.get_added_vocab().keys() - trimmed.get_added_vocab().keys()
    assert removed == {"Unbenutztes", "Zuletzt"}
    for text in ("ein Benutztes Haus", "ein <tag> Haus"):
        assert rows[_cut(trimmed, text)].tolist() == _cut(tokenizer, text)


def test_the_most_frequent_pieces_fill_a_size() -> None:
    tokenizer = make_tokenizer("unigram")
    counts = count_pieces(tokenizer, LINES)
    everything = choose_pieces(counts, tokenizer)
    fewest = choose_pieces(counts, tokenizer, min_count=int(counts.max()))
    size = (len(fewest) + len(everything)) // 2
    rows = choose_pieces(counts, tokenizer, size=size)
    assert len(rows) == size
    added = sorted(set(rows) - set(fewest), key=lambda row: (-counts[row], row))
    left_out = sorted(set(everything) - set(rows), key=lambda row: (-counts[row], row))
    assert (counts[added[-1]], -added[-1]) > (counts[left_out[0]], -left_out[0])
    assert counts[added[-1]] == counts[left_out[0]]  # a tie, so that its rule is tested
    assert choose_pieces(counts, tokenizer, size=10**6).tolist() == everything.tolist()
    both = choose_pieces(counts, tokenizer, min_count=40, size=size)
    assert both.tolist() == choose_pieces(counts, tokenizer, min_count=40).tolist()


@pytest.mark.parametrize("kind", ["byte_bpe", "byte_fallback", "end_of_word"])
def test_a_size_is_a_limit_with_all_parents_of_merges(kind: str) -> None:
    tokenizer = make_tokenizer(kind)
    counts = count_pieces(tokenizer, LINES)
    fewest = len(choose_pieces(counts, tokenizer, min_count=int(counts.max())))
    for size in range(fewest, fewest + 40, 4):
        rows = choose_pieces(counts, tokenizer, size=size)
        assert size - 3 <= len(rows) <= size
        before, after = (
            json.loads(one.backend_tokenizer.to_str())["model"]
            for one in (tokenizer, trim_tokenizer(tokenizer, rows))
        )
        kept = [merge for merge in before["merges"] if "".join(merge) in after["vocab"]]
        assert after["merges"] == kept


@pytest.mark.parametrize(
    "processor",
    [
        processors.BertProcessing(("</s>", 8), ("<s>", 7)),
        processors.RobertaProcessing(("</s>", 8), ("<s>", 7)),
        processors.Sequence([processors.ByteLevel(trim_offsets=False), TEMPLATE]),
    ],
    ids=["bert", "roberta", "sequence"],
)
def test_special_tokens_at_the_end_are_renumbered(processor: processors.PostProcessor) -> None:
    names = ["▁", "a", "b", "c", "ab", "ac", "<unk>", "<s>", "</s>"]
    backend = Tokenizer(Unigram([(name, -1.0) for name in names], unk_id=6))
    backend.post_processor = processor
    tokenizer = _wrap(backend)
    rows, trimmed = _trim(tokenizer, ["ab"])
    assert rows.tolist() == [1, 2, 4, 6, 7, 8]
    assert trimmed("ab☃")["input_ids"] == [4, 2, 3, 5]


def test_special_tokens_of_a_template_are_kept_without_a_role() -> None:
    content = json.loads(make_tokenizer("unigram").backend_tokenizer.to_str())
    content["added_tokens"] = []
    tokenizer = _wrap(Tokenizer.from_str(json.dumps(content)))
    rows, trimmed = _trim(tokenizer, ["ein Haus"])
    assert {0, 2, 3} <= set(rows.tolist())
    assert rows[trimmed("ein Haus")["input_ids"]].tolist() == tokenizer("ein Haus")["input_ids"]


def test_shards_of_a_trimmed_vocabulary_have_its_own_ids() -> None:
    """The fast encoder uses SentencePiece for words."""
    lines = [" ".join(line.split()) for lines in SENTENCES.values() for line in lines]
    _, trimmed = _trim(make_tokenizer("unigram"), lines[::2], min_count=2)
    encoded = SentenceEncoder(trimmed.backend_tokenizer).encode(lines)
    assert encoded.ids.tolist() == [i for line in lines for i in _cut(trimmed, line)]


@every_kind
def test_the_loss_is_counted_by_tokenizing_with_both(kind: str) -> None:
    before = make_tokenizer(kind)
    rows = choose_pieces(count_pieces(before, sentences("de")[::2]), before, min_count=3)
    after = trim_tokenizer(before, rows)
    texts = {"de": sentences("de"), "ru": sentences("ru"), "all": list(LINES)}
    found = measure_loss(before, after, texts)
    assert list(found) == list(texts)
    for language, lines in texts.items():
        old, new = ([t.tokenize(line) for line in lines] for t in (before, after))
        unknown = [
            sum(t(line)["input_ids"].count(t.unk_token_id) for line in lines)
            for t in (before, after)
        ]
        same = sum(a == b for a, b in zip(old, new, strict=True))
        tokens = [sum(map(len, rows)) for rows in (old, new)]
        expected = TrimLoss(len(before), len(after), len(lines), same, *tokens, *unknown)
        assert found[language] == expected
    assert found["de"].same_share > found["all"].same_share > found["ru"].same_share == 0
    assert found["ru"].growth == found["ru"].tokens_after / found["ru"].tokens_before - 1


def test_settings_are_kept_and_truncation_is_not() -> None:
    kept = {
        "model_max_length": 77, "padding_side": "left", "truncation_side": "left",
        "model_input_names": ["input_ids"], "chat_template": "{{ messages }}",
        "add_prefix_space": True, "extra_special_tokens": ["<de>", "<sw>"],
    }  # fmt: skip
    source = make_tokenizer("byte_bpe")
    tokenizer = _wrap(source.backend_tokenizer, **source.special_tokens_map, **kept)
    line = sentences("en")[0]
    short = tokenizer([line, "a"], padding=True, truncation=True, max_length=4)
    assert len(short["input_ids"][0]) == 4
    rows, trimmed = _trim(tokenizer, [line])
    assert trimmed.backend_tokenizer.truncation is None
    assert trimmed.backend_tokenizer.padding is None
    assert rows[_cut(trimmed, line)].tolist() == _cut(tokenizer, line)  # so it was counted whole
    assert {name: getattr(trimmed, name) for name in kept} == kept
    assert _cut(trimmed, "<sw>") == [len(trimmed) - 1]


@pytest.mark.parametrize(("kind", "least"), [("byte_bpe", 95), ("byte_fallback", 256)])
def test_the_alphabet_of_bytes_is_kept(kind: str, least: int) -> None:
    rows, trimmed = _trim(make_tokenizer(kind), ["Haus"])
    assert len(rows) > least
    ids = _cut(trimmed, "Größe ☃ 猫")
    assert trimmed.unk_token_id not in ids
    assert trimmed.decode(ids).strip() == "Größe ☃ 猫"


def test_min_count_removes_rare_tokens_but_no_letters() -> None:
    tokenizer = make_tokenizer("unigram")
    counts = count_pieces(tokenizer, LINES)
    rows = choose_pieces(counts, tokenizer, min_count=3)
    pieces = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    letters = set("".join(pieces[row] for row in np.flatnonzero(counts)))
    for row, piece in enumerate(pieces):
        stays = counts[row] >= 3 or piece in letters or piece in tokenizer.all_special_tokens
        assert (row in rows) == stays, piece
    _, bert = _trim(make_tokenizer("bert"), ["hund"])
    assert bert.tokenize("nuh") == ["n", "##u", "##h"]
    _, words_end = _trim(make_tokenizer("end_of_word"), ["Hund"])
    assert words_end.tokenize("dnu") == ["d", "n", "u</w>"]


def _wrap_unigram(**scores: float) -> PreTrainedTokenizerBase:
    backend = Tokenizer(Unigram([("<unk>", 0.0), ("▁", -1.0), *scores.items()], unk_id=0))
    backend.pre_tokenizer = make_tokenizer("unigram").backend_tokenizer.pre_tokenizer
    return _wrap(backend, unk_token="<unk>")


def test_a_rare_token_with_a_letter_without_a_token_is_kept() -> None:
    tokenizer = _wrap_unigram(b=-3.0, c=-3.0, ab=-4.0, bc=-4.0, rare=-5.0)
    counts = count_pieces(tokenizer, ["ab bc"] + ["b c"] * 9)
    rows = choose_pieces(counts, tokenizer, min_count=5)
    kept = tokenizer.convert_ids_to_tokens(rows.tolist())
    assert kept == ["<unk>", "▁", "b", "c", "ab", "rare"]


def test_the_score_of_unknown_letters_is_kept() -> None:
    """The lowest score decides it: without that token, `abcd` has other tokens."""
    tokenizer = _wrap_unigram(b=-9.0, ab=-9.0, c=-9.0, d=-9.0, bcd=-2.0, rare=-20.0, z=-4.0)
    assert tokenizer.tokenize("abcd") == ["▁", "ab", "c", "d"]
    without = trim_tokenizer(tokenizer, np.arange(7))
    assert without.tokenize("abcd") == ["▁", "a", "bcd"]
    rows, trimmed = _trim(tokenizer, ["abcd bcd"])
    assert trimmed.tokenize("abcd") == ["▁", "ab", "c", "d"]
    assert rows.tolist() == list(range(8))


def _wrap_bpe(*merges: tuple[str, str], **rows: int) -> PreTrainedTokenizerBase:
    model = BPE({"<unk>": 0, **rows}, list(merges), unk_token="<unk>")
    return _wrap(Tokenizer(model), unk_token="<unk>")


def test_all_merges_of_a_token_are_kept() -> None:
    """Converted vocabularies list several merges for one piece."""
    merges = [("x", "a"), ("b", "c"), ("a", "bc"), ("a", "b"), ("ab", "c")]
    tokenizer = _wrap_bpe(*merges, a=1, b=2, c=3, ab=4, bc=5, abc=6, x=7, xa=8)
    assert count_pieces(tokenizer, ["abc"]).tolist() == [0, 0, 0, 0, 0, 0, 1, 0, 0]
    rows, trimmed = _trim(tokenizer, ["abc"])
    assert rows.tolist() == list(range(7))
    assert trimmed.tokenize("abcab") == ["abc", "ab"]


def test_an_ordinary_token_with_a_role_is_kept_with_its_parts() -> None:
    tokenizer = _wrap_bpe(("a", "b"), a=1, b=2, ab=3, c=4)
    tokenizer.pad_token = "ab"
    rows, trimmed = _trim(tokenizer, ["c"])
    assert rows.tolist() == [0, 1, 2, 3, 4]
    assert trimmed.pad_token_id == 3


def test_ids_without_a_token_are_removed() -> None:
    """The library numbers added tokens after the number of pieces: they may be between pieces."""
    tokenizer = _wrap_bpe(("a", "b"), a=1, b=9, ab=12)
    tokenizer.add_tokens(["new"])
    assert tokenizer.convert_tokens_to_ids("new") < 9
    rows, trimmed = _trim(tokenizer, ["ab"])
    assert rows.tolist() == [0, 1, 9, 12]
    assert trimmed.convert_ids_to_tokens(range(4)) == ["<unk>", "a", "b", "ab"]
    with pytest.raises(MetaXLMError, match="added to the tokenizer are between its pieces"):
        _trim(tokenizer, ["ab new"])


def test_mistakes() -> None:
    tokenizer = make_tokenizer("unigram")
    with pytest.raises(MetaXLMError, match="no text of sw to measure the loss on"):
        measure_loss(tokenizer, tokenizer, {"de": ["Haus"], "sw": ["", " "]})
    counts = count_pieces(tokenizer, sentences("de"))
    with pytest.raises(MetaXLMError, match=f"most frequent piece occurs {counts.max()} times"):
        choose_pieces(counts, tokenizer, min_count=int(counts.max()) + 1)
    with pytest.raises(MetaXLMError, match="min_count 1 leaves special tokens only"):
        choose_pieces(np.zeros_like(counts), tokenizer)
    with pytest.raises(MetaXLMError, match=r"size 20 is too small, .* alone are \d+"):
        choose_pieces(counts, tokenizer, size=20)
    with pytest.raises(MetaXLMError, match="ByT5Tokenizer: not a fast tokenizer"):
        trim_tokenizer(ByT5Tokenizer(), np.arange(3))
    words = _wrap(Tokenizer(WordLevel({"a": 0, "<unk>": 1}, unk_token="<unk>")))
    with pytest.raises(MetaXLMError, match="kind WordLevel cannot be trimmed; only Unigram,"):
        trim_tokenizer(words, np.arange(2))

"""Blocks of one tokenizer's tokens as another reads them."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from tests.pretrain.distill_cases import (
    TEACHERS,
    make_piece,
)
from tests.vocabulary.kinds import LINES, make_tokenizer
from transformers import BertTokenizer

from metaxlm.pretrain.retokenized import SharedText
from metaxlm.pretrain.shared_tokens import Cutter, share_tokens


def test_the_shared_tokens_say_the_same() -> None:
    ours, theirs = make_tokenizer("unigram"), make_tokenizer("bert")
    shared = share_tokens(ours, theirs)
    pairs = {
        ours.convert_ids_to_tokens(int(row)): theirs.convert_ids_to_tokens(int(shared[row]))
        for row in np.flatnonzero(shared >= 0)
    }
    assert pairs["▁river"] == "river"
    assert pairs["us"] == "##us"
    assert "<mask>" not in pairs
    assert "▁" not in pairs
    assert all(o.lstrip("▁") == t.removeprefix("##") for o, t in pairs.items())
    words = {token[1:] for token in ours.get_vocab() if token.startswith("▁")}
    assert len(words & set(theirs.get_vocab())) == sum(token[0] == "▁" for token in pairs) > 50


@pytest.mark.parametrize("kind", ["unigram", "xlmr", "byte_bpe", "roberta"])
def test_a_text_in_any_language_comes_back_as_the_same_tokens(kind: str) -> None:
    # Also characters that are several tokens; the student's text is what its tokens say.
    tokenizer = make_tokenizer(kind)
    text = SharedText(tokenizer, tokenizer, 512)
    lines = [line for line in LINES if tokenizer.unk_token_id not in tokenizer(line)["input_ids"]]
    assert len(lines) > 50
    # RoBERTa's own tokenizer knows the first word of a text as another token.
    lines = [f" {line}" for line in lines] if kind == "roberta" else lines
    piece = make_piece(tokenizer, [("en", [line]) for line in lines], 300)
    ids, lengths = piece.ids_BL.numpy(), piece.lengths_B.numpy()
    reading = text.read(ids, lengths)
    same = 0
    for row, length in enumerate(lengths.tolist()):
        theirs = reading.ids_RT[row, : reading.lengths_R[row]].tolist()
        if theirs == ids[row, :length].tolist():
            same += 1
            partners = reading.partners_RL[row, :length]
            whole = text.partners_V[ids[row, :length]] >= 0
            columns = np.arange(length)
            blank = [not t.strip("▁Ġ") for t in tokenizer.convert_ids_to_tokens(theirs)]
            assert (partners == np.where(whole & ~np.array(blank), columns, -1)).all()
        assert (reading.partners_RL[row, length:] == -1).all()
        assert reading.covered_RL[row].sum() == length
    # Unigram may cut its own normalized text in another way; nothing else may differ.
    assert same >= 0.98 * len(lines)


def test_a_character_cut_in_two_is_hidden_with_either_part() -> None:
    ours, theirs = make_tokenizer("byte_bpe"), make_tokenizer("unigram")
    piece = make_piece(ours, [("en", ["café 猫"])])
    tokens = ours.convert_ids_to_tokens(piece.ids_BL[0, : piece.lengths_B[0]].tolist())
    text = SharedText(ours, theirs, 64)
    reading = text.read(piece.ids_BL.numpy(), piece.lengths_B.numpy())
    their_tokens = theirs.convert_ids_to_tokens(reading.ids_RT[0].tolist())
    # A character that the teacher does not know is hidden all the same.
    for token, wanted in (("▁猫", ["Ġç", "Į", "«"]), ("<unk>", ["Ã", "©"])):
        at = their_tokens.index(token)
        parts = range(reading.first_RT[0, at], reading.last_RT[0, at])
        assert [tokens[part] for part in parts] == wanted
        assert (reading.partners_RL[0, list(parts)] == -1).all()
    # A block that ends inside a character is still read.
    short = text.read(piece.ids_BL.numpy(), piece.lengths_B.numpy() - 2)
    assert short.covered_RL.sum() == piece.lengths_B[0] - 2


@pytest.mark.parametrize("kind", [*TEACHERS, "byte_fallback"])
def test_words_are_cut_as_in_their_sentence(kind: str) -> None:
    tokenizer = make_tokenizer(kind)
    # As a student's tokens spell it: normalized, and with a space before the first word.
    texts = [f" {' '.join(unicodedata.normalize('NFKC', line).split())}" for line in LINES]
    found = Cutter(tokenizer).cut(texts)
    assert len(found.counts_S) == len(texts)
    ends = np.cumsum(found.counts_S)
    offset = 0
    for text, end, count in zip(texts, ends.tolist(), found.counts_S.tolist(), strict=True):
        skipped = 0 if kind in ("byte_bpe", "roberta") else 1
        wanted = tokenizer.backend_tokenizer.encode(text[skipped:], add_special_tokens=False)
        assert found.ids_K[end - count : end].tolist() == wanted.ids
        # A space that is a token may be given the place of the next letter.
        solid = [bool(token.strip("▁Ġ")) for token in wanted.tokens]
        for place, (start, stop) in zip(range(end - count, end), wanted.offsets, strict=True):
            span = text[found.starts_K[place] - offset : found.ends_K[place] - offset]
            if solid[place - end + count]:
                assert span.strip() == text[start + skipped : stop + skipped].strip()
        offset += len(text)


def test_the_same_token_on_other_characters_is_no_partner() -> None:
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    ours, theirs = (
        BertTokenizer(vocab={token: row for row, token in enumerate([*specials, *pieces])})
        for pieces in (["x", "##aa", "##a", "b"], ["b", "xa", "##aa"])
    )
    piece = make_piece(ours, [("en", ["b xaaa b"])])
    reading = SharedText(ours, theirs, 64).read(piece.ids_BL.numpy(), piece.lengths_B.numpy())
    tokens = ours.convert_ids_to_tokens(piece.ids_BL[0].tolist())
    assert tokens[:8] == ["[CLS]", "b", "x", "##aa", "##a", "b", "[SEP]", "[PAD]"]
    assert theirs.convert_ids_to_tokens(reading.ids_RT[0].tolist())[:6] == [
        *("[CLS]", "b", "xa", "##aa", "b", "[SEP]")
    ]
    assert reading.partners_RL[0, :8].tolist() == [-1, 1, -1, -1, -1, 4, -1, -1]
    spans = zip(reading.first_RT[0], reading.last_RT[0], strict=True)
    assert list(spans)[:6] == [(0, 0), (1, 2), (2, 4), (3, 5), (5, 6), (0, 0)]


def test_text_that_spells_a_special_token_is_only_text() -> None:
    ours, theirs = make_tokenizer("byte_bpe"), make_tokenizer("roberta")
    ids = [0, *(ours.convert_tokens_to_ids(letter) for letter in "<mask>"), 2]
    reading = SharedText(ours, theirs, 64).read(np.array([ids]), np.array([len(ids)]))
    assert theirs.mask_token_id not in reading.ids_RT

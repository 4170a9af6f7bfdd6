"""Dictionary switching: whole words only, a function of (seed, step), nothing else changed."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.conftest import Shards
from tests.pretrain.code_switching_cases import list_tokenizer
from transformers import PreTrainedTokenizerBase as Tokenizer

from metaxlm.pretrain.batches.source import BatchSource
from metaxlm.pretrain.code_switching import Switching, SwitchTable, ends_words, make_switch_table
from metaxlm.recipe import TrainingRecipe
from metaxlm.vocab.tokenizer import train_byte_bpe

WORDS = {
    "en": {
        "▁cat": [["▁Katze"], ["▁кошка"]],
        "▁the": [["▁die", "▁der", "▁das"]],
        "▁a": [["▁ein"]],  # also the beginning of `at`
        "▁sister": [["▁Schwester"], ["▁сестра"]],
    },
    "de": {"▁Hund": [["▁dog"]], "▁die": [["▁the"]]},
    "ru": {},
}
BATCHES = TrainingRecipe(batch_size=8, length=32, held_out=2)


@pytest.fixture
def table(tokenizer: Tokenizer) -> SwitchTable:
    ids = tokenizer.convert_tokens_to_ids
    translations = {
        language: {ids(word): [ids(group) for group in groups] for word, groups in words.items()}
        for language, words in WORDS.items()
    }
    return make_switch_table(translations, len(tokenizer))


@pytest.fixture
def plain(shards: Shards, tokenizer: Tokenizer) -> BatchSource:
    return BatchSource(shards, tokenizer, BATCHES, 1)


@pytest.fixture
def switched(shards: Shards, tokenizer: Tokenizer, table: SwitchTable) -> BatchSource:
    switching = Switching(table, tokenizer, 1.0)
    return BatchSource(shards, tokenizer, BATCHES, 1, switching=switching)


def test_only_whole_words_with_translations_switch(
    plain: BatchSource, switched: BatchSource, tokenizer: Tokenizer
) -> None:
    seen: Counter[str] = Counter()
    for step in range(15):
        before, after = plain.micro_batch(step), switched.micro_batch(step)
        assert before.samples == after.samples
        assert torch.equal(before.lengths_B, after.lengths_B)
        assert before.num_tokens == after.num_tokens
        for row, (language, _) in enumerate(before.samples):
            texts = [
                tokenizer.convert_ids_to_tokens(piece.ids_BL[row].tolist())
                for piece in (before, after)
            ]
            for old, new, behind in zip(*texts, [*texts[0][1:], "x"], strict=True):
                is_whole = behind.startswith("▁") or behind in (".", "</s>")
                allowed = WORDS[language].get(old, []) if is_whole else []
                if allowed:
                    assert new in [text for group in allowed for text in group]
                else:
                    assert new == old
                seen[f"{language} {old} {'whole' if is_whole else 'part'}"] += 1
    # The text had all the cases.
    cases = ("en ▁cat", "en ▁the", "en ▁a", "en ▁sister", "de ▁Hund", "de ▁die", "ru ▁кошка")
    assert all(seen[f"{case} whole"] for case in cases)
    assert seen["en ▁a part"]


def test_micro_batches_switch_as_the_whole(
    shards: Shards, tokenizer: Tokenizer, table: SwitchTable
) -> None:
    # A length that the random numbers do not fill evenly.
    recipe = BATCHES.model_copy(update={"length": 30})
    half = Switching(table, tokenizer, 0.5)
    source = BatchSource(shards, tokenizer, recipe, 1, switching=half)
    again = BatchSource(shards, tokenizer, recipe, 1, switching=half)
    for step in (700, 0, 3):
        whole = source.micro_batch(step).ids_BL
        assert torch.equal(again.micro_batch(step).ids_BL, whole)
        cut = [source.micro_batch(step, index, 4).ids_BL for index in range(4)]
        assert torch.equal(torch.cat(cut), whole)


def test_steps_rows_and_columns_differ(table: SwitchTable, tokenizer: Tokenizer) -> None:
    cat = tokenizer.convert_tokens_to_ids("▁cat")
    half = Switching(table, tokenizer, 0.5)

    def switch(first_row: int, key: int) -> NDArray[np.int32]:
        ids_BL = np.full((6, 41), cat, np.int32)
        half.switch(ids_BL, np.zeros(6, np.int64), first_row, key)
        return ids_BL[:, :-1]

    once = switch(0, 7)
    assert len({row.tobytes() for row in [*once, *switch(6, 7), *switch(0, 8)]}) == 18
    assert len({column.tobytes() for column in once.T}) > 20
    assert np.array_equal(once[4:], switch(4, 7)[:2])
    # The last token of a row may be part of a word.
    ids_BL = np.full((6, 41), cat, np.int32)
    Switching(table, tokenizer, 1.0).switch(ids_BL, np.zeros(6, np.int64), 0, 7)
    assert (ids_BL[:, -1] == cat).all()
    assert (ids_BL[:, :-1] != cat).all()


def test_translations_have_their_shares(tokenizer: Tokenizer) -> None:
    probability = 0.3
    # One language with one translation, one with three: the languages are equally likely.
    groups = [[21], [31, 32, 33]]
    table = make_switch_table({"en": {20: groups}}, len(tokenizer))
    ids_BL = np.full((400, 513), 20, np.int32)
    starts = tokenizer.convert_tokens_to_ids("▁cat")
    ids_BL[:, 1::2] = starts  # a word behind each
    switching = Switching(table, tokenizer, probability)
    switching.switch(ids_BL, np.zeros(400, np.int64), 0, 3)
    total = 400 * 256
    found = Counter(ids_BL[:, :-1:2].flatten().tolist())
    shares = {21: 1 / 2, 31: 3 / 11, 32: 3 / 22, 33: 1 / 11}
    expected = {piece: share * probability for piece, share in shares.items()}
    expected[20] = 1 - probability
    assert set(found) == set(expected)
    for piece, share in expected.items():
        deviation = (share * (1 - share) / total) ** 0.5
        assert found[piece] / total == pytest.approx(share, abs=4.5 * deviation)
    assert (ids_BL[:, 1::2] == starts).all()


def test_held_out_blocks_stay_as_they_are(plain: BatchSource, switched: BatchSource) -> None:
    for language in plain.languages:
        for before, after in zip(
            plain.held_out(language), switched.held_out(language), strict=True
        ):
            assert torch.equal(before.ids_BL, after.ids_BL)


def test_words_end_before_words_and_punctuation() -> None:
    ending = ["▁", "▁cat", ",", ").", "-", "…", "。", "我", "ที่", "€"]
    inside = ["'", "’", "'s", "ing", "0", ",0", "사"]
    tokenizer = list_tokenizer([*ending, *inside])
    ends = ends_words(tokenizer)
    found = {token: bool(ends[row]) for token, row in tokenizer.get_vocab().items()}
    specials = ["<s>", "</s>", "<pad>", "<unk>", "<mask>"]
    assert found == dict.fromkeys([*ending, *specials], True) | dict.fromkeys(inside, False)
    bytes_tokenizer = train_byte_bpe(iter(["it's so. "] * 9), 270)
    ends = ends_words(bytes_tokenizer)
    ids = bytes_tokenizer.get_vocab()
    # The last one is an incomplete character.
    assert [bool(ends[ids[token]]) for token in ("Ġ", ".", "'", "s", "æ")] == [
        True, True, False, False, False,
    ]  # fmt: skip

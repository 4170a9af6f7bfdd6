"""The loss of trimming, against counting by hand; and what trimming refuses."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.conftest import sentences
from tests.vocab.kinds import KINDS, LINES, count_pieces, make_tokenizer
from tests.vocab.languages import SENTENCES
from tokenizers import Tokenizer
from tokenizers.models import BPE, WordLevel
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from metaxlm.errors import MetaXLMError
from metaxlm.vocab import trimming_loss
from metaxlm.vocab.trim import TrimLoss, choose_pieces, measure_loss, trim_tokenizer


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_is_what_tokenizing_both_ways_shows(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trimming_loss, "_BATCH_TEXTS", 10)
    before = make_tokenizer(kind)
    rows = choose_pieces(count_pieces(before, sentences("de")[::2]), before, min_count=3)
    after = trim_tokenizer(before, rows)
    texts = {"de": sentences("de"), "ru": sentences("ru"), "all": list(LINES)}
    found = measure_loss(before, after, {key: iter(lines) for key, lines in texts.items()})
    assert list(found) == list(texts)
    for language, lines in texts.items():
        old, new = ([t.tokenize(line) for line in lines] for t in (before, after))
        unknown = [
            sum(t(line)["input_ids"].count(t.unk_token_id) for line in lines)
            for t in (before, after)
        ]
        assert found[language] == TrimLoss(
            rows_before=len(before),
            rows_after=len(rows),
            sentences=len(lines),
            characters=sum(map(len, lines)),
            same=sum(a == b for a, b in zip(old, new, strict=True)),
            tokens_before=sum(map(len, old)),
            tokens_after=sum(map(len, new)),
            unknown_before=unknown[0],
            unknown_after=unknown[1],
        )
    assert found["de"].same_share > found["all"].same_share > found["ru"].same_share == 0
    assert found["ru"].growth == found["ru"].tokens_after / found["ru"].tokens_before - 1


def test_text_that_was_counted_loses_nothing() -> None:
    before = make_tokenizer("unigram")
    lines = LINES[::3]
    after = trim_tokenizer(before, choose_pieces(count_pieces(before, lines), before))
    found = measure_loss(before, after, {"some": lines})["some"]
    assert found.rows_after < found.rows_before
    assert (found.same_share, found.growth) == (1.0, 0.0)
    assert found.unknown_after == found.unknown_before


def test_other_scripts_become_unknown() -> None:
    before = make_tokenizer("unigram")
    after = trim_tokenizer(before, choose_pieces(count_pieces(before, sentences("de")), before))
    found = measure_loss(before, after, {"ru": SENTENCES["ru"]})["ru"]
    assert found.unknown_before == 0
    assert found.unknown_after > 0


def test_no_text_is_refused() -> None:
    tokenizer = make_tokenizer("unigram")
    for texts in ([], ["", " "]):
        with pytest.raises(MetaXLMError, match="no text of sw to measure the loss on"):
            measure_loss(tokenizer, tokenizer, {"de": ["Haus"], "sw": texts})
    with pytest.raises(MetaXLMError, match="one string where many are expected"):
        measure_loss(tokenizer, tokenizer, {"de": "ein Haus"})


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([*range(600), 600], "row 600 has no token; the vocabulary's rows are 0 to 599"),
        ([-1, *range(600)], "row -1 has no token"),
        ([0, 1, 3, 2, 599], "ascending, none twice"),
        ([0, 1, 1, 2, 3, 599], "ascending, none twice"),
        ([0.0, 1.0], "must be whole numbers"),
        ([[0, 1], [2, 3]], "must be whole numbers, ascending"),
        ([], "must be whole numbers"),
        (list(range(2, 599)), "without the special tokens <s>, <pad>, <mask>; add them"),
    ],
)
def test_rows_that_cannot_be_are_refused(rows: list[int], message: str) -> None:
    with pytest.raises(MetaXLMError, match=message):
        trim_tokenizer(make_tokenizer("unigram"), np.array(rows))


def test_merged_pieces_without_their_parts_are_refused() -> None:
    tokenizer = make_tokenizer("byte_bpe")
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    left, _ = next(m for m in content["model"]["merges"] if len(m[0]) > 1)
    lost = tokenizer.convert_tokens_to_ids(left)
    rows = np.setdiff1d(np.arange(len(tokenizer)), [lost])
    with pytest.raises(MetaXLMError, match=rf"rows without '{left}' \(row {lost}\) and 0 more"):
        trim_tokenizer(tokenizer, rows)


def test_added_tokens_between_pieces_are_refused() -> None:
    """The library numbers them after the number of pieces, which may be less than the last row."""
    model = BPE({"<unk>": 0, "a": 1, "b": 9, "ab": 12}, [("a", "b")], unk_token="<unk>")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(model), unk_token="<unk>")
    tokenizer.add_tokens(["new"])
    assert tokenizer.convert_tokens_to_ids("new") < 9
    with pytest.raises(MetaXLMError, match="added to the tokenizer stand between its pieces"):
        trim_tokenizer(tokenizer, choose_pieces(count_pieces(tokenizer, ["ab new"]), tokenizer))
    rows = choose_pieces(count_pieces(tokenizer, ["ab"]), tokenizer)
    assert rows.tolist() == [0, 1, 9, 12]
    assert len(trim_tokenizer(tokenizer, rows)) == 4


def test_counts_that_leave_nothing_are_refused() -> None:
    tokenizer = make_tokenizer("unigram")
    counts = count_pieces(tokenizer, sentences("de"))
    with pytest.raises(MetaXLMError, match=f"most frequent piece occurs {counts.max()} times"):
        choose_pieces(counts, tokenizer, min_count=int(counts.max()) + 1)
    with pytest.raises(MetaXLMError, match="min_count 1 leaves special tokens only"):
        choose_pieces(np.zeros_like(counts), tokenizer)
    only_unknown = count_pieces(tokenizer, ["☃☃"])
    only_unknown[tokenizer.convert_tokens_to_ids("▁")] = 0
    with pytest.raises(MetaXLMError, match="occurs 0 times"):
        choose_pieces(only_unknown, tokenizer)
    with pytest.raises(MetaXLMError, match="min_count is 0; it must be at least 1"):
        choose_pieces(counts, tokenizer, min_count=0)
    with pytest.raises(MetaXLMError, match=r"size 20 is too small, .* alone are \d+"):
        choose_pieces(counts, tokenizer, size=20)
    with pytest.raises(MetaXLMError, match=r"shape \(601,\) for a vocabulary of 600 rows"):
        choose_pieces(np.append(counts, 1), tokenizer)


def test_other_kinds_are_refused() -> None:
    for call in (
        lambda t: choose_pieces(np.ones(3, np.int64), t),
        lambda t: trim_tokenizer(t, np.arange(3)),
        lambda t: measure_loss(t, t, {"de": ["a"]}),
    ):
        with pytest.raises(MetaXLMError, match="ByT5Tokenizer: no fast tokenizer"):
            call(ByT5Tokenizer())
        model = WordLevel({"a": 0, "b": 1, "<unk>": 2}, unk_token="<unk>")
        words = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(model), unk_token="<unk>")
        with pytest.raises(MetaXLMError, match="kind WordLevel cannot be trimmed; only Unigram,"):
            call(words)


def test_the_loss_does_not_depend_on_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    before = make_tokenizer("unigram")
    after = trim_tokenizer(before, choose_pieces(count_pieces(before, sentences("de")), before))
    expected = measure_loss(before, after, {"x": LINES})
    for name, value in (("_BATCH_TEXTS", 5), ("_BATCH_CHARACTERS", 100)):
        monkeypatch.setattr(trimming_loss, name, value)
        assert measure_loss(before, after, {"x": iter(LINES)}) == expected
    assert expected["x"].sentences == len(LINES)

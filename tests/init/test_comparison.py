from __future__ import annotations

from metaxlm.init.comparison import compare_plans
from transformers import PreTrainedTokenizerBase

from metaxlm.init.dictionaries import Dictionaries
from metaxlm.init.plan import Plan, make_plan
from metaxlm.init.vocabulary import list_vocabulary
from metaxlm.recipe import MatchingRecipe
from metaxlm.vocab.tokens import Kind


def test_a_plan_is_like_itself(plan: Plan) -> None:
    comparison = compare_plans(plan, plan)
    assert comparison.num_same == len(plan)
    assert comparison.num_changed == 0
    assert comparison.only_before == comparison.only_after == ()


def test_what_dictionaries_change(
    plan: Plan, pieces: PreTrainedTokenizerBase, byte_bpe: PreTrainedTokenizerBase
) -> None:
    bare = make_plan(pieces, byte_bpe, MatchingRecipe())
    comparison = compare_plans(bare, plan)
    assert list(comparison.changes) == [("filler", "dictionary")]
    [changes] = comparison.changes.values()
    assert len(changes) == plan.count_rules()["dictionary"]
    assert comparison.num_same == len(plan) - len(changes)
    change = next(change for change in changes if change.before.token == "▁Haus")
    assert change.before.source_tokens == ()
    assert change.after.source_tokens == ("Ġhouse",)


def test_weights_count_as_a_change(
    plan: Plan,
    pieces: PreTrainedTokenizerBase,
    byte_bpe: PreTrainedTokenizerBase,
    dictionaries: Dictionaries,
) -> None:
    other = make_plan(pieces, byte_bpe, MatchingRecipe(one_to_many="frequency"), dictionaries)
    comparison = compare_plans(plan, other)
    assert list(comparison.changes) == [("dictionary", "dictionary")]
    tokens = [change.before.token for change in comparison.changes["dictionary", "dictionary"]]
    assert tokens == ["▁любит"]


def test_vocabularies_that_share_some_tokens() -> None:
    source = ["Ġcat", "Ġdog", "Ġhouse"]
    before = make_plan(
        list_vocabulary(["▁cat", "▁dog", "▁old"], Kind.SENTENCEPIECE),
        list_vocabulary(source, Kind.BYTE_BPE),
    )
    # Another numbering on both sides is no change.
    after = make_plan(
        list_vocabulary(["▁new", "▁dog", "▁cat"], Kind.SENTENCEPIECE),
        list_vocabulary(source[::-1], Kind.BYTE_BPE),
    )
    comparison = compare_plans(before, after)
    assert comparison.num_same == 2
    assert comparison.num_changed == 0
    assert (comparison.only_before, comparison.only_after) == (("▁old",), ("▁new",))


def test_most_frequent_change_first() -> None:
    target = list_vocabulary(["▁Cat", "▁Dog", "▁Hotel", "▁house"], Kind.SENTENCEPIECE)
    source = list_vocabulary(["Ġcat", "Ġdog", "hotel", "Ġhouse"], Kind.BYTE_BPE)
    before = make_plan(target, source, MatchingRecipe(rules=["direct"]))
    comparison = compare_plans(before, make_plan(target, source))
    counts = {rules: len(changes) for rules, changes in comparison.changes.items()}
    assert list(counts.items()) == [(("filler", "lower"), 2), (("filler", "word_start"), 1)]

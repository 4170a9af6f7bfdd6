"""Evaluate the paper's claims on a run's own results.

`claims.yaml` has every claim in plain words and in the paper's own, its place and numbers there,
how it is tested, and which check of `CHECKS` tests it; the other keys of an entry are the check's
parameters. A claim holds only where the numbers and a test (p < 0.05) support it, fails where the
contrary is supported, and is undecided otherwise. Tasks that no model has learned decide nothing,
nor do scores of a single seed of finetuning.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Any, Literal

import yaml

from metaxlm.analysis.contrast import (
    FAILS,
    HOLDS,
    UNDECIDED,
    Conclusion,
    Measure,
    MissingScoresError,
    Outcome,
    average_measures,
    contrast,
    contrast_languages,
    contrast_strata,
    contrast_values,
    decide_all,
    explain,
    list_numbers,
    name_basis,
    require_variants,
    write_p_value,
    write_points,
)
from metaxlm.analysis.curve_claims import (
    check_grows,
    check_lag,
    check_points,
    check_rises,
    check_settles,
    check_starts_low,
    check_stays_high,
    check_trend,
)
from metaxlm.analysis.layer_claims import (
    check_best_layer,
    check_layer_mean,
    check_stability,
    list_layers,
)
from metaxlm.analysis.results import SOURCE, Names, display_name, join_names, title_task
from metaxlm.analysis.scores import Results
from metaxlm.analysis.stats import ALPHA, EQUAL, correct_holm, join_p_values, mean, sign_test
from metaxlm.analysis.tables import Table, text_table
from metaxlm.languages import language_name

PRIMARY = (
    ("metaxlm", "xlm"),
    ("metaxlm+dict", "metaxlm"),
    ("dict+use", "metaxlm+dict"),
    ("dict+use+switched-0.3", "metaxlm+dict"),
    ("dict+use+merged+switched-0.3", "metaxlm+dict"),
)
"""The contrasts that were announced before they were measured: the first three before the second
round (docs/results/twin.md), the others in docs/results/third.md."""
_TEXTS = ("name", "statement", "quote", "section", "paper", "test", "check")


@dataclass(frozen=True)
class Claim:
    """One statement of the paper, and how it is tested."""

    name: str
    statement: str
    quote: str  # the paper's sentence, or its table
    section: str
    paper: str  # the paper's own numbers
    test: str  # the test, in words
    check: str
    parameters: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Verdict:
    """A claim with the outcome on a run's own numbers."""

    claim: Claim
    outcome: Outcome
    numbers: tuple[tuple[str, str], ...]
    reason: str


@cache
def list_claims() -> list[Claim]:
    """Return the paper's claims in the order of its sections."""
    text = (files("metaxlm.analysis") / "claims.yaml").read_text(encoding="utf-8")
    return [
        Claim(**{key: " ".join(entry.pop(key).split()) for key in _TEXTS}, parameters=entry)
        for entry in yaml.safe_load(text)
    ]


def evaluate_claims(results: Results, claims: Sequence[Claim] = ()) -> list[Verdict]:
    """Return the verdicts on the paper's claims, or those given; missing scores are reasons."""
    verdicts = []
    for claim in claims or list_claims():
        try:
            outcome, numbers, reason = CHECKS[claim.check](results, **claim.parameters)
        except MissingScoresError as missing:
            outcome, numbers, reason = UNDECIDED, [], f"{missing}."
        verdicts.append(Verdict(claim, outcome, tuple(numbers), reason))
    return verdicts


def make_claims_table(verdicts: Sequence[Verdict]) -> Table:
    """Build the claims with verdict, numbers and reason, for Markdown."""
    rows = [
        [v.claim.statement, v.claim.section, v.outcome, f"“{v.claim.quote}” {v.claim.paper}",
         "; ".join(f"{label}: {number}" for label, number in v.numbers), v.reason]
        for v in verdicts
    ]  # fmt: skip
    headings = ("", "Section", "Verdict", "In the paper", "Here", "Why")
    return text_table("claims", "The paper's claims on these results", headings, rows)


def make_primary_tests(results: Results) -> Table | None:
    """Build the announced tests on the average of the seven tasks; None where none was measured."""
    found = []
    for pair in PRIMARY:
        if set(pair) <= results.final_steps.keys():
            with suppress(MissingScoresError):
                found.append(contrast_strata(results, *pair))
    corrected = iter(correct_holm([p for one, _ in found if (p := one.p_value) is not None]))
    rows = []
    for one, counts in found:
        half = "–" if one.half_width is None else f"{100 * one.half_width:.1f}"
        p_value = "–" if one.p_value is None else write_p_value(next(corrected))
        number = " / ".join(map(str, counts))
        rows.append([one.label, write_points(one.value), half, p_value, one.basis, number])
    notes = [
        "Average of the seven tasks, all languages, questions as (F1 + EM) / 2; p after Holm over "
        "these contrasts. Each task that is finetuned by itself has its own variance over seeds "
        "(XQuAD and MLQA share a finetuning). With one pretraining of each, the test is about "
        "these two models, with more about their means. Announced for the second and "
        "third rounds; the claims go by the tests that they name."
    ]
    headings = ("", "Difference", "± 95 %", "p", "Tested", "Pretrainings")
    title = "Primary contrasts, stratified by task"
    return text_table("primary", title, headings, rows, notes) if rows else None


def list_verdicts(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Return the verdicts as plain data, for claims.json."""
    return [
        {
            **{key: getattr(one.claim, key) for key in _TEXTS if key != "check"},
            "outcome": one.outcome, "numbers": list(map(list, one.numbers)), "reason": one.reason,
        }
        for one in verdicts
    ]  # fmt: skip


def check_order(
    results: Results, variants: Names, tasks: Names, scenario: str = "transfer",
    languages: str = "all", exact_match: bool = False,
) -> Conclusion:  # fmt: skip
    """Each variant is better than the one before, on the mean over tasks."""
    require_variants(results, variants)
    metrics = {task: results.info(task).metrics if exact_match else () for task in tasks}
    measures = [Measure(task, scenario, metrics[task]) for task in tasks]
    if languages != "all":
        measures = [_restrict(results, variants, one, languages == "source") for one in measures]
    means = average_measures(results, variants, measures)
    numbers = [(display_name(name), f"{100 * mean(means[name][0]):.1f}") for name in variants]
    steps = [contrast(results, b, a, measures, variants) for a, b in pairwise(variants)]
    numbers += list_numbers(steps)
    unlearned = _list_unlearned(results, variants, measures)
    if len(unlearned) == len(measures):
        return UNDECIDED, numbers, _name_unlearned(unlearned)
    caveats = _caveats(results, variants, tasks, unlearned)
    return decide_all(steps), numbers, explain(steps, caveats)


def check_count(
    results: Results, first: str, seconds: Names, tasks: Names,
    over: Literal["tasks", "languages", "directions", "layers"] = "tasks",
    at_least: int | None = None, languages: Names = (), without: Sequence[int] = (),
) -> Conclusion:  # fmt: skip
    """The first variant beats each of the second ones in at least this many groups (default: all).

    Groups are tasks, languages of each task (trained and tested in the same one), directions of
    transfer as means over tasks, or layers. Gains must be supported together (a partial
    conjunction); languages and directions are counted by their signs, with a sign test. Layers are
    tested over languages.
    """
    variants = [first, *seconds]
    require_variants(results, variants)
    groups = _list_groups(results, variants, tasks, over, languages)
    learned = {
        name: any(m.is_learned(results, variants) for m in measures)
        for name, measures in groups.items()
    }
    is_learned = any(learned.values())
    if over == "layers":
        learned = dict.fromkeys(groups, True)
    every = {
        name: [
            contrast_languages(results, first, second, measures)
            if over == "layers"
            else contrast(results, first, second, measures, variants)
            for second in seconds
        ]
        for name, measures in groups.items()
    }
    numbers = [
        (f"{name}: {one.label}", f"{one.describe()}{'' if learned[name] else ' (not learned)'}")
        for name, contrasts in every.items()
        for one in contrasts
    ]
    if over == "layers" and not is_learned:
        return UNDECIDED, numbers, _name_unlearned(tasks)
    left_out = {f"layer {layer}" for layer in without}
    counted = {name: contrasts for name, contrasts in every.items() if name not in left_out}
    needed = len(counted) if at_least is None else at_least
    known = [cs if learned[n] else [] for n, cs in counted.items()]
    gains = [max((c.one_sided(1) for c in cs), default=1.0) for cs in known]
    losses = [join_p_values([c.one_sided(-1) for c in cs], 1) for cs in known]
    is_lost = join_p_values(losses, len(counted) - needed + 1) < ALPHA
    is_won = join_p_values(gains, needed) < ALPHA
    caveats = ""
    if over in ("languages", "directions"):
        signs = [cs[0].value for cs in known if cs]
        better, worse = sum(v > EQUAL for v in signs), sum(v < -EQUAL for v in signs)
        p_value = sign_test(better, worse) if results.tested else 0.0
        is_lost = is_lost or (p_value < ALPHA and worse > better)
        is_won = p_value < ALPHA and better >= needed
        if any(c.p_value is None for cs in counted.values() for c in cs):
            is_lost = is_won = False  # one seed may be a collapsed finetuning
        test = [("sign test", write_p_value(p_value))] if results.tested else []
        numbers = [("better", f"{better} of {len(counted)}"), *test, *numbers]
        caveats = f"It is ahead in {better} and behind in {worse}. "
        if idle := list(learned.values()).count(False):
            caveats += f"In {idle} neither is above the baselines."
    elif over == "tasks":
        unlearned = [task for task in tasks if not learned[title_task(task)]]
        caveats = _caveats(results, variants, tasks, unlearned)
    won, lost = (sum(p < ALPHA for p in side) for side in (gains, losses))
    reason = (
        f"{display_name(first)} is better than {join_names(seconds)} in {won} of {len(counted)} "
        f"{'test sets' if over == 'languages' else over} and worse in {lost}, with a test of each "
        f"({name_basis([c for cs in every.values() for c in cs])}); the claim needs {needed}."
    )
    outcome = FAILS if is_lost else HOLDS if is_won else UNDECIDED
    return outcome, numbers, f"{reason} {caveats}".strip()


def check_share(
    results: Results, base: str, parts: Names, whole: str, tasks: Names, share: float,
    may_harm: bool,
) -> Conclusion:  # fmt: skip
    """Each part gains at most this share of what the whole gains over the base.

    Unless a part `may_harm`, it must also gain something: a loss within the noise decides nothing.
    """
    variants = [base, *parts, whole]
    require_variants(results, variants)
    measures = [Measure(task) for task in tasks]
    unlearned = _list_unlearned(results, variants, measures)
    gain = contrast(results, whole, base, measures, variants)
    gains = [contrast(results, part, base, measures, variants) for part in parts]
    leads = [contrast(results, whole, part, measures, variants) for part in parts]
    numbers = list_numbers([gain, *gains, *leads])
    if len(unlearned) == len(tasks):
        return UNDECIDED, numbers, _name_unlearned(unlearned)
    reason = explain([gain, *gains, *leads], _caveats(results, variants, tasks, unlearned))
    if any(lead.direction < 0 for lead in leads):
        return FAILS, numbers, reason
    if gain.direction <= 0:
        return UNDECIDED, numbers, reason
    is_large, shares = False, [one.value / gain.value for one in gains]
    for part, one, of_gain in zip(parts, gains, shares, strict=True):
        numbers.append((f"{display_name(part)}: share of the gain", f"{100 * of_gain:.0f} %"))
        is_large |= one.direction > 0 and of_gain > 2 * share
        is_large |= one.direction < 0 and not may_harm
    if is_large:
        return FAILS, numbers, reason
    is_small = max(shares) <= share and all(lead.direction > 0 for lead in leads)
    is_small &= may_harm or min(shares) > 0
    return (HOLDS if is_small else UNDECIDED), numbers, reason


def check_keeps(
    results: Results, first: str, second: str, tasks: Names, share: float
) -> Conclusion:
    """The first variant has at least this share of the second one's score on each task."""
    variants = [first, second]
    require_variants(results, variants)
    numbers, limits, unlearned = [], [], []
    for task in tasks:
        means = average_measures(results, variants, [Measure(task)])
        ours, theirs = (means[variant][0] for variant in variants)
        numbers.append((f"{title_task(task)}: share", f"{100 * mean(ours) / mean(theirs):.0f} %"))
        if not Measure(task).is_learned(results, [second]):
            unlearned.append(task)
            continue
        samples = [list(ours.values()), [share * value for value in theirs.values()]]
        value, name = mean(ours) - share * mean(theirs), f"{100 * share:.0f} % of"
        limits.append(
            contrast_values(
                results, f"{title_task(task)}: {display_name(first)}",
                f"{name} {display_name(second)}", value, samples, [],
            )
        )  # fmt: skip
    caveats = _caveats(results, variants, tasks, unlearned)
    if not limits:
        return UNDECIDED, numbers, caveats
    outcome = decide_all(limits)
    if outcome == HOLDS and unlearned:
        outcome = UNDECIDED
    return outcome, numbers, explain(limits, caveats, ("is above", "is below"))


def check_trade_off(results: Results, more: str, less: str, tasks: Names) -> Conclusion:
    """The variant with more text in the source language is better there, and worse elsewhere."""
    variants = [more, less]
    require_variants(results, variants)
    measures = [Measure(task) for task in tasks]
    source, others = (
        [_restrict(results, variants, one, is_source) for one in measures]
        for is_source in (True, False)
    )
    steps = [
        contrast(results, more, less, source, variants),
        contrast(results, less, more, others, variants),
    ]
    labels = ("English", "other languages")
    numbers = [
        (f"{label}: {one.label}", one.describe()) for label, one in zip(labels, steps, strict=True)
    ]
    unlearned = _list_unlearned(results, variants, measures)
    if len(unlearned) == len(measures):
        return UNDECIDED, numbers, _name_unlearned(unlearned)
    caveats = _caveats(results, variants, tasks, unlearned)
    return decide_all(steps), numbers, f"In English, then elsewhere: {explain(steps, caveats)}"


def check_cost(results: Results, first: str, others: Names) -> Conclusion:
    """A step of the first variant takes longer than those of the others, which all do the same.

    Other work on the same device changes times: the first variant must be slower than the slowest
    of the others by more than their range.
    """
    seconds = results.step_seconds
    known = [name for name in others if name in seconds]
    if first not in seconds or len(known) < 2:
        raise MissingScoresError("No training times of the variants to compare")
    numbers = [(display_name(v), f"{1000 * seconds[v]:.1f} ms per step") for v in [first, *known]]
    low, high = (find(seconds[name] for name in known) for find in (min, max))
    span = high - low
    spread = f"{1000 * low:.1f} to {1000 * high:.1f} ms for steps that compute the same"
    if seconds[first] > high + span:
        return HOLDS, numbers, f"{display_name(first)} is slower than all others ({spread})."
    if seconds[first] < low - span:
        return FAILS, numbers, f"{display_name(first)} is faster than all others ({spread})."
    return UNDECIDED, numbers, f"Times differ too much between equal trainings: {spread}."


def check_similar(
    results: Results, variants: Names, tasks: Names, similar: Sequence[Names],
    dissimilar: Sequence[Names],
) -> Conclusion:  # fmt: skip
    """Transfer between similar languages scores higher than between others, in all variants."""
    require_variants(results, variants)
    sides = [
        [Measure(task, pairs=((a, b),)) for a, b in pairs for task in tasks]
        for pairs in (similar, dissimilar)
    ]
    contrasts = []
    for variant in variants:
        if not any(measure.is_learned(results, [variant]) for measure in sides[0]):
            raise MissingScoresError(f"Transfer of {display_name(variant)} is at its baselines")
        near, far = (average_measures(results, [variant], side)[variant][0] for side in sides)
        names = (f"{display_name(variant)}, similar languages", "dissimilar ones")
        seeds = [list(near.values()), list(far.values())]
        contrasts.append(contrast_values(results, *names, mean(near) - mean(far), seeds, []))
    return decide_all(contrasts), list_numbers(contrasts), explain(contrasts)


CHECKS: dict[str, Callable[..., Conclusion]] = {
    check.__name__.removeprefix("check_").replace("_", " "): check
    for check in (
        check_order, check_count, check_share, check_keeps, check_trade_off, check_cost,
        check_similar, check_best_layer, check_layer_mean, check_stability, check_starts_low,
        check_lag, check_rises, check_grows, check_settles, check_trend, check_points,
        check_stays_high,
    )
}  # fmt: skip
"""The names that `check` in claims.yaml may have."""


def _restrict(results: Results, variants: Names, measure: Measure, is_source: bool) -> Measure:
    pairs = next(iter(measure.read_shared(results, variants).values()))
    kept = tuple(pair for pair in pairs if (pair[1] == SOURCE) == is_source)
    if not kept:
        what = "English score" if is_source else "score in other languages"
        raise MissingScoresError(f"No {what} on {title_task(measure.task)}")
    return replace(measure, pairs=kept)


def _list_groups(
    results: Results, variants: Names, tasks: Names, over: str, languages: Names
) -> dict[str, list[Measure]]:
    if over == "tasks":
        return {title_task(task): [Measure(task)] for task in tasks}
    if over == "layers":
        [task] = tasks
        layers = list_layers(results, variants, task)
        return {f"layer {k}": [Measure(task, "features", layer=k)] for k in layers}
    if over == "languages":
        return {
            f"{title_task(task)}, {language_name(code)}":
                [Measure(task, "supervised", pairs=((code, code),))]
            for code in languages
            for task in tasks
        }  # fmt: skip
    return {
        f"{a}→{b}": [
            Measure(task, "supervised" if a == b else "transfer", pairs=((a, b),)) for task in tasks
        ]
        for a in languages
        for b in languages
    }


def _list_unlearned(results: Results, variants: Names, measures: Sequence[Measure]) -> list[str]:
    learned = {one.task for one in measures if one.is_learned(results, variants)}
    return [task for task in dict.fromkeys(one.task for one in measures) if task not in learned]


def _name_unlearned(tasks: Names) -> str:
    names = ", ".join(map(title_task, tasks))
    return f"On {names} no model is above guessing or the most frequent label." if tasks else ""


def _caveats(results: Results, variants: Names, tasks: Names, unlearned: Names) -> str:
    """Name the tasks that are at their baselines, and the finetunings that collapsed."""
    collapsed = results.list_collapsed(variants, set(tasks) - set(unlearned))
    return " ".join([_name_unlearned(unlearned), *(each.describe() for each in collapsed)]).strip()

"""The paper's claims, each judged by a run's own results.

`claims.yaml` states every claim in plain words, with its place and numbers in the paper, how it is
tested, and which check of `CHECKS` does that; the other keys of an entry are the check's
parameters. A claim holds only where the numbers say so and a test supports it (p < 0.05), fails
where the contrary is supported, and cannot be told otherwise. Tasks that no model has learned
decide nothing, nor do scores of a single seed of finetuning.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Any, Literal

import yaml

from metaxlm.analysis.contrast import (
    FEWEST_SEEDS,
    NUMBERS_ALONE,
    Contrast,
    Measure,
    MissingScoresError,
    average_measures,
    contrast,
    contrast_values,
    write_p_value,
)
from metaxlm.analysis.curves import (
    Curve,
    Lag,
    Quantity,
    describe_onset,
    find_lag,
    find_onset,
    trace_curves,
)
from metaxlm.analysis.results import (
    MARGIN,
    SOURCE,
    LanguagePair,
    Results,
    display_name,
    join_names,
    title_task,
)
from metaxlm.analysis.stats import (
    ALPHA,
    EQUAL,
    SeedScores,
    average,
    join_p_values,
    mean,
    share_test,
    sign_test,
    trend_test,
)
from metaxlm.errors import MetaXLMError
from metaxlm.languages import language_name

Outcome = Literal["holds", "fails", "cannot be told"]
OUTCOMES: tuple[Outcome, ...] = ("holds", "fails", "cannot be told")
Numbers = list[tuple[str, str]]
"""Labels and numbers of a verdict."""
Found = tuple[Outcome, Numbers, str]
"""What a check returns: outcome, numbers, and the reason in one or two sentences."""

UNDECIDED: Outcome = "cannot be told"
FEWEST_CHECKPOINTS = 5
"""With fewer points no trend can reach 0.05."""
FINE = 0.2
"""Checkpoints closer than this share of the source's onset would show a lag like the paper's, which
is 6K of 14K steps."""
_TEXTS = ("name", "statement", "section", "paper", "test", "check")
_LABELS: dict[Quantity, str] = {
    "source": language_name(SOURCE),
    "others": "the other languages",
    "gap": "the transfer gap",
}


@dataclass(frozen=True)
class Claim:
    """One statement of the paper, and how it is tested."""

    name: str
    statement: str
    section: str
    """Where in the paper."""
    paper: str
    """The paper's own numbers."""
    test: str
    """How it is judged, in words."""
    check: str
    """A key of `CHECKS`."""
    parameters: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Verdict:
    """A claim with what our own numbers say about it."""

    claim: Claim
    outcome: Outcome
    numbers: tuple[tuple[str, str], ...]
    reason: str


@cache
def list_claims() -> list[Claim]:
    """Return the paper's claims in the order of its sections."""
    text = (files("metaxlm.analysis") / "claims.yaml").read_text(encoding="utf-8")
    return parse_claims(text, "claims.yaml")


def parse_claims(text: str, name: str) -> list[Claim]:
    """Read claims; an incomplete entry, an unknown check or a repeated name is an error."""
    try:
        entries = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise MetaXLMError(f"{name}:{line}: not YAML: {error.problem}") from error
    if not isinstance(entries, list):
        raise MetaXLMError(f"{name}: expected a list of claims")
    claims: dict[str, Claim] = {}
    for number, entry in enumerate(entries, start=1):
        known = entry if isinstance(entry, dict) else {}
        title = known.get("name", f"claim {number}")
        missing = [key for key in _TEXTS if not isinstance(known.get(key), str)]
        if missing:
            raise MetaXLMError(f"{name}: {title}: {missing[0]} is missing or not text")
        if title in claims:
            raise MetaXLMError(f"{name}: {title}: two claims have this name")
        texts = {key: " ".join(known[key].split()) for key in _TEXTS}
        if texts["check"] not in CHECKS:
            known_checks = ", ".join(CHECKS)
            raise MetaXLMError(
                f"{name}: {title}: unknown check {texts['check']!r} (known: {known_checks})"
            )
        rest = {key: value for key, value in known.items() if key not in _TEXTS}
        claims[title] = Claim(**texts, parameters=rest)
    return list(claims.values())


def judge_claims(results: Results, claims: Sequence[Claim] | None = None) -> list[Verdict]:
    """Judge every claim of the paper, or those given, in their order."""
    return [judge(claim, results) for claim in (list_claims() if claims is None else claims)]


def judge(claim: Claim, results: Results) -> Verdict:
    """Judge one claim; where results are missing, they are the reason that it cannot be told."""
    try:
        outcome, numbers, reason = CHECKS[claim.check](results, **claim.parameters)
    except MissingScoresError as missing:
        return Verdict(claim, UNDECIDED, (), f"{missing}.")
    return Verdict(claim, outcome, tuple(numbers), reason)


# Finished models ---------------------------------------------------------------------------------


def check_order(
    results: Results,
    variants: Sequence[str],
    tasks: Sequence[str],
    scenario: str = "transfer",
    languages: str = "all",
    exact_match: bool = False,
) -> Found:
    """Each variant is better than the one before, on the mean over tasks."""
    _require(results, variants)
    measures = [
        Measure(task, scenario, results.info(task).metrics if exact_match else ()) for task in tasks
    ]
    if languages != "all":
        measures = [_restrict(results, variants, one, languages == "source") for one in measures]
    found = average_measures(results, variants, measures)
    numbers = [(display_name(name), f"{100 * mean(found[name][0]):.1f}") for name in variants]
    steps = [contrast(results, b, a, measures, variants) for a, b in pairwise(variants)]
    numbers += _list_numbers(steps)
    unlearned = _list_unlearned(results, variants, measures)
    if len(unlearned) == len(measures):
        return UNDECIDED, numbers, _name_unlearned(unlearned)
    return (
        _decide_all(steps),
        numbers,
        _explain(steps, _caveats(results, variants, tasks, unlearned)),
    )


def check_count(
    results: Results,
    first: str,
    seconds: Sequence[str],
    tasks: Sequence[str],
    over: Literal["tasks", "languages", "directions", "layers"] = "tasks",
    at_least: int | None = None,
    languages: Sequence[str] = (),
    without: Sequence[int] = (),
) -> Found:
    """The first variant beats each of the second ones in at least this many groups (default: all).

    Groups are tasks, languages of each task (trained and tested in the same one), directions of
    transfer as means over tasks, or layers. Gains must be supported together (a partial
    conjunction); languages and directions are counted by their signs, with a sign test.
    """
    variants = [first, *seconds]
    _require(results, variants)
    groups = _list_groups(results, variants, tasks, over, languages)
    learned = {
        name: over == "layers" or any(m.is_learned(results, variants) for m in measures)
        for name, measures in groups.items()
    }
    if over == "layers" and not any(
        m.is_learned(results, variants) for measures in groups.values() for m in measures
    ):
        found = {name: [contrast(results, first, seconds[0], ms)] for name, ms in groups.items()}
        return UNDECIDED, _list_group_numbers(found, learned), _name_unlearned(tasks)
    found = {
        name: [contrast(results, first, second, measures, variants) for second in seconds]
        for name, measures in groups.items()
    }
    counted = {
        name: contrasts for name, contrasts in found.items()
        if name not in [f"layer {layer}" for layer in without]
    }  # fmt: skip
    needed = len(counted) if at_least is None else at_least
    gains = {n: max(c.one_sided(1) for c in cs) if learned[n] else 1.0 for n, cs in counted.items()}
    losses = {
        n: join_p_values([c.one_sided(-1) for c in cs], 1) if learned[n] else 1.0
        for n, cs in counted.items()
    }
    is_lost = join_p_values(list(losses.values()), len(counted) - needed + 1) < ALPHA
    is_won = join_p_values(list(gains.values()), needed) < ALPHA
    numbers = _list_group_numbers(found, learned)
    caveats = ""
    if over in ("languages", "directions"):
        signs = [cs[0].value for n, cs in counted.items() if learned[n]]
        better, worse = sum(v > EQUAL for v in signs), sum(v < -EQUAL for v in signs)
        p_value = sign_test(better, worse) if results.tested else 0.0
        is_lost = is_lost or (p_value < ALPHA and worse > better)
        is_won = p_value < ALPHA and better >= needed
        if any(c.p_value is None for cs in counted.values() for c in cs):
            is_lost = is_won = False  # one seed may be a collapsed finetuning
        told = [("sign test", write_p_value(p_value))] if results.tested else []
        numbers = [("better", f"{better} of {len(counted)}"), *told, *numbers]
        ahead = f"It is ahead in {better} and behind in {worse}. "
        idle = sum(not known for known in learned.values())
        caveats = ahead + (f"In {idle} neither is above the baselines." if idle else "")
    elif over == "tasks":
        unlearned = [task for task in tasks if not learned[title_task(task)]]
        caveats = _caveats(results, variants, tasks, unlearned)
    won, lost = (sum(p < ALPHA for p in side.values()) for side in (gains, losses))
    noun = "test sets" if over == "languages" else over
    reason = (
        f"{display_name(first)} is better than {join_names(seconds)} in {won} of {len(counted)} "
        f"{noun} and worse in {lost}, with a test of each "
        f"({name_basis([c for cs in found.values() for c in cs])}); the claim needs {needed}."
    )
    outcome: Outcome = "holds" if is_won and not is_lost else "fails" if is_lost else UNDECIDED
    return outcome, numbers, f"{reason} {caveats}".strip()


def check_share(
    results: Results,
    base: str,
    parts: Sequence[str],
    whole: str,
    tasks: Sequence[str],
    share: float,
    may_harm: bool,
) -> Found:
    """Each part gains at most this share of what the whole gains over the base."""
    variants = [base, *parts, whole]
    _require(results, variants)
    measures = [Measure(task) for task in tasks]
    unlearned = _list_unlearned(results, variants, measures)
    gain = contrast(results, whole, base, measures, variants)
    gains = [contrast(results, part, base, measures, variants) for part in parts]
    leads = [contrast(results, whole, part, measures, variants) for part in parts]
    numbers = _list_numbers([gain, *gains, *leads])
    if len(unlearned) == len(tasks):
        return UNDECIDED, numbers, _name_unlearned(unlearned)
    name, basis = display_name(whole), name_basis([gain])
    if any(lead.direction < 0 for lead in leads):
        return "fails", numbers, f"A part is better than {name} ({basis})."
    if gain.direction <= 0:
        reason = f"{name} is not clearly better than {display_name(base)} itself ({basis})."
        return UNDECIDED, numbers, reason
    shares = {found.first: found.value / gain.value for found in gains}
    numbers += [
        (f"{display_name(part)}: share of the gain", f"{100 * of_gain:.0f} %")
        for part, of_gain in shares.items()
    ]
    harmful = [found.first for found in gains if found.direction < 0 and not may_harm]
    large = [c.first for c in gains if c.direction > 0 and shares[c.first] > 2 * share]
    outcome: Outcome = "fails"
    if harmful:
        reason = (
            f"{join_names(harmful)} is worse than {display_name(base)} ({basis}); the claim is a "
            "small gain."
        )
    elif large:
        reason = f"{join_names(large)} has over {200 * share:.0f} % of {name}'s gain ({basis})."
    else:
        is_small = max(shares.values()) <= share and all(lead.direction > 0 for lead in leads)
        outcome = "holds" if is_small else UNDECIDED
        reason = (
            f"The largest share of {name}'s gain is {100 * max(shares.values()):.0f} %; the limit "
            f"is {100 * share:.0f} % ({basis})."
        )
    return outcome, numbers, f"{reason} {_caveats(results, variants, tasks, unlearned)}".strip()


def check_similar(
    results: Results,
    variants: Sequence[str],
    tasks: Sequence[str],
    similar: Sequence[Sequence[str]],
    dissimilar: Sequence[Sequence[str]],
) -> Found:
    """Transfer between similar languages scores higher than between others, in all variants."""
    _require(results, variants)
    found = []
    for variant in variants:
        sides = [
            [Measure(task, pairs=((a, b),)) for a, b in pairs for task in tasks]
            for pairs in (similar, dissimilar)
        ]
        if not any(measure.is_learned(results, [variant]) for measure in sides[0]):
            raise MissingScoresError(f"Transfer of {display_name(variant)} is at its baselines")
        near, far = (average_measures(results, [variant], side)[variant] for side in sides)
        by_pair = [
            mean(next(iter(a.values()))) - mean(next(iter(b.values())))
            for a, b in zip(near[1], far[1], strict=True)
        ]
        seeds = [list(series.values()) for series, _ in (near, far)]
        names = (f"{display_name(variant)}, similar languages", "dissimilar ones")
        value = mean(near[0]) - mean(far[0])
        found.append(contrast_values(results, *names, value, seeds, by_pair))
    return _decide_all(found), _list_numbers(found), _explain(found)


# Layers ------------------------------------------------------------------------------------------

Profile = dict[LanguagePair, dict[int, float]]
"""Scores by languages and layer; higher is better."""


def check_best_layer(
    results: Results, variants: Sequence[str], task: str, layer: int, of: int
) -> Found:
    """The best layer of each variant is at this relative depth, give or take one layer of `of`."""
    _require(results, variants)
    found = []
    for variant in variants:
        profile = _read_profile(results, variant, task)
        layers = sorted(next(iter(profile.values())))
        target, reach = layer * layers[-1] / of, max(1.0, layers[-1] / of)
        near = [one for one in layers if abs(one - target) <= reach + 1e-9]
        found.append(_judge_best(results, variant, task, profile, near))
    outcomes = {outcome for outcome, _, _ in found}
    decided: Outcome = "holds" if outcomes == {"holds"} else UNDECIDED
    outcome: Outcome = "fails" if "fails" in outcomes else decided
    place = f"Layer {layer} of {of} corresponds to {near[0]} to {near[-1]} of {layers[-1]} here."
    reason = " ".join([*(reason for _, _, reason in found), place])
    return outcome, [pair for _, numbers, _ in found for pair in numbers], reason


def _judge_best(
    results: Results, variant: str, task: str, profile: Profile, near: Sequence[int]
) -> Found:
    name, layers = display_name(variant), sorted(next(iter(profile.values())))
    means = {one: statistics.fmean(p[one] for p in profile.values()) for one in layers}
    best = max(layers, key=lambda one: means[one])
    if not Measure(task, "features", layer=best).is_learned(results, [variant]):
        raise MissingScoresError(f"{name} is at the level of guessing on {title_task(task)}")
    hits = sum(max(layers, key=lambda one: p[one]) in near for p in profile.values())
    numbers = [
        (f"{name}: best layer", f"{best} of {layers[-1]}"),
        (f"{name}: languages with their best at {near[0]} to {near[-1]}",
         f"{hits} of {len(profile)}"),
    ]  # fmt: skip
    if best not in near:
        rival = max(near, key=lambda one: means[one])
        gains = [of_pair[best] - of_pair[rival] for of_pair in profile.values()]
        lead = contrast_values(results, str(best), str(rival), statistics.fmean(gains), [], gains)
        numbers.append((f"{name}: layer {best} − layer {rival}", lead.describe()))
        words = "clearly" if lead.direction > 0 else "not clearly"
        reason = f"{name} is best at layer {best}, {words} better than {near[0]} to {near[-1]}."
        return ("fails" if lead.direction > 0 else UNDECIDED), numbers, reason
    p_value = share_test(hits, len(profile), len(near) / len(layers))
    numbers.append((f"{name}: probability by chance", write_p_value(p_value)))
    words = "more than by chance" if p_value < ALPHA else "which may be chance"
    reason = (
        f"{name} is best at layer {best}, and {hits} of {len(profile)} languages at {near[0]} to "
        f"{near[-1]}, {words}."
    )
    return ("holds" if p_value < ALPHA else UNDECIDED), numbers, reason


def check_stability(results: Results, first: str, second: str, task: str) -> Found:
    """The scores of the first variant vary less over its layers than those of the second."""
    _require(results, [first, second])
    profiles = [_read_profile(results, variant, task) for variant in (first, second)]
    shared = [pair for pair in profiles[0] if pair in profiles[1]]
    if not shared:
        raise MissingScoresError(
            f"{join_names([first, second])} share no languages of {title_task(task)}"
        )
    spreads = [
        [statistics.pstdev(v for layer, v in profile[pair].items() if layer) for pair in shared]
        for profile in profiles
    ]
    gains = [wide - narrow for narrow, wide in zip(*spreads, strict=True)]
    found = contrast_values(results, first, second, statistics.fmean(gains), [], gains)
    numbers = [
        (f"{display_name(variant)}: deviation over layers", f"{100 * statistics.fmean(spread):.1f}")
        for variant, spread in zip((first, second), spreads, strict=True)
    ]
    label = f"{display_name(second)} − {display_name(first)}"
    told = _compare(found, "has smaller ones than", "has larger ones than")
    reason = f"Deviations over all layers but the embeddings: {told} ({name_basis([found])})."
    return _decide_all([found]), [*numbers, (label, found.describe())], reason


def _read_profile(results: Results, variant: str, task: str) -> Profile:
    """Return a variant's scores by languages and layer, error rates turned."""
    profile: Profile = {}
    for layer in _list_layers(results, [variant], task):
        for pair, series in Measure(task, "features", layer=layer).read(results, variant).items():
            value = 1 - mean(series) if results.info(task).lower else mean(series)
            profile.setdefault(pair, {})[layer] = value
    most = max(len(of_pair) for of_pair in profile.values())
    return {pair: of_pair for pair, of_pair in profile.items() if len(of_pair) == most}


def _list_layers(results: Results, variants: Sequence[str], task: str) -> list[int]:
    """Return the layers of a task; all variants must have the same."""
    found = {variant: results.layers(task, variant) for variant in variants}
    if missing := [name for name, layers in found.items() if not layers]:
        raise MissingScoresError(f"No scores of {join_names(missing)} on {title_task(task)}")
    if any(layers != found[variants[0]] for layers in found.values()):
        raise MissingScoresError(f"{join_names(variants)} were measured at different layers")
    return found[variants[0]]


# Along pretraining -------------------------------------------------------------------------------


def check_lag(results: Results, variant: str, task: str, expected: bool) -> Found:
    """The other languages leave the plateau later than the source language, or do not.

    Without a lag they rise from the first checkpoints on, or together with the source. One seed
    decides nothing.
    """
    curves = _trace(results, variant, task)
    lag = find_lag(curves)
    source, others = find_onset(curves["source"]), find_onset(curves["others"])
    numbers = [
        (f"{_LABELS['source']} rises", describe_onset(source)),
        ("the others rise", describe_onset(others)),
    ]
    if lag is not None:
        low, high = lag.bounds
        numbers += [
            ("lag", f"about {_round(lag.steps)} steps ({low:,} to {high:,} by the checkpoints)"),
            ("seeds that agree", f"{lag.num_agreeing} of {lag.num_seeds}"),
        ]
    outcome, reason = _judge_lag(lag) if expected else _judge_no_lag(curves, lag)
    seeds = _count_seeds(curves["others"]) if lag is None or not expected else lag.num_seeds
    if outcome != UNDECIDED and seeds < FEWEST_SEEDS:
        return UNDECIDED, numbers, f"{reason} This is one seed, and another one must confirm it."
    return outcome, numbers, reason


def _judge_lag(lag: Lag | None) -> tuple[Outcome, str]:
    if lag is None or lag.source.step is None:
        return UNDECIDED, "A lag needs both curves to leave a plateau."
    if abs(lag.steps) >= lag.resolution:
        words = "after" if lag.steps > 0 else "before"
        told = f"The others rise about {_round(abs(lag.steps))} steps {words} {_LABELS['source']}"
        if not lag.is_resolved:
            return UNDECIDED, f"{told} on average, but not in every seed."
        return ("holds" if lag.steps > 0 else "fails"), f"{told}."
    if lag.resolution <= FINE * lag.source.step:
        return "fails", "Both rise between neighboring checkpoints, which are close enough to tell."
    return UNDECIDED, "The lag, if any, is smaller than the distance of checkpoints."


def _judge_no_lag(curves: Mapping[Quantity, Curve], lag: Lag | None) -> tuple[Outcome, str]:
    source, others = find_onset(curves["source"]), find_onset(curves["others"])
    if others is None:
        return UNDECIDED, "The other languages do not rise, so nothing can lag."
    if others.step is None:
        first = min(curves["others"])
        return "holds", f"The others rise from step {first:,} on, clearly by step {others.high:,}."
    if lag is None:
        # The source is high from the start, or rises at once: the others' plateau is the lag.
        words = "no longer rises" if source is None else "rises at once"
        told = f"The others stay on a plateau up to step {others.low:,}; {_LABELS['source']}"
        return "fails", f"{told} {words}."
    if lag.is_resolved and lag.steps > 0:
        return "fails", f"The others rise about {_round(lag.steps)} steps after the source."
    if lag.steps < lag.resolution:
        return "holds", "Both rise between neighboring checkpoints, or the others first."
    return UNDECIDED, "The seeds do not agree on the lag."


def check_trend(
    results: Results, variant: str, task: str, quantity: Quantity, toward: Literal["up", "down"]
) -> Found:
    """A quantity rises, or falls, over the checkpoints."""
    curve = _trace(results, variant, task)[quantity]
    steps = sorted(curve)
    if len(steps) < FEWEST_CHECKPOINTS:
        raise MissingScoresError(
            f"{display_name(variant)} has {len(steps)} checkpoints, a trend needs "
            f"{FEWEST_CHECKPOINTS}"
        )
    values = [mean(curve[step]) for step in steps]
    trend, p_value = trend_test(values)
    sign = 1 if toward == "up" else -1
    numbers = [
        (f"{_LABELS[quantity]} at step {steps[0]:,}", f"{100 * values[0]:.1f}"),
        (f"{_LABELS[quantity]} at step {steps[-1]:,}", f"{100 * values[-1]:.1f}"),
        ("trend over checkpoints", f"{write_p_value(p_value)}, {len(steps)} checkpoints"),
    ]
    outcome: Outcome = UNDECIDED
    if p_value < ALPHA and sign * trend > 0 and sign * (values[-1] - values[0]) > 0:
        outcome = "holds"
    elif p_value < ALPHA and sign * trend < 0:
        outcome = "fails"
    told = "has no clear trend" if p_value >= ALPHA else "rises" if trend > 0 else "falls"
    seeds = _count_seeds(curve)
    reason = (
        f"{_start(quantity)} of {display_name(variant)} goes from {100 * values[0]:.1f} to "
        f"{100 * values[-1]:.1f} and {told} between (Mann and Kendall's test over {len(steps)} "
        f"checkpoints, {seeds} seed{'s' if seeds > 1 else ''} each)."
    )
    return outcome, numbers, reason


def check_points(
    results: Results,
    task: str,
    quantity: Quantity,
    high: Mapping[str, str],
    low: Mapping[str, str],
) -> Found:
    """A quantity is larger at one part of a curve than at another, or than another variant's.

    Each side names a `variant` and `at`: the `first` checkpoint that both have, or the mean over
    the `first quarter` or `last quarter` of them.
    """
    curves = [_trace(results, side["variant"], task)[quantity] for side in (high, low)]
    shared = sorted(set(curves[0]) & set(curves[1]))
    if not shared:
        names = [high["variant"], low["variant"]]
        raise MissingScoresError(f"{join_names(names)} share no checkpoint on {title_task(task)}")
    number = max(1, len(shared) // 4)
    parts = {"first": shared[:1], "first quarter": shared[:number],
             "last quarter": shared[-number:]}  # fmt: skip
    series: list[SeedScores] = []
    numbers: Numbers = []
    for side, curve in zip((high, low), curves, strict=True):
        steps = parts[side["at"]]
        series.append(average([curve[step] for step in steps]))
        where = f"step {steps[0]:,}" + (f" to {steps[-1]:,}" if steps[1:] else "")
        numbers.append((f"{display_name(side['variant'])}: {_LABELS[quantity]} at {where}",
                        f"{100 * mean(series[-1]):.1f}"))  # fmt: skip
    first, second = (f"{display_name(side['variant'])} ({side['at']})" for side in (high, low))
    samples = [list(one.values()) for one in series]
    value = mean(series[0]) - mean(series[1])
    found = contrast_values(results, first, second, value, samples, [])
    told = _compare(found, "is larger than that of", "is smaller than that of")
    reason = f"{_start(quantity)} of {told}: {name_basis([found])}."
    return _decide_all([found]), [*numbers, ("difference", found.describe())], reason


def check_stays_high(results: Results, variant: str, base: str, task: str, share: float) -> Found:
    """In the source language a variant has most of its score at once, and stays above the base."""
    own, other = (_trace(results, name, task)["source"] for name in (variant, base))
    shared = sorted(set(own) & set(other))
    if len(shared) < 2:
        raise MissingScoresError(
            f"{join_names([variant, base])} share too few checkpoints on {title_task(task)}"
        )
    lowest = min(shared, key=lambda step: mean(own[step]))
    ratio = mean(own[lowest]) / mean(own[shared[-1]])
    ahead = sum(mean(own[step]) > mean(other[step]) for step in shared)
    numbers = [
        ("lowest score in English", f"{100 * mean(own[lowest]):.1f} at step {lowest:,}"),
        ("last score in English", f"{100 * mean(own[shared[-1]]):.1f}"),
        ("lowest by last", f"{100 * ratio:.0f} %"),
        (f"checkpoints above {display_name(base)}", f"{ahead} of {len(shared)}"),
    ]
    seeds = [list(own[lowest].values()), [share * value for value in own[shared[-1]].values()]]
    value = statistics.fmean(seeds[0]) - statistics.fmean(seeds[1])
    found = contrast_values(results, "lowest", "limit", value, seeds, [])
    outcome: Outcome = UNDECIDED
    if found.direction > 0 and ahead == len(shared):
        outcome = "holds"
    elif found.direction < 0 or (found.p_value is not None and 2 * ahead < len(shared)):
        outcome = "fails"
    reason = (
        f"The lowest point is {100 * ratio:.0f} % of the last (the claim needs {100 * share:.0f} "
        f"%; {name_basis([found])}), and {ahead} of {len(shared)} checkpoints are above "
        f"{display_name(base)}."
    )
    return outcome, numbers, reason


CHECKS: dict[str, Callable[..., Found]] = {
    "order": check_order,
    "count": check_count,
    "share": check_share,
    "similar": check_similar,
    "best layer": check_best_layer,
    "stability": check_stability,
    "lag": check_lag,
    "trend": check_trend,
    "points": check_points,
    "stays high": check_stays_high,
}
"""What `check` in claims.yaml may name."""


# Shared by the checks ----------------------------------------------------------------------------


def _require(results: Results, variants: Sequence[str]) -> None:
    """Reject variants without scores, and those trained for different numbers of steps."""
    if missing := [name for name in variants if name not in results.final_steps]:
        raise MissingScoresError(f"No scores of {join_names(missing)}")
    steps = {name: results.final_steps[name] for name in variants}
    if len({step for step in steps.values() if step is not None}) > 1:
        told = ", ".join(f"{display_name(name)} {step}" for name, step in steps.items())
        raise MissingScoresError(f"Different numbers of steps: {told}")


def _restrict(
    results: Results, variants: Sequence[str], measure: Measure, is_source: bool
) -> Measure:
    """Keep the source language of a measure, or all others."""
    pairs = next(iter(measure.read_shared(results, variants).values()))
    kept = tuple(pair for pair in pairs if (pair[1] == SOURCE) == is_source)
    if not kept:
        what = "English score" if is_source else "score in other languages"
        raise MissingScoresError(f"No {what} on {title_task(measure.task)}")
    return replace(measure, pairs=kept)


def _list_groups(
    results: Results,
    variants: Sequence[str],
    tasks: Sequence[str],
    over: str,
    languages: Sequence[str],
) -> dict[str, list[Measure]]:
    """Return what is counted: the measures of each group."""
    if over == "tasks":
        return {title_task(task): [Measure(task)] for task in tasks}
    if over == "layers":
        [task] = tasks
        layers = _list_layers(results, variants, task)
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


def _list_group_numbers(
    found: Mapping[str, Sequence[Contrast]], learned: Mapping[str, bool]
) -> Numbers:
    return [
        (f"{name}: {one.label}", f"{one.describe()}{'' if learned[name] else ' (not learned)'}")
        for name, contrasts in found.items()
        for one in contrasts
    ]


def _trace(results: Results, variant: str, task: str) -> dict[Quantity, Curve]:
    """Return a variant's curves; it must have learned the task in the source language."""
    if variant not in results.final_steps:
        raise MissingScoresError(f"No scores of {display_name(variant)}")
    curves = trace_curves(results, task, variant)
    if len(curves["source"]) < 3:
        raise MissingScoresError(
            f"Too few checkpoints: {display_name(variant)} was measured at "
            f"{len(curves['source'])} on {title_task(task)}"
        )
    level = results.find_level(task, "transfer", [(SOURCE, SOURCE)])
    if max(mean(series) for series in curves["source"].values()) <= level + MARGIN:
        raise MissingScoresError(
            f"{display_name(variant)} is at its baselines on {title_task(task)} in "
            f"{_LABELS['source']}"
        )
    return curves


def _decide_all(contrasts: Sequence[Contrast]) -> Outcome:
    """Decide a claim that needs every contrast: each must be supported by itself."""
    if contrasts and all(found.direction > 0 for found in contrasts):
        return "holds"
    return "fails" if any(found.direction < 0 for found in contrasts) else UNDECIDED


def _list_numbers(contrasts: Sequence[Contrast]) -> Numbers:
    return [(found.label, found.describe()) for found in contrasts]


def _explain(contrasts: Sequence[Contrast], caveats: str = "") -> str:
    """Write which differences are supported, by which test."""
    told = ", ".join(_compare(found) for found in contrasts)
    return f"{told}: {name_basis(contrasts)}. {caveats}".strip()


def _compare(found: Contrast, better: str = "is better than", worse: str = "is worse than") -> str:
    words = {1: better, -1: worse, 0: "does not differ clearly from"}[found.direction]
    if found.p_value is None:
        words = f"is {abs(100 * found.value):.1f} points {'above' if found.value > 0 else 'below'}"
    return f"{display_name(found.first)} {words} {display_name(found.second)}"


def name_basis(contrasts: Sequence[Contrast]) -> str:
    """Name the tests behind several contrasts, each once."""
    names = dict.fromkeys(found.basis for found in contrasts)
    if len(names) > 2:
        names = dict.fromkeys(name.split(",")[0] for name in names)
    return NUMBERS_ALONE if NUMBERS_ALONE in names else "; ".join(names)


def _list_unlearned(
    results: Results, variants: Sequence[str], measures: Sequence[Measure]
) -> list[str]:
    """Return the tasks on which none of the variants is above the baselines."""
    learned = {one.task for one in measures if one.is_learned(results, variants)}
    return [task for task in dict.fromkeys(one.task for one in measures) if task not in learned]


def _name_unlearned(tasks: Sequence[str]) -> str:
    names = ", ".join(map(title_task, tasks))
    return f"On {names} no model is above guessing or the most frequent label." if tasks else ""


def _caveats(
    results: Results, variants: Sequence[str], tasks: Sequence[str], unlearned: Sequence[str]
) -> str:
    """Name the tasks that are at their baselines, and the finetunings that collapsed."""
    collapsed = results.list_collapsed(variants, set(tasks) - set(unlearned))
    return " ".join([_name_unlearned(unlearned), *(each.describe() for each in collapsed)]).strip()


def _count_seeds(curve: Mapping[int, SeedScores]) -> int:
    """Return the number of seeds that every checkpoint has."""
    return min(len(series) for series in curve.values())


def _round(steps: float) -> str:
    """Write steps with two digits, which is as well as checkpoints allow."""
    digits = 1 - math.floor(math.log10(max(1.0, abs(steps))))
    return f"{round(steps, digits):,.0f}"


def _start(quantity: Quantity) -> str:
    return _LABELS[quantity][0].upper() + _LABELS[quantity][1:]

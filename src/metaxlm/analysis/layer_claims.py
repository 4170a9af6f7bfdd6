"""Claims about layers: features of each layer of a model, by pair of languages (section 4.4)."""

import statistics
from collections.abc import Sequence
from typing import Any

from metaxlm.analysis.contrast import (
    FAILS,
    HOLDS,
    UNDECIDED,
    Conclusion,
    Measure,
    MissingScoresError,
    average_measures,
    contrast_languages,
    contrast_values,
    decide_all,
    explain,
    require_variants,
    write_p_value,
)
from metaxlm.analysis.results import Names, display_name, join_names, title_task
from metaxlm.analysis.scores import Results
from metaxlm.analysis.stats import ALPHA, mean, share_test

Profile = dict[Any, dict[int, float]]  # scores by languages and layer; higher is better


def check_best_layer(
    results: Results, variants: Names, task: str, layer: int, of: int
) -> Conclusion:
    """The best layer of each variant is at this relative depth, give or take one layer of `of`.

    A smaller model has a smaller reach: of 6 layers only the nearest one counts.
    """
    require_variants(results, variants)
    conclusions = []
    for variant in variants:
        profile = _read_profile(results, variant, task)
        layers = sorted(next(iter(profile.values())))
        target, reach = layer * layers[-1] / of, layers[-1] / of
        near = [one for one in layers if abs(one - target) <= reach + 1e-9]
        near = near or [min(layers, key=lambda one: abs(one - target))]
        conclusions.append(_check_best(results, variant, task, profile, near))
    outcomes = {outcome for outcome, _, _ in conclusions}
    outcome = FAILS if FAILS in outcomes else HOLDS if outcomes == {HOLDS} else UNDECIDED
    place = f"Layer {layer} of {of} corresponds to {_write_span(near)} of {layers[-1]} here."
    reason = " ".join([*(reason for _, _, reason in conclusions), place])
    return outcome, [pair for _, numbers, _ in conclusions for pair in numbers], reason


def _check_best(
    results: Results, variant: str, task: str, profile: Profile, near: Sequence[int]
) -> Conclusion:
    name, layers = display_name(variant), sorted(next(iter(profile.values())))
    means = {one: statistics.fmean(p[one] for p in profile.values()) for one in layers}
    best = max(layers, key=lambda one: means[one])
    if not Measure(task, "features", layer=best).is_learned(results, [variant]):
        raise MissingScoresError(f"{name} is at the level of guessing on {title_task(task)}")
    hits = sum(max(layers, key=lambda one: p[one]) in near for p in profile.values())
    span, share = _write_span(near), f"{hits} of {len(profile)}"
    numbers = [
        (f"{name}: best layer", f"{best} of {layers[-1]}"),
        (f"{name}: languages with their best at {span}", share),
    ]
    if best not in near:
        rival = max(near, key=lambda one: means[one])
        gains = [of_pair[best] - of_pair[rival] for of_pair in profile.values()]
        lead = contrast_values(results, str(best), str(rival), statistics.fmean(gains), [], gains)
        numbers.append((f"{name}: layer {best} − layer {rival}", lead.describe()))
        words = "clearly" if lead.direction > 0 else "not clearly"
        reason = f"{name} is best at layer {best}, {words} better than {span}."
        return (FAILS if lead.direction > 0 else UNDECIDED), numbers, reason
    p_value = share_test(hits, len(profile), len(near) / len(layers))
    numbers.append((f"{name}: probability by chance", write_p_value(p_value)))
    words = "more than by chance" if p_value < ALPHA else "which may be chance"
    reason = f"{name} is best at layer {best}, and {share} languages at {span}, {words}."
    return (HOLDS if p_value < ALPHA else UNDECIDED), numbers, reason


def _write_span(layers: Sequence[int]) -> str:
    return f"{layers[0]} to {layers[-1]}" if layers[1:] else f"{layers[0]}"


def check_layer_mean(results: Results, first: str, second: str, task: str) -> Conclusion:
    """The first variant is better than the second on the mean over all layers, over languages."""
    variants = [first, second]
    require_variants(results, variants)
    measures = [Measure(task, "features", layer=k) for k in list_layers(results, variants, task)]
    lead = contrast_languages(results, first, second, measures)
    numbers = [
        (f"{display_name(variant)}: mean over layers", f"{100 * mean(found):.1f}")
        for variant, (found, _) in average_measures(results, variants, measures).items()
    ]
    numbers.append((lead.label, lead.describe()))
    if not any(measure.is_learned(results, variants) for measure in measures):
        return UNDECIDED, numbers, f"On {title_task(task)} no model is above guessing."
    return decide_all([lead]), numbers, explain([lead])


def check_stability(results: Results, first: str, second: str, task: str) -> Conclusion:
    """The scores of the first variant vary less over its layers than those of the second."""
    require_variants(results, [first, second])
    profiles = [_read_profile(results, variant, task) for variant in (first, second)]
    shared = [pair for pair in profiles[0] if pair in profiles[1]]
    if not shared:
        names = join_names([first, second])
        raise MissingScoresError(f"{names} share no languages of {title_task(task)}")
    spreads = [
        [statistics.pstdev(v for layer, v in profile[pair].items() if layer) for pair in shared]
        for profile in profiles
    ]
    gains = [wide - narrow for narrow, wide in zip(*spreads, strict=True)]
    lead = contrast_values(results, first, second, statistics.fmean(gains), [], gains)
    numbers = [
        (f"{display_name(variant)}: deviation over layers", f"{100 * statistics.fmean(spread):.1f}")
        for variant, spread in zip((first, second), spreads, strict=True)
    ]
    label = f"{display_name(second)} − {display_name(first)}"
    reason = explain([lead], verbs=("varies less by layer than", "varies more by layer than"))
    return decide_all([lead]), [*numbers, (label, lead.describe())], reason


def _read_profile(results: Results, variant: str, task: str) -> Profile:
    """Return a variant's scores by languages and layer, error rates turned."""
    profile: Profile = {}
    for layer in list_layers(results, [variant], task):
        for pair, series in Measure(task, "features", layer=layer).read(results, variant).items():
            value = 1 - mean(series) if results.info(task).lower else mean(series)
            profile.setdefault(pair, {})[layer] = value
    most = max(len(of_pair) for of_pair in profile.values())
    return {pair: of_pair for pair, of_pair in profile.items() if len(of_pair) == most}


def list_layers(results: Results, variants: Names, task: str) -> list[int]:
    """Return the layers of a task; all variants must have the same."""
    layers = [list(results.scores_by_layer(task, variant)) for variant in variants]
    if missing := [name for name, of in zip(variants, layers, strict=True) if not of]:
        raise MissingScoresError(f"No scores of {join_names(missing)} on {title_task(task)}")
    if any(of != layers[0] for of in layers):
        raise MissingScoresError(f"{join_names(variants)} were measured at different layers")
    return layers[0]

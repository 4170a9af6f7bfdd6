"""From claims to verdicts: the evidence of a run comes in, one verdict for each claim goes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from metaxlm.errors import MetaXLMError
from metaxlm.experiments.claims import curve_checks, direction_checks, layer_checks, table_checks
from metaxlm.experiments.claims.claim import (
    Claim,
    Judgment,
    MissingEvidenceError,
    Verdict,
    list_claims,
)
from metaxlm.experiments.claims.evidence import Evidence

CHECKS: dict[str, Callable[..., Judgment]] = {
    "order": table_checks.check_order,
    "tasks": table_checks.check_tasks,
    "small gain": table_checks.check_small_gain,
    "units": direction_checks.check_units,
    "similar": direction_checks.check_similar,
    "layers": layer_checks.check_layers,
    "best layer": layer_checks.check_best_layer,
    "stability": layer_checks.check_stability,
    "lag": curve_checks.check_lag,
    "no lag": curve_checks.check_no_lag,
    "trend": curve_checks.check_trend,
    "change": curve_checks.check_change,
    "first gap": curve_checks.check_first_gap,
    "stays high": curve_checks.check_stays_high,
}
"""What `check` in claims.yaml may name; the other keys of a claim are its parameters."""


def judge_claims(evidence: Evidence, claims: Sequence[Claim] | None = None) -> list[Verdict]:
    """Judge every claim of the paper, or those given, in their order."""
    return [judge(claim, evidence) for claim in (list_claims() if claims is None else claims)]


def judge(claim: Claim, evidence: Evidence) -> Verdict:
    """Judge one claim; what is missing among the results is the reason that it cannot be told."""
    if claim.check not in CHECKS:
        raise MetaXLMError(
            f"claims.yaml: {claim.name}: unknown check {claim.check!r} (known: {', '.join(CHECKS)})"
        )
    try:
        found = CHECKS[claim.check](evidence, **claim.parameters)
    except MissingEvidenceError as missing:
        return Verdict(claim, "cannot be told", (), f"{missing}.")
    return Verdict(claim, found.outcome, found.numbers, found.reason)

"""The paper's claims, each judged by a run's own results: rows and paired tests in, verdicts out.

`claims.yaml` states every claim in plain words, with its place and numbers in the paper, how it is
tested, and which check with which parameters does that. A claim holds, fails, or cannot be told.
"""

from metaxlm.experiments.claims.claim import Claim, Outcome, Verdict, list_claims
from metaxlm.experiments.claims.evidence import Evidence
from metaxlm.experiments.claims.judgment import judge_claims

__all__ = ["Claim", "Evidence", "Outcome", "Verdict", "judge_claims", "list_claims"]

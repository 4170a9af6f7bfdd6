"""Vocabulary matching and initialization, the paper's heart (section 3.2).

Read in this order: `canonical` (what a token says), `matching` (the rules), `dictionaries` and
`translation` (+Dict), `plan` (an origin for every row), `ledger` (the plan on the disk), `apply`
(the model that pretraining starts from).
"""

from metaxlm.initialization.apply import Parts, initialize
from metaxlm.initialization.dictionaries import Dictionaries, load_dictionaries
from metaxlm.initialization.ledger import coverage, load_ledger, save_ledger
from metaxlm.initialization.plan import Origin, Plan, make_plan

__all__ = [
    "Dictionaries",
    "Origin",
    "Parts",
    "Plan",
    "coverage",
    "initialize",
    "load_dictionaries",
    "load_ledger",
    "make_plan",
    "save_ledger",
]

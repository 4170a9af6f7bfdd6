"""Vocabulary matching and initialization, the paper's heart (section 3.2).

`start.match` does all of it in one call. Read in this order: `canonical` (what a token says),
`matching` (the rules), `dictionaries` and `translation` (+Dict), `composition` (rows of several),
`plan` (an origin for every row), `ledger` (the plan on the disk), `story` and `comparison` (what it
says), `apply` (the model that pretraining starts from), `start`.
"""

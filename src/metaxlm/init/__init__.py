"""Vocabulary matching and initialization (section 3.2 of the paper); `start.match` does it all.

Reading order: `vocabulary`, `rules`, `dictionaries`, `dictionary_rules`, `match_plan`, `ledger`,
`start`.
"""

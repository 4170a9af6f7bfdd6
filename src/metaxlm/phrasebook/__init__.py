"""Phrasebook, the built-in corpus: natural little documents in several languages, written by rule.

Because the sentences are generated, everything about them is known: what they mean, which word
translates which, their parts of speech, names, entailments, sentiment and answers. It feeds the
demo and the tests, where the paper uses Wikipedia and the XTREME tasks.
"""

from metaxlm.phrasebook.realization import available_languages, realize
from metaxlm.phrasebook.splits import PhrasebookSizes
from metaxlm.phrasebook.writers import write_phrasebook

__all__ = ["PhrasebookSizes", "available_languages", "realize", "write_phrasebook"]

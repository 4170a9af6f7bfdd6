"""Readers of the task files: one per format, each checks what it reads.

They read the data sets of the paper's Section 4 as their authors publish them, and the files of
custom tasks. A broken file raises an error that names file and line.
"""

from metaxlm.finetune.readers.lines import InputLines, Line, open_input, read_lines
from metaxlm.finetune.readers.parallel import (
    AlignedPair,
    AlignmentSet,
    Link,
    ParallelSentences,
    list_tatoeba,
    list_word_alignment,
    read_naacl_links,
    read_tatoeba,
    read_word_alignment,
)

__all__ = [
    "AlignedPair",
    "AlignmentSet",
    "InputLines",
    "Line",
    "Link",
    "ParallelSentences",
    "list_tatoeba",
    "list_word_alignment",
    "open_input",
    "read_lines",
    "read_naacl_links",
    "read_tatoeba",
    "read_word_alignment",
]

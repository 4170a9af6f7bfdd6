"""Readers of the task files: one per format, each checks what it reads.

They read the data sets of the paper's Section 4 as their authors publish them, and the files of
custom tasks. A broken file raises an error that names file and line. Examples without a label are
kept and counted in a notice.
"""

from metaxlm.finetune.readers.conll import TaggedSentence, read_conll, read_tagged_sentences
from metaxlm.finetune.readers.lines import Examples, InputLines, Line, open_input, read_lines
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
from metaxlm.finetune.readers.questions import Answer, Question, read_questions
from metaxlm.finetune.readers.texts import (
    LabeledText,
    read_labeled_pairs,
    read_reviews,
    read_rows,
)

__all__ = [
    "AlignedPair",
    "AlignmentSet",
    "Answer",
    "Examples",
    "InputLines",
    "LabeledText",
    "Line",
    "Link",
    "ParallelSentences",
    "Question",
    "TaggedSentence",
    "list_tatoeba",
    "list_word_alignment",
    "open_input",
    "read_conll",
    "read_labeled_pairs",
    "read_lines",
    "read_naacl_links",
    "read_questions",
    "read_reviews",
    "read_rows",
    "read_tagged_sentences",
    "read_tatoeba",
    "read_word_alignment",
]

"""The task data as it lies on the disk: files come in, checked examples go out.

One module for each layout of the paper's data sets (its Section 4), as their authors publish them.
Whatever is wrong with a file is an error that names file and line: nothing is skipped silently and
nothing becomes a zero. Examples without a label are read as such, counted and said.
"""

from metaxlm.finetune.readers.alignments import (
    AlignedPair,
    AlignmentSet,
    Link,
    list_word_alignment,
    read_word_alignment,
)
from metaxlm.finetune.readers.labeled import LabeledText, read_labeled_pairs
from metaxlm.finetune.readers.lines import read_lines
from metaxlm.finetune.readers.parallel import ParallelSentences, list_tatoeba, read_tatoeba
from metaxlm.finetune.readers.questions import Answer, Question, read_questions
from metaxlm.finetune.readers.reviews import read_reviews
from metaxlm.finetune.readers.tagged import TaggedSentence, read_tagged_sentences

__all__ = [
    "AlignedPair",
    "AlignmentSet",
    "Answer",
    "LabeledText",
    "Link",
    "ParallelSentences",
    "Question",
    "TaggedSentence",
    "list_tatoeba",
    "list_word_alignment",
    "read_labeled_pairs",
    "read_lines",
    "read_questions",
    "read_reviews",
    "read_tagged_sentences",
    "read_tatoeba",
    "read_word_alignment",
]

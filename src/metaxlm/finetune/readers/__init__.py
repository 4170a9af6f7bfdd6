"""Readers of the task files: one per format, each checks what it reads.

They read the data sets of the paper's Section 4 as their authors publish them, and the files of
custom tasks. A broken file raises an error that names file and line.
"""

from metaxlm.finetune.readers.parallel import Link, read_word_alignment

__all__ = ["Link", "read_word_alignment"]

"""Readers of the task files, one per format; a broken file raises an error with file and line."""

from metaxlm.finetune.readers.parallel import Link, read_word_alignment

__all__ = ["Link", "read_word_alignment"]

"""The tasks of the paper: finetuned ones, sentence retrieval, word alignment, and their data."""

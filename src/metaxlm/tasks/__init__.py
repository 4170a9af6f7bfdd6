"""The tasks of the paper: finetuned ones by name, sentence retrieval and word alignment."""

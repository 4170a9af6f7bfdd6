"""Corpora: readers of raw text, cleaning, sentence splitting, and token shards."""

"""Readers of raw corpora: text, JSONL, parquet and MediaWiki dumps, streaming in flat memory."""

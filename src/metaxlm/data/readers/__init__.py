"""Readers of raw corpora: text, JSONL, parquet and MediaWiki dumps, all streaming with flat memory.

`inputs` finds the files of a language and cuts them into splits; each reader turns one split into
documents and rejections, and reading all splits gives what reading the file whole gives.
"""

"""Train or load vocabularies; every one is a transformers fast tokenizer."""

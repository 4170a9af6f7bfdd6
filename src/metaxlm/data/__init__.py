"""Raw text becomes documents, documents become sentences, sentences become token shards."""

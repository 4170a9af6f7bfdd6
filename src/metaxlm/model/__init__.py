"""The encoder, its task heads, and the way to and from Hugging Face folders."""

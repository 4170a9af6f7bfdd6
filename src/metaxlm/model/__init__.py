"""The encoder, its task heads, and Hugging Face folders."""

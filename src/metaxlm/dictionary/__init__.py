"""Make bilingual dictionaries: read them in many formats, induce them from text, merge them."""

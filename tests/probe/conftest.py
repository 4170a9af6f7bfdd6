"""The tokenizers, encoders and published data of the tasks' tests serve here too."""

from tests.finetune.conftest import any_tokenizer, make_encoder, messages, published, tokenizer

__all__ = ["any_tokenizer", "make_encoder", "messages", "published", "tokenizer"]

"""The encoder, its task heads, and Hugging Face folders.

`metaxlm.model.huggingface` is not imported here: it imports transformers, which takes seconds.
"""

from metaxlm.model.encoder import Encoder, EncoderConfig, MaskedLM
from metaxlm.model.heads import ClassificationHead, SpanHead, TaggingHead, TaskModel

__all__ = [
    "ClassificationHead",
    "Encoder",
    "EncoderConfig",
    "MaskedLM",
    "SpanHead",
    "TaggingHead",
    "TaskModel",
]

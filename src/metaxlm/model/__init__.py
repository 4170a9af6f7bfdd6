"""The encoder, its task heads, and the way to and from Hugging Face folders.

`metaxlm.model.hugging_face` is not imported here: it brings transformers, which takes seconds.
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

"""Sentences to vectors: texts come in, one vector per text and layer goes out.

    from metaxlm.probe.embedding import embed_texts
    from metaxlm.model.any_encoder import load_encoder

    vectors = embed_texts(load_encoder("xlm-roberta-base"), ["A text.", "Ein Text."])[8]

The feature-based scenario of the paper (Section 4.4, Tatoeba): the mean of a layer's hidden states
over all tokens that are not padding, `<s>` and `</s>` included. Layer 0 is the embedding output.
Shapes: B batch, L length, D hidden, N texts, C texts of a chunk, Y choices of layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.batches import collate_inputs, evaluating
from metaxlm.finetune.encoding import MAX_CHARACTERS, Ids, check_tokenizer
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.pretrain.distributed import choose_device, own_bfloat16
from metaxlm.probe.layers import LayerChoice, every_layer, find_deepest
from metaxlm.probe.sentence_batches import (
    NO_FRAME,
    Frame,
    find_frame,
    plan_sentences,
    take_texts,
    tokenize_texts,
)
from metaxlm.progress import say, track

Precision = Literal["float32", "bfloat16"]
"""What the encoder computes in; vectors are averaged in float32 in any case."""

_MOST_TEXTS = 65_536
_MOST_BYTES = 256 * 2**20
"""A chunk has at most so many texts, and vectors of at most so many bytes."""
_CPU_TOKENS = 2_048
"""More at a time do not fit a CPU's caches, and are slower."""
_GROUP_COST = {"cpu": 64, "cuda": 1_024}
"""What a batch costs by itself, in tokens: a GPU computes a thousand while it is being started."""
_NAMED = 3
"""So many of the texts that are too long are named."""


@dataclass(frozen=True)
class EmbedSettings:
    """How texts become vectors."""

    layers: Sequence[LayerChoice] | None = None
    """All layers one by one when None."""
    specials: bool = True
    """Whether `<s>` and `</s>` count in the mean, as in the paper."""
    precision: Precision = "float32"
    batch_tokens: int = 16_384
    """Tokens that are computed at a time, at most."""

    def __post_init__(self) -> None:
        if self.precision not in ("float32", "bfloat16"):
            raise MetaXLMError(f"precision {self.precision!r}: use float32 or bfloat16")


class Embedded(NamedTuple):
    """Some of the texts of a stream, and their vectors on the CPU."""

    texts: list[str]
    vectors_YCD: Tensor


def embed_texts(
    model: AnyEncoder,
    texts: Sequence[str],
    device: torch.device | None = None,
    *,
    layers: Sequence[LayerChoice] | None = None,
    specials: bool = True,
    dtype: torch.dtype = torch.float32,
    precision: Precision = "float32",
    batch_tokens: int = 16_384,
    title: str = "embed",
) -> Tensor:
    """Return the mean hidden states of the chosen layers (all of them by default), [Y, N, D].

    The result lies on the CPU in `dtype`. Texts longer than the encoder's positions are cut, which
    is said with their numbers. Without `specials` the mean is over the text's own tokens, and a
    text that has none is an error. The encoder is moved to the device: a GPU if there is one.
    """
    settings = EmbedSettings(layers, specials, precision, batch_tokens)
    chosen = choose_layers(model, layers)
    vectors_YND = torch.empty(
        (len(chosen), len(texts), model.encoder.config.hidden_size), dtype=dtype
    )
    done = 0
    with track(title, len(texts), "sentences") as advance:
        for part in embed_stream(model, texts, device, settings, title=title, advance=advance):
            vectors_YND[:, done : done + len(part.texts)] = part.vectors_YCD
            done += len(part.texts)
    return vectors_YND


def embed_stream(
    model: AnyEncoder,
    texts: Iterable[str],
    device: torch.device | None = None,
    settings: EmbedSettings | None = None,
    *,
    title: str = "embed",
    place: Callable[[int], str] = "text {}".format,
    needs_tokens: bool = False,
    advance: Callable[[int], None] = lambda _: None,
) -> Iterator[Embedded]:
    """Yield any number of texts in order with their vectors, some thousand at a time.

    `place` tells where the text of a number (from 1) stands. With `needs_tokens` a text without
    any token of its own is an error even where the special tokens would give it a vector.
    """
    settings = settings or EmbedSettings()
    device = device or choose_device("auto")
    check_tokenizer(model.tokenizer, model.encoder.config)
    work = _Work(model, device, settings, place, needs_tokens or not settings.specials)
    model.encoder.to(device)
    for chunk, ids in _tokenize_ahead(work, iter(texts)):
        yield Embedded(chunk, work.embed_chunk(ids, advance))
    if work.num_cut:
        named = ", ".join(work.named_cuts) + (", ..." if work.num_cut > _NAMED else "")
        say(
            f"{title}: {work.num_cut:,} of {work.num_texts:,} texts are longer than "
            f"{model.encoder.config.max_positions} tokens and were cut: {named}"
        )


def _tokenize_ahead(work: _Work, texts: Iterator[str]) -> Iterator[tuple[list[str], list[Ids]]]:
    """Yield chunks with their ids; while one is computed, the next is tokenized."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        before: tuple[list[str], Future[list[Ids]]] | None = None
        for chunk in take_texts(texts, work.chunk_size, 16 * MAX_CHARACTERS):
            begun = pool.submit(work.tokenize, chunk)
            if before is not None:
                yield before[0], before[1].result()
            before = chunk, begun
        if before is not None:
            yield before[0], before[1].result()


def choose_layers(
    model: AnyEncoder, layers: Sequence[LayerChoice] | None
) -> tuple[LayerChoice, ...]:
    """Return the choices, or every layer; a layer that the encoder does not have is an error."""
    num_layers = model.encoder.config.num_layers
    if layers is None:
        return every_layer(num_layers)
    if not layers:
        raise MetaXLMError("no layer is chosen; name at least one")
    if (deepest := find_deepest(layers)) > num_layers:
        raise MetaXLMError(
            f"layer {deepest}: {model.source} has {num_layers} layers; name one from 0 to "
            f"{num_layers}"
        )
    return tuple(layers)


@dataclass
class _Work:
    """What stays the same from chunk to chunk, and what is counted over them."""

    model: AnyEncoder
    device: torch.device
    settings: EmbedSettings
    place: Callable[[int], str]
    needs_tokens: bool
    num_texts: int = 0
    num_cut: int = 0
    named_cuts: list[str] = field(default_factory=list)
    layers: tuple[LayerChoice, ...] = field(init=False)
    frame: Frame = field(init=False)

    def __post_init__(self) -> None:
        self.layers = choose_layers(self.model, self.settings.layers)
        self.frame = find_frame(self.model.tokenizer)

    @property
    def chunk_size(self) -> int:
        """Texts whose vectors stay within the memory that a chunk may take."""
        vector_bytes = 4 * len(self.layers) * self.model.encoder.config.hidden_size
        return max(1, min(_MOST_TEXTS, _MOST_BYTES // vector_bytes))

    def embed_chunk(self, ids: Sequence[Ids], advance: Callable[[int], None]) -> Tensor:
        """Return the vectors of a chunk on the CPU, [Y, C, D]."""
        shape = (len(self.layers), len(ids), self.model.encoder.config.hidden_size)
        means_YCD = torch.empty(shape, device=self.device)
        with evaluating(self.model.encoder):
            for batch in plan_work([len(row) for row in ids], self.device, self.settings):
                rows = [ids[k] for k in batch]
                means_YCD[:, torch.tensor(batch, device=self.device)] = self._pool(rows)
                advance(len(batch))
        return means_YCD.cpu()

    def tokenize(self, texts: Sequence[str]) -> list[Ids]:
        """Return the ids of a chunk; name those that are empty, and count those that are cut."""
        max_length = self.model.encoder.config.max_positions
        found = tokenize_texts(self.model.tokenizer, texts, self.frame, max_length)
        if self.needs_tokens:
            for index, row in enumerate(found.ids):
                if len(row) <= self.frame.size:
                    raise MetaXLMError(f"{self._name(index)} {_explain_empty(texts[index])}")
        self.num_cut += len(found.cut)
        self.named_cuts += [
            self._name(index) for index in found.cut[: _NAMED - len(self.named_cuts)]
        ]
        self.num_texts += len(texts)
        return found.ids

    def _name(self, index: int) -> str:
        """Name a text of the chunk that is being tokenized."""
        return self.place(self.num_texts + index + 1)

    @contextmanager
    def _computing(self) -> Iterator[None]:
        if self.settings.precision == "float32":
            yield
            return
        with own_bfloat16(self.device), torch.autocast(self.device.type, dtype=torch.bfloat16):
            yield

    def _pool(self, rows: Sequence[Ids]) -> Tensor:
        """Return the vectors of a batch, [Y, B, D]."""
        inputs = collate_inputs(rows, self.model.encoder.config.pad_id, self.device)
        deepest = find_deepest(self.layers)
        with self._computing():
            states = self.model.encoder.hidden_states(*inputs, deepest=deepest)
        frame = NO_FRAME if self.settings.specials else self.frame
        numbers = {number for choice in self.layers for number in choice.numbers}
        # The mean of layers is linear too: the mean of their means, which are small.
        means = {number: pool_mean(states[number], inputs.mask_BL, frame) for number in numbers}
        return torch.stack(
            [
                torch.stack([means[number] for number in choice.numbers]).mean(dim=0)
                for choice in self.layers
            ]
        )


def plan_work(
    lengths: Sequence[int], device: torch.device, settings: EmbedSettings
) -> list[list[int]]:
    """Return the batches in which texts of these lengths are computed on a device."""
    most = settings.batch_tokens
    most = min(most, _CPU_TOKENS) if device.type == "cpu" else most
    return plan_sentences(lengths, most, _GROUP_COST[device.type])


def pool_mean(hidden_BLD: Tensor, mask_BL: Tensor | None, frame: Frame = NO_FRAME) -> Tensor:
    """Return the mean over the real tokens in float32, [B, D], without those of the frame."""
    hidden_BLD = hidden_BLD.float()
    length = hidden_BLD.shape[1]
    if mask_BL is None:
        return hidden_BLD[:, frame.before : length - frame.after].mean(dim=1)
    columns_L = torch.arange(length, device=mask_BL.device)
    counts_B = mask_BL.sum(dim=1)
    inner_BL = (columns_L >= frame.before) & (columns_L < (counts_B - frame.after)[:, None])
    weights_BL = inner_BL.float() / (counts_B - frame.size)[:, None]
    return torch.bmm(weights_BL[:, None], hidden_BLD).squeeze(1)


def _explain_empty(text: str) -> str:
    if not text.strip():
        return "is empty; a vector needs a text"
    return f"({text!r}) becomes no token; a vector needs one"


def compare_vectors(
    before: AnyEncoder,
    after: AnyEncoder,
    texts: Sequence[str],
    device: torch.device | None = None,
    *,
    most: int = 200,
) -> float:
    """Return the mean cosine between two models' vectors of the same texts, in the last layer."""
    first_ND, second_ND = (
        embed_texts(model, texts[:most], device, layers=_last_layer(model))[0].double()
        for model in (before, after)
    )
    return float(F.cosine_similarity(first_ND, second_ND, dim=-1).mean())


def _last_layer(model: AnyEncoder) -> list[LayerChoice]:
    return [LayerChoice((model.encoder.config.num_layers,))]

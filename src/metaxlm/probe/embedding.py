"""Sentence vectors: embed texts as mean hidden states, one vector per text and layer.

    from metaxlm.probe.embedding import embed_texts
    from metaxlm.model.any_encoder import load_encoder

    vectors = embed_texts(load_encoder("xlm-roberta-base"), ["A text.", "Ein Text."])[8]

The mean is over all tokens (the paper's Section 4.4), here with `<s>` and `</s>`.
`corrections` are fitted on the texts of one call: embed each language by itself.
Shapes: B batch, D hidden, N texts, C texts of a chunk, Y choices of layers.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import Literal, NamedTuple, TypedDict, Unpack, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.batches import collate_inputs, evaluating
from metaxlm.finetune.encoding import MAX_CHARACTERS, Ids, check_tokenizer
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.model.sentence_modules import SentenceModules
from metaxlm.pretrain.distributed import choose_device, choose_dtype, own_products
from metaxlm.probe.corrections import NONE, Corrections, Moments, correct_vectors, weigh_tokens
from metaxlm.probe.pool import (
    NO_FRAME,
    LayerChoice,
    every_layer,
    find_deepest,
    find_frame,
    plan_sentences,
    pool_mean,
    run_ahead,
    take_texts,
    tokenize_texts,
)
from metaxlm.progress import say, track

# Of the encoder; means are always in float32.
Precision = Literal["auto", "float32", "bfloat16", "float16"]

MEAN = SentenceModules()
_MOST_TEXTS = 65_536
_MOST_BYTES = 256 * 2**20  # largest number of texts of a chunk, and of bytes of its vectors
_CPU_TOKENS = 2_048  # larger batches do not fit into a CPU's caches and are slower
# Tokens that are computed in the time of a launch; not measured on `mps`.
_GROUP_COST = {"cpu": 64, "cuda": 1_024, "mps": 1_024}
_NAMED = 3  # largest number of truncated texts that a message names


class EmbedOptions(TypedDict, total=False):
    """Options of `embed_texts` and `embed_stream`."""

    layers: Sequence[LayerChoice] | None  # default: every layer
    specials: bool  # include `<s>` and `</s>` in the mean (default); the paper does not say
    precision: Precision
    batch_tokens: int  # largest number of tokens of a batch
    title: str  # name of the work in messages
    place: Callable[[int], str]  # name a text by its number (from 1) in messages
    needs_tokens: bool  # reject texts without a token of their own, as always without `specials`
    corrections: Corrections  # SIF weights, centering, removal of components; default: none
    modules: SentenceModules  # steps of a sentence-transformers folder; default: the mean


class Embedded(NamedTuple):
    """A chunk of texts and their vectors on the CPU."""

    texts: list[str]
    vectors_YCD: Tensor


def embed_texts(
    model: AnyEncoder,
    texts: Sequence[str],
    device: torch.device | None = None,
    **options: Unpack[EmbedOptions],
) -> Tensor:
    """Return the mean hidden states of the chosen layers, [Y, N, D], on the CPU.

    Texts longer than the encoder's positions are truncated, with a message. The encoder is moved to
    the device (default: a GPU if available).
    """
    num_layers = len(choose_layers(model, options.get("layers")))
    width = find_width(model, options.get("modules", MEAN))
    vectors_YND = torch.empty(num_layers, len(texts), width)
    done = 0
    with track(options.get("title", "embed"), len(texts), "sentences") as advance:
        for part in _embed_chunks(model, texts, device, advance=advance, **options):
            vectors_YND[:, done : done + len(part.texts)] = part.vectors_YCD
            done += len(part.texts)
    corrections = options.get("corrections", NONE)
    if corrections.needs_all_vectors:
        for vectors_ND in vectors_YND:
            vectors_ND.copy_(torch.as_tensor(correct_vectors(vectors_ND, corrections)))
    return vectors_YND


def embed_stream(
    model: AnyEncoder,
    texts: Iterable[str],
    device: torch.device | None = None,
    *,
    advance: Callable[[int], None] = lambda _: None,
    **options: Unpack[EmbedOptions],
) -> Iterator[Embedded]:
    """Yield texts in order with their vectors, in chunks; the stream may not fit into memory.

    SIF weights need texts that can be read twice.
    """
    chunks = _embed_chunks(model, texts, device, advance=advance, **options)
    corrections = options.get("corrections", NONE)
    return _correct_chunks(chunks, corrections) if corrections.needs_all_vectors else chunks


def _correct_chunks(chunks: Iterator[Embedded], corrections: Corrections) -> Iterator[Embedded]:
    moments = Moments(corrections)
    num_chunks = 0
    with TemporaryFile(prefix="metaxlm-") as waiting:
        for texts, vectors_YCD in chunks:
            num_chunks += 1
            moments.add(vectors_YCD)
            pickle.dump((texts, vectors_YCD.numpy()), waiting, protocol=5)
        fitted = moments.fit()
        waiting.seek(0)
        for _ in range(num_chunks):
            texts, array_YCD = pickle.load(waiting)  # written above
            yield Embedded(texts, fitted.apply(torch.from_numpy(array_YCD)))


def _embed_chunks(
    model: AnyEncoder,
    texts: Iterable[str],
    device: torch.device | None = None,
    *,
    advance: Callable[[int], None] = lambda _: None,
    **options: Unpack[EmbedOptions],
) -> Iterator[Embedded]:
    device = device or choose_device("auto")
    check_tokenizer(model.tokenizer, model.encoder.config)
    work = _Embedder(model, device, **options)
    model.encoder.to(device)
    if isinstance(texts, Sized):
        work.corrections.check(len(texts), find_width(model, work.modules))
    if work.corrections.sif:
        assert iter(texts) is not texts, "SIF weights need texts that can be read twice"
        work.count_tokens(texts)
    # A thread tokenizes the next chunk while this one is computed.
    with ThreadPoolExecutor(max_workers=1) as pool:
        chunks = take_texts(texts, work.chunk_size, 16 * MAX_CHARACTERS)
        begun = ((chunk, pool.submit(work.tokenize, chunk)) for chunk in chunks)
        for chunk, ids in run_ahead(begun):
            yield Embedded(chunk, work.embed(ids.result(), advance))
    if work.num_cut:
        named = ", ".join(work.named_cuts) + (", ..." if work.num_cut > _NAMED else "")
        say(
            f"{work.title}: {work.num_cut:,} of {work.num_texts:,} texts are longer than "
            f"{work.limit} tokens and were cut: {named}"
        )


def find_width(model: AnyEncoder, modules: SentenceModules) -> int:
    """Return how many numbers a vector has."""
    return len(modules.layers[-1].weight) if modules.layers else model.encoder.config.hidden_size


def choose_layers(
    model: AnyEncoder, layers: Sequence[LayerChoice] | None
) -> tuple[LayerChoice, ...]:
    """Return the checked choices, or every layer if None."""
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
class _Embedder:
    model: AnyEncoder
    device: torch.device
    layers: Sequence[LayerChoice] | None = None
    specials: bool = True
    precision: Precision = "float32"
    batch_tokens: int = 16_384
    title: str = "embed"
    place: Callable[[int], str] = "text {}".format
    needs_tokens: bool = False
    corrections: Corrections = NONE
    modules: SentenceModules = MEAN

    def __post_init__(self) -> None:
        if self.precision not in get_args(Precision):
            known = ", ".join(get_args(Precision))
            raise MetaXLMError(f"precision {self.precision!r}: use one of {known}")
        self.dtype = choose_dtype(self.precision, self.device)
        if self.modules.pooling != "mean" and (self.corrections.sif or not self.specials):
            raise MetaXLMError(
                f"{self.model.source}: its vectors are states of the first token, but SIF weights "
                "and --no-specials are for means; choose a layer"
            )
        self.choices = choose_layers(self.model, self.layers)
        positions = self.model.encoder.config.max_positions
        self.limit = min(self.modules.max_length or positions, positions)
        self.frame = find_frame(self.model.tokenizer)
        if self.limit <= self.frame.size:
            raise MetaXLMError(
                f"{self.model.source}: texts of {self.limit} tokens have only special tokens; "
                "raise max_seq_length"
            )
        vector_bytes = 4 * len(self.choices) * self.model.encoder.config.hidden_size
        self.chunk_size = max(1, min(_MOST_TEXTS, _MOST_BYTES // vector_bytes))
        self.num_texts = self.num_cut = 0
        self.named_cuts: list[str] = []
        self.weights_V: Tensor | None = None

    def count_tokens(self, texts: Iterable[str]) -> None:
        """Weight tokens by their share of those that are averaged."""
        frame = NO_FRAME if self.specials else self.frame
        rows = (
            row[frame.before : len(row) - frame.after]
            for chunk in take_texts(texts, self.chunk_size, 16 * MAX_CHARACTERS)
            for row in self._split(chunk)[0]
        )
        vocab_size = self.model.encoder.config.vocab_size
        self.weights_V = weigh_tokens(rows, vocab_size).to(self.device)

    def _split(self, texts: Sequence[str]) -> tuple[list[Ids], list[int]]:
        if self.modules.lower_case:
            texts = [text.lower() for text in texts]
        return tokenize_texts(self.model.tokenizer, texts, self.frame, self.limit)

    def tokenize(self, texts: Sequence[str]) -> list[Ids]:
        ids, cut = self._split(texts)
        for index, row in enumerate(ids):
            if len(row) <= self.frame.size and (self.needs_tokens or not self.specials):
                name, text = self.place(self.num_texts + index + 1), texts[index]
                if not text.strip():
                    raise MetaXLMError(f"{name} is empty; a vector needs a text")
                raise MetaXLMError(f"{name} ({text!r}) has no token; a vector needs one")
        self.num_cut += len(cut)
        named = cut[: _NAMED - len(self.named_cuts)]
        self.named_cuts += [self.place(self.num_texts + index + 1) for index in named]
        self.num_texts += len(texts)
        return ids

    def embed(self, ids: Sequence[Ids], advance: Callable[[int], None]) -> Tensor:
        shape = (len(self.choices), len(ids), self.model.encoder.config.hidden_size)
        means_YCD = torch.empty(shape, device=self.device)
        with evaluating(self.model.encoder):
            for batch in plan_work([len(row) for row in ids], self.device, self.batch_tokens):
                pooled_YBD = self._pool([ids[k] for k in batch])
                means_YCD[:, torch.tensor(batch, device=self.device)] = pooled_YBD
                advance(len(batch))
        return self.modules.finish(means_YCD.cpu())

    def _pool(self, rows: Sequence[Ids]) -> Tensor:
        inputs = collate_inputs(rows, self.model.encoder.config.pad_id, self.device)
        with ExitStack() as stack:
            if self.dtype != torch.float32:
                stack.enter_context(own_products(self.device, self.dtype))
                stack.enter_context(torch.autocast(self.device.type, dtype=self.dtype))
            states = self.model.encoder.hidden_states(*inputs, deepest=find_deepest(self.choices))
        frame = NO_FRAME if self.specials else self.frame
        numbers = {number for choice in self.choices for number in choice.numbers}
        # The mean of layers is the mean of their pooled vectors, which are small.
        weights_BL = None if self.weights_V is None else self.weights_V[inputs.ids_BL]
        means = {
            number: pool_mean(states[number], inputs.mask_BL, frame, weights_BL)
            if self.modules.pooling == "mean"
            else states[number][:, 0].float()
            for number in numbers
        }
        chosen = ([means[number] for number in choice.numbers] for choice in self.choices)
        return torch.stack([torch.stack(pooled).mean(dim=0) for pooled in chosen])


def plan_work(lengths: Sequence[int], device: torch.device, batch_tokens: int) -> list[list[int]]:
    """Return the batches in which texts of these lengths are computed on a device."""
    most = min(batch_tokens, _CPU_TOKENS) if device.type == "cpu" else batch_tokens
    return plan_sentences(lengths, most, _GROUP_COST[device.type])


def compare_vectors(
    before: AnyEncoder, after: AnyEncoder, texts: Sequence[str], device: torch.device | None = None
) -> float:
    """Return the mean cosine of two models' last-layer vectors, over the first 200 texts."""
    vectors = []
    for model in (before, after):
        last = LayerChoice((model.encoder.config.num_layers,))
        vectors.append(embed_texts(model, texts[:200], device, layers=[last])[0].double())
    return float(F.cosine_similarity(vectors[0], vectors[1], dim=-1).mean())

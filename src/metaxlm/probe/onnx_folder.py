"""Add ONNX files to a model folder, and measure what they change.

`onnx/model.onnx` computes what transformers' model in the folder does: the last hidden states, or
the logits of a task head. sentence-transformers pools them (`backend="onnx"`), so one file serves
every pooling. `onnx/model_int8.onnx` has weights of 8 bits. Both are compared with the float model
on a sample of texts, and the figures are stored in `onnx/measured.json` and in the card.
Shapes: N texts, B texts of a batch, L tokens, D hidden, R rows of logits, C classes.
"""

from __future__ import annotations

import inspect
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from metaxlm.data.demo import LANGUAGES, write_phrasebook
from metaxlm.errors import MetaXLMError
from metaxlm.files import read_json, read_text, remove, write_json, write_text
from metaxlm.finetune.readers.parallel import read_tatoeba
from metaxlm.hub import CONFIG, first_line
from metaxlm.model.any_encoder import TASK_FILE, AnyEncoder
from metaxlm.model.foreign import quiet_transformers
from metaxlm.model.foreign_folder import load_model, read_foreign_config
from metaxlm.model.heads import HeadKind
from metaxlm.model.huggingface import CLASS_ENDINGS, load_tokenizer, write_tokenizer
from metaxlm.model.model_folder import SENTENCE_SETTINGS, find_folder, read_tensors
from metaxlm.model.sentence_modules import SentenceModules, read_sentence_modules
from metaxlm.probe.onnx_report import (
    FOLDER,
    INT8,
    LOWEST_QUALITY,
    MODEL,
    Figures,
    Report,
    describe_figures,
    write_report,
)
from metaxlm.probe.pool import pool_mean
from metaxlm.probe.retrieval import measure_pairs
from metaxlm.probe.retrieval_io import open_sentences
from metaxlm.progress import say, track
from metaxlm.recipe import PhrasebookRecipe

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TOLERANCE = 1e-4  # of float outputs, relative to the largest one if that is above 1
_OPSET = 18
_LARGEST_FILE = 2**31 - 2**27  # a protobuf file has at most 2 GiB; the rest is for the graph
_BATCH = 32
_MOST_TEXTS = 1_000  # of a user's file
_NUM_PAIRS = 50  # of each language of the built-in sample
_TRACED = ("A text.", "Another text with a few more words.")

Compute = Callable[[dict[str, Tensor]], tuple[Tensor, ...]]


@dataclass(frozen=True)
class Plan:
    """Which weights have 8 bits."""

    name: str  # of these weights, for the card
    operators: tuple[str, ...]
    has_outputs: bool  # whether the second layer of each feed-forward block is one of them


# The inputs of the second feed-forward layers have the largest outliers.
_PLANS = (
    Plan("all matrices and embeddings", ("MatMul", "Gather"), True),
    Plan(
        "all matrices and embeddings except the second layers of the feed-forward blocks",
        ("MatMul", "Gather"), False,
    ),
    Plan("all matrices except the second layers of the feed-forward blocks", ("MatMul",), False),
)  # fmt: skip


@dataclass(frozen=True)
class Sample:
    """Texts to measure with; `blocks` are the numbers of pairs: first sources, then targets."""

    name: str
    texts: tuple[str, ...]
    blocks: tuple[int, ...] = ()


def require_onnx() -> None:
    """Raise an error if a package of the extra `onnx` is not installed."""
    for name in ("onnx", "onnxruntime"):
        try:
            import_module(name)
        except ImportError as error:
            raise MetaXLMError(
                f"ONNX files need {name}; install it with: pip install 'metaxlm[onnx]'"
            ) from error


def read_sample(path: Path | None) -> Sample:
    """Read texts, or pairs with a tab, one per line; None takes pairs of the built-in corpus."""
    if path is not None:
        with open_sentences(str(path)) as sentences:
            lines = [line for line, _ in zip(sentences, range(_MOST_TEXTS), strict=False)]
        pairs = [line.split("\t") for line in lines]
        if all(len(pair) == 2 and all(text.strip() for text in pair) for pair in pairs):
            texts = [pair[side] for side in (0, 1) for pair in pairs]
            return Sample(path.name, tuple(texts), (len(pairs),))
        return Sample(path.name, tuple(lines))
    texts = []
    blocks = []
    sizes = PhrasebookRecipe(source_sentences=100, sentences=100, test_pairs=_NUM_PAIRS)
    with tempfile.TemporaryDirectory(prefix="metaxlm-") as folder:
        write_phrasebook(Path(folder) / "data", LANGUAGES, 1, sizes)
        for language in LANGUAGES[1:]:
            found = read_tatoeba(Path(folder) / "data" / "tasks", language)
            texts += [*found.foreign, *found.english]
            blocks.append(len(found.foreign))
    languages = ", ".join(LANGUAGES[1:])
    name = f"the built-in corpus, {_NUM_PAIRS} pairs of {languages} with en"
    return Sample(name, tuple(texts), tuple(blocks))


def find_task(model: AnyEncoder) -> HeadKind | None:
    """Return the kind of the task head that a model's folder has."""
    if (Path(model.source) / "optimizer.safetensors").is_file():
        return None  # a checkpoint of a training
    return _find_kind(find_folder(model.source))


def _find_kind(folder: Path) -> HeadKind | None:
    name = str((read_json(folder / CONFIG).get("architectures") or [""])[0])
    return next((kind for kind, ending in CLASS_ENDINGS.items() if name.endswith(ending)), None)


def copy_task_model(model: AnyEncoder, kind: HeadKind, folder: Path) -> None:
    """Write weights, config, tokenizer and card of a task model to a folder."""
    source = find_folder(model.source)
    loaded = _load(source, f"AutoModel{CLASS_ENDINGS[kind]}")
    with quiet_transformers():
        loaded.save_pretrained(folder)
    config = model.encoder.config
    has_types = config.num_token_types > 1
    write_tokenizer(folder, model.tokenizer, config.max_positions, has_token_types=has_types)
    for name in (TASK_FILE, "README.md"):
        if (source / name).is_file():
            write_text(folder / name, read_text(source / name))


def add_onnx(folder: Path, sample: Sample, *, int8: bool = False) -> Report:
    """Write `onnx/model.onnx` and `onnx/model_int8.onnx` to an unfinished folder; measure both."""
    require_onnx()
    work = _Work.open(folder)
    target = folder / FOLDER
    target.mkdir()
    _drop_arguments(folder / SENTENCE_SETTINGS)
    with torch.inference_mode():
        expected = work.compute(work.run_torch, sample, "float model")
    _write_model(work, target / MODEL)

    def measure(path: Path, quantized: str | None = None) -> Figures:
        found = work.compute(_open_session(path), sample, path.name)
        return _compare(found, expected, sample, _measure_size(path), quantized)

    files = {MODEL: measure(target / MODEL)}
    # Compare with the largest number: hidden states may be far above 1.
    scale = max(1.0, float(expected.values.abs().max()))
    if not (difference := files[MODEL].largest_difference) <= TOLERANCE * scale:
        raise MetaXLMError(
            f"{work.model.config.model_type}: the ONNX file gives other numbers than torch, up to "
            f"{difference:.1g} apart; this architecture cannot be exported"
        )
    if int8:
        files[INT8] = _quantize_well(target, measure)
    report = Report(sample.name, len(sample.texts), files, _retrieve(expected, sample))
    write_report(folder, report, has_head=work.kind is not None)
    for name, figures in files.items():
        say(f"{FOLDER}/{name}: {describe_figures(figures, report)}")
    if report.warning:
        say(f"warning: {report.warning}")
    return report


@dataclass(frozen=True)
class _Computed:
    """Sentence vectors [N, D], or logits [R, C] and the predictions from them."""

    values: Tensor
    predictions: Tensor | None = None


@dataclass(frozen=True)
class _Work:
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    kind: HeadKind | None
    modules: SentenceModules
    max_length: int
    inputs: tuple[str, ...]

    @classmethod
    def open(cls, folder: Path) -> _Work:
        kind = _find_kind(folder)
        model = _load(folder, f"AutoModel{CLASS_ENDINGS[kind]}" if kind else "AutoModel")
        tokenizer = load_tokenizer(folder, model.config.vocab_size)
        tokenizer.padding_side = "right"
        modules = SentenceModules() if kind else read_sentence_modules(folder) or SentenceModules()
        length = min(modules.max_length or tokenizer.model_max_length, tokenizer.model_max_length)
        known = inspect.signature(model.forward).parameters
        inputs = tuple(name for name in tokenizer(_TRACED[0]) if name in known)
        return cls(model, tokenizer, kind, modules, length, inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        if self.kind is None:
            return ("last_hidden_state",)
        return ("start_logits", "end_logits") if self.kind == "span" else ("logits",)

    def encode(self, texts: list[str]) -> dict[str, Tensor]:
        found = self.tokenizer(
            [text.lower() for text in texts] if self.modules.lower_case else texts,
            padding=True, truncation=True, max_length=self.max_length, return_tensors="pt",
        )  # fmt: skip
        return {name: found[name] for name in self.inputs}

    def run_torch(self, batch: dict[str, Tensor]) -> tuple[Tensor, ...]:
        output = self.model(**batch)
        return tuple(output[name] for name in self.outputs)

    def compute(self, run: Compute, sample: Sample, title: str) -> _Computed:
        parts = list(self._compute_batches(run, sample, title))
        values = torch.cat([part.values for part in parts])
        predictions = [part.predictions for part in parts if part.predictions is not None]
        return _Computed(values, torch.cat(predictions) if predictions else None)

    def _compute_batches(self, run: Compute, sample: Sample, title: str) -> Iterator[_Computed]:
        with track(f"measure {title}", len(sample.texts), "texts") as advance:
            for first in range(0, len(sample.texts), _BATCH):
                texts = list(sample.texts[first : first + _BATCH])
                batch = self.encode(texts)
                yield self._finish(run(batch), batch["attention_mask"].bool())
                advance(len(texts))

    def _finish(self, found: tuple[Tensor, ...], mask_BL: Tensor) -> _Computed:
        if self.kind is None:
            hidden_BLD = found[0]
            is_mean = self.modules.pooling == "mean"
            pooled_BD = pool_mean(hidden_BLD, mask_BL) if is_mean else hidden_BLD[:, 0]
            return _Computed(self.modules.finish(pooled_BD))
        if self.kind == "span":
            ends_BL2 = torch.stack(found, dim=-1)
            hidden = ends_BL2.masked_fill(~mask_BL[..., None], float("-inf"))
            return _Computed(ends_BL2[mask_BL], hidden.argmax(dim=1))
        logits_RC = found[0][mask_BL] if self.kind == "tagging" else found[0]
        return _Computed(logits_RC, logits_RC.argmax(dim=-1))


class _Traced(nn.Module):
    """Positional tensors in and out, as the exporter needs."""

    def __init__(self, work: _Work) -> None:
        super().__init__()
        self.model = work.model
        self._work = work

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self._work.run_torch(dict(zip(self._work.inputs, inputs, strict=True)))


def _load(folder: Path, auto_class: str) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):  # a missing pooler is not used
        model, _ = load_model(auto_class, read_foreign_config(folder), read_tensors(folder), folder)
    return model.eval()


def _drop_arguments(path: Path) -> None:
    """Remove the arguments of transformers' classes, which Optimum's classes reject."""
    if path.is_file():
        settings = read_json(path)
        write_json(path, {key: settings[key] for key in settings if key != "model_args"})


def _write_model(work: _Work, path: Path) -> None:
    """Trace the model with two texts; the sample then tries other shapes."""
    import onnx

    example = work.encode(list(_TRACED))
    axes = {name: {0: "batch", 1: "length"} for name in (*work.inputs, *work.outputs)}
    if work.kind == "classification":
        axes["logits"] = {0: "batch"}
    with tempfile.TemporaryDirectory(prefix="metaxlm-") as scratch, warnings.catch_warnings():
        # torch announces its newer exporter, which gives the same and takes 25 times as long.
        warnings.simplefilter("ignore")
        traced = Path(scratch) / MODEL  # weights above 2 GiB become a file per tensor there
        try:
            torch.onnx.export(
                _Traced(work).eval(), tuple(example.values()), str(traced), dynamo=False,
                input_names=list(work.inputs), output_names=list(work.outputs),
                dynamic_axes=axes, opset_version=_OPSET,
            )  # fmt: skip
        except Exception as error:  # operators that ONNX has not, checks of values: many classes
            raise MetaXLMError(
                f"{work.model.config.model_type}: torch cannot export it to ONNX "
                f"({first_line(error)}); this architecture cannot be exported"
            ) from error
        is_large = sum(file.stat().st_size for file in traced.parent.iterdir()) > _LARGEST_FILE
        graph = onnx.load(traced)
        onnx.save_model(
            graph, path, save_as_external_data=is_large, location=_name_weights(path).name
        )


def _name_weights(path: Path) -> Path:
    return path.with_name(f"{path.name}_data")  # as Optimum expects it


def _measure_size(path: Path) -> float:
    paths = [file for file in (path, _name_weights(path)) if file.is_file()]
    return sum(file.stat().st_size for file in paths) / 1e6


def _open_session(path: Path) -> Compute:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def run(batch: dict[str, Tensor]) -> tuple[Tensor, ...]:
        arrays = session.run(None, {name: value.numpy() for name, value in batch.items()})
        return tuple(torch.from_numpy(array) for array in arrays)

    return run


def _quantize_well(target: Path, measure: Callable[[Path, str | None], Figures]) -> Figures:
    """Keep the smallest file that is good enough, or the best one."""
    path = target / INT8
    tried: dict[Plan, Figures] = {}
    for plan in _PLANS:
        _quantize(target / MODEL, path, plan)
        tried[plan] = measure(path, plan.name)
        if tried[plan].quality >= LOWEST_QUALITY:
            return tried[plan]
        say(f"int8 of {plan.name}: {tried[plan].quality:.4f}, below {LOWEST_QUALITY}")
    best = max(tried, key=lambda plan: tried[plan].quality)
    _quantize(target / MODEL, path, best)
    return tried[best]


def _quantize(source: Path, path: Path, plan: Plan) -> None:
    import onnx
    from onnxruntime.quantization import QuantType, quant_utils, quantize_dynamic

    for old in (path, _name_weights(path)):
        if old.exists():
            remove(old)
    model = onnx.load(source)
    quant_utils.add_pre_process_metadata(model)  # it would recommend steps for images otherwise
    shapes = {tensor.name: tensor.dims for tensor in model.graph.initializer}
    weights = {
        node.name: shapes[node.input[1]]
        for node in model.graph.node
        if node.op_type == "MatMul" and node.input[1] in shapes
    }
    narrowing = [name for name, dims in weights.items() if dims[0] > dims[1]]
    quantize_dynamic(
        model, path,
        op_types_to_quantize=list(plan.operators),
        nodes_to_exclude=[] if plan.has_outputs else narrowing,
        weight_type=QuantType.QInt8,
        per_channel=True,  # one scale for a whole matrix costs six times as much cosine
        reduce_range=True,  # 7 bits: sums of 8 saturate on x86 processors without VNNI
        use_external_data_format=_measure_size(source) * 1e6 / 4 > _LARGEST_FILE,
    )  # fmt: skip


def _compare(
    found: _Computed, expected: _Computed, sample: Sample, megabytes: float, quantized: str | None
) -> Figures:
    difference = float((found.values - expected.values).abs().max())
    if expected.predictions is not None:
        assert found.predictions is not None
        same = (found.predictions == expected.predictions).double().mean()
        return Figures(megabytes, difference, same_predictions=float(same), quantized=quantized)
    cosines_N = F.cosine_similarity(found.values.double(), expected.values.double())
    return Figures(
        megabytes, difference, float(cosines_N.mean()), float(cosines_N.min()),
        _retrieve(found, sample), quantized=quantized,
    )  # fmt: skip


def _retrieve(found: _Computed, sample: Sample) -> float | None:
    """Return the accuracy of both directions, averaged over the languages."""
    if not sample.blocks or found.predictions is not None:
        return None
    accuracies = []
    first = 0
    for size in sample.blocks:
        middle, end = first + size, first + 2 * size
        sides = found.values[first:middle], found.values[middle:end]
        hits_N2, _ = measure_pairs(*sides, torch.device("cpu"))
        accuracies.append(float(hits_N2.double().mean()))
        first = end
    return sum(accuracies) / len(accuracies)

"""Files of retrieval and mining: sentences, vectors and gold pairs.

Sentences are lines of text, checked in a first pass so that errors show before any computation, and
then streamed. Vectors are `.npy` files of the shape [N, D], or [Y, N, D] for several choices of
layers, or `.parquet` files with the columns `line`, `text` and a list of D numbers per choice such
as `layer_8`. Files may be larger than memory, and outputs appear only when complete.
Shapes: N texts, D hidden, C texts of a chunk, Y choices of layers.
"""

import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tokenize import TokenError
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from metaxlm.data.readers.parquet import check_table, open_parquet, reading_parquet
from metaxlm.errors import MetaXLMError, naming
from metaxlm.files import STANDARD, atomic_file, get_standard_input
from metaxlm.finetune.readers.input_lines import open_input, read_lines
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.model.sentence_modules import SentenceModules, find_sentence_modules
from metaxlm.probe.corrections import NONE, Corrections, correct_vectors
from metaxlm.probe.embedding import MEAN, Embedded, EmbedOptions, embed_texts
from metaxlm.probe.nearest import Vectors
from metaxlm.probe.pool import LayerChoice, default_layer, parse_layers
from metaxlm.progress import say
from metaxlm.reading import open_file, reading

VectorType = Literal["float16", "float32"]
Array = npt.NDArray[Any]

ENDINGS = (".npy", ".parquet")
_PREFIX = "layer_"
_ROWS_CHECKED = 65_536


@dataclass
class SentenceFile:
    """Checked lines that can be read repeatedly."""

    name: str  # the name in messages
    path: Path

    def __post_init__(self) -> None:
        number, empty = 0, []
        for number, text in self._read():
            if not text.strip():
                empty.append(number)
        if number == 0:
            raise MetaXLMError(f"{self.name}:1: no text in it")
        self.num_texts = number
        if empty:
            others = f" (as are {len(empty) - 1:,} more)" if len(empty) > 1 else ""
            fault = f"the line is empty{others}; a vector needs a text, remove it"
            raise MetaXLMError(f"{self.place(empty[0])}: {fault}")

    def __len__(self) -> int:
        return self.num_texts

    def __iter__(self) -> Iterator[str]:
        count = 0
        for count, text in self._read():
            if count > self.num_texts:
                break
            yield text
        if count != self.num_texts:
            raise MetaXLMError(f"{self.name}: changed while it was read; start again")

    def _read(self) -> Iterator[tuple[int, str]]:
        with open_input(str(self.path)) as lines:
            lines.name = self.name
            yield from lines

    def place(self, number: int) -> str:
        """Return the file and line of a text, counted from 1."""
        return f"{self.name}:{number}"


@contextmanager
def open_sentences(source: str) -> Iterator[SentenceFile]:
    """Check a file, or the standard input for `-`, which is copied to a temporary file."""
    if source != STANDARD:
        yield SentenceFile(source, Path(source))
        return
    with tempfile.NamedTemporaryFile(prefix="metaxlm-") as kept:
        with naming(kept.name), reading("standard input"):
            shutil.copyfileobj(get_standard_input(), kept)
            kept.flush()
        yield SentenceFile("standard input", Path(kept.name))


def check_ending(path: Path) -> None:
    """Raise an error for a file name whose ending is not that of a vector file."""
    if path.suffix not in ENDINGS:
        raise MetaXLMError(f"{path}: vectors are written as {' or '.join(ENDINGS)}; name it so")


def write_vectors(
    path: Path,
    chunks: Iterable[Embedded],
    *,
    num_texts: int,
    width: int,
    layers: Sequence[LayerChoice],
    dtype: VectorType = "float16",
) -> None:
    """Write the vectors of `num_texts` texts in order; an interruption leaves no file."""
    check_ending(path)
    assert num_texts > 0, "numpy cannot map an empty file"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        needed_bytes = len(layers) * num_texts * width * np.dtype(dtype).itemsize
        free_bytes = shutil.disk_usage(path.parent).free
        if needed_bytes > free_bytes:
            raise MetaXLMError(
                f"{path.parent}: the vectors need {needed_bytes / 1e6:,.1f} MB, but only "
                f"{free_bytes / 1e6:,.1f} MB are free; choose fewer layers, float16 or another "
                "--output"
            )
        converted = _convert(chunks, num_texts, dtype)
        with atomic_file(path) as temporary:
            if path.suffix == ".npy":
                shape = (len(layers), num_texts, width)[len(layers) == 1 :]
                _write_npy(temporary, converted, shape, dtype)
            else:
                _write_parquet(temporary, converted, width, layers, dtype)
    except OSError as error:
        raise MetaXLMError(
            f"{path}: cannot be written ({error.strerror or error}); choose another --output"
        ) from error


Converted = Iterator[tuple[int, list[str], Array]]
"""The number of earlier texts, and the texts and vectors of a chunk."""


def _convert(chunks: Iterable[Embedded], num_texts: int, dtype: VectorType) -> Converted:
    done = 0
    for texts, vectors_YCD in chunks:
        with np.errstate(over="ignore"):  # reported below with the line
            array_YCD = vectors_YCD.numpy().astype(dtype)
        finite_C = np.isfinite(array_YCD).all(axis=(0, 2))
        if not finite_C.all():
            row = int(np.argmin(finite_C))
            reason = "that is not finite; the model is damaged"
            if vectors_YCD[:, row].isfinite().all():
                reason = f"beyond {dtype}'s range; write float32 instead"
            raise MetaXLMError(f"vector {done + row + 1:,} has a value {reason}")
        yield done, texts, array_YCD
        done += len(texts)
    assert done == num_texts, f"{done} vectors of {num_texts} texts"


def _write_npy(path: Path, chunks: Converted, shape: tuple[int, ...], dtype: VectorType) -> None:
    num_texts, width = shape[-2:]
    vector_bytes = width * np.dtype(dtype).itemsize
    with path.open("wb") as file:
        header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        first = file.tell()
        for done, _, array_YCD in chunks:
            for index, array_CD in enumerate(array_YCD):
                file.seek(first + (index * num_texts + done) * vector_bytes)
                file.write(array_CD.tobytes())


def _write_parquet(
    path: Path, chunks: Converted, width: int, layers: Sequence[LayerChoice], dtype: VectorType
) -> None:
    vector = pa.list_(pa.float16() if dtype == "float16" else pa.float32(), width)
    columns = {f"{_PREFIX}{choice}": vector for choice in layers}
    schema = pa.schema({"line": pa.int64(), "text": pa.string(), **columns})
    # Vectors hardly compress; texts do.
    options = {"compression": {"text": "zstd"}, "use_dictionary": False}
    with pq.ParquetWriter(path, schema, **options) as writer:
        for done, texts, array_YCD in chunks:
            lines = pa.array(range(done + 1, done + len(texts) + 1), pa.int64())
            flat = [pa.array(rows.ravel()) for rows in array_YCD]
            lists = [pa.FixedSizeListArray.from_arrays(numbers, width) for numbers in flat]
            writer.write_table(pa.table([lines, pa.array(texts), *lists], schema))


def read_vectors(path: Path, layer: str | None = None) -> Array:
    """Return the vectors of a file, [N, D]; layer 8 is `layer_8` or the ninth table of a `.npy`."""
    check_ending(path)
    vectors_ND = _read_npy(path, layer) if path.suffix == ".npy" else _read_parquet(path, layer)
    if vectors_ND.size == 0:
        raise MetaXLMError(f"{path}: holds no vectors")
    if not np.issubdtype(vectors_ND.dtype, np.floating):
        raise MetaXLMError(f"{path}: holds {vectors_ND.dtype}, but vectors are float16 or float32")
    for start in range(0, len(vectors_ND), _ROWS_CHECKED):
        finite_C = np.isfinite(vectors_ND[start : start + _ROWS_CHECKED]).all(axis=1)
        if not finite_C.all():
            number = start + int(np.argmin(finite_C)) + 1
            raise MetaXLMError(f"{path}: vector {number:,} has a value that is not finite")
    return vectors_ND


def _open_npy(path: Path) -> Array:
    open_file(path).close()  # raises an error for a missing file or a folder
    # The header is a Python literal, which fails in many ways.
    kinds = (ValueError, TypeError, KeyError, OverflowError, SyntaxError, MemoryError, TokenError)
    with reading(path, *kinds, fix="damaged or not .npy: write it again"):
        return np.lib.format.open_memmap(path, mode="r")


def _read_npy(path: Path, layer: str | None) -> Array:
    found = _open_npy(path)
    if found.ndim == 3:
        found = found[int(_choose(path, layer, [str(number) for number in range(len(found))]))]
    elif layer is not None and found.ndim == 2:
        raise MetaXLMError(f"{path}: holds one layer only; leave the layer out")
    if found.ndim != 2:
        shapes = "[texts, numbers], or [layers, texts, numbers]"
        raise MetaXLMError(f"{path}: has the shape {found.shape}; vectors are {shapes}")
    return found


def _read_parquet(path: Path, layer: str | None) -> Array:
    with reading_parquet(path), open_parquet(path) as file:
        schema = file.schema_arrow
        columns = [field.name for field in schema if _is_vector(field.type)]
        if not columns:
            named = ", ".join(schema.names)
            raise MetaXLMError(f"{path}: none of its columns ({named}) holds lists of floats")
        wanted = columns[0]
        if layer is not None or len(columns) > 1:
            names = {name.removeprefix(_PREFIX): name for name in columns}
            wanted = names[_choose(path, layer, list(names))]
        check_table(path, file, [wanted])
        column = file.read([wanted], use_threads=False).column(0).combine_chunks()
        column.validate(full=True)
    numbers, lengths = column.flatten(), column.value_lengths().unique()
    # A missing vector has no length, which is one more distinct length.
    if numbers.null_count or len(lengths) > 1:
        raise MetaXLMError(f"{path}: column {wanted} has gaps, or vectors of different lengths")
    width = lengths[0].as_py() if len(lengths) else 0
    return np.asarray(numbers.to_numpy()).reshape(len(column), width)


def _is_vector(kind: pa.DataType) -> bool:
    is_list = pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind)
    return bool(is_list and pa.types.is_floating(kind.value_type))


def _choose(path: Path, wanted: str | None, known: Sequence[str]) -> str:
    if wanted in known:
        return str(wanted)
    several = ", ".join(known[:20])
    if wanted is None:
        raise MetaXLMError(f"{path}: has several layers ({several}); choose one with --layer")
    raise MetaXLMError(f"{path}: has no layer {wanted}, but {several}")


@dataclass
class EmbeddingIndex:
    """One side of a search: its lines if it is a text, and its vectors."""

    name: str
    texts: list[str] = field(default_factory=list)  # empty for a vector file
    ids: list[str] = field(default_factory=list)  # names of the lines; empty if lines are counted
    layers: tuple[str, ...] = ()
    vectors: list[Vectors] = field(default_factory=list)  # one table for each layer
    known_texts: list[str] = field(default_factory=list)  # this side of known pairs
    known: list[Vectors] = field(default_factory=list)  # their vectors, one table for each layer

    def __len__(self) -> int:
        return len(self.vectors[0]) if self.vectors else len(self.texts)

    def describe(self, row: int) -> str:
        """Return the text of a row, or its number (from 1) in a vector file."""
        return self.texts[row].replace("\t", " ") if self.texts else str(row + 1)


Sides = tuple[EmbeddingIndex, EmbeddingIndex]
GoldPairs = list[tuple[int, int]]


def load_indexes(
    sources: tuple[str, str],
    layer: str | None,
    open_model: Callable[[], AnyEncoder] | None = None,
    device: torch.device | None = None,
    *,
    specials: bool = True,
    batch_tokens: int = 16_384,
    has_ids: bool = False,
    is_parallel: bool = False,
    takes_several: bool = False,
    gold: Path | None = None,
    corrections: Corrections = NONE,
    known: Path | None = None,
) -> tuple[Sides, GoldPairs]:
    """Check two texts or vector files and gold pairs, then open the model and embed the texts.

    `takes_several` allows several layers, and makes all layers the default. Each side has its own
    corrections. `known` is a file of known pairs, for calibration.
    """
    sides = first, second = _open_index(sources[0], has_ids), _open_index(sources[1], has_ids)
    texts = [side for side in sides if side.texts]
    if texts and open_model is None:
        raise MetaXLMError(f"{texts[0].name}: a text needs --model to become vectors")
    for side in sides:
        if not side.texts:
            path = Path(side.name)
            names = _name_layers(path, layer, bool(texts), takes_several)
            _check_several(layer, len(names), takes_several)
            if corrections.sif:
                raise MetaXLMError(f"{path}: --sif weights the tokens of a text; name the text")
            found = [read_vectors(path, name) for name in names]
            side.vectors = [correct_vectors(vectors_ND, corrections) for vectors_ND in found]
            side.layers = tuple(name or "-" for name in names)
    a, b = len(first), len(second)
    if is_parallel and a != b:
        what = f"has {a:,} lines, {second.name} has {b:,}"
        raise MetaXLMError(f"{first.name}:{a}: {what}; parallel files need equally many")
    pairs = [] if gold is None else read_gold_pairs(gold, sides)
    if known is not None:
        if vectors := [side.name for side in sides if not side.texts]:
            raise MetaXLMError(f"{vectors[0]}: known pairs are texts; name a text instead")
        first.known_texts, second.known_texts = read_known_pairs(known)
    if not texts or open_model is None:
        return sides, pairs
    model = open_model()
    depth = model.encoder.config.num_layers
    is_default = layer is None and not takes_several
    modules = find_own_vectors(model) if is_default else None
    layers: tuple[LayerChoice, ...] = (LayerChoice((depth,)),)
    if modules is None:
        layers = default_layer(depth) if is_default else parse_layers(layer or "all", depth)
    _check_several(layer, len(layers), takes_several)
    options: EmbedOptions = {"layers": layers, "specials": specials, "batch_tokens": batch_tokens}
    options |= {"needs_tokens": True, "corrections": corrections, "modules": modules or MEAN}
    for side in texts:
        side.layers = tuple(str(choice) for choice in layers)
        options["title"] = f"embed {Path(side.name).name}"
        options["place"] = f"{side.name}:{{}}".format
        together = [*side.texts, *side.known_texts]
        vectors_YND = embed_texts(model, together, device, **options)
        side.vectors = list(vectors_YND[:, : len(side.texts)])
        side.known = list(vectors_YND[:, len(side.texts) :])
    a, b = len(first.vectors), len(second.vectors)
    if a != b:
        raise MetaXLMError(
            f"{first.name} has {a} layers and {second.name} {b}; choose with --layer"
        )
    return sides, pairs


def find_own_vectors(model: AnyEncoder) -> SentenceModules | None:
    """Return the steps of a sentence-transformers folder, and log them; None for other models."""
    try:
        modules = find_sentence_modules(model.source)
    except MetaXLMError as error:
        raise MetaXLMError(f"{error}; or choose a layer with --layer") from error
    if modules is not None:
        pooled = "mean" if modules.pooling == "mean" else "first token"
        depth = model.encoder.config.num_layers
        steps = f"{pooled} of the last layer, {depth}"
        say(f"vectors of the sentence encoder: {steps}; --layer chooses another")
    return modules


def _open_index(source: str, has_ids: bool) -> EmbeddingIndex:
    if source != STANDARD and Path(source).suffix in ENDINGS:
        if has_ids:
            raise MetaXLMError(f"{source}: vectors have no ids; leave out --ids, or give the text")
        return EmbeddingIndex(source)
    with open_sentences(source) as sentences:
        side = EmbeddingIndex(sentences.name, list(sentences))
    if not has_ids:
        return side
    known: dict[str, None] = {}
    for row, line in enumerate(side.texts):
        code, _, side.texts[row] = line.partition("\t")
        if not code or not side.texts[row].strip():
            raise MetaXLMError(f"{side.name}:{row + 1}: with --ids a line is id TAB text")
        if code in known:
            raise MetaXLMError(f"{side.name}:{row + 1}: the id {code!r} occurs twice")
        known[code] = None
    side.ids += known
    return side


def _name_layers(
    path: Path, layer: str | None, has_text: bool, takes_several: bool
) -> list[str | None]:
    """Return the layers to read from a vector file; None is its only one."""
    num_tables = 0
    if path.suffix == ".npy" and path.is_file() and (found := _open_npy(path)).ndim == 3:
        num_tables = len(found)
    if num_tables == 0 and has_text and path.suffix == ".npy":
        return [None]  # the option is for the text on the other side
    if layer is None and takes_several and num_tables:
        layer = "all"
    if layer != "all":
        return [None] if layer is None else [part.strip() for part in layer.split(",")]
    if not num_tables:
        raise MetaXLMError(f"{path}: the file does not list its layers; name them")
    return [str(number) for number in range(num_tables)]


def _check_several(layer: str | None, count: int, takes_several: bool) -> None:
    if count > 1 and not takes_several:
        usage = "several layers are for retrieve --parallel without --output"
        raise MetaXLMError(f"--layer {layer}: {usage}; name one")


def read_known_pairs(path: Path) -> tuple[list[str], list[str]]:
    """Read lines `source TAB target` of texts; return both sides."""
    pairs = [line.split("\t") for line in read_lines(path)]
    for number, pair in enumerate(pairs, start=1):
        if len(pair) != 2 or not all(text.strip() for text in pair):
            raise MetaXLMError(f"{path}:{number}: cannot be read; write source TAB target")
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def read_gold_pairs(path: Path, sides: Sides) -> GoldPairs:
    """Read lines `source TAB target` of line numbers or ids; return rows counted from 0."""
    rows = [{code: row for row, code in enumerate(side.ids)} for side in sides]
    gold = []
    for number, line in enumerate(read_lines(path), start=1):
        fields = line.split("\t")
        if len(fields) != 2:
            raise MetaXLMError(
                f"{path}:{number}: {len(fields)} fields; write the source's and the target's line "
                "with a tab between them"
            )
        source, target = (
            _find_row(text.strip(), side, numbers, f"{path}:{number}")
            for text, side, numbers in zip(fields, sides, rows, strict=True)
        )
        gold.append((source, target))
    return gold


def _find_row(text: str, side: EmbeddingIndex, rows: dict[str, int], where: str) -> int:
    if rows:
        if text not in rows:
            raise MetaXLMError(f"{where}: {side.name} has no id {text!r}")
        return rows[text]
    if not re.fullmatch(r"[0-9]{1,18}", text):
        fault = f"{text!r} is not a line number; if the lines begin with ids, add --ids"
    elif not 1 <= int(text) <= len(side):
        fault = f"line {text} is out of range, {side.name} has {len(side):,} lines"
    else:
        return int(text) - 1
    raise MetaXLMError(f"{where}: {fault}")

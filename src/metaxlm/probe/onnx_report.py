"""Report the figures of ONNX files: a line per file, a JSON file, a section of the card."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from metaxlm import __version__
from metaxlm.analysis.tables import markdown_row
from metaxlm.files import read_text, write_json, write_text

FOLDER = "onnx"  # where sentence-transformers searches for ONNX files
MODEL, INT8 = "model.onnx", "model_int8.onnx"
MEASURED = "measured.json"
LOWEST_QUALITY = 0.98  # of int8: mean cosine, or share of equal predictions
_TITLE = "## ONNX"
_INT8_NOTE = (
    "Activations are quantized per batch, so a vector depends a little on the texts beside it."
)
_LOADING = """The files in `onnx/` compute the last hidden states. Load them with onnxruntime, or
with sentence-transformers (`pip install 'sentence-transformers[onnx]'`), which pools them:

```python
model = SentenceTransformer(FOLDER, backend="onnx")  # model_kwargs={"file_name": "model_int8.onnx"}
```"""
_LOADING_TASK = """The files in `onnx/` compute the logits. Load them with onnxruntime:

```python
session = onnxruntime.InferenceSession("onnx/model.onnx")
logits = session.run(None, dict(tokenizer(["A text."], return_tensors="np")))
```"""


@dataclass(frozen=True)
class Figures:
    """One file compared with the float model."""

    megabytes: float
    largest_difference: float
    mean_cosine: float | None = None  # of sentence vectors
    lowest_cosine: float | None = None
    retrieval: float | None = None  # accuracy, if the sample has pairs
    same_predictions: float | None = None  # share, for a task model
    quantized: str | None = None

    @property
    def quality(self) -> float:
        """The figure that must not fall below `LOWEST_QUALITY`."""
        found = self.same_predictions if self.mean_cosine is None else self.mean_cosine
        assert found is not None
        return found


@dataclass(frozen=True)
class Report:
    """What was written and measured."""

    sample: str
    num_texts: int
    files: dict[str, Figures]
    torch_retrieval: float | None = None

    @property
    def warning(self) -> str | None:
        """One sentence if int8 changes the model too much."""
        figures = self.files.get(INT8)
        if figures is None or figures.quality >= LOWEST_QUALITY:
            return None
        what = "the mean cosine with the float model's vectors is"
        if figures.mean_cosine is None:
            what = "the share of predictions that equal the float model's is"
        return (
            f"{FOLDER}/{INT8} changes the model: {what} {figures.quality:.4f}, below "
            f"{LOWEST_QUALITY}; use {FOLDER}/{MODEL} unless you measured your own task"
        )


def describe_figures(figures: Figures, report: Report) -> str:
    """Return the figures of one file in a line."""
    parts = [f"{figures.megabytes:,.1f} MB"]
    if figures.mean_cosine is not None:
        parts.append(f"cosine {figures.mean_cosine:.4f}, lowest {figures.lowest_cosine:.4f}")
    parts.append(f"largest difference {figures.largest_difference:.1e}")
    if figures.retrieval is not None and report.torch_retrieval is not None:
        before = f"{100 * report.torch_retrieval:.1f} before"
        parts.append(f"retrieval {100 * figures.retrieval:.1f} ({before})")
    if figures.same_predictions is not None:
        parts.append(f"{100 * figures.same_predictions:.1f}% equal predictions")
    return "; ".join(parts)


def write_report(folder: Path, report: Report, *, has_head: bool) -> None:
    """Write `onnx/measured.json`, and add a section to README.md."""
    import onnxruntime

    values = {
        "metaxlm": __version__,
        "onnxruntime": onnxruntime.__version__,
        "sample": report.sample,
        "texts": report.num_texts,
        "torch_retrieval": report.torch_retrieval,
        "files": {name: vars(figures) for name, figures in report.files.items()},
    }
    write_json(folder / FOLDER / MEASURED, values)
    path = folder / "README.md"
    card = read_text(path) if path.is_file() else "# ONNX files\n"
    card = card.partition(f"\n{_TITLE}\n")[0]  # of an earlier export
    write_text(path, f"{card.rstrip()}\n\n{_write_section(report, has_head)}")


def _write_section(report: Report, has_head: bool) -> str:
    columns: Mapping[str, Callable[[Figures], str]] = {
        "file": lambda _: "",
        "MB": lambda one: f"{one.megabytes:,.1f}",
        "mean cosine": lambda one: _show(one.mean_cosine, ".5f"),
        "lowest cosine": lambda one: _show(one.lowest_cosine, ".5f"),
        "largest difference": lambda one: f"{one.largest_difference:.1e}",
        "retrieval": lambda one: _show(one.retrieval, ".1%"),
        "equal predictions": lambda one: _show(one.same_predictions, ".1%"),
    }
    rows = [
        [f"`{FOLDER}/{name}`", *(show(one) for show in list(columns.values())[1:])]
        for name, one in report.files.items()
    ]
    used = [k for k in range(len(columns)) if any(row[k] for row in rows)]
    lines = [[list(columns)[k] for k in used], ["---"] * len(used)]
    lines += [[row[k] for k in used] for row in rows]
    blocks = [_TITLE, _LOADING_TASK if has_head else _LOADING]
    if report.warning:
        blocks.append(f"**Warning**: {report.warning}.")
    blocks.append("\n".join(map(markdown_row, lines)))
    note = f"Compared with the float model in torch on {report.num_texts:,} texts ({report.sample})"
    if report.torch_retrieval is not None:
        note += f"; its own retrieval accuracy is {report.torch_retrieval:.1%}"
    blocks.append(f"{note}.")
    if INT8 in report.files:
        blocks.append(f"8 bits: {report.files[INT8].quantized}. {_INT8_NOTE}")
    return "\n\n".join(blocks) + "\n"


def _show(value: float | None, style: str) -> str:
    return "" if value is None else format(value, style)

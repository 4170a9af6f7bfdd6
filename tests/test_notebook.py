"""Run the notebook: its cells in this process at toy sizes, and all of it in a kernel as it is."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import nbformat
import pytest
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpecManager
from nbclient import NotebookClient

from tests.toy_runs import run_main

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "quickstart.ipynb"
SMALLER = {
    "source_sentences: 30000, sentences: 6000, test_pairs: 200":
        "source_sentences: 300, sentences: 200, test_pairs: 20, train_examples: 40",
    "size: 6000, monolingual_size: 4000": "size: 1000, monolingual_size: 400",
    "layers: 2, hidden: 128, heads: 4, ffn: 512": "layers: 1, hidden: 16, heads: 2, ffn: 32",
    "steps: 800, warmup_steps: 80": "steps: 4, warmup_steps: 1, log_every: 2",
    "steps=300 --set batch_size=128": "steps=4 --set batch_size=8",
    "log_every=10": "log_every=2",
}  # fmt: skip
"""Sizes in the cells, replaced by those of a toy encoder."""


@pytest.fixture
def notebook() -> nbformat.NotebookNode:
    found = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(found)
    return found


def list_code(notebook: nbformat.NotebookNode) -> list[str]:
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def test_the_notebook_has_no_outputs_and_no_paths_of_one_machine(
    notebook: nbformat.NotebookNode,
) -> None:
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not [cell.id for cell in cells if cell.outputs or cell.execution_count is not None]
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)
    assert not [code for code in list_code(notebook) if re.search(r"(?<![\w.])/\w|~/", code)]


def test_cells_run_at_toy_sizes(
    notebook: nbformat.NotebookNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")  # the notebook changes it
    code = "\0".join(list_code(notebook))
    for large, small in SMALLER.items():
        assert large in code
        code = code.replace(large, small)
    values: dict[str, object] = {}
    for cell in code.split("\0"):
        run_cell(cell, values)
    plt.close("all")
    [folder] = tmp_path.iterdir()
    assert (folder / "encoder" / "modules.json").is_file()


def run_cell(cell: str, values: dict[str, object]) -> None:
    """Run a cell as Jupyter does, with the commands of metaxlm in this process."""
    first, _, rest = cell.partition("\n")
    if first.startswith("%%writefile "):
        Path(first.split()[1]).write_text(rest, encoding="utf-8")
    elif first == "%%bash":
        for line in rest.replace("\\\n", "").splitlines():
            command, *arguments = shlex.split(line)
            assert command == "metaxlm", line
            assert run_main(*arguments) == 0, line
    else:
        exec(compile(cell.replace("%pip", "raise AssertionError #"), NOTEBOOK.name, "exec"), values)


@pytest.mark.slow
def test_the_notebook_runs_in_a_kernel(
    notebook: nbformat.NotebookNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    # Without folders of kernels, the kernel is this interpreter.
    specs = KernelSpecManager(kernel_dirs=[])
    manager = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=specs)
    client = NotebookClient(
        notebook, manager, timeout=600, resources={"metadata": {"path": str(work)}}
    )
    client.execute(cleanup_kc=True)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert sum("image/png" in output.get("data", ()) for output in outputs) == 4
    [folder] = work.iterdir()
    scores = json.loads((folder / "scores" / "scores.json").read_text("utf-8"))["models"]
    means = {
        row["model"]: sum(found["mean"] for found in row["scores"]["tatoeba"].values()) / 5
        for row in scores
    }
    assert list(means) == ["teacher", "start", "encoder"]
    assert means["teacher"] < 0.05 < means["start"] < 0.4 < means["encoder"]

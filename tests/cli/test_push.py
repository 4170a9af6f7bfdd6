"""`metaxlm push` against a local server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import ModelCard

import metaxlm as api
from metaxlm.files import write_json
from metaxlm.model.any_encoder import load_encoder
from metaxlm.probe.sentence_folder import export_sentence_transformers
from tests.commands import Command
from tests.conftest import make_encoder
from tests.hub_server import TOKEN, Repository, serve_hub

RUN = """
import json, os, sys
from metaxlm.cli.app import run_command
for token, arguments in json.loads(sys.argv[1]):
    os.environ["HF_TOKEN"] = token
    sys.argv = ["metaxlm", *arguments]
    try:
        run_command()
    except SystemExit as error:
        print("exit", error.code or 0, file=sys.stderr)
"""
TEXTS = ["the cat sees a dog", "my sister likes the red book"]


def run_commands(
    folder: Path, endpoint: str, commands: list[tuple[str, list[str]]]
) -> tuple[list[str], str]:
    """Run command lines with a token each; return the lines of standard error and the output."""
    settings = {"HF_ENDPOINT": endpoint, "HF_HOME": str(folder / "cache"), "HF_HUB_OFFLINE": "0"}
    # The local server has the protocol of Git LFS, and not the one of Xet.
    settings |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(commands)],
        cwd=folder, env=os.environ | settings, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stderr.splitlines(), done.stdout


@pytest.fixture
def sentences_folder(encoder: Path, tmp_path: Path) -> Path:
    """A folder of sentence-transformers in which a user has files of his own."""
    folder = tmp_path / "student"
    export_sentence_transformers(load_encoder(encoder), folder)
    (folder / ".env").write_text("SECRET=1")
    return folder


def write_scores(path: Path, **models: dict[str, Any]) -> None:
    rows = [{"model": name, "scores": scores} for name, scores in models.items()]
    write_json(path, {"data": {"lines": "odd"}, "teacher": next(iter(models)), "models": rows})


def test_a_pushed_model_can_be_read_by_its_name(sentences_folder: Path, tmp_path: Path) -> None:
    scores = {"tatoeba": {"de": {"mean": 0.5}}, "mining": {"de": {"f1": 0.25}}, "xnli": {"de": 0.4}}
    write_scores(tmp_path / "scores.json", teacher={"sts": {"en": 0.9}}, student=scores)
    before = {path: path.read_bytes() for path in sentences_folder.rglob("*") if path.is_file()}
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    push = ["push", "student", "me/toy", "--license", "mit", "--languages", "en,no"]
    embed = ["embed", "--model", "hf:me/toy", "--input", "texts.txt", "--output", "vectors.npy"]
    with serve_hub() as (endpoint, repositories):
        repositories["other/toy"] = Repository()
        errors, output = run_commands(
            tmp_path,
            endpoint,
            [
                (TOKEN, [*push, "--scores", "scores.json"]),
                (TOKEN, [*embed, "--device", "cpu", "--type", "float32"]),
                (TOKEN, ["push", "student", "me/hidden", "--license", "mit", "--private"]),
                (TOKEN, [*push, "--private"]),
                (TOKEN, ["push", "student", "other/new"]),
                (TOKEN, ["push", "student", "other/toy"]),
                (TOKEN, ["push", "student", "me/toy", "--license", "unknown"]),
                ("hf_bad", push),
                ("", push),
            ],
        )
    assert f"uploaded: {endpoint}/me/toy" in output, (errors, output)
    starts = [
        "exit 0", "exit 0", "exit 0",
        "metaxlm: me/toy: exists and is public, nothing was uploaded; ", "exit 2",
        "metaxlm: other/new: your token may not write to repositories of other; ", "exit 2",
        "metaxlm: other/toy: your token may not write to repositories of other; ", "exit 2",
        "metaxlm: me/toy: the Hugging Face hub rejected the upload (Invalid metadata", "exit 2",
        "metaxlm: me/toy: the Hugging Face hub does not accept the token; ", "exit 2",
        "metaxlm: not logged in to the Hugging Face hub; run `hf auth login`", "exit 2",
    ]  # fmt: skip
    assert len(errors) == len(starts), errors
    for line, start in zip(errors, starts, strict=True):
        assert line.startswith(start), errors
    vectors = api.embed(sentences_folder, TEXTS, device="cpu")
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy"), vectors, atol=1e-6)
    assert repositories["me/hidden"].private and not repositories["me/toy"].private
    assert "other/new" not in repositories and not repositories["other/toy"].files
    pushed = repositories["me/toy"]
    assert pushed.commits == [f"Upload with metaxlm {api.__version__}"]
    assert {name for name, mode in pushed.stored.items() if mode == "lfs"} == {"model.safetensors"}
    assert {"config.json", "modules.json", "1_Pooling/config.json"} <= set(pushed.files)
    assert not {".env", "manifest.json"} & set(pushed.files)
    check_card(pushed.files["README.md"].decode())
    after = {path: path.read_bytes() for path in sentences_folder.rglob("*") if path.is_file()}
    assert after == before


def check_card(text: str) -> None:
    card = ModelCard(text)
    assert card.data.language == ["en", "no"]
    assert card.data.license == "mit"
    assert card.data.library_name == "sentence-transformers"
    assert card.data.pipeline_tag == "sentence-similarity"
    assert 'SentenceTransformer("me/toy")' in card.text
    found = {
        (one.dataset_type, one.dataset_config, one.metric_type): one.metric_value
        for one in card.data.eval_results
    }
    assert found == {
        ("tatoeba", "de", "accuracy"): 50.0,
        ("tatoeba", "de", "f1"): 25.0,
        ("xnli", "de", "accuracy"): 40.0,
    }


def test_a_dry_run_shows_everything_and_needs_no_network(
    metaxlm: Command, toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    code, output, errors = metaxlm("push", toy_run / "variants" / "xlm", "me/xlm", "--dry")
    assert (code, errors) == (0, "")
    assert "model.safetensors" in output and ".stage.json" not in output
    front = output[output.index("---\n") : output.rindex("---\n") + 4]
    card = ModelCard(f"{front}# A model\n")
    assert card.data.pipeline_tag == "fill-mask"
    assert card.data.eval_results, "the scores of the run are in the card"


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("runs/toy", "has 2 models; name one"),
        ("runs/toy/variants/xlm/checkpoints/step-00000004", "a checkpoint of a training run"),
        ("runs/toy/report", "not a model folder"),
        ("absent", "absent: no such folder"),
        ("org/name", "org/name: no such folder"),
    ],
)
def test_other_folders_are_rejected(
    metaxlm: Command, toy_run: Path, folder: str, message: str
) -> None:
    metaxlm.folder = toy_run.parents[1]
    assert message in metaxlm.complaint("push", folder, "me/toy", "--dry")


def test_damaged_and_incomplete_folders_are_rejected(metaxlm: Command, tmp_path: Path) -> None:
    make_encoder(tmp_path / "bert")
    assert metaxlm("push", "bert", "me/toy", "--dry")[0] == 0
    assert "not a name on the Hugging Face hub" in metaxlm.complaint("push", "bert", "a/b/c")
    (tmp_path / "bert" / "trainer_state.json").touch()
    assert "a checkpoint of a training run" in metaxlm.complaint("push", "bert", "me/toy")
    (tmp_path / "bert" / "trainer_state.json").unlink()
    (tmp_path / "bert" / "README.md").write_text("---\n- a list\n---\n")
    assert "front matter is not a mapping" in metaxlm.complaint("push", "bert", "me/toy")
    (tmp_path / "bert" / "model.safetensors").unlink()
    assert "has no model.safetensors" in metaxlm.complaint("push", "bert", "me/toy")


def test_scores_of_other_models_are_rejected(metaxlm: Command, encoder: Path) -> None:
    (metaxlm.folder / "bert").symlink_to(encoder)
    write_scores(metaxlm.folder / "scores.json", teacher={}, one={}, two={})
    push = ("push", "bert", "me/toy", "--dry", "--scores", "scores.json")
    assert "has scores of one, two, but none of bert" in metaxlm.complaint(*push)
    (metaxlm.folder / "scores.json").write_text('{"models": []}')
    assert "not scores of `metaxlm evaluate-sentences`" in metaxlm.complaint(*push)


@pytest.mark.parametrize(
    ("offline", "message"),
    [(False, "cannot reach the Hugging Face hub ("), (True, "HF_HUB_OFFLINE is set; unset it")],
)
def test_a_closed_network_is_one_line(
    metaxlm: Command, encoder: Path, monkeypatch: pytest.MonkeyPatch, offline: bool, message: str
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", offline)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    complaint = metaxlm.complaint("push", encoder, "me/toy")
    assert complaint.startswith(f"metaxlm: me/toy: {message}")

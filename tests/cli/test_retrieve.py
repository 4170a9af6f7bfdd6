from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

import metaxlm as metaxlm_api
from metaxlm.model.any_encoder import load_encoder
from metaxlm.model.sentence_modules import SentenceModules
from metaxlm.probe.corrections import Corrections
from metaxlm.probe.embedding import embed_texts
from metaxlm.probe.nearest import find_nearest
from metaxlm.probe.retrieval import mine_pairs
from metaxlm.probe.sentence_evaluation import SentenceEncoder
from metaxlm.probe.sentence_folder import export_sentence_transformers
from tests.commands import Command

SIZE = 20


@pytest.fixture
def folder(tmp_path: Path, models: Path, data: Path) -> Path:
    """German and English sentences of the built-in corpus, and a link to a model."""
    for side, name in (("deu", "de.txt"), ("eng", "en.txt")):
        lines = (data / f"tatoeba/tatoeba.deu-eng.{side}").read_text("utf-8").splitlines()
        assert len(lines) >= SIZE
        write(tmp_path / name, lines[:SIZE])
    (tmp_path / "model").symlink_to(models / "one")
    return tmp_path


def write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def read(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text("utf-8").splitlines()]


def read_texts(folder: Path) -> list[list[str]]:
    return [(folder / name).read_text("utf-8").splitlines() for name in ("de.txt", "en.txt")]


def embed(folder: Path, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
    model = load_encoder(folder / "model")
    first, second = (embed_texts(model, lines)[layer] for lines in read_texts(folder))
    return first, second


QUERIES = "--queries de.txt --keys en.txt"
SIDES = "--source de.txt --target en.txt"


def test_neighbors_are_written(metaxlm: Command, folder: Path) -> None:
    options = f"{QUERIES} --k 3 --layer 0 --output found.tsv"
    code, printed, errors = metaxlm("retrieve", "--model", "model", *options.split())
    assert (code, errors) == (0, "")
    assert f"{3 * SIZE} neighbors of {SIZE} queries: found.tsv" in printed
    expected = find_nearest(*embed(folder, 0), k=3)
    rows = read(folder / "found.tsv")
    german, english = read_texts(folder)
    keys = expected.indices_Qk.flatten().tolist()
    assert [int(row[0]) for row in rows] == [k // 3 + 1 for k in range(3 * SIZE)]
    assert [int(row[1]) for row in rows] == [key + 1 for key in keys]
    cosines = [float(row[2]) for row in rows]
    assert cosines == pytest.approx(expected.similarities_Qk.flatten().tolist(), abs=1e-5)
    assert [row[3:] for row in rows] == [
        [german[k // 3], english[key]] for k, key in enumerate(keys)
    ]


def test_parallel_files_give_accuracy_by_layer(metaxlm: Command, folder: Path) -> None:
    code, printed, _ = metaxlm("retrieve", "--model", "model", *QUERIES.split(), "--parallel")
    assert code == 0
    numbers = torch.arange(SIZE)
    for layer in (0, 1):
        german, english = embed(folder, layer)
        there, back = (
            float((find_nearest(*sides).indices_Qk[:, 0] == numbers).double().mean())
            for sides in ((german, english), (english, german))
        )
        told = re.search(rf"│ +{layer} │ +([\d.]+) │ +([\d.]+) │ +([\d.]+) │", printed)
        assert told is not None, printed
        wanted = [100 * value for value in (there, back, (there + back) / 2)]
        assert [float(value) for value in told.groups()] == pytest.approx(wanted, abs=0.06)
    assert "best: layer" in printed
    assert "de.txt → en.txt" in printed


def test_vectors_need_no_model(metaxlm: Command, folder: Path) -> None:
    german, english = embed(folder, 1)
    np.save(folder / "de.npy", german.numpy())
    np.save(folder / "both.npy", np.stack([embed(folder, 0)[1].numpy(), english.numpy()]))
    command = "retrieve --queries de.npy --keys de.npy --output found.tsv"
    code, _, errors = metaxlm(*command.split())
    assert (code, errors) == (0, "")
    assert [row[0] for row in read(folder / "found.tsv")] == [str(k + 1) for k in range(SIZE)]
    # A text on one side and vectors on the other: the layer is the text's and the file's.
    options = "--queries de.txt --keys both.npy --layer 1 --output mixed.tsv"
    code, _, errors = metaxlm("retrieve", "--model", "model", *options.split())
    assert (code, errors) == (0, "")
    expected = find_nearest(german, english).indices_Qk[:, 0]
    rows = read(folder / "mixed.tsv")
    assert [int(row[1]) for row in rows] == (expected + 1).tolist()
    assert [row[4] for row in rows] == [row[1] for row in rows]
    command = "retrieve --queries both.npy --keys both.npy --parallel"
    code, printed, _ = metaxlm(*command.split())
    assert (code, printed.count("100.0")) == (0, 7)


def test_each_side_is_corrected(metaxlm: Command, folder: Path) -> None:
    chosen = Corrections(sif=True, center=True, remove_components=1)
    model = load_encoder(folder / "model")
    german, english = (
        embed_texts(model, lines, corrections=chosen)[1] for lines in read_texts(folder)
    )
    options = ["--layer", "1", "--sif", "--center", "--remove-components", "1"]
    command = ("mine", "--model", "model", *SIDES.split(), "--margin", "distance", *options)
    assert metaxlm(*command, "--output", "pairs.tsv")[0] == 0
    expected = mine_pairs(german, english, margin="distance").score_P.tolist()
    scores = [float(row[0]) for row in read(folder / "pairs.tsv")]
    assert scores == pytest.approx(expected, abs=1e-4)
    # Vector files are centered too, but SIF needs the text.
    for name, vectors in zip(("de.npy", "en.npy"), embed(folder, 1), strict=True):
        np.save(folder / name, vectors.numpy())
    command = ("retrieve", "--queries", "de.npy", "--keys", "en.npy", "--output", "found.tsv")
    assert metaxlm(*command, "--center")[0] == 0
    german, english = (side - side.mean(dim=0) for side in embed(folder, 1))
    cosines = [float(row[2]) for row in read(folder / "found.tsv")]
    wanted = find_nearest(german, english).similarities_Qk[:, 0].tolist()
    assert cosines == pytest.approx(wanted, abs=1e-4)
    told = metaxlm.complaint(*command, "--sif")
    assert "de.npy: --sif weights the tokens of a text; name the text" in told


def test_pairs_are_mined_and_scored(metaxlm: Command, folder: Path) -> None:
    expected = mine_pairs(*embed(folder, 0), k=2, margin="distance")
    pairs = list(zip(expected.source_P.tolist(), expected.target_P.tolist(), strict=True))
    write(folder / "gold.tsv", [f"{s + 1}\t{t + 1}" for s, t in pairs[::2]])
    options = f"{SIDES} --layer 0 --k 2 --margin distance --gold gold.tsv --output pairs.tsv"
    code, printed, errors = metaxlm("mine", "--model", "model", *options.split())
    assert (code, errors) == (0, "")
    rows = read(folder / "pairs.tsv")
    german, english = read_texts(folder)
    assert [row[1:] for row in rows] == [[german[s], english[t]] for s, t in pairs]
    assert [float(row[0]) for row in rows] == pytest.approx(expected.score_P.tolist(), abs=1e-5)
    right = len(pairs[::2])
    assert f"recall 100.0 ({right} of {len(pairs)} found are among {right} gold pairs)" in printed
    assert "tuned on this gold: F1" in printed


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_sentence_encoder_gives_its_own_vectors(
    metaxlm: Command, folder: Path, pooling: Literal["mean", "cls"]
) -> None:
    whole = load_encoder(folder / "model")
    export_sentence_transformers(whole, folder / "st", pooling=pooling, max_length=6)
    modules = SentenceModules(pooling, max_length=6)
    encoder = SentenceEncoder("st", load_encoder(folder / "st"), modules, torch.device("cpu"))
    texts = read_texts(folder)
    sides = [encoder.encode(lines, "test") for lines in texts]
    code, printed, errors = metaxlm("mine", "--model", "st", *SIDES.split(), "--output", "a.tsv")
    assert (code, errors) == (0, "")
    assert "of the last layer, 1; --layer chooses another" in printed
    assert "candidates: the 4 nearest neighbors of each sentence" in printed
    expected = mine_pairs(*sides, k=4)
    lines = [[texts[0][a], texts[1][b]] for a, b in expected.list_rows()]
    assert [row[1:] for row in read(folder / "a.tsv")] == lines
    found = metaxlm_api.mine(folder / "st", *texts)
    assert found[["source", "target"]].to_numpy().tolist() == [
        list(p) for p in expected.list_rows()
    ]
    assert metaxlm("retrieve", "--model", "st", *QUERIES.split(), "--output", "b.tsv")[0] == 0
    nearest = find_nearest(*sides, k=1).indices_Qk.flatten().tolist()
    assert [int(row[1]) for row in read(folder / "b.tsv")] == [key + 1 for key in nearest]
    if pooling == "cls":
        sif = ("mine", "--model", "st", *SIDES.split(), "--sif", "--output", "c.tsv")
        assert "states of the first token" in metaxlm.complaint(*sif)


def test_known_pairs_set_the_threshold(metaxlm: Command, folder: Path) -> None:
    german, english = read_texts(folder)
    # Each sentence is its own translation here, so that even a random encoder finds most pairs.
    lines = [f"{word} {line}" for word in ("Ja", "Nein", "Nun", "Oh") for line in german]
    write(folder / "known.tsv", [f"{line}\t{line}" for line in lines])
    command = ("mine", "--model", "model", *SIDES.split(), "--calibrate", "known.tsv")
    code, printed, errors = metaxlm(*command, "--precision", "0.9", "--output", "pairs.tsv")
    assert (code, errors) == (0, "")
    told = re.search(r"threshold ([\d.]+): F1 .*, precision .* held-out known pairs\)", printed)
    assert told is not None, printed
    rows = read(folder / "pairs.tsv")
    assert re.search(rf"got one; at this rate, \d+ of the {len(rows)} pairs are wrong", printed)
    assert all(row[1] in german and row[2] in english for row in rows)
    # The pairs are those of the same threshold without known pairs.
    assert metaxlm("mine", "--model", "model", *SIDES.split(), "--output", "all.tsv")[0] == 0
    limit = float(told[1])
    near = [row for row in read(folder / "all.tsv") if abs(float(row[0]) - limit) > 1e-4]
    assert [row for row in rows if row in near] == [row for row in near if float(row[0]) > limit]


def test_ids_of_bucc(metaxlm: Command, folder: Path) -> None:
    for name in ("de", "en"):
        lines = (folder / f"{name}.txt").read_text("utf-8").splitlines()
        write(folder / f"{name}.ids", [f"{name}-{k:03}\t{line}" for k, line in enumerate(lines)])
    write(folder / "gold.tsv", ["de-003\ten-003"])
    command = ("mine", "--model", "model", "--source", "de.ids", "--target", "de.ids", "--ids")
    write(folder / "own.tsv", ["de-003\tde-003", "de-000\tde-000"])
    code, printed, _ = metaxlm(*command, "--gold", "own.tsv", "--output", "pairs.tsv")
    assert code == 0
    assert f"recall 100.0 (2 of {SIZE} found are among 2 gold pairs)" in printed
    rows = read(folder / "pairs.tsv")
    assert all(row[1] == row[2] and row[3] == row[4] and len(row) == 5 for row in rows)
    told = metaxlm.complaint(*command, "--gold", "gold.tsv", "--output", "other.tsv")
    assert "gold.tsv:1: de.ids has no id 'en-003'" in told
    write(folder / "twice.ids", ["a\tein Haus", "a\tein Hund"])
    told = metaxlm.complaint(*command[:4], "twice.ids", *command[5:])
    assert "twice.ids:2: the id 'a' occurs twice" in told


def test_gold_that_cannot_be(metaxlm: Command, folder: Path) -> None:
    for line, expected in {
        f"{SIZE + 1}\t1": f"gold.tsv:2: line {SIZE + 1} is out of range, de.txt has",
        "1\t2\t3": "gold.tsv:2: 3 fields; write the source's and the target's line",
        "1\ten-1": "gold.tsv:2: 'en-1' is not a line number; if the lines begin with ids",
    }.items():
        write(folder / "gold.tsv", ["1\t1", line])
        command = f"mine --model none {SIDES} --gold gold.tsv"
        assert expected in metaxlm.complaint(*command.split())


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (f"retrieve {QUERIES}", "de.txt: a text needs --model to become vectors"),
        ("retrieve --model model --queries gap.txt --keys en.txt", "gap.txt:2:"),
        (
            "retrieve --model model --queries two.txt --keys en.txt --parallel",
            "two.txt:2: has 2 lines, en.txt has 20; parallel files need equally many",
        ),
        ("retrieve --queries bad.npy --keys bad.npy", "bad.npy: vector 2 has a value"),
        ("retrieve --queries good.npy --keys wide.npy", "queries have 3 dimensions"),
        (f"retrieve --model model {QUERIES} --layer all", "--layer all: several layers"),
        (f"mine --model model {SIDES} --layer 7", "the encoder has 1 layers"),
        (f"mine --model model {SIDES} --output de.txt", "is also an input"),
        (f"mine --model model {SIDES} --faiss-search nprobe=3", "needs --faiss"),
        ("mine --source good.npy --target good.npy --ids", "vectors have no ids"),
        (f"mine --model model {SIDES} --precision 0.9", "--precision: needs --calibrate FILE"),
        (f"mine --model model {SIDES} --calibrate gap.txt", "gap.txt:1: cannot be read; write"),
        ("mine --source good.npy --target good.npy --calibrate gap.txt", "known pairs are texts"),
    ],
)
def test_mistakes_are_one_line(
    metaxlm: Command, folder: Path, arguments: str, expected: str
) -> None:
    before = (folder / "de.txt").read_bytes()
    write(folder / "gap.txt", ["ein Haus", " ", "ein Hund"])
    write(folder / "two.txt", ["ein Haus", "ein Hund"])
    bad = np.eye(3, dtype=np.float16)
    bad[1, 2] = np.nan
    for name, array in (("good", np.eye(3)), ("wide", np.eye(4)), ("bad", bad)):
        np.save(folder / f"{name}.npy", array)
    assert expected in metaxlm.complaint(*arguments.split())
    assert (folder / "de.txt").read_bytes() == before

"""The built-in corpus: sizes, formats, seeds, and training data that contains no test data."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from xml.etree import ElementTree

import pytest

from metaxlm.data.demo import LANGUAGES, write_phrasebook
from metaxlm.errors import MetaXLMError
from metaxlm.files import digest_file
from metaxlm.finetune.catalog import TASKS
from metaxlm.manifest import list_files
from metaxlm.recipe import PhrasebookRecipe

DEMO = PhrasebookRecipe(test_pairs=200, train_examples=3_000, test_examples=200)
WHOLE = PhrasebookRecipe(source_sentences=96_000, sentences=9_600, aligned_pairs=300)
GOLDEN = json.loads((Path(__file__).parents[1] / "golden/demo.json").read_text("utf-8"))
ISO = {"de": "deu", "fr": "fra", "ru": "rus", "tr": "tur", "zh": "cmn"}


def digest_files(folder: Path) -> dict[str, str]:
    paths = [folder / name for name in list_files(folder)]
    return {str(path.relative_to(folder)): digest_file(path) for path in paths}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("phrasebook") / "demo"
    write_phrasebook(folder, LANGUAGES, 1, DEMO)
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole pool; every sample is a part of it."""
    folder = tmp_path_factory.mktemp("phrasebook") / "whole"
    write_phrasebook(folder, LANGUAGES, 3, WHOLE)
    return folder


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def rows(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in lines(path)]


def tagged(path: Path) -> list[list[list[str]]]:
    blocks = path.read_text(encoding="utf-8").strip("\n").split("\n\n")
    return [[line.split("\t") for line in block.split("\n")] for block in blocks]


def reviews(path: Path) -> list[str]:
    items = ElementTree.parse(path).getroot().iter("item")
    return [item.findtext("text", "").strip() for item in items]


def contexts(path: Path) -> list[str]:
    articles = json.loads(path.read_text(encoding="utf-8"))["data"]
    return [paragraph["context"] for article in articles for paragraph in article["paragraphs"]]


def test_seed_1_at_the_sizes_of_the_demo_gives_the_golden_files(demo: Path) -> None:
    found = digest_files(demo)
    whole = sha256("".join(f"{name} {value}\n" for name, value in found.items()).encode())
    assert len(found) == GOLDEN["corpus"]["files"]
    assert whole.hexdigest() == GOLDEN["corpus"]["sha256"]


def test_another_seed_takes_another_sample(demo: Path, tmp_path: Path) -> None:
    write_phrasebook(tmp_path / "other", LANGUAGES, 2, DEMO)
    first, other = digest_files(demo), digest_files(tmp_path / "other")
    assert first.keys() == other.keys()
    same = {name for name in first if first[name] == other[name]}
    assert same == {name for name in first if "/muse/" in name}


def test_a_smaller_sample_is_the_beginning_of_a_larger_one(demo: Path, tmp_path: Path) -> None:
    small = PhrasebookRecipe(
        source_sentences=101, sentences=50, test_pairs=7, aligned_pairs=3, train_examples=24,
        test_examples=5,
    )  # fmt: skip
    write_phrasebook(tmp_path, ["zh", "en"], 1, small)
    names = [Path(name) for name in list_files(tmp_path)]
    parts = {part for name in names for part in re.split(r"[-./]", str(name))}
    assert {"zh", "en"} == parts & {*LANGUAGES}
    for name in names:
        text, larger = ((folder / name).read_text("utf-8") for folder in (tmp_path, demo))
        if name.suffix == ".json":
            found, known = (json.loads(t)["data"][0]["paragraphs"] for t in (text, larger))
            assert found == known[: len(found)], name
        else:
            assert larger.startswith(text.removesuffix("\n</items>\n")), name
    for language, count in (("en", small.source_sentences), ("zh", small.sentences)):
        assert sum(map(bool, lines(tmp_path / f"text/{language}/00000.txt"))) == count
    assert len(lines(tmp_path / "tasks/tatoeba/tatoeba.cmn-eng.cmn")) == small.test_pairs
    assert len(tagged(tmp_path / "tasks/udpos/train-en.tsv")) == small.train_examples


@pytest.mark.slow  # about the content of the pool, whose digest another test compares
@pytest.mark.parametrize("language", LANGUAGES)
def test_no_test_sentence_is_in_the_text(whole: Path, language: str) -> None:
    text = set(lines(whole / f"text/{language}/00000.txt"))
    tasks = whole / "tasks"
    for split in ("dev", "test"):
        for task in ("xnli", "pawsx"):
            for first, second, _ in rows(tasks / f"{task}/{split}-{language}.tsv"):
                assert not text & {first, second}
    if language != "en":
        iso = ISO[language]
        assert not text & set(lines(tasks / f"tatoeba/tatoeba.{iso}-eng.{iso}"))
    squeezed = {line.replace(" ", "") for line in text}
    for task in ("udpos", "panx"):
        for split in ("dev", "test"):
            for sentence in tagged(tasks / f"{task}/{split}-{language}.tsv"):
                assert "".join(word for word, _ in sentence) not in squeezed
    joined = contexts(tasks / f"xquad/xquad.{language}.json")
    for path in (tasks / f"cls/{language}").glob("*/test.review"):
        joined += reviews(path)
    # Whole sentences only: a short sentence can be the end of a longer one.
    said = set(re.split(r"(?<=[.!?。！？])\s*", "\n".join(joined)))
    assert len(said) > 1_000
    assert not said & {line for line in text if len(line) > 8}


def test_every_finetuned_task_reads_its_files(demo: Path) -> None:
    for name, task in TASKS.items():
        found = task.list_files(demo / "tasks")
        judged = {file.language for file in found if file.split in ("dev", "test")}
        assert judged >= {*task.languages} & {*LANGUAGES}, name
        assert ("train", "en") in {(file.split, file.language) for file in found}, name
        for file in found:
            examples = task.read(file)
            assert examples.items and examples.notices == (), file.path
            assert all(example.is_labeled for example in examples.items)


def test_a_size_above_the_pool_is_rejected_with_its_limit(tmp_path: Path) -> None:
    for key, field in PhrasebookRecipe.model_fields.items():
        assert f"{getattr(WHOLE, key):,}" in (field.description or "")
    for key in ("sentences", "test_pairs"):
        limit = getattr(WHOLE, key)
        expected = rf"^corpus\.phrasebook\.{key}: {limit + 1:,} is too large; .* has {limit:,}$"
        with pytest.raises(MetaXLMError, match=expected):
            write_phrasebook(
                tmp_path / "x", LANGUAGES, 1, WHOLE.model_copy(update={key: limit + 1})
            )
        assert not list(tmp_path.iterdir())


def test_unusable_languages(tmp_path: Path) -> None:
    with pytest.raises(MetaXLMError, match="add en"):
        write_phrasebook(tmp_path / "x", ["de"], 1)
    with pytest.raises(MetaXLMError, match=r"no text in sw; choose .* zh$"):
        write_phrasebook(tmp_path / "x", ["en", "sw"], 1)


def test_the_package_contains_a_small_pool_and_its_license_note() -> None:
    data = files("metaxlm").joinpath("data/phrasebook")
    pool = data.joinpath("pool.tar.xz").read_bytes()
    assert len(pool) < 2_000_000
    # Published runs repeat only with the same pool.
    assert sha256(pool).hexdigest().startswith("ae96db19c77ced197e09615a28944116")
    assert "Apache License 2.0" in data.joinpath("README.md").read_text("utf-8")

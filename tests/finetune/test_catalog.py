"""The paper's tasks: names, settings, files and the published data."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

import pytest

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.catalog import TASKS, find_tasks
from metaxlm.finetune.data_files import DataSet, find_files, list_data_files
from metaxlm.finetune.data_sets import DOMAINS, NLI_LABELS, PAWSX, SQUAD
from metaxlm.finetune.data_sets import XNLI as XNLI_FILES
from metaxlm.finetune.readers.conll import TaggedSentence
from metaxlm.finetune.task import AnyTask, DataFile
from tests.finetune.conftest import Published, refuse, write

PAPER = {
    # Languages and labels; epochs, learning rate, batch, decay, length.
    "udpos": (33, 17, 10, 1e-5, 32, 0.0, 128),
    "panx": (40, 7, 10, 7e-6, 8, 0.0, 128),
    "xquad": (11, 0, 4, 3e-5, 32, 0.0, 384),
    "mlqa": (7, 0, 4, 3e-5, 32, 0.0, 384),
    "tydiqa": (9, 0, 40, 4e-5, 32, 0.0, 384),
    "xnli": (15, 3, 6, 1e-5, 32, 0.01, 256),
    "pawsx": (7, 2, 10, 2e-5, 32, 0.01, 256),
    **{f"amazon-{domain}": (4, 2, 5, 2e-5, 32, 0.01, 256) for domain in DOMAINS},
}


def test_the_papers_tasks_in_its_order() -> None:
    found = {
        name: (len(task.languages), len(task.labels), *astuple(task.settings)[:5])
        for name, task in TASKS.items()
    }
    assert list(found.items()) == list(PAPER.items())
    assert all(task.name == name for name, task in TASKS.items())
    assert [task.title for task in TASKS.values()][:7] == [
        *("POS", "NER", "XQuAD", "MLQA", "TyDiQA", "XNLI", "PAWS-X")
    ]
    assert [task.metric for task in TASKS.values()] == ["f1"] * 5 + ["accuracy"] * 5
    for name, task in TASKS.items():
        is_review = name.startswith("amazon")
        assert task.settings.select_by == ("last" if is_review else "source")
        assert task.sources == (("en", "de", "fr", "ja") if is_review else ("en",))
        assert task.settings.stride == 128
    assert TASKS["xquad"].training == TASKS["mlqa"].training == "squad"


def test_lists_and_groups() -> None:
    assert find_tasks("xnli") == ["xnli"]
    assert find_tasks(" amazon , xnli,amazon-dvd,") == [
        *("amazon-books", "amazon-dvd", "amazon-music", "xnli")
    ]
    assert find_tasks("xtreme,amazon") == list(TASKS)
    for text, message in (
        ("xnli,paws-x", r"^unknown task 'paws-x'; did you mean pawsx\? \(known: udpos, panx,.*"),
        ("zzz", r"^unknown task 'zzz' \(known: .*amazon-music, xtreme, amazon\)$"),
        (" , ", r"^no task in the list; known: udpos, .*, amazon$"),
    ):
        with pytest.raises(MetaXLMError, match=message):
            find_tasks(text)


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        write(folder / name, "")
    return folder


def find(folder: Path, data_set: DataSet) -> set[tuple[str, str, str, str]]:
    return {
        (str(file.path.relative_to(folder)), file.split, file.variant, file.language)
        for file in find_files(folder, data_set)
    }


def test_the_whole_and_the_official_file_are_preferred(tmp_path: Path) -> None:
    touch(tmp_path, "pawsx/test-derived-es.tsv", "a/pawsx/train-en-subset.tsv")
    assert find(tmp_path, PAWSX) == {
        ("pawsx/test-derived-es.tsv", "test", "derived", "es"),
        ("a/pawsx/train-en-subset.tsv", "train", "subset", "en"),
    }
    touch(tmp_path, "pawsx/test-es.tsv", "pawsx/train-en.tsv")
    assert find(tmp_path, PAWSX) == {
        ("pawsx/test-es.tsv", "test", "", "es"),
        ("pawsx/train-en.tsv", "train", "", "en"),
    }


def test_another_variant_is_a_set_of_its_own(tmp_path: Path) -> None:
    touch(tmp_path, "squad/dev-v1.1.json", "squad/dev-v1.1-minus-xquad.json")
    assert find(tmp_path, SQUAD) == {
        ("squad/dev-v1.1.json", "dev", "", "en"),
        ("squad/dev-v1.1-minus-xquad.json", "dev", "minus-xquad", "en"),
    }
    listed = list_data_files(find_files(tmp_path, SQUAD))
    assert [file.path.name for file in listed] == ["dev-v1.1.json"]


def test_two_copies_are_rejected(tmp_path: Path) -> None:
    touch(tmp_path, "a/xnli/dev-de.tsv", "b/xnli/dev-de.tsv", "a/xnli/dev-fr.tsv")
    first, second = (tmp_path / name / "xnli" / "dev-de.tsv" for name in "ab")
    message = "both are XNLI's dev set of de; keep one of them below the data folder"
    with refuse(f"{first} and {second}: {message}"):
        find_files(tmp_path, XNLI_FILES)
    second.unlink()
    second.symlink_to(first)
    assert ("a/xnli/dev-de.tsv", "dev", "", "de") in find(tmp_path, XNLI_FILES)
    second.unlink()
    second.symlink_to(tmp_path / "gone")
    with pytest.raises(MetaXLMError, match="both are XNLI's dev set of de"):
        find_files(tmp_path, XNLI_FILES)


def test_xnli_trains_on_multinli_or_its_own_file(tmp_path: Path) -> None:
    task = TASKS["xnli"]
    assert task.list_files(tmp_path) == []
    header = "premise\thypothesis\tlabel\ts\n"
    for name, text, expected in (
        ("mnli/mnli_train.tsv", f"{header}a\tb\tcontradictory\tx\n", "contradiction"),
        ("xnli/train-en.tsv", "c\td\tneutral\n", "neutral"),
    ):
        write(tmp_path / name, text)
        (file,) = task.list_files(tmp_path)
        assert (file.language, file.split, file.name) == ("en", "train", "train")
        assert [pair.label for pair in task.read(file).items] == [expected]


def test_words_of_mmner_without_their_language(tmp_path: Path) -> None:
    task = TASKS["panx"]
    write(tmp_path / "mmner/de/dev", "de:Ulm\tB-LOC\nde:de:\tO\n")
    write(tmp_path / "panx/dev-fr.tsv", "fr:\tO\n")
    german, french = task.list_files(tmp_path)
    assert task.read(german).items == [TaggedSentence(("Ulm", "de:"), ("B-LOC", "O"))]
    assert task.read(french).items == [TaggedSentence(("fr:",), ("O",))]


XQUAD, MLQA, TYDIQA = TASKS["xquad"], TASKS["mlqa"], TASKS["tydiqa"]


def write_questions(path: Path, *contexts: str, ids: Sequence[str] = ()) -> Path:
    """One question for each context, about its first word."""
    paragraphs = []
    for context, name in zip(contexts, ids or map(str, range(len(contexts))), strict=True):
        answers = [{"text": context.split()[0], "answer_start": 0}]
        entry = {"id": name, "question": "Which?", "answers": answers}
        paragraphs.append({"context": context, "qas": [entry]})
    return write(path, json.dumps({"version": "1.1", "data": [{"paragraphs": paragraphs}]}))


def make_tree(folder: Path) -> Path:
    """XTREME's download tree, small."""
    write_questions(folder / "squad" / "train-v1.1.json", "one", "two")
    write_questions(folder / "squad" / "dev-v1.1.json", "red", "green", "blue")
    write_questions(folder / "xquad" / "xquad.en.json", "green")
    write_questions(folder / "xquad" / "xquad.de.json", "grün")
    for split in ("dev", "test"):
        for pair in ("en-question-en", "de-question-de", "en-question-de"):
            write_questions(folder / f"mlqa/MLQA_V1/{split}/{split}-context-{pair}.json", "a")
    return folder


def list_names(task: AnyTask, folder: Path) -> list[tuple[str, str, str, str]]:
    files = task.list_files(folder)
    return sorted((file.split, file.language, file.name, file.path.name) for file in files)


def test_files_of_question_answering(tmp_path: Path) -> None:
    """XQuAD and MLQA select on SQuAD, TyDiQA on its English dev set; its dev sets are tests."""
    for code, name in (("en", "english"), ("sw", "swahili")):
        path = tmp_path / f"tydiqa/dev/tydiqa.goldp.{code}.dev.json"
        write_questions(path, "a", ids=[f"{name}-1"])
    write_questions(tmp_path / "tydiqa/train/tydiqa.goldp.sw.train.json", "a")
    squad = [
        ("select", "en", "dev-minus-xquad", "dev-v1.1.json"),
        ("train", "en", "train", "train-v1.1.json"),
    ]
    tests = [("test", code, "test", f"xquad.{code}.json") for code in ("de", "en")]
    assert list_names(XQUAD, make_tree(tmp_path)) == sorted([*squad, *tests])
    tests = [
        (split, code, split, f"{split}-context-{code}-question-{code}.json")
        for split in ("dev", "test")
        for code in ("en", "de")
    ]
    assert list_names(MLQA, tmp_path) == sorted([*squad, *tests])
    assert list_names(TYDIQA, tmp_path) == [
        ("select", "en", "dev", "tydiqa.goldp.en.dev.json"),
        ("test", "en", "dev", "tydiqa.goldp.en.dev.json"),
        ("test", "sw", "dev", "tydiqa.goldp.sw.dev.json"),
        ("train", "sw", "train", "tydiqa.goldp.sw.train.json"),
    ]


def select(folder: Path) -> tuple[DataFile, list[str], tuple[str, ...]]:
    (file,) = (file for file in XQUAD.list_files(folder) if file.split == "select")
    examples = XQUAD.read(file)
    return file, [question.context for question in examples.items], examples.notices


def test_paragraphs_of_xquad_do_not_select(tmp_path: Path) -> None:
    whole = make_tree(tmp_path) / "squad" / "dev-v1.1.json"
    english = tmp_path / "xquad" / "xquad.en.json"
    file, contexts, notices = select(tmp_path)
    assert contexts == ["red", "blue"] and notices == ()
    assert file.paths == (whole, english)
    # A filtered file is taken as it is.
    path = write_questions(tmp_path / "squad" / "dev-v1.1-minus-xquad.json", "red", "blue")
    file, contexts, _ = select(tmp_path)
    assert contexts == ["red", "blue"]
    assert (file.name, file.paths) == ("dev-minus-xquad", (path,))
    path.unlink()
    write_questions(whole, "green")
    with pytest.raises(MetaXLMError, match=r"dev-v1\.1\.json: all its questions are about the"):
        select(tmp_path)
    # Without XQuAD the whole set selects, with a notice.
    english.unlink()
    file, contexts, notices = select(tmp_path)
    assert contexts == ["green"] and file.paths == (whole,) and file.name == "dev"
    assert "xquad.en.json is not below the data folder" in notices[0]
    assert str(whole) in notices[0]


def test_of_a_file_for_all_languages_only_one_is_read(tmp_path: Path) -> None:
    ids = ["english--5-1", "swahili-6-2", "english-7-1", "korean-8-3"]
    write_questions(tmp_path / "tydiqa-goldp-v1.1-train.json", *"abcd", ids=ids)
    files = {file.language: file for file in TYDIQA.list_files(tmp_path) if file.split == "train"}
    assert set(files) == set(TYDIQA.languages)
    kept = {code: [q.id for q in TYDIQA.read(files[code]).items] for code in ("en", "sw", "ko")}
    assert kept == {"en": ids[::2], "sw": ids[1:2], "ko": ids[3:]}
    with pytest.raises(MetaXLMError, match=r"train\.json: no question in 'te', .*found en ko sw$"):
        TYDIQA.read(files["te"])


@pytest.mark.parametrize(
    ("archives", "sizes"),
    [
        ("udpos", {("test", "de"): 3_899, ("test", "yo"): 100}),
        ("panx", {("train", "en"): 20_000, ("dev", "yo"): 100}),
        # Greek has characters like U+2028 inside sentences.
        ("mnli xnli", {("train", "en"): 57_040, ("dev", "el"): 2_490, ("test", "zh"): 5_010}),
        ("pawsx", {("test", "de"): 2_000, ("test", "es"): 1_983, ("train", "en"): 6_488}),
    ],
)
def test_published(published: Published, archives: str, sizes: dict[tuple[str, str], int]) -> None:
    folder = [published(archive) for archive in archives.split()][-1]
    task = TASKS[archives.split()[-1]]
    files = {(file.split, file.language): file for file in task.list_files(folder)}
    if task.name == "panx":
        assert len(files) == 40
    else:
        assert {code for split, code in files if split == "test"} == {*task.languages}
    content = {key: task.read(files[key]).items for key in sizes}
    assert {key: len(items) for key, items in content.items()} == sizes
    if task.name == "xnli":
        labels = Counter(pair.label for pair in content["test", "zh"])
        assert labels == dict.fromkeys(NLI_LABELS, 1_670)
        assert files["train", "en"].name == "train-subset"
    if task.name == "pawsx":
        names = {file.language: file.name for file in files.values() if file.split == "test"}
        derived = dict.fromkeys(("en", "es", "fr", "ja", "ko"), "test-derived")
        assert names == {"de": "test", "zh": "test", **derived}

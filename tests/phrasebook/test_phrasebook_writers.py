"""The written corpus: formats that parse, splits that do not meet, the same bytes for a seed."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from metaxlm.errors import MetaXLMError
from metaxlm.files import digest_file
from metaxlm.phrasebook import PhrasebookSizes, available_languages, write_phrasebook
from metaxlm.phrasebook.formats import ISO_639_3
from metaxlm.phrasebook.lexicon import UPOS
from metaxlm.tasks.registry import TASKS

LANGUAGES = available_languages()
FOREIGN = [language for language in LANGUAGES if language != "en"]
SIZES = PhrasebookSizes(
    english_sentences=4000,
    other_sentences=1000,
    tatoeba=100,
    wordalign=40,
    xnli_train=300,
    pawsx_train=200,
    tagging_train=200,
    squad_train=60,
    cls_train=60,
    dev=30,
    test=40,
    dictionary_sentences=1500,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("phrasebook") / "corpus"
    write_phrasebook(path, LANGUAGES, 7, SIZES)
    return path


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def rows(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in lines(path)]


def sentences(path: Path) -> list[list[list[str]]]:
    blocks = path.read_text(encoding="utf-8").strip("\n").split("\n\n")
    return [[line.split("\t") for line in block.split("\n")] for block in blocks]


def reviews(path: Path) -> list[tuple[float, str]]:
    root = ElementTree.parse(path).getroot()
    return [
        (float(item.findtext("rating", "")), item.findtext("text", "").strip())
        for item in root.iter("item")
    ]


def answers(path: Path) -> list[tuple[str, str, int, str]]:
    data = json.loads(path.read_text(encoding="utf-8"))
    return [
        (paragraph["context"], qa["question"], answer["answer_start"], answer["text"])
        for article in data["data"]
        for paragraph in article["paragraphs"]
        for qa in paragraph["qas"]
        for answer in qa["answers"]
    ]


def question_files(folder: Path, language: str) -> list[Path]:
    """XQuAD, drawn first, and what is drawn after all text."""
    return [
        folder / "tasks" / name.format(language)
        for name in (
            "xquad/xquad.{0}.json",
            "mlqa/MLQA_V1/dev/dev-context-{0}-question-{0}.json",
            "mlqa/MLQA_V1/test/test-context-{0}-question-{0}.json",
            "tydiqa/tydiqa-goldp-v1.1-dev/tydiqa.goldp.{0}.dev.json",
        )
    ]


@pytest.mark.parametrize("language", LANGUAGES)
def test_text_has_the_asked_size_and_documents(folder: Path, language: str) -> None:
    text = lines(folder / f"text/{language}/00000.txt")
    size = SIZES.english_sentences if language == "en" else SIZES.other_sentences
    assert sum(bool(line) for line in text) == size
    assert text[0] and text[-1] and 0.1 < text.count("") / size < 0.5
    assert not any(a == b == "" for a, b in pairwise(text))


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_test_sentence_is_in_the_text(folder: Path, language: str) -> None:
    text = set(lines(folder / f"text/{language}/00000.txt"))
    tasks = folder / "tasks"
    for split in ("dev", "test"):
        for first, second, _ in rows(tasks / f"xnli/{split}-{language}.tsv"):
            assert not text & {first, second}
        for first, second, _ in rows(tasks / f"pawsx/{split}-{language}.tsv"):
            assert not text & {first, second}
    if language != "en":
        iso = ISO_639_3[language]
        assert not text & set(lines(tasks / f"tatoeba/tatoeba.{iso}-eng.{iso}"))
    squeezed = {line.replace(" ", "") for line in text}
    for task in ("udpos", "panx"):
        for split in ("dev", "test"):
            for sentence in sentences(tasks / f"{task}/{split}-{language}.tsv"):
                assert "".join(word for word, _ in sentence) not in squeezed
    joined = [context for context, *_ in answers(tasks / f"xquad/xquad.{language}.json")]
    for path in (tasks / f"cls/{language}").glob("*/test.review"):
        joined += [review for _, review in reviews(path)]
    # Whole sentences: where subjects are dropped, a short one is the end of many longer ones.
    said = set(re.split(r"(?<=[.!?。！？])\s*", "\n".join(joined)))
    long_lines = {line for line in text if len(line) > 8}
    assert len(said) > 100
    assert not said & long_lines


def test_no_test_pair_is_in_the_training_data(folder: Path) -> None:
    for task in ("xnli", "pawsx"):
        train = {text for row in rows(folder / f"tasks/{task}/train-en.tsv") for text in row[:2]}
        for split in ("dev", "test"):
            held = {
                text for row in rows(folder / f"tasks/{task}/{split}-en.tsv") for text in row[:2]
            }
            assert not train & held
    for task in ("udpos", "panx"):
        train_words = [
            tuple(w for w, _ in s) for s in sentences(folder / f"tasks/{task}/train-en.tsv")
        ]
        test_words = [
            tuple(w for w, _ in s) for s in sentences(folder / f"tasks/{task}/test-en.tsv")
        ]
        assert not set(train_words) & set(test_words)
    squad_train = {question for _, question, *_ in answers(folder / "tasks/squad/train-v1.1.json")}
    for path in question_files(folder, "en"):
        assert not squad_train & {q for _, q, *_ in answers(path)}
    tydiqa = "tasks/tydiqa/tydiqa-goldp-v1.1-train/tydiqa.goldp.en.train.json"
    tydiqa_train = {question for _, question, *_ in answers(folder / tydiqa)}
    for path in question_files(folder, "en")[1:]:
        assert not tydiqa_train & {q for _, q, *_ in answers(path)}


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_asked_last_is_in_no_text(folder: Path, language: str) -> None:
    text = set(lines(folder / f"text/{language}/00000.txt"))
    asked = []
    for path in question_files(folder, language)[1:]:
        for context, question, start, _ in answers(path):
            ends = [m.end() for m in re.finditer(r"[.!?。！？]\s*", context)]
            begin = max((end for end in ends if end <= start), default=0)
            asked.append(context[begin : min(end for end in ends if end > start)].strip())
            assert question not in text
    assert len(asked) > 2 * SIZES.test
    # A sentence with an abbreviation or a quotation would be cut wrongly; there are none.
    assert not text & set(asked)


def test_tests_of_questions_do_not_repeat_each_other(folder: Path) -> None:
    for language in LANGUAGES:
        told = [{c for c, *_ in answers(path)} for path in question_files(folder, language)]
        assert all(a.isdisjoint(b) for k, a in enumerate(told) for b in told[:k])


@pytest.mark.parametrize("language", FOREIGN)
def test_retrieval_pairs_are_distinct(folder: Path, language: str) -> None:
    iso = ISO_639_3[language]
    for code in (iso, "eng"):
        found = lines(folder / f"tasks/tatoeba/tatoeba.{iso}-eng.{code}")
        assert len(found) == len(set(found)) == SIZES.tatoeba


@pytest.mark.parametrize("language", FOREIGN)
def test_alignments_point_at_words(folder: Path, language: str) -> None:
    stem = folder / f"tasks/wordalign/{language}-en"
    source, target = lines(stem / f"test.{language}"), lines(stem / "test.en")
    assert len(source) == len(target) == SIZES.wordalign
    seen = set()
    for line in lines(stem / "alignv2.txt"):
        number, i, j, kind = line.split(" ")
        assert kind in ("S", "P")
        assert 1 <= int(i) <= len(source[int(number)].split(" "))
        assert 1 <= int(j) <= len(target[int(number)].split(" "))
        seen.add(int(number))
    assert seen == set(range(SIZES.wordalign))


@pytest.mark.parametrize("language", LANGUAGES)
def test_pairs_parse_and_are_balanced(folder: Path, language: str) -> None:
    for task, labels in (
        ("xnli", {"entailment", "neutral", "contradiction"}),
        ("pawsx", {"0", "1"}),
    ):
        found = rows(folder / f"tasks/{task}/test-{language}.tsv")
        assert len(found) == SIZES.test and all(len(row) == 3 and all(row) for row in found)
        counts = Counter(row[2] for row in found)
        assert set(counts) == labels and max(counts.values()) - min(counts.values()) <= 1


@pytest.mark.parametrize("language", LANGUAGES)
def test_tags_parse(folder: Path, language: str) -> None:
    for sentence in sentences(folder / f"tasks/udpos/test-{language}.tsv"):
        assert all(tag in UPOS for _, tag in sentence)
    found = Counter()
    for sentence in sentences(folder / f"tasks/panx/test-{language}.tsv"):
        previous = "O"
        for _, tag in sentence:
            if tag.startswith("I-"):
                assert previous[2:] == tag[2:]
            previous = tag
            found[tag] += 1
    assert found["B-PER"] > 5 and found["B-LOC"] > 5 and found["O"] > found["B-PER"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_answers_stand_in_their_context(folder: Path, language: str) -> None:
    for path in question_files(folder, language):
        found = answers(path)
        assert len(found) >= (SIZES.dev if "dev-context" in path.name else SIZES.test)
        for context, question, start, text in found:
            assert text and context[start : start + len(text)] == text
            assert question[-1] in "?？"


@pytest.mark.parametrize("language", LANGUAGES)
def test_reviews_parse(folder: Path, language: str) -> None:
    domains = ("books", "dvd", "music") if language in ("en", "de", "fr") else ("books",)
    assert {path.name for path in (folder / f"tasks/cls/{language}").iterdir()} == {*domains}
    for domain in domains:
        for split, size in (("train", SIZES.cls_train), ("test", SIZES.test)):
            found = reviews(folder / f"tasks/cls/{language}/{domain}/{split}.review")
            assert len(found) == size and all(text for _, text in found)
            assert Counter(rating for rating, _ in found) == {5.0: size // 2, 1.0: size // 2}


@pytest.mark.parametrize("language", FOREIGN)
def test_dictionary_lines_are_word_pairs_by_frequency(folder: Path, language: str) -> None:
    found = [line.split(" ") for line in lines(folder / f"tasks/muse/en-{language}.txt")]
    assert len(found) > 300 and all(len(pair) == 2 for pair in found)
    assert len(set(map(tuple, found))) == len(found)
    assert all(pair[0] == pair[0].lower() for pair in found)
    words = [pair[0] for pair in found]
    assert words.index("bought") < words.index("violin")


def test_same_seed_same_bytes_other_seed_others(tmp_path: Path) -> None:
    small = PhrasebookSizes(300, 100, 20, 10, 30, 20, 20, 10, 10, 6, 8, 100)
    digests = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_phrasebook(tmp_path / name, LANGUAGES, seed, small)
        files = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        digests.append([digest_file(path) for path in files])
    assert digests[0] == digests[1] != digests[2]


def test_every_finetuned_task_reads_its_files(folder: Path) -> None:
    for name, task in TASKS.items():
        files = task.list_files(folder / "tasks")
        judged = {file.language for file in files if file.split in ("dev", "test")}
        assert judged >= {*task.languages} & {*LANGUAGES}, name
        assert ("train", "en") in {(file.split, file.language) for file in files}, name
        for file in files:
            found = task.read(file)
            assert found.items and found.notices == (), file.path
            assert all(task.is_labeled(example) for example in found.items)


def test_english_is_required(tmp_path: Path) -> None:
    with pytest.raises(MetaXLMError, match="add en"):
        write_phrasebook(tmp_path / "x", ["de"], 1, SIZES)

"""`corpus.decontaminate`: from a folder of test sets to the counts of `corpus stats`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tests.commands import Command

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.test_sentences import list_test_sentences

TEXT = {
    "en": "One two. A paragraph that stays here.\n\nThe dog sleeps!\nNothing to remove.",
    "de": "Der Hund schläft.\nSie sagte: der Hund schläft.\nEin Satz. Wer ist da? Noch ein Satz.",
}


def write_tests(folder: Path) -> None:
    """One small set of each format, with a training set that must not count."""
    files = {
        "tatoeba/tatoeba.deu-eng.deu": "der Hund schläft\n",
        "tatoeba/tatoeba.deu-eng.eng": "The dog sleeps.\n",
        "xnli/test-de.tsv": "Wer ist da?\tNiemand.\tneutral\n",
        "xnli/train-en.tsv": "Nothing to remove.\tNo.\tneutral\n",
        "udpos/test-en.tsv": "One\tNUM\ntwo\tNUM\n.\tPUNCT\n\n",
        "xquad.de.json": json.dumps({"data": [{"title": "t", "paragraphs": [{
            "context": "Ein Absatz.", "qas": [{
                "id": "1", "question": "Was?", "answers": [{"text": "Ein", "answer_start": 0}],
            }],
        }]}]}),
        "wordalign/de-en/test.de": "das Haus\n",
        "wordalign/de-en/test.en": "the house\n",
        "wordalign/de-en/alignv2.txt": "1 1 1 S\n1 2 2 S\n",
    }  # fmt: skip
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def test_all_formats_but_training_sets_are_listed(tmp_path: Path) -> None:
    write_tests(tmp_path)
    assert set(list_test_sentences(tmp_path)) == {
        ("Tatoeba", "der Hund schläft"), ("Tatoeba", "The dog sleeps."), ("XNLI", "Wer ist da?"),
        ("XNLI", "Niemand."), ("UD POS", "One two ."), ("XQuAD", "Ein Absatz."), ("XQuAD", "Was?"),
        ("Word alignment", "das Haus"), ("Word alignment", "the house"),
    }  # fmt: skip


def test_a_folder_without_test_sets_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing", encoding="utf-8")
    with pytest.raises(MetaXLMError, match="no dev or test set found"):
        list(list_test_sentences(tmp_path))


def test_a_run_removes_and_counts_them(metaxlm: Command, tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    for language, text in TEXT.items():
        (tmp_path / "text" / f"{language}.txt").write_text(text, encoding="utf-8")
    write_tests(tmp_path / "tests")
    recipe = {
        "name": "clean", "languages": ["en", "de"], "variants": {"xlm": {"initialize": "none"}},
        "corpus": {"source": "text", "path": "text"},
        "evaluation": {"retrieval": None, "alignment": None},
    }  # fmt: skip
    (tmp_path / "clean.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    command = ("run", "clean.yaml", "--device", "cpu", "--stage", "corpus")
    code, printed, errors = metaxlm(*command)
    assert code == 0, errors
    set_tests = ("--set", "corpus.decontaminate=tests")
    code, printed, errors = metaxlm(*command, *set_tests)
    assert code == 0, errors
    assert "removing 9 sentences of test sets (UD POS, XQuAD, XNLI, Tatoeba" in printed + errors
    texts = {
        language: (tmp_path / f"runs/clean/corpus/text/{language}/00000.txt").read_text("utf-8")
        for language in TEXT
    }
    assert texts["en"].split("\n") == [
        "A paragraph that stays here.", "", "Nothing to remove.", "",
    ]  # fmt: skip
    assert "Sie sagte: der Hund schläft." in texts["de"]
    assert "Wer ist da" not in texts["de"] and "Ein Satz." in texts["de"]
    code, printed, _ = metaxlm("corpus", "stats", "runs/clean")
    expected = "lines that are sentences of test sets: 4 removed (de 2, en 2)"
    assert expected in " ".join(printed.split())
    code, printed, _ = metaxlm(*command, *set_tests)
    assert "up to date" in printed
    # Other test sets make another corpus.
    (tmp_path / "tests/xnli/test-de.tsv").write_text("Nie.\tNein.\tneutral\n", encoding="utf-8")
    code, printed, _ = metaxlm(*command, *set_tests)
    assert "up to date" not in printed
    # On a machine without the test sets, the finished corpus is used; a new one needs them.
    absent = ("--set", "corpus.decontaminate=absent")
    assert "up to date" in metaxlm(*command, *absent)[1]
    code, _, errors = metaxlm(*command, *absent, "--set", "name=other")
    assert code == 2 and "absent: no such folder" in " ".join(errors.split())

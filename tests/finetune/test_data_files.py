"""Finding the files of a data set in the folders that people have."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.data_files import DataSet, find_files, list_data_files
from metaxlm.finetune.data_sets import PAWSX, SQUAD, XNLI

Published = Callable[[str], Path]


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
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
    message = (
        f"{first} and {second}: both are XNLI's dev set of de; keep one of them below the data "
        f"folder"
    )
    with pytest.raises(MetaXLMError, match=f"^{re.escape(message)}$"):
        find_files(tmp_path, XNLI)
    second.unlink()
    second.symlink_to(first)
    assert ("a/xnli/dev-de.tsv", "dev", "", "de") in find(tmp_path, XNLI)
    second.unlink()
    second.symlink_to(tmp_path / "gone")
    with pytest.raises(MetaXLMError, match="both are XNLI's dev set of de"):
        find_files(tmp_path, XNLI)

"""A small copy of a run, from which the same report is drawn."""

from __future__ import annotations

import lzma
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml
from metaxlm.run.publication import publish
from tests.analysis.fake_run import make_coverage
from tests.analysis.paper_rows import make_comparison, make_folder, make_layer_rows, make_paper_rows

from metaxlm.analysis.report import write_report
from metaxlm.errors import MetaXLMError
from metaxlm.files import find_packed, pack, read_text, write_json


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    # Few tasks: what takes time is to draw them.
    run_dir = make_folder(tmp_path / "run", make_paper_rows(tasks=["xnli"]) + make_layer_rows())
    (run_dir / "variants/xlm/model").mkdir()
    (run_dir / "variants/xlm/log.jsonl").rename(run_dir / "variants/xlm/model/training_log.jsonl")
    (run_dir / "variants/xlm/model/model.safetensors").write_bytes(bytes(1000))
    (run_dir / "cells").mkdir()
    tests = [make_comparison("xnli", {("xlm", "metaxlm"): (-0.05, 0.001)})]
    stored = {str(number): asdict(one) for number, one in enumerate(tests)}
    write_json(run_dir / "comparisons.json", stored)
    write_json(run_dir / "variants/metaxlm/init/coverage.json", make_coverage(False))
    recipe = yaml.safe_load((run_dir / "recipe.yaml").read_text("utf-8"))
    recipe["evaluation"] = {"grid": [{"tasks": ["xnli"]}]}
    (run_dir / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    return run_dir


def list_files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_the_small_copy_gives_the_same_report(run_dir: Path, tmp_path: Path) -> None:
    published = tmp_path / "docs" / "results"
    publish(run_dir, published)
    small = {name for name in list_files(published) if not name.startswith("report/")}
    assert small == {
        "results.jsonl.xz", "comparisons.json.xz", "recipe.yaml", "provenance.json",
        "data_notes.txt", "manifest.json", "meta/log.jsonl", "variants/xlm/log.jsonl",
        "variants/metaxlm/init/coverage.json",
    }  # fmt: skip
    write_report(run_dir)
    before = {
        name: (run_dir / "report" / name).read_bytes() for name in list_files(run_dir / "report")
    }
    assert "claims.json" in before

    names = list_files(published / "report")
    assert {name: (published / "report" / name).read_bytes() for name in names} == before


def test_it_is_replaced_but_nothing_else_is(run_dir: Path, tmp_path: Path) -> None:
    recipe = run_dir / "recipe.yaml"
    recipe.write_text(recipe.read_text("utf-8").replace("grid:", "nothing:"), encoding="utf-8")
    published = tmp_path / "published"
    published.mkdir()
    publish(run_dir, published)
    assert not (published / "report" / "claims.json").exists()
    (published / "data_notes.txt").write_text("Written by hand.\n")
    (published / "old.txt").write_text("of an earlier version")
    first = (published / "results.jsonl.xz").read_bytes()
    publish(run_dir, published)
    assert (published / "results.jsonl.xz").read_bytes() == first
    assert (published / "data_notes.txt").read_text() == "Written by hand.\n"
    assert (published / "old.txt").read_text() == "of an earlier version"
    with pytest.raises(MetaXLMError, match="inside the run"):
        publish(run_dir, run_dir / "report")
    other = shutil.copytree(published, tmp_path / "other")
    (other / "recipe.yaml").write_text("name: mine")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("")
    for folder in (other, mine, mine / "thesis.tex"):
        kept = list_files(folder)
        with pytest.raises(
            MetaXLMError, match=r"is no publication of|not written by|is a file|should be"
        ):
            publish(run_dir, folder)
        assert list_files(folder) == kept


def test_a_packed_file_that_is_cut_off_is_named(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.jsonl", tmp_path / "a.jsonl.xz"
    plain.write_text("größer\n", encoding="utf-8")
    pack("größer\n", packed)
    assert find_packed(plain) == plain
    plain.unlink()
    assert find_packed(plain) == packed
    assert read_text(packed) == "größer\n"
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(MetaXLMError, match=r"a\.jsonl\.xz: .*damaged or cut short"):
        read_text(packed)
    packed.write_bytes(lzma.compress("ö".encode("latin-1")))
    with pytest.raises(MetaXLMError, match=r"not UTF-8 \(byte 0xF6\)"):
        read_text(packed)

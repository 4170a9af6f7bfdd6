"""Unchanged files of the user keep their fingerprint."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from metaxlm.digests import write_listed
from metaxlm.errors import MetaXLMError
from metaxlm.pretrain.distributed import DistributedContext
from metaxlm.recipe.recipe_file import load_recipe
from metaxlm.run import fingerprints
from metaxlm.run.fingerprints import FILE_NAME, FileFingerprints
from metaxlm.run.layout import RunLayout
from metaxlm.run.stage import Stage, list_changes
from metaxlm.run.stages import build_stages


class Data:
    """A folder with one file, and the run folder with its fingerprint."""

    def __init__(self, root: Path) -> None:
        self.folder, self.run = root / "data", root / "run"
        self.path = self.folder / "de" / "a.txt"
        self.path.parent.mkdir(parents=True)
        self.run.mkdir()

    def write(self, text: str, time: int) -> None:
        self.path.write_text(text, encoding="utf-8")
        os.utime(self.path, ns=(time, time))

    def get(self, what: str = "text") -> list[object]:
        """Return the fingerprint in a new process, which saves it."""
        files = FileFingerprints(self.run)
        found = files.get(self.path, self.folder, what)
        assert files.get(self.path, self.folder, what) == found
        files.save()
        return found

    def read(self) -> set[str]:
        return set(json.loads((self.run / FILE_NAME).read_text("utf-8")))


@pytest.fixture
def data(tmp_path: Path) -> Data:
    found = Data(tmp_path)
    found.write("abc", 1_000)
    return found


def test_a_fingerprint_has_place_size_and_time(data: Data) -> None:
    assert data.get() == data.get() == ["de/a.txt", 3, 1_000]
    data.folder = data.folder.rename(data.run.with_name("elsewhere"))
    data.path = data.folder / "de" / "a.txt"
    assert data.get() == ["de/a.txt", 3, 1_000]


def test_the_same_content_with_another_time_keeps_its_fingerprint(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    data.get()
    data.write("abc", 2_000)
    assert data.get() == ["de/a.txt", 3, 1_000]
    monkeypatch.setattr(fingerprints, "digest_file", lambda _: pytest.fail("read again"))
    assert data.get() == ["de/a.txt", 3, 1_000]  # the new time is stored
    data.write("abc", 1_000)
    assert data.get() == ["de/a.txt", 3, 1_000]


@pytest.mark.parametrize(("text", "time"), [("abd", 2_000), ("abcd", 2_000), ("abcd", 1_000)])
def test_another_content_has_another_fingerprint(data: Data, text: str, time: int) -> None:
    data.get()
    data.write(text, time)
    assert data.get() == ["de/a.txt", len(text), time]
    data.write(text, 3_000)
    assert data.get() == ["de/a.txt", len(text), time]
    data.write("abc", 1_000)
    assert data.get() == ["de/a.txt", 3, 1_000]


@pytest.mark.parametrize("other_text", ["xyz", "wxyz", "abc"])
@pytest.mark.parametrize("times", [(1_000, 2_000), (0, 0)])
def test_files_of_two_folders_with_equal_names_are_kept_apart(
    data: Data, other_text: str, times: tuple[int, int]
) -> None:
    """Variants may have dictionary folders of their own, all of which have a file en-de.txt."""
    other = data.folder.with_name("other") / "de" / "a.txt"
    other.parent.mkdir(parents=True)
    both = [data.path, other]

    def write(*times: int) -> None:
        for path, text, time in zip(both, ("abc", other_text), times, strict=True):
            path.write_text(text, encoding="utf-8")
            os.utime(path, ns=(time, time))

    def get(paths: list[Path]) -> list[list[object]]:
        files = FileFingerprints(data.run)
        found = [files.get(path, path.parents[1], "text") for path in paths]
        files.save()
        return found

    write(*times)
    expected = get(both)
    assert get(both) == expected
    for copied in ((5_000, 5_000), (6_000, 7_000)):
        write(*copied)
        assert get(both) == expected
        assert get(both[::-1]) == expected[::-1]
        assert [get([path])[0] for path in both] == expected


def test_a_store_with_one_entry_per_name_is_read(data: Data) -> None:
    """Earlier versions wrote this format, and still can read it while there is one file."""
    data.get()
    stored = json.loads((data.run / FILE_NAME).read_text("utf-8"))
    assert set(stored["text: de/a.txt"]) == {"size", "time", "seen", "sha256"}
    data.write("abc", 2_000)
    assert data.get() == ["de/a.txt", 3, 1_000]


def test_a_damaged_store_is_rejected(data: Data) -> None:
    data.get()
    path = data.run / FILE_NAME
    path.write_text(path.read_text("utf-8").replace("1000", "1001"), encoding="utf-8")
    with pytest.raises(MetaXLMError, match=r"inputs\.json: changed.*; delete .*\.json and run"):
        data.get()
    path.unlink()
    assert data.get() == ["de/a.txt", 3, 1_000]


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"text: de/a.txt": 3}', '{"text: de/a.txt": {"size": 3}}']
)
def test_a_store_of_another_format_is_ignored(data: Data, content: str) -> None:
    data.get()
    write_listed(data.run, FILE_NAME, content)
    data.write("abc", 2_000)
    assert data.get() == ["de/a.txt", 3, 2_000]
    assert data.read() == {"text: de/a.txt"}


def test_processes_add_to_the_store(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = (FileFingerprints(data.run) for _ in range(3))
    for files, what in ((first, "text"), (second, "data"), (third, "text")):
        files.get(data.path, data.folder, what)
    first.save()
    second.save()
    monkeypatch.setattr(fingerprints, "digest_file", lambda _: pytest.fail("digested twice"))
    third.save()
    assert data.read() == {"text: de/a.txt", "data: de/a.txt"}


DEMO = Path(__file__).parents[2] / "recipes" / "demo.yaml"


def build(folder: Path, *overrides: str) -> list[Stage]:
    world = DistributedContext.alone(torch.device("cpu"))
    return build_stages(load_recipe(DEMO, overrides), RunLayout(folder), world)


@pytest.mark.parametrize("key", ["body_rate=0.5", "rewind=true", "anchor=3.0"])
def test_keys_of_later_versions_count_only_when_they_are_set(tmp_path: Path, key: str) -> None:
    def read_keys(*overrides: str) -> set[str]:
        stages = build(tmp_path, *overrides)
        found = [stage.inputs for stage in stages if stage.name in ("meta", "pretrain")]
        return {name for one in found for name in one.get("meta", one.get("pretraining"))}

    name = key.partition("=")[0]
    assert name not in read_keys()
    assert name in read_keys(f"pretraining.{key}") & read_keys(f"meta.{key}")


def test_inputs_have_no_keys_of_later_versions(tmp_path: Path) -> None:
    """Otherwise every finished run would train again."""
    new = {"extend", "learning_rate", "body_rate", "anchor", "seed", "sentences", "grow"}
    for stage in build(tmp_path):
        if stage.variant:
            assert not new & set(stage.inputs.get("variant", {})), stage.title
        if stage.name == "vocabulary":
            assert "extend" not in stage.inputs["vocabulary"]


@pytest.mark.parametrize(
    ("key", "changed"),
    [
        ("learning_rate=1e-5", {"pretrain"}),
        ("body_rate=0.5", {"pretrain"}),
        ("anchor=2.0", {"pretrain"}),
        ("seed=9", {"initialize", "pretrain"}),
    ],
)
def test_settings_of_a_variant_change_only_its_stages(
    tmp_path: Path, key: str, changed: set[str]
) -> None:
    before, after = build(tmp_path), build(tmp_path, f"variants.metaxlm.{key}")
    found = {
        stage.title
        for stage, old in zip(after, before, strict=True)
        if list_changes(old.inputs, stage.inputs)
    }
    assert found == {f"{name} metaxlm" for name in changed}

"""Manifests: every byte of a folder can be checked, the manifest's own included.

`manifest.json` lists each file below its folder with size and SHA-256, beside whatever facts its
maker adds (counts, versions). It is sealed: it holds the digest of its own content, so that a
flipped bit in it is found too. Files in a subfolder with a manifest of its own belong to that one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from metaxlm.errors import MetaXLMError
from metaxlm.files import digest_file, digest_value, dump_json, read_json, read_text, write_text

MANIFEST = "manifest.json"
MARKER = ".stage.json"
"""Lists the files of a stage of a run."""
EXTRA = "extra, nothing lists it"
_SEAL = "seal"


def write_sealed(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object with the digest of its own content."""
    write_text(path, dump_json({**value, _SEAL: digest_value(dict(value))}))


def read_sealed(path: Path) -> dict[str, Any]:
    """Read a sealed JSON object; any changed byte is an error."""
    value = read_json(path)
    if not isinstance(value, dict) or _SEAL not in value:
        raise MetaXLMError(f"{path}: damaged or not written by metaxlm (it has no seal)")
    content = {key: part for key, part in value.items() if key != _SEAL}
    if value[_SEAL] != digest_value(content) or read_text(path) != dump_json(value):
        raise MetaXLMError(f"{path}: damaged, its content does not fit its seal")
    return content


def describe_files(folder: Path, names: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return size and digest of files, by their names relative to the folder.

    Files below a manifest of their own have their digest there, and only their size here.
    """
    covered = set(names) - set(list_files(folder))
    return {
        name: {"bytes": (folder / name).stat().st_size}
        | ({} if name in covered else {"sha256": digest_file(folder / name)})
        for name in names
    }


def write_manifest(folder: Path, facts: Mapping[str, Any]) -> None:
    """List all files of a folder with their digests, beside the facts; written last."""
    write_sealed(folder / MANIFEST, {**facts, "files": describe_files(folder, list_files(folder))})


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read a folder's manifest; a missing or damaged one is an error."""
    return read_sealed(folder / MANIFEST)


def list_files(folder: Path, *, nested: bool = False) -> list[str]:
    """Return the files that a folder's manifest answers for, the manifest itself left out.

    With `nested`, all files below the folder, whoever answers for them.
    """
    found = [path for path in folder.rglob("*") if not path.is_dir()]
    if not nested:
        others = [p.parent for p in found if p.name == MANIFEST and p.parent != folder]
        found = [
            path
            for path in found
            if path != folder / MANIFEST and not any(other in path.parents for other in others)
        ]
    return sorted(path.relative_to(folder).as_posix() for path in found)


def check_file(path: Path, facts: Mapping[str, Any]) -> str | None:
    """Return what is wrong with one listed file, or None."""
    if not path.is_file():
        return "missing"
    if (size := path.stat().st_size) != facts["bytes"]:
        return f"{size} bytes, should be {facts['bytes']}"
    if "sha256" in facts and digest_file(path) != facts["sha256"]:
        return "changed, its digest does not fit"
    return None


def find_damage(folder: Path) -> list[str]:
    """Return everything that is wrong with a folder that has a manifest."""
    try:
        listed = read_manifest(folder)["files"]
    except MetaXLMError as error:
        return [str(error)]
    extra = [f"{folder / name}: {EXTRA}" for name in list_files(folder) if name not in listed]
    checked = ((folder / name, facts) for name, facts in listed.items())
    return extra + [
        f"{path}: {what}" for path, facts in checked if (what := check_file(path, facts))
    ]

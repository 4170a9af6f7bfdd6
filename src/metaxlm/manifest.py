"""Manifests: check every byte of a folder, including the manifest itself.

`manifest.json` lists each file below its folder with size and SHA-256, and further facts such as
counts and versions. It is sealed with the digest of its own content, so that a flipped bit in it is
found, too. Files in a subfolder with a manifest of its own belong to that one.
"""

import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from metaxlm import __version__
from metaxlm.errors import MetaXLMError
from metaxlm.files import (
    TEMPORARY_PREFIX,
    digest_file,
    digest_value,
    dump_json,
    finish,
    follow_link,
    link,
    read_json,
    read_text,
    replace_folder,
    restore_replaced,
    temporary_beside,
    write_text,
)
from metaxlm.progress import say

MANIFEST = "manifest.json"
MARKER = ".stage.json"  # lists the files of a stage of a run
EXTRA = "extra, nothing lists it"
_SEAL = "seal"


def write_sealed(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object with the digest of its own content."""
    write_text(path, dump_json({**value, _SEAL: digest_value(dict(value))}))


def read_sealed(path: Path) -> dict[str, Any]:
    """Read a sealed JSON object; any changed byte is an error."""
    restore_replaced(path.parent)
    value = read_json(path)
    if not isinstance(value, dict) or _SEAL not in value:
        raise MetaXLMError(f"{path}: damaged or not written by metaxlm (it has no seal)")
    content = {key: part for key, part in value.items() if key != _SEAL}
    if value[_SEAL] != digest_value(content) or read_text(path) != dump_json(value):
        raise MetaXLMError(f"{path}: damaged, its content does not fit its seal")
    return content


def describe_files(folder: Path, names: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return size and digest of files, by their names relative to the folder."""
    # Files below a manifest of their own have their digest there, and only their size here.
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
    """Return the files that a folder's manifest lists; with `nested`, all files below it."""
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
    found = {name: EXTRA for name in list_files(folder) if name not in listed}
    found |= {name: what for name in listed if (what := check_file(folder / name, listed[name]))}
    return [f"{folder / name}: {what}" for name, what in found.items()]


@contextmanager
def atomic_folder(
    final: Path,
    facts: Mapping[str, Any] | None = None,
    *,
    internal: bool = False,
    set_aside: bool = False,
) -> Iterator[Path]:
    """Yield a new folder beside `final`; on success seal it and rename it to `final`.

    An existing folder is replaced only if its marker or manifest says that metaxlm wrote it; files
    that it does not list stay. `internal` folders are parts of a work folder of metaxlm: they have
    no manifest and are replaced as a whole. `set_aside` renames a folder with a damaged manifest.
    """
    if final.name.startswith(TEMPORARY_PREFIX) and final.is_dir():
        yield final  # unfinished itself: its own context seals and renames it
        return
    final = follow_link(final)
    is_part = internal or any(p.startswith(TEMPORARY_PREFIX) for p in final.absolute().parts[:-1])
    if set_aside:
        _set_aside(final)
    if not is_part:
        list_foreign_files(final)
    elif final.exists() and not final.is_dir():
        raise MetaXLMError(f"{final}: is a file, cannot write a folder there")
    with temporary_beside(final, folder=True) as temporary:
        yield temporary
        if not is_part and not any((temporary / name).is_file() for name in (MARKER, MANIFEST)):
            write_manifest(temporary, {"metaxlm": __version__, **(facts or {})})
        finish(temporary)
        for name in [] if is_part else list_foreign_files(final):
            _keep(final / name, temporary / name)
        replace_folder(temporary, final)


def list_foreign_files(folder: Path) -> list[str]:
    """List the files that metaxlm did not write; raise an error if it must not be replaced."""
    restore_replaced(folder)
    if not folder.exists():
        return []
    if not folder.is_dir():
        raise MetaXLMError(f"{folder}: is a file, cannot write a folder there; choose another name")
    found = _walk(folder)
    listed = _list_own(folder) if found else set()
    if listed is None:
        raise MetaXLMError(
            f"{folder}: not empty and not written by metaxlm (no {MANIFEST}); move it away or "
            "choose another folder"
        )
    return [name for name in found if name not in listed]


def _set_aside(folder: Path) -> None:
    """Rename a folder that cannot be replaced because its list of files is damaged or missing."""
    try:
        list_foreign_files(folder)
    except MetaXLMError as error:
        aside = folder.with_name(f".damaged-{folder.name}-{time.time_ns()}")
        folder.rename(aside)
        say(f"{error}; renamed to {aside.name}")


def _walk(folder: Path) -> list[str]:
    names = []
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(TEMPORARY_PREFIX))
        links = [name for name in folders if Path(root, name).is_symlink()]
        own = [name for name in files if not name.startswith(TEMPORARY_PREFIX)]
        names += [Path(root, name).relative_to(folder).as_posix() for name in (*own, *links)]
    return sorted(names)


def _list_own(folder: Path) -> set[str] | None:
    """Return the files that the markers and manifests of a folder list, those included."""
    own: set[str] = set()
    for path in [*folder.rglob(MARKER), *folder.rglob(MANIFEST)]:
        try:
            value = read_json(path)
        except MetaXLMError as error:
            raise MetaXLMError(
                f"{path}: damaged, cannot tell which files metaxlm wrote; move {folder} away"
            ) from error
        if not isinstance(value, dict) or _SEAL not in value:
            continue  # another program's
        place = path.parent.relative_to(folder)
        own |= {(place / name).as_posix() for name in (path.name, *value.get("files", ()))}
    return own if own & {MARKER, MANIFEST} else None


def _keep(source: Path, target: Path) -> None:
    """Take a user's file over into the folder that replaces its own."""
    if target.is_file() and source.is_file() and digest_file(target) == digest_file(source):
        return
    if target.exists() or target.is_symlink():
        raise MetaXLMError(f"{source}: not written by metaxlm, but in the way; move it away")
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink():
        target.symlink_to(source.readlink())
    else:
        link(source, target)

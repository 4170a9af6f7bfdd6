"""Checks that a folder still holds what metaxlm wrote: a run, shards, checkpoints, or part of them.

Comes in: any folder. Goes out: every file that is missing, extra, truncated or changed. Digests
come from the manifests (shards, prepared text, vocabularies, checkpoints) and the stages' markers.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metaxlm.errors import MetaXLMError
from metaxlm.experiments.stage import stage_files
from metaxlm.files import TEMPORARY_PREFIX
from metaxlm.manifest import EXTRA, MANIFEST, MARKER, check_file, list_files, read_sealed
from metaxlm.progress import track

Listed = dict[Path, Mapping[str, Any]]
"""Size and digest of each file that should be there."""


@dataclass
class Verification:
    """What was checked, and what is wrong."""

    files: int = 0
    """Files whose every byte was compared with a digest."""
    bytes: int = 0
    problems: dict[Path, str] = field(default_factory=dict)


def verify(root: Path) -> Verification:
    """Check every manifest and every stage below a folder."""
    if not root.is_dir():
        raise MetaXLMError(f"{root}: no such folder")
    result = Verification()
    listed: Listed = {}
    lists = [*_find(root, MARKER), *_find(root, MANIFEST)]
    for path in lists:
        try:
            listed |= _read_list(path, result)
        except MetaXLMError as error:
            result.problems[path] = str(error).removeprefix(f"{path}: ")
    for tokens in _find(root, "tokens.bin"):
        manifest = tokens.with_name(MANIFEST)
        if not manifest.is_file():
            result.problems[manifest] = "missing, so the shard cannot be checked"
    if not lists and not result.problems:
        raise MetaXLMError(
            f"{root}: nothing to verify, no {MANIFEST} and no {MARKER} stands in it or below; "
            "name a run folder, shards, or checkpoints"
        )
    _check_files(listed, result)
    return result


def _read_list(path: Path, result: Verification) -> Listed:
    """Return the files that a manifest or marker lists; note those in its folder it does not."""
    files = read_sealed(path).get("files")
    if files is None:  # the marker of unfinished work
        return {}
    folder = path.parent
    present = stage_files(folder) if path.name == MARKER else list_files(folder)
    for name in present:
        if name not in files:
            result.problems[folder / name] = EXTRA
    return {folder / name: facts for name, facts in files.items()}


def _check_files(listed: Listed, result: Verification) -> None:
    """Compare files with what is listed, in as many threads as there are cores."""
    total = sum(facts["bytes"] for facts in listed.values())
    with track("verify", max(1, total // 1_000_000), "MB") as advance, ThreadPoolExecutor() as pool:
        for path, problem in zip(
            listed, pool.map(check_file, listed, listed.values()), strict=True
        ):
            if problem is not None:
                result.problems[path] = problem
            before = result.bytes // 1_000_000
            result.bytes += listed[path]["bytes"]
            result.files += 1
            advance(result.bytes // 1_000_000 - before)


def _find(root: Path, name: str) -> list[Path]:
    return [
        path
        for path in sorted(root.rglob(name))
        if not any(part.startswith(TEMPORARY_PREFIX) for part in path.relative_to(root).parts)
    ]

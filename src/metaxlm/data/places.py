"""Where the shards and the prepared text of a run are, whichever of its folders a user names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metaxlm.manifest import MANIFEST, read_manifest

_SHARD_PLACES = ("shards/multilingual", "multilingual", ".")
_TEXT_PLACES = ("corpus/text", "text", ".")

Manifests = dict[Path, dict[str, Any]]
"""Manifests by folder; a folder's name is its language."""


def find_shards(folder: Path) -> Manifests:
    """Return the shards of a run, or of a folder in it."""
    return _find(folder, _SHARD_PLACES, "tokens")


def find_texts(folder: Path) -> Manifests:
    """Return the prepared text of a run, or of a folder in it."""
    return _find(folder, _TEXT_PLACES, "text")


def _find(folder: Path, places: Sequence[str], key: str) -> Manifests:
    """Return what the first place that has some has, by whether `key` is counted."""
    for place in places:
        manifests = sorted((folder / place).glob(f"*/{MANIFEST}"))
        facts = {path.parent: read_manifest(path.parent) for path in manifests}
        found = {path: one for path, one in facts.items() if key in (one.get("counts") or {})}
        if found:
            return found
    return {}

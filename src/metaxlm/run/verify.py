"""Check that a run, shards, checkpoints, or part of them are as metaxlm wrote them.

Every file that a sealed list (`digests.py`) below the folder names is read and compared. Missing,
truncated, changed and extra files are problems. Files that are in no listed folder, such as notes
next to a run, are reported as not checked.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from metaxlm.digests import CARD, DIGESTS, Listed, check_listed, read_list
from metaxlm.errors import MetaXLMError
from metaxlm.files import TEMPORARY_PREFIX
from metaxlm.manifest import EXTRA, MANIFEST, MARKER
from metaxlm.progress import track


@dataclass
class Verification:
    """Number of checked files, and problems."""

    files: int = 0  # files whose every byte was compared with a digest
    bytes: int = 0
    problems: dict[Path, str] = field(default_factory=dict)
    unlisted: list[Path] = field(default_factory=list)  # files that were not checked


def verify(root: Path) -> Verification:
    """Check every file that is listed in a folder or below."""
    if not root.is_dir():
        raise MetaXLMError(f"{root}: no such folder")
    present = [path for path in sorted(root.rglob("*")) if _is_kept(path, root)]
    # A marker has only the sizes of files below a manifest, so manifests are read after markers.
    lists = [path for name in (MARKER, MANIFEST, DIGESTS) for path in present if path.name == name]
    result = Verification()
    listed: Listed = {}
    complete, unread = set(), set()
    for path in lists:
        try:
            files = read_list(path)
        except MetaXLMError as error:
            result.problems[path] = str(error).removeprefix(f"{path}: ")
            unread.add(path.parent)
            continue
        listed |= {p: facts for p, facts in files.items() if "sha256" not in listed.get(p, {})}
        if files and path.name != DIGESTS:
            complete.add(path.parent)
    for path in set(present) - set(listed) - set(lists):
        in_unread = not unread.isdisjoint(path.parents)
        if path.name == "tokens.bin":
            result.problems[path.with_name(MANIFEST)] = "missing, so the shard cannot be checked"
        elif not complete.isdisjoint(path.parents) and not in_unread and path.name != CARD:
            result.problems[path] = EXTRA
        else:
            result.unlisted.append(path)
    if not lists and not result.problems:
        what = f"nothing to verify, there is no {MANIFEST}, {MARKER} or {DIGESTS} in it or below"
        raise MetaXLMError(f"{root}: {what}; name a run folder, shards, or checkpoints")
    _check_files(listed, result)
    return result


def _check_files(listed: Listed, result: Verification) -> None:
    total = sum(facts["bytes"] for facts in listed.values())
    with track("verify", max(1, total // 1_000_000), "MB") as advance, ThreadPoolExecutor() as pool:
        problems = pool.map(check_listed, listed, listed.values())
        for path, problem in zip(listed, problems, strict=True):
            if problem is not None:
                result.problems[path] = problem
            before = result.bytes // 1_000_000
            result.bytes += listed[path]["bytes"]
            result.files += 1
            if read := result.bytes // 1_000_000 - before:
                advance(read)


def _is_kept(path: Path, root: Path) -> bool:
    parts = path.relative_to(root).parts
    is_temporary = any(part.startswith(TEMPORARY_PREFIX) for part in parts)
    return path.is_file() and not is_temporary and not path.name.startswith(".lock")

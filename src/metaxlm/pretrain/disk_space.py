"""Room on the disk, looked at before a training starts instead of found missing after hours."""

from __future__ import annotations

import shutil
from pathlib import Path

from metaxlm.errors import MetaXLMError


def require_space(needed_bytes: int, folder: Path, *others: Path) -> None:
    """Refuse to start where so many bytes do not fit; what is already in the folders counts."""
    files = [path for place in (folder, *others) for path in place.rglob("*") if path.is_file()]
    more = needed_bytes - sum(path.stat().st_size for path in files)
    free = shutil.disk_usage(folder).free
    if more > free:
        raise MetaXLMError(
            f"{folder}: checkpoints need {_megabytes(more)} more, but only {_megabytes(free)} are "
            "free; free space, lower keep_checkpoints or keep_steps, or choose another --output"
        )


def _megabytes(count: int) -> str:
    return f"{count:,} bytes ({count / 1e6:,.1f} MB)"

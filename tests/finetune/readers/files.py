"""Small files and the messages about them, for the tests of all readers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from metaxlm.errors import MetaXLMError

Published = Callable[[str], Path]


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refuse(message: str, *parts: object) -> pytest.RaisesExc[MetaXLMError]:
    return pytest.raises(MetaXLMError, match="^" + re.escape(message.format(*parts)) + "$")

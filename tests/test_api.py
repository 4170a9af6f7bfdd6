"""The functions of `import metaxlm`; tests/test_tutorials.py runs them on a model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import metaxlm


def test_import_and_results_need_no_torch() -> None:
    code = "import sys, metaxlm; metaxlm.load_results; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_all_names_exist_and_are_documented() -> None:
    for name in metaxlm.__all__:
        value = getattr(metaxlm, name)
        assert name == "__version__" or value.__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'ember'"):
        metaxlm.ember  # noqa: B018


def test_a_missing_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(metaxlm.MetaXLMError, match="no such folder"):
        metaxlm.embed(str(tmp_path / "missing"), ["text"])

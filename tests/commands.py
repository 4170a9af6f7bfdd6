"""The command line in this process, as a user meets it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from metaxlm.cli import main


class Command:
    """Runs the command line in this process, in a folder of its own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys

    def __call__(self, *arguments: str | Path) -> tuple[int, str, str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            patch.setattr(sys, "argv", ["metaxlm", *map(str, arguments)])
            with pytest.raises(SystemExit) as ended:
                main()
        printed = self.capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    def complaint(self, *arguments: str | Path) -> str:
        """Run a command that must fail with one line on standard error and exit code 2."""
        code, _, errors = self(*arguments)
        assert code == 2, errors
        assert len(errors.splitlines()) == 1, errors
        assert errors.startswith("metaxlm: ")
        return errors

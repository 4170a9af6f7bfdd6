"""The command line in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.toy_runs import run_main


class Command:
    """Runs the command line in this process, in its own folder."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys

    def __call__(self, *arguments: str | Path) -> tuple[int, str, str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            code = run_main(*arguments)
        printed = self.capsys.readouterr()
        return code, printed.out, printed.err

    def complaint(self, *arguments: str | Path) -> str:
        """Run a command that must fail with one line on standard error and exit code 2."""
        code, _, errors = self(*arguments)
        assert code == 2, errors
        assert len(errors.splitlines()) == 1, errors
        assert errors.startswith("metaxlm: ")
        return errors

"""Where a training can be watched beside `log.jsonl`: TensorBoard, Weights & Biases, trackio.

Comes in: the rows of the training log. Goes out: the same numbers on each board that the recipe
names. A board is only a window: if it fails during a training it is closed and said once, and the
training goes on. A resumed run continues its board; no step appears on it twice.
"""

from __future__ import annotations

import importlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from metaxlm.errors import MetaXLMError
from metaxlm.files import dump_json, read_text, write_text
from metaxlm.progress import say


class Board(Protocol):
    """One service that draws numbers over steps."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Add the numbers of a step; steps come in rising order."""
        ...

    def close(self) -> None:
        """Write what is still in memory, and end."""
        ...


class Trackers:
    """All boards of a training."""

    def __init__(self, boards: Mapping[str, Board]) -> None:
        self._boards = dict(boards)

    @property
    def names(self) -> list[str]:
        """The boards that are open."""
        return list(self._boards)

    def log(self, step: int, values: Mapping[str, float | None]) -> None:
        """Send numbers of a step to every board; those that are None are left out."""
        numbers = {name: float(value) for name, value in values.items() if value is not None}
        self._each(lambda board: board.log(step, numbers))

    def close(self) -> None:
        """Write what is still in memory, and end."""
        self._each(lambda board: board.close())
        self._boards.clear()

    def _each(self, act: Callable[[Board], None]) -> None:
        for name, board in list(self._boards.items()):
            try:
                act(board)
            except Exception as error:  # a service's trouble, whatever it is, must not end a run
                del self._boards[name]
                reason = " ".join(str(error).split()) or type(error).__name__
                say(f"{name}: closed, the training goes on without it ({reason})")


def open_trackers(
    names: Sequence[str], folder: Path, title: str, recipe: Mapping[str, Any]
) -> Trackers:
    """Open the boards that a recipe names, for the training `title` whose log is in `folder`.

    `recipe` is shown beside the numbers, and its `name` groups the trainings of a run. TensorBoard
    is left out where it is not installed; another board that is missing is an error.
    """
    boards: dict[str, Board] = {}
    for name in names:
        if name == "tensorboard" and not _is_installed("torch.utils.tensorboard"):
            continue
        if name != "tensorboard" and not _is_installed(name):
            raise MetaXLMError(
                f"execution.trackers: {name} is not installed; "
                f"pip install 'metaxlm[{name}]', or leave it out"
            )
        boards[name] = _BOARDS[name](folder, title, recipe)
    return Trackers(boards)


def _is_installed(module: str) -> bool:
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True


class _TensorBoard:
    """Event files in `folder/tensorboard`; a restart hides what it is about to repeat."""

    def __init__(self, folder: Path, title: str, recipe: Mapping[str, Any]) -> None:
        self._folder = folder / "tensorboard"
        self._text = f"{title}\n\n```json\n{dump_json(dict(recipe))}```"
        self._writer: Any = None

    def log(self, step: int, values: Mapping[str, float]) -> None:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            # Rows come in rising order, so what an earlier start wrote from here on is repeated.
            is_new = not self._folder.exists()
            self._writer = SummaryWriter(self._folder, purge_step=step)
            if is_new:
                self._writer.add_text("recipe", self._text, step)
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class _Wandb:
    """A run of Weights & Biases; WANDB_MODE=offline keeps it on the disk, without any network."""

    def __init__(self, folder: Path, title: str, recipe: Mapping[str, Any]) -> None:
        import wandb

        try:
            self._run = wandb.init(
                project=_project(recipe),
                name=title,
                dir=folder,
                id=_identify(folder),
                resume="allow",
                config=dict(recipe),
                settings=wandb.Settings(silent=True),
            )
        except wandb.errors.Error as error:
            reason = " ".join(str(error).split())
            raise MetaXLMError(
                f"execution.trackers: wandb cannot start ({reason}); "
                "run `wandb login`, or set WANDB_MODE=offline"
            ) from error
        # Steps must rise on the service too; those that it has already are the same numbers.
        self._last = self._run.step - 1 if self._run.resumed else -1

    def log(self, step: int, values: Mapping[str, float]) -> None:
        if step > self._last:
            self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


class _Trackio:
    """A run in trackio's own folder (TRACKIO_DIR), which `trackio show` draws."""

    def __init__(self, folder: Path, title: str, recipe: Mapping[str, Any]) -> None:
        import trackio
        from trackio.sqlite_storage import SQLiteStorage

        project, name = _project(recipe), f"{title} {_identify(folder)}"
        last = SQLiteStorage.get_max_step_for_run(project, name)
        self._last = -1 if last is None else int(last)
        self._run = trackio.init(
            project=project, name=name, config=dict(recipe), resume="allow", embed=False
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        if step > self._last:
            self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


_BOARDS: dict[str, Callable[[Path, str, Mapping[str, Any]], Board]] = {
    "tensorboard": _TensorBoard,
    "wandb": _Wandb,
    "trackio": _Trackio,
}


def _project(recipe: Mapping[str, Any]) -> str:
    return str(recipe.get("name", "metaxlm"))


def _identify(folder: Path) -> str:
    """Return what names a training on a service; it moves with the folder."""
    path = folder / "board_id"
    if not path.is_file():
        write_text(path, secrets.token_hex(6))
    return read_text(path).strip()

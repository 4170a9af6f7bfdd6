"""Help texts that a person reads: names of values, and a whole list of commands in panels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

# By the name of the option; other values are named by their type.
_NAMES = {
    "model": "MODEL", "teacher": "MODEL", "student": "MODEL", "tokenizer": "TOKENIZER",
    "vocabulary": "TOKENIZER", "languages": "LANGUAGES", "language": "LANGUAGE",
    "source_language": "LANGUAGE", "pivot": "LANGUAGE", "layer": "LAYER", "device": "DEVICE",
    "queries": "FILE", "keys": "FILE", "source": "FILE", "target": "FILE", "joined": "FILE",
    "gold": "FILE", "known": "FILE", "pairs": "FILE", "task": "TASK", "variant": "VARIANT",
}  # fmt: skip


def _name_value(parameter: Any) -> None:
    """Set the name of a value in the help text; older versions of typer write such names."""
    kind = getattr(parameter, "type_descriptor", None)
    if parameter.metavar is not None or getattr(parameter, "is_flag", False):
        return
    if parameter.param_type_name == "argument":
        parameter.metavar = parameter.name.upper()
    elif kind is not None:
        text = str(kind.annotation)
        by_type = "PATH" if "Path" in text else "NUMBER" if "int" in text or "float" in text else ""
        choices = "|".join(map(str, kind.choices or ())) if kind.is_choice else ""
        parameter.metavar = choices or by_type or _NAMES.get(parameter.name, "TEXT")


class _Readable:
    """Shared by commands and groups."""

    params: list[Any]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for parameter in self.params:
            _name_value(parameter)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        pieces: list[str] = super().collect_usage_pieces(ctx)  # type: ignore[misc]
        return [piece.translate({ord("{"): None, ord("}"): None}) for piece in pieces]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments by name only, then options, and the commands of a group."""
        rows: dict[str, list[tuple[str, str]]] = {"argument": [], "option": []}
        for parameter in self.get_params(ctx):  # type: ignore[attr-defined]
            record = parameter.get_help_record(ctx)
            if record is not None:
                is_argument = parameter.param_type_name == "argument"
                name = parameter.metavar if is_argument else record[0]
                rows[parameter.param_type_name].append((name, record[1]))
        for kind, title in (("argument", "Arguments"), ("option", "Options")):
            if rows[kind]:
                with formatter.section(title):
                    formatter.write_dl(rows[kind])
        if isinstance(self, TyperGroup):
            self.format_commands(ctx, formatter)


class Command(_Readable, TyperCommand):
    """A command with readable help."""


class Group(_Readable, TyperGroup):
    """A group that lists its commands in panels, with all of their first sentences."""

    panels: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands of each panel."""
        listed = {name for names in self.panels.values() for name in names}
        others = [name for name in self.list_commands(ctx) if name not in listed]
        panels = {**self.panels, **({"Commands": tuple(others)} if others else {})}
        width = max(len(name) for names in panels.values() for name in names)
        for title, names in panels.items():
            with formatter.section(title):
                helps = (
                    (self.commands[name].help or "").strip().split("\n\n")[0] for name in names
                )
                pairs = zip((f"{name:<{width}}" for name in names), helps, strict=True)
                formatter.write_dl(list(pairs))


class App(typer.Typer):
    """An application with readable help."""

    def __init__(self, *, cls: type[TyperGroup] = Group, **options: Any) -> None:
        super().__init__(cls=cls, rich_markup_mode=None, **options)

    def command(  # type: ignore[override]
        self, name: str | None = None, **options: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register a command."""
        return super().command(name, cls=Command, **options)

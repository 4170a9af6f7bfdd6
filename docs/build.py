"""Write the reference pages that are generated from the code: recipe, languages, commands.

`make docs` runs this file and then builds the site with mkdocs, which fails on a broken link. The
tests check that the pages are up to date.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic_core import PydanticUndefined
from typer.main import get_command

from metaxlm.cli.app import app
from metaxlm.languages import LANGUAGES
from metaxlm.recipe import Recipe, Section

ROOT = Path(__file__).parent.parent
LANGUAGE_HEADINGS = (
    "code", "name", "scripts", "family", "Wikipedia", "paper's GB", "XLM-R", "MUSE", "tasks",
)  # fmt: skip


def sections_of(annotation: object) -> list[type[Section]]:
    """Find the recipe sections that an annotation mentions."""
    found = []
    for candidate in (annotation, *typing.get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, Section):
            found.append(candidate)
        elif candidate is not annotation:
            found += sections_of(candidate)
    return found


def type_name(annotation: object) -> str:
    """Name a type as a person would."""
    if typing.get_origin(annotation) is typing.Literal:
        return " \\| ".join(f"`{value}`" for value in typing.get_args(annotation))
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Annotated:
        return type_name(arguments[0])
    if typing.get_origin(annotation) in (list, dict):
        origin = typing.get_origin(annotation)
        name = origin.__name__ if origin else ""
        return f"{name} of {type_name(arguments[-1])}"
    if arguments:
        return " or ".join(type_name(a) for a in arguments if a is not type(None))
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return "section"
    names = {"str": "text", "int": "integer", "float": "number", "bool": "true or false"}
    name = getattr(annotation, "__name__", str(annotation))
    return names.get(name, name.lower())


def describe(section: type[Section], place: str) -> list[str]:
    """Return a section's table and those of the sections in it."""
    title = place or "The recipe"
    lines = [f"## {title}", "", inspect.cleandoc(section.__doc__ or ""), ""]
    lines += ["| key | type | default | meaning |", "|---|---|---|---|"]
    inner: list[str] = []
    for name, field in section.model_fields.items():
        children = sections_of(field.annotation)
        default = "required" if field.default is PydanticUndefined else f"`{field.default}`"
        if children:
            default = "required" if field.default is PydanticUndefined else "see below"
            many = typing.get_origin(field.annotation) is dict
            path = f"{place}.{name}".strip(".") + (".NAME" if many else "")
            for child in children:
                inner += describe(child, path)
        text = (field.description or "See below.").replace("\n", " ").replace("|", "\\|")
        lines.append(f"| `{name}` | {type_name(field.annotation)} | {default} | {text} |")
    return [*lines, "", *inner]


def reference() -> str:
    """Return the recipe reference as Markdown."""
    head = [
        "# Recipe reference",
        "",
        "Every key of a recipe, made from the models in `metaxlm.recipe` by `make docs`.",
        "Override any of them on the command line: `--set pretraining.batch_size=32`.",
        "",
        "**Paths.** A relative path is relative to the YAML file that has it, in recipes as in the "
        "YAML files of tasks. If nothing is there, a recipe's path is relative to the current "
        "folder. Paths of `--set` are always relative to the current folder. `meta.model`, "
        "`vocabulary.model` and `sentences.teacher` may also be names on the hub. The recipe that "
        "a run saves, `RUN/recipe.yaml`, has paths relative to itself and works from any folder.",
        "",
        "**Extending.** With `extends: base.yaml`, a path relative to the file, a recipe inherits "
        "all values of another recipe and overrides some:",
        "",
        "```yaml",
        "extends: base.yaml",
        "name: longer",
        "pretraining: {steps: 50000}   # sections are merged key by key",
        "variants: [xlm, metaxlm+dict] # a list of names selects entries of a section",
        "languages: [en, de]           # all other values are replaced",
        "```",
        "",
        "The base may extend another recipe in turn. Paths of the base stay relative to the base.",
        "",
    ]
    return "\n".join([*head, *describe(Recipe, "")]).rstrip() + "\n"


def language_table() -> str:
    """Return the table of languages as Markdown."""
    rows = [
        (
            f"`{known.code}`",
            known.name,
            ", ".join(known.scripts),
            known.family,
            known.wiki,
            "" if known.paper_gb is None else f"{known.paper_gb:.2f}",
            "yes" if known.in_xlmr else "",
            "yes" if known.has_dictionary else "",
            ", ".join(known.tasks),
        )
        for known in LANGUAGES.values()
    ]
    in_xlmr = sum(known.in_xlmr for known in LANGUAGES.values())
    in_paper = [known.paper_gb for known in LANGUAGES.values() if known.paper_gb is not None]
    head = [
        "# Languages",
        "",
        f"The {len(rows)} languages of `languages.tsv`, written here by `make docs`: {in_xlmr} of "
        f"XLM-R's list, {len(in_paper)} of the paper's appendix table ({sum(in_paper):.2f} GB of "
        "Wikipedia). A corpus may use any other code.",
        "",
        "The paper's text says 94 languages and 67.4 GB; its table has 87, whose sizes already sum "
        "to 67.40 GB. `recipes/paper` and `metaxlm data check` use the 87. XLM-R's 94 cannot be "
        "the paper's: six of the 87 are not among them (ba, ckb, mt, nn, tg, tt).",
        "",
    ]
    lines = ["| " + " | ".join(cells) + " |" for cells in (LANGUAGE_HEADINGS, *rows)]
    lines.insert(1, "|---" * len(LANGUAGE_HEADINGS) + "|")
    return "\n".join([*head, *lines]) + "\n"


def list_commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield a command and its subcommands with their full names."""
    yield name, command
    for child_name, child in getattr(command, "commands", {}).items():
        yield from list_commands(child, f"{name} {child_name}")


def command_reference() -> str:
    """Return the command reference as Markdown."""
    lines = ["# Commands", "", "Written by `make docs` from the help texts.", ""]
    for name, command in list_commands(get_command(app), "metaxlm"):
        shown = [p for p in command.params if not getattr(p, "hidden", False) and p.name != "help"]
        lines += [f"## {name}", "", *(command.help or "").splitlines(), ""]
        if shown:
            lines += ["| parameter | default | meaning |", "|---|---|---|"]
        for parameter in shown:
            is_option = parameter.param_type_name == "option"
            metavar = parameter.metavar or parameter.name.upper()
            label = ", ".join(parameter.opts) if is_option else metavar
            default = parameter.default
            is_set = default is not None and default != () and not callable(default)
            text = "required" if parameter.required else f"`{default}`" if is_set else ""
            meaning = (getattr(parameter, "help", None) or "").replace("|", "\\|")
            lines.append(f"| `{label}` | {text} | {meaning} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


PAGES = {
    ROOT / "docs" / "recipe.md": reference,
    ROOT / "docs" / "languages.md": language_table,
    ROOT / "docs" / "commands.md": command_reference,
}
"""Pages that are generated from the code and kept in git."""


if __name__ == "__main__":
    for path, make in PAGES.items():
        path.write_text(make(), encoding="utf-8")

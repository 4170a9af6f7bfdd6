"""Read a recipe from YAML, apply `--set a.b=c` overrides, and validate it.

Errors are one line with file, line and key, and suggest the nearest known key. A recipe may extend
another: with `extends: base.yaml` it inherits all values and overrides some. Sections are merged
key by key, a list of names in place of a section selects entries of it
(`variants: [xlm, metaxlm]`), and all other values are replaced.

A relative path is relative to the file that has it; if nothing is there, to the current folder.
Paths of `--set` are relative to the current folder. A saved recipe has paths relative to itself.
"""

import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from metaxlm.errors import MetaXLMError
from metaxlm.files import read_text
from metaxlm.reading import parse_yaml, reading
from metaxlm.recipe import MatchingRecipe, Recipe, Section
from metaxlm.recipe.sentences_schema import SentencesRecipe

Lines = dict[tuple[str, ...], int | str]
"""The line of each key of a YAML file, by its path of keys; `file:line` in another file."""
EXTENDS = "extends"

PATHS = (
    "corpus.path", "corpus.decontaminate", "matching.dictionaries",
    "variants.*.matching.dictionaries", "variants.*.grow.pairs", "sentences.text",
    "sentences.dictionaries", "sentences.parallel", "evaluation.data",
)  # fmt: skip
"""Keys with a path or a list of paths."""
MODELS = ("meta.model", "vocabulary.model", "sentences.teacher")
"""Keys with a folder or a name on the hub."""

AnySection = TypeVar("AnySection", bound=Section)


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read and validate a recipe with `a.b=c` overrides."""
    values, lines = _read_extended(path)
    for override in overrides:
        place = _apply_override(values, override)
        lines = {key: line for key, line in lines.items() if key[: len(place)] != place}
        for length in range(1, len(place) + 1):
            lines.setdefault(place[:length], f"--set {override}")
    return _validate(Recipe, values, path, lines)


def load_matching(overrides: Sequence[str]) -> MatchingRecipe:
    """Build the matching section of a recipe from `key=value` pairs."""
    values: dict[str, Any] = {}
    for override in overrides:
        _apply_override(values, override.removeprefix("matching."))
    return _validate(MatchingRecipe, values, Path("--set"), {}, ("matching",))


def load_sentences(given: Mapping[str, Any], overrides: Sequence[str]) -> SentencesRecipe:
    """Build the `sentences` section of a recipe from given values and `key=value` pairs."""
    values = dict(given)
    for override in overrides:
        key = override.partition("=")[0].removeprefix("sentences.")
        if key.strip() in given:
            raise MetaXLMError(f"--set {override!r}: is set by an option of the command; use that")
        _apply_override(values, override.removeprefix("sentences."))
    return _validate(SentencesRecipe, values, Path("--set"), {}, ("sentences",))


def load_section(path: Path, section: type[AnySection]) -> tuple[AnySection, Lines]:
    """Read the YAML file of a task; also return the line of each key."""
    values, lines = _read_yaml(path, "task")
    return _validate(section, values, path, lines), lines


def save_recipe(recipe: Recipe, folder: Path | None = None) -> str:
    """Return the resolved recipe as YAML, including all defaults, for a file in a folder."""
    values = recipe.model_dump(mode="json")
    if folder is not None:
        start = os.path.realpath(folder)  # `..` does not lead back through a link

        def move(text: str) -> str:
            return text if Path(text).is_absolute() else os.path.relpath(text, start)

        _change_paths(values, PATHS, move)
        _change_paths(values, MODELS, lambda text: move(text) if _is_there(Path(text)) else text)
    return save_values(values)


def save_values(values: Mapping[str, Any]) -> str:
    """Return the plain values of a recipe as YAML, in their order."""
    return yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)


def check_recipe_file(path: Path, saved: Path) -> None:
    """Raise an error if saving the resolved recipe would overwrite the user's own file."""
    is_same = saved.exists() and path.samefile(saved)
    if not is_same:
        return
    values, resolved = _read_yaml(path)[0], load_recipe(path).model_dump(mode="json")
    is_ours = read_text(path) == save_values(values)
    for one in (values, resolved):  # earlier versions saved paths as they were given
        _change_paths(one, (*PATHS, *MODELS), lambda _: "")
    if not is_ours or values != resolved:
        fix = "move your file elsewhere, or choose another --output"
        raise MetaXLMError(f"{path}: the run saves its resolved recipe under this name; {fix}")


def _read_extended(path: Path, below: tuple[Path, ...] = ()) -> tuple[dict[str, Any], Lines]:
    """Read the YAML of a recipe and of all recipes that it extends."""
    values, lines = _read_yaml(path)
    _change_paths(values, PATHS, lambda text: _find_path(text, path.parent))
    _change_paths(values, MODELS, lambda text: _find_model(text, path.parent))
    if EXTENDS not in values:
        return values, lines
    name, where = values.pop(EXTENDS), f"{path}:{lines[EXTENDS,]}"
    if not isinstance(name, str) or not name:
        raise MetaXLMError(f"{where}: extends names the file of a recipe, found {name!r}")
    other = path.parent / name
    with reading(where, ValueError, RuntimeError, fix="extends names the file of a recipe"):
        is_file = other.is_file()
        is_cycle = other.resolve() in {file.resolve() for file in (path, *below)}
    if is_cycle:
        raise MetaXLMError(f"{where}: {name} extends this recipe in turn; remove one `extends`")
    if not is_file:
        raise MetaXLMError(f"{where}: extends {name}, but there is no {other}")
    base, base_lines = _read_extended(other, (path, *below))
    places = {k: n if isinstance(n, str) else f"{other}:{n}" for k, n in base_lines.items()}
    _merge(base, values, (), path, lines)
    return base, {**places, **lines}


def _change_paths(values: Any, keys: Sequence[str], change: Callable[[str], str]) -> None:
    """Apply a function to all texts under some keys of a recipe's plain values."""
    for name in keys:
        *parents, last = name.split(".")
        sections = [values]
        for parent in parents:
            known = [section for section in sections if isinstance(section, dict)]
            inner = (one.values() if parent == "*" else [one.get(parent)] for one in known)
            sections = [section for found in inner for section in found]
        for section in (one for one in sections if isinstance(one, dict)):
            value = section.get(last)
            if isinstance(value, str):
                section[last] = change(value)
            elif isinstance(value, list):
                section[last] = [change(one) if isinstance(one, str) else one for one in value]


def _find_path(text: str, folder: Path) -> str:
    beside = folder / text
    return text if _is_there(Path(text)) and not _is_there(beside) else str(beside)


def _find_model(text: str, folder: Path) -> str:
    return str(folder / text) if text and _is_there(folder / text) else text


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # not the name of a file, which validation reports
        return False


def _merge(
    base: dict[str, Any], own: dict[str, Any], place: tuple[str, ...], path: Path, lines: Lines
) -> None:
    for key, value in own.items():
        section = base.get(key)
        if isinstance(section, dict) and isinstance(value, dict):
            _merge(section, value, (*place, key), path, lines)
        elif isinstance(section, dict) and isinstance(value, list):
            if lost := [name for name in value if name not in list(section)]:
                where, known = (*place, key), ", ".join(map(str, section))
                raise MetaXLMError(
                    f"{path}:{lines.get(where)}: {'.'.join(where)} keeps {lost[0]!r}, which the "
                    f"extended recipe has not; it has {known}"
                )
            base[key] = {name: section[name] for name in value}
        else:
            base[key] = value


def _read_yaml(path: Path, what: str = "recipe") -> tuple[dict[str, Any], Lines]:
    """Parse a YAML mapping; also return the line of every key."""
    node, values = parse_yaml(read_text(path), str(path))
    if not isinstance(values, dict):
        raise MetaXLMError(f"{path}: a {what} is a mapping of keys, found {type(values).__name__}")
    lines: Lines = {}
    _record_lines(node, (), lines, path)
    return values, lines


def _record_lines(
    node: yaml.Node | None, prefix: tuple[str, ...], lines: Lines, path: Path
) -> None:
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        place = (*prefix, str(key.value))
        if place in lines:
            raise MetaXLMError(
                f"{path}:{key.start_mark.line + 1}: duplicate key {'.'.join(place)!r} "
                f"(first on line {lines[place]}); delete one"
            )
        lines[place] = key.start_mark.line + 1
        _record_lines(value, place, lines, path)


def _apply_override(values: dict[str, Any], override: str) -> tuple[str, ...]:
    """Set one `a.b=c`, where c is YAML; missing sections are created. Return the key's place."""
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise MetaXLMError(f"--set {override!r}: expected KEY=VALUE, such as pretraining.steps=100")
    *parents, last = key.strip().split(".")
    target = values
    for parent in parents:
        if target.get(parent) is None:
            target[parent] = {}
        target = target[parent]
        if not isinstance(target, dict):
            raise MetaXLMError(f"--set {override!r}: {parent!r} is a value and has no keys in it")
    target[last] = parse_yaml(text, f"--set {override!r}")[1]
    return (*parents, last)


def _validate(
    model: type[AnySection],
    values: Mapping[str, Any],
    path: Path,
    lines: Lines,
    section: tuple[str, ...] = (),
) -> AnySection:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problems = error.errors()
    first = problems[0]
    # Branches of unions add labels that are not keys of the recipe.
    labels = ("literal[", "<", "PartsRecipe")
    keys = [str(part) for part in first["loc"] if not str(part).startswith(labels)]
    place = (*section, *keys)
    line = next((lines[place[:n]] for n in range(len(place), 0, -1) if place[:n] in lines), None)
    # An override may have caused what is wrong with its section.
    below = (n for key, n in lines.items() if place and key[: len(place)] == place)
    line = next((n for n in below if str(n).startswith("--set")), line)
    where = line if isinstance(line, str) else f"{path}:{line}" if line else str(path)
    name = ".".join(place) or "recipe"
    if first["type"] == "extra_forbidden":
        message = f"unknown key {name!r}; {suggest(place[-1], _list_keys(keys[:-1], model))}"
    elif first["type"] == "missing":
        message = f"key {name!r} is missing"
    else:
        found = "" if isinstance(first["input"], dict) else f", found {first['input']!r}"
        reason = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
        message = f"{name}: {reason}{found}"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    raise MetaXLMError(f"{where}: {message}{more}")


def suggest(name: str, known: Sequence[str]) -> str:
    """Return a hint with the known name nearest to an unknown one, or with all of them."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(known)}"


def _list_keys(place: Sequence[str], model: Any) -> list[str]:
    for key in place:
        field = model.model_fields.get(key) if hasattr(model, "model_fields") else None
        annotation = field.annotation if field else model
        candidates = [annotation, *getattr(annotation, "__args__", ())]
        sections = [c for c in candidates if isinstance(c, type) and issubclass(c, Section)]
        model = sections[0] if sections else annotation
    return list(model.model_fields) if hasattr(model, "model_fields") else []

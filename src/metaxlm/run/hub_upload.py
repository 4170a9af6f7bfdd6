"""Check a model folder, complete its card, and upload it to the Hugging Face hub.

The folder itself does not change: the card that is uploaded has what the folder's own card has,
and the license, languages and scores that the user names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from metaxlm import __version__
from metaxlm.analysis.results import load_results
from metaxlm.analysis.scores import Results
from metaxlm.digests import CARD, DIGESTS
from metaxlm.errors import MetaXLMError
from metaxlm.files import read_json, read_text, write_text
from metaxlm.hub import CONFIG, MODULES, check_repository, find_local, upload
from metaxlm.manifest import MANIFEST
from metaxlm.model.front_matter import (
    INDEX,
    Score,
    Values,
    describe_class,
    list_codes,
    list_scores,
    make_index,
    read_front_matter,
    write_front_matter,
)
from metaxlm.run.models import find_one_model, open_model

SCORES = "scores.json"  # of `evaluate-sentences`
_NOT_UPLOADED = (CARD, DIGESTS, MANIFEST)  # the card is written again; the lists have its digest
_OF_CHECKPOINTS = ("optimizer.safetensors", "optimizer.pt", "trainer_state.json")
_PLACEHOLDERS = ('"path/to/this/folder"', "FOLDER")  # in the code of our cards
_LINEAR = "linear head over frozen vectors, trained in en"


@dataclass(frozen=True)
class Upload:
    """The files of a repository: the card, and the files of a folder by their names."""

    repository: str
    card: str
    files: Mapping[str, Path]

    @property
    def front_matter(self) -> str:
        """The YAML of the card."""
        return write_front_matter(read_front_matter(self.card, CARD)[0])

    def send(self, *, private: bool = False) -> str:
        """Upload all files in one commit, and return the address of the repository."""
        with TemporaryDirectory(prefix="metaxlm-") as temporary:
            stage = Path(temporary)
            for name, path in self.files.items():
                (stage / name).parent.mkdir(parents=True, exist_ok=True)
                (stage / name).symlink_to(path.resolve())
            write_text(stage / CARD, self.card)
            message = f"Upload with metaxlm {__version__}"
            return upload(stage, self.repository, private=private, message=message)


def prepare_upload(
    source: str,
    repository: str,
    *,
    license_name: str | None = None,
    languages: Sequence[str] | None = None,
    scores: Sequence[Path] = (),
) -> Upload:
    """Check a model folder and write the card that is uploaded with it.

    `scores` are outputs of `evaluate-sentences` and `evaluate`; a `scores.json` in the folder is
    used too.
    """
    repository = check_repository(repository)
    folder, name = _find_folder(source)
    card = folder / CARD
    values, body = read_front_matter(read_text(card), str(card)) if card.is_file() else ({}, "")
    inside = [path for path in (folder / SCORES, folder / "scores" / SCORES) if path.is_file()]
    found = [score for path in (*inside, *scores) for score in _read_scores(path, name)]
    title = repository.rpartition("/")[2]
    values |= {key: value for key, value in _describe(folder).items() if key not in values}
    values[INDEX] = make_index(title, found, values.get(INDEX))
    if license_name is not None:
        values["license"] = license_name
    if languages is not None:
        values["language"] = list_codes(languages)
    for placeholder in _PLACEHOLDERS:
        body = body.replace(f"({placeholder})", f'("{repository}")')
    text = f"{write_front_matter(values)}\n{body.strip() or f'# {title}'}\n"
    return Upload(repository, text, dict(_list_files(folder)))


def _find_folder(source: str) -> tuple[Path, str]:
    """Return the folder of a model that can be loaded, and the model's name in scores."""
    local = find_local(source)
    if local is None:
        raise MetaXLMError(f"{source}: no such folder")
    named = find_one_model(source)
    is_root = any((local / name).is_file() for name in (CONFIG, MODULES))
    folder = local if is_root else Path(named.source)
    is_checkpoint = any((folder / name).is_file() for name in _OF_CHECKPOINTS)
    if is_checkpoint or not any((folder / name).is_file() for name in (CONFIG, MODULES)):
        raise MetaXLMError(
            f"{source}: a checkpoint of a training run, not a model folder; push the finished "
            "model, or write one with `metaxlm export --model`"
        )
    open_model(named)  # raises if a file is missing or damaged
    return folder, named.name


def _describe(folder: Path) -> Values:
    """Return the front matter of a folder without a card."""
    config = read_json(folder / CONFIG) if (folder / CONFIG).is_file() else {}
    classes = config.get("architectures") if isinstance(config, dict) else None
    has_modules = (folder / MODULES).is_file()
    return describe_class((classes or [""])[0], has_modules=has_modules)


def _list_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files of a folder; hidden ones and lists of digests stay here."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        is_hidden = any(part.startswith(".") for part in name.parts)
        if path.is_file() and not is_hidden and name.as_posix() not in _NOT_UPLOADED:
            yield name.as_posix(), path


def _read_scores(path: Path, name: str) -> Iterable[Score]:
    """Read the scores of a model from the output of `evaluate-sentences` or `evaluate`."""
    file = path / SCORES if path.is_dir() else path
    if not file.is_file():
        results = Results(load_results(path))
        return list_scores(results, _choose(results.variants, name, path))
    values = read_json(file)
    try:
        teacher, lines = values["teacher"], values["data"]["lines"]
        rows = {row["model"]: row["scores"] for row in values["models"]}
        named = [one for one in rows if one != teacher or len(rows) == 1]
        chosen = rows[_choose(named, name, path)]
        return list(_list_sentence_scores(chosen, lines))
    except (KeyError, TypeError, AttributeError) as error:
        raise MetaXLMError(
            f"{file}: not scores of `metaxlm evaluate-sentences` ({error!r}); write it again"
        ) from error


def _choose(names: Sequence[str], name: str, path: Path) -> str:
    if name in names:
        return name
    if len(names) != 1:
        raise MetaXLMError(
            f"{path}: has scores of {', '.join(names) or 'no model'}, but none of {name}; name the "
            "folder as it was when it was scored"
        )
    return names[0]


def _list_sentence_scores(scores: Mapping[str, Any], lines: str) -> Iterator[Score]:
    queries = "" if lines == "all" else f"{lines} lines are queries"
    for code, found in scores.get("tatoeba", {}).items():
        yield Score("tatoeba", code, "accuracy", found["mean"], note=queries)
    for code, found in scores.get("mining", {}).items():
        yield Score("tatoeba", code, "f1", found["f1"], note="mining with distractors")
    for task, title in (("xnli", "xnli"), ("reviews", "amazon-reviews")):
        for code, value in scores.get(task, {}).items():
            yield Score(title, code, "accuracy", value, note=_LINEAR)
    for name, value in scores.get("sts", {}).items():
        yield Score("sts", name, "spearman", value)

"""Train one sentence encoder outside of a run, for `metaxlm sentences`.

The output is a stage of its own: the same command resumes an interrupted training, and a finished
output is left as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metaxlm.errors import Interrupted, MetaXLMError
from metaxlm.files import check_output, walk_files
from metaxlm.hub import CONFIG
from metaxlm.manifest import MARKER, list_foreign_files
from metaxlm.model.huggingface import load_pretrained
from metaxlm.model.model_folder import find_folder
from metaxlm.pretrain.distributed import DistributedContext, describe_device
from metaxlm.progress import say, set_quiet
from metaxlm.recipe.sentences_schema import SentencesRecipe
from metaxlm.run.fingerprints import FileFingerprints
from metaxlm.run.models import find_models
from metaxlm.run.stage import Stage, list_changes, read_marker
from metaxlm.sentences.preparation import count_folder, prepare_pairs, read_text
from metaxlm.sentences.student import Training
from metaxlm.sentences.teacher import check_widths, load_teacher, read_teacher
from metaxlm.stopping import deferred_stops


@dataclass(frozen=True)
class EncoderRequest:
    """The arguments of `metaxlm sentences`."""

    settings: SentencesRecipe  # with teacher, dictionaries and parallel text
    student: str
    output: Path
    corpus: Path | None = None  # folder of XX.txt to count words in
    languages: Sequence[str] | None = None
    source_language: str = "en"
    seed: int = 1

    @property
    def work_dir(self) -> Path:
        """Folder of the checkpoints, removed when the encoder is complete."""
        return self.output.with_name(f"{self.output.name}-work")

    @property
    def steps_dir(self) -> Path:
        """Folder of the encoders of `keep_steps`."""
        return self.output.with_name(f"{self.output.name}-steps")


def train_encoder(request: EncoderRequest, world: DistributedContext) -> None:
    """Train and write the encoder, or take part in the training as another process."""
    if not world.is_main:
        set_quiet(True)
    folder = _check_request(request)
    trainings: list[Training] = []

    def fill(target: Path) -> None:
        [training] = trainings
        training.run(target, request.work_dir, world, steps_dir=request.steps_dir)

    stage = Stage(
        "sentences", request.output, _list_inputs(request, folder), (), fill,
        work_dir=request.work_dir, keeps_work=False, together=True,
        device=describe_device(world.device),
    )  # fmt: skip
    if world.is_main and _is_complete(stage, request.output):
        say(f"{request.output}: up to date")
        return
    if request.output.exists():
        list_foreign_files(request.output)
    trainings.append(_prepare(request, folder))
    if world.is_main:
        stage.run(world.send_order)
    else:
        _follow(stage, world)


def _check_request(request: EncoderRequest) -> Path:
    """Reject a teacher and a student that do not fit; return the student's folder."""
    settings = request.settings
    assert settings.teacher is not None
    if settings.mlm_weight:
        raise MetaXLMError(
            "--set mlm_weight: masked language modeling needs the shards of a run; set it in the "
            "section `sentences` of a recipe"
        )
    dictionaries = settings.dictionaries or []
    given = (*dictionaries, *settings.parallel, settings.text, request.corpus, request.student)
    check_output(request.output, (*given, settings.teacher))
    if dictionaries and settings.text is None:
        raise MetaXLMError("sentences: --dictionary rewrites English text; name it with --text")
    found = find_models(request.student)
    if len(found) > 1:
        raise MetaXLMError(f"{request.student}: has {len(found)} models; name one variant of them")
    source = found[0].source
    folder = find_folder(source)
    if not (folder / CONFIG).is_file():
        raise MetaXLMError(f"{request.student}: a checkpoint; name a folder with a {CONFIG}")
    read_teacher(settings.teacher)
    check_widths(settings.teacher, folder)
    return folder


def _list_inputs(request: EncoderRequest, student: Path) -> dict[str, Any]:
    """Return all that decides the encoder: settings, and sizes and times of files."""
    settings, files = request.settings, FileFingerprints()
    assert settings.teacher is not None
    places = [*(settings.dictionaries or ()), *settings.parallel, find_folder(settings.teacher)]
    places += [path for path in (settings.text, request.corpus) if path is not None]
    listed = {}
    for place in (*places, student):
        if not place.exists():
            raise MetaXLMError(f"{place}: no such file or folder")
        paths = [place] if place.is_file() else walk_files(place)
        listed[str(place)] = [files.get(path, place, "sentences") for path in paths]
    skipped = {"checkpoint_every", "log_every", "keep_steps"}
    return {
        "sentences": settings.model_dump(mode="json", exclude=skipped),
        "languages": None if request.languages is None else sorted(request.languages),
        "source_language": request.source_language,
        "seed": request.seed,
        "files": listed,
    }


def _is_complete(stage: Stage, output: Path) -> bool:
    """Return whether the encoder exists; reject an output of other settings."""
    if not (output / MARKER).is_file():
        return False
    if stage.is_complete():
        return True
    if not stage.was_made():
        changes = list_changes(read_marker(output).get("inputs", {}), stage.inputs)
        shown = "; ".join(changes[:2]) or "its list of files is damaged"
        raise MetaXLMError(
            f"{output}: made with other settings or files ({shown}); remove it or choose another "
            "--output"
        )
    return False


def _prepare(request: EncoderRequest, folder: Path) -> Training:
    settings = request.settings
    assert settings.teacher is not None
    text = settings.text
    prepared = prepare_pairs(
        settings,
        request.seed,
        read_sentences=lambda: [] if text is None else read_text(text, request.source_language),
        dictionaries=settings.dictionaries or (),
        languages=request.languages,
        source_language=request.source_language,
        count=None if request.corpus is None else count_folder(request.corpus),
        where=str(text),
    )
    teacher, student = load_teacher(settings.teacher), load_pretrained(folder)
    return Training(
        student, str(folder), teacher, prepared.pairs, settings, request.seed, prepared.data
    )


def _follow(stage: Stage, world: DistributedContext) -> None:
    with deferred_stops() as stop_requested:
        while world.next_order(stop_requested) is not None:
            try:
                stage.fill(stage.output)
            except Interrupted:
                continue  # all processes agreed to stop; rank 0 ends after its save

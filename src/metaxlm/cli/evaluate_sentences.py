"""`metaxlm evaluate-sentences`: compare sentence encoders with their English teacher."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Option

from metaxlm.cli.options import Device, LanguageList, Quiet, split_list
from metaxlm.errors import MetaXLMError
from metaxlm.progress import console, say, set_quiet

if TYPE_CHECKING:
    from metaxlm.model.sentence_modules import SentenceModules
    from metaxlm.probe.sentence_evaluation import Scores
    from metaxlm.run.models import NamedModel

EXAMPLES = """
\b
Data sets are found as by `metaxlm data check`; missing ones are skipped:
  tatoeba   accuracy both ways; F1 of mining with distractors
  xnli, cls accuracy of a linear head over the vectors, trained in English
The teacher's vectors are compared on 2,000 English sentences: those of
--english, or of Tatoeba. Choose settings with --lines even, report --lines odd.
\b
Examples:
  metaxlm evaluate-sentences --model my-encoder --teacher all-MiniLM-L6-v2 \\
      --data data/eval --output scores
  metaxlm evaluate-sentences --model a --model b --teacher all-MiniLM-L6-v2 \\
      --data data/eval --lines even --languages de,fr,sw --sts sts-de.tsv
"""


def evaluate_sentences_command(
    teacher: Annotated[
        str, Option(help="The English sentence-transformers folder or hub id; the first row.")
    ],
    model: Annotated[
        list[str] | None, Option(help="An encoder to compare with it (repeatable).")
    ] = None,
    data: Annotated[Path | None, Option(help="Folder of the data sets; see `data check`.")] = None,
    english: Annotated[Path | None, Option(help="English sentences, one per line.")] = None,
    sts: Annotated[
        list[Path] | None, Option(help="A file of text TAB text TAB score (repeatable).")
    ] = None,
    languages: LanguageList = None,
    lines: Annotated[
        Literal["all", "even", "odd"],
        Option(help="Lines of Tatoeba that are queries, counted from 0; all are candidates."),
    ] = "all",
    limit: Annotated[int | None, Option(min=1, help="Use the first N examples of a file.")] = None,
    output: Annotated[Path, Option(help="Folder for scores.json and scores.md.")] = Path("scores"),
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Score sentence encoders without finetuning, beside the teacher they started from."""
    set_quiet(quiet)
    from metaxlm.analysis.sentence_tables import draw_languages, draw_steps, make_sentence_tables
    from metaxlm.analysis.style import write_figure
    from metaxlm.analysis.tables import render_markdown
    from metaxlm.files import write_json, write_text
    from metaxlm.manifest import atomic_folder, list_foreign_files
    from metaxlm.pretrain.distributed import choose_device
    from metaxlm.probe.sentence_evaluation import (
        SentenceEncoder,
        read_sentence_data,
        score_sentences,
    )
    from metaxlm.run.models import find_all_models, find_models, open_model

    list_foreign_files(output)
    if len(find_models(teacher)) != 1:
        raise MetaXLMError(f"--teacher {teacher}: has several models; name one")
    named = find_all_models([teacher, *(model or ())])
    steps = [_read_steps(one, is_teacher=one is named[0]) for one in named]
    found = read_sentence_data(
        data, languages=split_list(languages), english=english, sts=sts or (), lines=lines,
        limit=limit,
    )  # fmt: skip
    chosen = choose_device(device)
    scores: dict[str, Scores] = {}
    teacher_vectors = None
    for one, modules in zip(named, steps, strict=True):
        encoder = SentenceEncoder(one.name, open_model(one), modules, chosen)
        scores[one.name], vectors = score_sentences(encoder, found, teacher_vectors)
        teacher_vectors = vectors if teacher_vectors is None else teacher_vectors
    tables = make_sentence_tables(scores, lines)
    sizes = {pairs.language: len(pairs.foreign) for pairs in found.tatoeba}
    about = {"lines": lines, "tatoeba": sizes, "english": len(found.english), "limit": limit}
    rows = [{"model": one.name, "scores": scores[one.name]} for one in named]
    with atomic_folder(output) as folder:
        write_json(
            folder / "scores.json", {"data": about, "teacher": named[0].name, "models": rows}
        )
        write_text(folder / "scores.md", "\n".join(map(render_markdown, tables)))
        for name, figure in (("tatoeba", draw_languages(scores)), ("steps", draw_steps(scores))):
            if figure is not None:
                write_figure(folder, name, figure)
    console.print(render_markdown(tables[0]), markup=False, highlight=False, soft_wrap=True)
    say(f"scores by language: {output / 'scores.md'}")


def _read_steps(model: NamedModel, is_teacher: bool) -> SentenceModules:
    from metaxlm.model.sentence_modules import SentenceModules
    from metaxlm.run.models import read_modules

    modules = read_modules(model)
    if modules is None and is_teacher:
        raise MetaXLMError(
            f"--teacher {model.source}: not a sentence encoder, it has no modules.json; name a "
            "sentence-transformers folder"
        )
    if modules is None:
        say(f"{model.name}: not of sentence-transformers; its vectors are means of the last layer")
    return modules or SentenceModules()

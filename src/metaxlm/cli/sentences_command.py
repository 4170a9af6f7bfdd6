"""`metaxlm sentences`: make a sentence encoder for other languages from an English one."""

from pathlib import Path
from typing import Annotated

from typer import Option

from metaxlm.cli.options import Device, LanguageList, Quiet, parse_languages
from metaxlm.errors import MetaXLMError
from metaxlm.progress import say, set_quiet

EXAMPLES = """
\b
Examples:
  metaxlm sentences --teacher all-MiniLM-L6-v2/ --student runs/x/variants/y \\
      --text en.txt --dictionary muse/ --output my-encoder/
  metaxlm sentences --teacher all-MiniLM-L6-v2/ --student matched/ --text en.txt.xz \\
      --dictionary muse/ --dictionary wiktionary/ --corpus text/ --languages de,fr,sw \\
      --parallel tatoeba/ --set steps=8000 --output my-encoder/

The same command resumes an interrupted training. torchrun starts it in several processes.
"""


def sentences_command(
    teacher: Annotated[
        str, Option(help="English sentence encoder: a sentence-transformers folder or hub id.")
    ],
    student: Annotated[
        str, Option(help="Encoder to train: a variant of a run, a folder or a hub id.")
    ],
    output: Annotated[Path, Option(help="Folder to write.")],
    text: Annotated[
        Path | None, Option(help="English text, one sentence or paragraph per line.")
    ] = None,
    dictionary: Annotated[
        list[Path] | None, Option(help="Folder or file like en-de.txt; may be repeated.")
    ] = None,
    parallel: Annotated[
        list[Path] | None, Option(help="File or folder of parallel text; may be repeated.")
    ] = None,
    corpus: Annotated[
        Path | None,
        Option(help="Folder of files like de.txt; their word counts rank translations."),
    ] = None,
    languages: LanguageList = None,
    source_language: Annotated[str, Option(help="Language of the teacher.")] = "en",
    settings: Annotated[
        list[str] | None,
        Option("--set", metavar="KEY=VALUE", help="A key of `sentences` in docs/recipe.md."),
    ] = None,
    seed: Annotated[int, Option(help="Seed of all random numbers.")] = 1,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Train an encoder to give texts in other languages the vectors of an English encoder.

    Pairs are English sentences rewritten with dictionaries, and parallel text. The result is a
    sentence-transformers folder.
    """
    set_quiet(quiet)
    from metaxlm.recipe.recipe_file import load_sentences

    if not dictionary and not parallel:
        raise MetaXLMError("sentences: needs --dictionary or --parallel; see --help")
    wanted = parse_languages(languages, corpus, *(dictionary or ()), *(parallel or ()))
    given = {"teacher": teacher, "text": text, "dictionaries": dictionary or []}
    loaded = load_sentences({**given, "parallel": parallel or []}, settings or ())
    from metaxlm.cli.exit_codes import ending_together
    from metaxlm.pretrain.distributed import DistributedContext
    from metaxlm.recipe import ExecutionRecipe
    from metaxlm.run.encoders import EncoderRequest, train_encoder

    request = EncoderRequest(loaded, student, output, corpus, wanted, source_language, seed)
    world = DistributedContext.join(device, ExecutionRecipe())
    with ending_together(world):
        train_encoder(request, world)
    if world.is_main:
        say(f'sentence encoder: {output}, for SentenceTransformer("{output}")')

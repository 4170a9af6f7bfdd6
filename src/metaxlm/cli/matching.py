"""`metaxlm match` and `metaxlm trim`: change the vocabulary of an encoder."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from typer import Argument, Option

from metaxlm.cli.help import App
from metaxlm.cli.options import LanguageList, Quiet, parse_languages, print_table, split_list
from metaxlm.errors import MetaXLMError
from metaxlm.progress import console, say, set_quiet

if TYPE_CHECKING:
    from rich.text import Text
    from transformers import PreTrainedTokenizerBase

    from metaxlm.init.extension import Extension
    from metaxlm.init.ledger import Story
    from metaxlm.init.match_plan import Plan
    from metaxlm.init.start import Parts, Preset

app = App(
    help="Give an encoder another vocabulary, and explain the origin of each embedding.",
    invoke_without_command=True,
    subcommand_metavar="[COMMAND] [ARGS]...",
)

_READ_LINES = 50_000  # of each language, to find pieces to add

Ledger = Annotated[
    Path | None,
    Argument(help="A ledger or a folder with one. Default: the only one below this folder."),
]


@app.callback()
def match_command(
    context: typer.Context,
    source: Annotated[
        str | None, Option("--from", metavar="MODEL", help="Encoder: a folder or hub id.")
    ] = None,
    target: Annotated[
        str | None, Option("--to", metavar="TOKENIZER", help="Tokenizer: a folder or hub id.")
    ] = None,
    extend: Annotated[
        str | None,
        Option(
            metavar="WORDS",
            help="Instead of --to, add to the encoder's own vocabulary: words of a file, one per "
            "line, or words (WordPiece: pieces) of languages with text in --corpus, such as de,sw.",
        ),
    ] = None,
    size: Annotated[
        int, Option(min=1, help="Number of words or pieces to add for languages, at most.")
    ] = 10_000,
    output: Annotated[Path | None, Option(help="Folder to write; it must not exist yet.")] = None,
    dictionary: Annotated[
        list[Path] | None, Option(help="Folder or file like en-de.txt; may be repeated.")
    ] = None,
    languages: LanguageList = None,
    source_language: Annotated[str, Option(help="Language of the encoder.")] = "en",
    corpus: Annotated[
        Path | None, Option(help="Text: a run, shards, or files like de.txt.")
    ] = None,
    frequency_weighted: Annotated[
        bool,
        Option(
            "--frequency-weighted", help="Weight languages by token frequency in the corpus (best)."
        ),
    ] = False,
    by_use: Annotated[bool, Option("--by-use", hidden=True)] = False,
    initialize: Annotated[
        str, Option(help="Copy both, body, embeddings, remainder, none, or words,head,...")
    ] = "both",
    positions: Annotated[int | None, Option(min=1, help="Maximum length of the new model.")] = None,
    settings: Annotated[
        list[str] | None,
        Option("--set", metavar="KEY=VALUE", help="A key of `matching` in docs/recipe.md."),
    ] = None,
    seed: Annotated[int, Option(help="Seed of random embeddings.")] = 1,
    quiet: Quiet = False,
) -> None:
    """Give an encoder the vocabulary of another tokenizer; write a Hugging Face folder.

    A task head and the modules of sentence-transformers are kept.
    """
    if context.invoked_subcommand is not None:
        return
    set_quiet(quiet)
    if source is None or (target is None) == (extend is None) or output is None:
        needed = "--from MODEL, --to TOKENIZER or --extend WORDS, and --output DIR"
        raise MetaXLMError(f"match: needs {needed}; see --help")
    from metaxlm.data.statistics import count_corpus
    from metaxlm.init.ledger import coverage_tables, write_coverage
    from metaxlm.init.match_plan import FREQUENCY_WEIGHTED
    from metaxlm.init.start import check_output, match
    from metaxlm.model.model_folder import find_folder
    from metaxlm.recipe.recipe_file import load_matching
    from metaxlm.vocab.tokenizer import load_tokenizer

    check_output(output)
    requested = parse_languages(languages, corpus, *(dictionary or ()))
    weighted = []
    if frequency_weighted or by_use:
        if corpus is None:
            raise MetaXLMError("match: --frequency-weighted needs --corpus to count tokens in")
        weighted = [f"precedence={FREQUENCY_WEIGHTED}", "one_to_many=order"]
        weighted += ["split_words=all", "segments=true"]
    matching = load_matching([*weighted, *(settings or ())])
    tokenizer = load_tokenizer(str(find_folder(source)) if target is None else target)
    extension = None
    if extend is not None:
        extension = _extend(tokenizer, extend, corpus, size, source_language)
        tokenizer = extension.tokenizer
    counts = None if corpus is None else count_corpus(corpus, tokenizer)
    # Use only the dictionaries of the languages of the text.
    wanted = requested or (None if counts is None else sorted(counts))
    start = match(
        source, None if extension else tokenizer, extend=extension,
        dictionaries=dictionary or matching.dictionaries, languages=wanted,
        source_language=source_language, matching=matching, parts=_read_parts(initialize),
        token_counts=counts, max_positions=positions, seed=seed,
    )  # fmt: skip
    start.save(output, lambda folder: write_coverage(folder, start.coverage))
    for table in coverage_tables(start.coverage):
        print_table(table)
    for remark in start.remarks:
        say(f"note: {remark}")
    say(f"model, tokenizer, ledger and coverage: {output}")


@app.command()
def explain(
    token: Annotated[str, Argument(help="A token such as ▁Haus, a word, or an id: #1234.")],
    ledger: Ledger = None,
) -> None:
    """Show the origin of one embedding, and the rules that were tried before."""
    from metaxlm.init.ledger import explain as explain_row
    from metaxlm.init.ledger import load_ledger

    path = _find_ledger(ledger)
    plan = load_ledger(path)
    for row in _find_token(plan, token, path):
        console.print(_format_story(explain_row(plan, row)), soft_wrap=True)


@app.command()
def show(ledger: Ledger = None) -> None:
    """Print the coverage of a plan by rule, script and dictionary."""
    from metaxlm.digests import require_whole
    from metaxlm.files import read_json
    from metaxlm.init.ledger import COVERAGE, coverage, coverage_tables, load_ledger

    path = _find_ledger(ledger)
    saved = path.with_name(COVERAGE)
    if saved.is_file():
        require_whole(saved)
    found = read_json(saved) if saved.is_file() else coverage(load_ledger(path))
    for table in coverage_tables(found):
        print_table(table)


def _extend(
    tokenizer: PreTrainedTokenizerBase, extend: str, corpus: Path | None, size: int, source: str
) -> Extension:
    from metaxlm.data.statistics import list_languages, read_corpus
    from metaxlm.init.extension import choose_words, extend_tokenizer, read_words, require_text
    from metaxlm.init.pieces import extend_wordpiece
    from metaxlm.languages import LANGUAGES
    from metaxlm.vocab.tokens import Kind, detect_kind

    if Path(extend).is_file():
        return extend_tokenizer(tokenizer, read_words(Path(extend)))
    languages = split_list(extend) or []
    if unknown := [code for code in languages if code not in LANGUAGES]:
        raise MetaXLMError(f"--extend {unknown[0]}: no such file, and not the code of a language")
    if corpus is None:
        raise MetaXLMError(f"--extend {extend}: needs --corpus with text of the language")
    if detect_kind(tokenizer) is not Kind.WORDPIECE:
        share = max(1, size // len(languages))
        chosen = [choose_words(tokenizer, corpus, code, share) for code in languages]
        return extend_tokenizer(tokenizer, [word for words in chosen for word in words])
    require_text(corpus, languages)
    # The source's text, if there is some, shows which pieces would change its tokens.
    read = {*languages, *({source} & set(list_languages(corpus)))}
    texts = {code: list(islice(read_corpus(corpus, code), _READ_LINES)) for code in sorted(read)}
    return extend_wordpiece(tokenizer, texts, source, size)


def _read_parts(text: str) -> Parts:
    from metaxlm.init.start import Parts

    chosen = split_list(text) or []
    if not set(chosen) <= set(Parts.preset("both").list_names()):
        return Parts.preset(cast("Preset", text))
    return Parts(**dict.fromkeys(chosen, True))


def _find_ledger(path: Path | None) -> Path:
    from metaxlm.init.ledger import LEDGER

    folder = path or Path()
    if folder.is_file():
        return folder
    if not folder.is_dir():
        raise MetaXLMError(f"{folder}: no such ledger or folder")
    found = [folder / LEDGER] if (folder / LEDGER).is_file() else sorted(folder.rglob(LEDGER))
    if not found:
        where = f"{folder}: no {LEDGER} in it or below"
        raise MetaXLMError(f"{where}; `metaxlm match` or a run writes one")
    if len(found) > 1:
        shown = ", ".join(str(one.parent) for one in found[:4])
        raise MetaXLMError(f"{folder}: {len(found)} ledgers below it ({shown}); name one of them")
    return found[0]


def _find_token(plan: Plan, token: str, ledger: Path) -> list[int]:
    from metaxlm.init.ledger import find_rows

    rows = find_rows(plan, token)
    if rows:
        return rows
    folders = (ledger.parent, ledger.parent / "model")
    folder = next((one for one in folders if (one / "tokenizer.json").is_file()), None)
    if folder is None:
        why = "and there is no tokenizer beside it to cut a word"
        raise MetaXLMError(f"{token}: not a token of {ledger}, {why}")
    from metaxlm.init.vocabulary import read_vocabulary
    from metaxlm.vocab.tokenizer import load_tokenizer

    [rows] = read_vocabulary(load_tokenizer(str(folder))).cut_all([token], True)
    if not rows:
        raise MetaXLMError(f"{token}: not a token, and the tokenizer does not know its characters")
    if len(rows) > 1:
        say(f"{token}: not one token but {len(rows)}")
    return list(dict.fromkeys(rows))


def _format_story(story: Story) -> Text:
    from rich.text import Text

    text = Text(f"{story.origin.token}", style="bold")
    text.append(f"  row {story.row:,}: {story.description}\n", style="not bold")
    for rule, result in story.steps[:-1]:
        text.append(f"    {rule:<18}{result}\n", style="dim")
    rule, result = story.steps[-1]
    text.append(f"  → {rule:<18}{result}\n", style="bold green")
    text.append(f"  starts from {story.outcome}", style="not bold")
    return text


def vocabulary_command(
    text: Annotated[Path, Option(help="Text of the languages: a run, or files like de.txt.")],
    size: Annotated[int, Option(min=8, help="Number of tokens, special ones included.")],
    output: Annotated[Path, Option(help="Folder to write; must not exist yet.")],
    languages: LanguageList = None,
    alpha: Annotated[
        float, Option(min=0, max=1, help="Exponent of the distribution over languages.")
    ] = 0.7,
    quiet: Quiet = False,
) -> None:
    """Train a shared SentencePiece vocabulary; `match --to` gives it to an encoder."""
    set_quiet(quiet)
    from metaxlm.data.statistics import list_languages, read_corpus
    from metaxlm.init.extension import require_text
    from metaxlm.init.start import check_output
    from metaxlm.manifest import atomic_folder
    from metaxlm.recipe.corpus_schema import VocabularyRecipe
    from metaxlm.vocab.unigram import sample_counts, sample_sentences, train_unigram

    check_output(output)
    wanted = split_list(languages) or list_languages(text)
    if not wanted:
        what = "no text in it" if text.is_dir() else "no such folder"
        raise MetaXLMError(f"{text}: {what}; name a folder with files like de.txt")
    require_text(text, wanted)
    counts = {code: sum(1 for _ in read_corpus(text, code)) for code in wanted}
    if empty := [code for code, count in counts.items() if not count]:
        raise MetaXLMError(f"{text}: no text of {empty[0]} in its files; add text, or remove them")
    shares = sample_counts(counts, alpha, VocabularyRecipe().sample_sentences)
    sample = sample_sentences({code: read_corpus(text, code) for code in wanted}, counts, shares, 1)
    try:
        tokenizer = train_unigram(sample, size, sum(shares.values()))
    except MetaXLMError as error:
        raise MetaXLMError(str(error).replace("vocabulary.size", "--size")) from error
    with atomic_folder(output) as temporary:
        tokenizer.save_pretrained(temporary)
    say(f"{len(tokenizer):,} tokens of {', '.join(wanted)}: {output}")


def trim_command(
    corpus: Annotated[Path, Option(help="Text of the languages: a run, or files like de.txt.")],
    output: Annotated[Path, Option(help="Folder to write; must not exist yet.")],
    model: Annotated[str | None, Option(help="Model to trim: a folder or hub id.")] = None,
    tokenizer: Annotated[str | None, Option(help="Or a tokenizer alone, to match later.")] = None,
    languages: LanguageList = None,
    min_count: Annotated[int, Option(min=1, help="Keep tokens with at least this count.")] = 1,
    size: Annotated[int | None, Option(min=1, help="Keep at most this number of tokens.")] = None,
    quiet: Quiet = False,
) -> None:
    """Keep only the tokens that a text uses; measure the cost on held-out text."""
    set_quiet(quiet)
    if (model is None) == (tokenizer is None):
        raise MetaXLMError("trim: needs either --model or --tokenizer")
    import torch

    from metaxlm.init.start import check_output, match, trim
    from metaxlm.manifest import atomic_folder
    from metaxlm.model.any_encoder import AnyEncoder
    from metaxlm.model.huggingface import load_pretrained
    from metaxlm.probe.embedding import compare_vectors
    from metaxlm.vocab.tokenizer import load_tokenizer
    from metaxlm.vocab.trim import loss_table

    check_output(output)
    wanted = split_list(languages)
    if model is None:
        assert tokenizer is not None
        trimmed = trim(load_tokenizer(tokenizer), corpus, wanted, min_count, size)
        with atomic_folder(output) as temporary:
            trimmed.tokenizer.save_pretrained(temporary)
        print_table(loss_table(trimmed.losses))
    else:
        pretrained = load_pretrained(model)
        trimmed = trim(pretrained.tokenizer, corpus, wanted, min_count, size)
        start = match(pretrained, trimmed.tokenizer)
        start.save(output)
        whole = AnyEncoder(model, pretrained.tokenizer, pretrained.model.encoder)
        smaller = AnyEncoder(str(output), start.tokenizer, start.model.encoder)
        similarities = {
            language: compare_vectors(whole, smaller, texts, torch.device("cpu"))
            for language, texts in trimmed.held_out.items()
        }
        print_table(loss_table(trimmed.losses, similarities))
        both = (pretrained.model, start.model)
        before, after = (sum(p.numel() for p in one.parameters()) for one in both)
        say(f"parameters: {before / 1e6:,.1f} to {after / 1e6:,.1f} million")
        for remark in start.remarks:
            say(f"note: {remark}")
    say(f"written: {output}")

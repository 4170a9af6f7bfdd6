"""`metaxlm match` as a user meets it: a real encoder and tokenizer folder, real files."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import (
    AutoModelForMaskedLM,
    AutoTokenizer,
    PreTrainedTokenizerBase,
)

from metaxlm.files import read_json
from metaxlm.init.ledger import load_ledger
from tests.commands import Command
from tests.conftest import sentences

DICTIONARY = "cat katze\ndog hund\nhouse haus\nbook buch\nriver fluss\nsister schwester\n"


@pytest.fixture
def inputs(tmp_path: Path, multilingual_tokenizer: PreTrainedTokenizerBase) -> Path:
    """A folder with a tokenizer, a dictionary and text."""
    multilingual_tokenizer.save_pretrained(tmp_path / "shared")
    for name in ("muse", "text"):
        (tmp_path / name).mkdir()
    (tmp_path / "muse" / "en-de.txt").write_text(DICTIONARY, encoding="utf-8")
    (tmp_path / "muse" / "en-ru.txt").write_text("cat кошка\nhouse дом\n", encoding="utf-8")
    for language in ("en", "de"):
        text = "\n".join(sentences(language))
        (tmp_path / "text" / f"{language}.txt").write_text(text, encoding="utf-8")
    return tmp_path


def test_from_model_and_tokenizer_to_a_folder(
    metaxlm: Command, encoder: Path, inputs: Path
) -> None:
    code, printed, errors = metaxlm(
        "match", "--from", encoder, "--to", "shared", "--dictionary", "muse",
        "--corpus", "text", "--output", "start",
    )  # fmt: skip
    assert (code, errors) == (0, "")
    start = inputs / "start"
    model = AutoModelForMaskedLM.from_pretrained(start)
    tokenizer = AutoTokenizer.from_pretrained(start)
    assert model(**tokenizer("die Katze", return_tensors="pt")).logits.isfinite().all()
    names = {path.name for path in start.iterdir()}
    assert {"ledger.parquet", "coverage.json", "coverage.md", "coverage.svg", "README.md"} <= names
    # The text has no Russian, so its dictionary stays closed.
    assert list(read_json(start / "coverage.json")["by_dictionary"]) == ["de"]
    for expected in ("Tokens by rule", "Tokens by script", "Tokens by dictionary", "by language"):
        assert expected in printed
    assert "note: the source is a BertModel without a masked language modeling head" in printed
    assert printed.rstrip().endswith("model, tokenizer, ledger and coverage: start")

    # What was written can be asked, by token, by word, by row, from the folder above.
    code, story, _ = metaxlm("match", "explain", "▁Katze")
    assert code == 0
    assert '"katze" is German cat' in story
    assert "starts from a copy of cat" in story
    assert metaxlm("match", "explain", "Katze", "start")[1] == story
    row = tokenizer.convert_tokens_to_ids("▁Katze")
    assert metaxlm("match", "explain", f"#{row}", "start/ledger.parquet")[1] == story
    assert "not one token but" in metaxlm("match", "explain", "Hundekatze", "start")[1]
    code, shown, _ = metaxlm("match", "show")
    assert code == 0
    assert shown.strip() in printed


def test_by_use(metaxlm: Command, encoder: Path, inputs: Path) -> None:
    code, *_ = metaxlm(
        "match", "--from", encoder, "--to", "shared", "--dictionary", "muse", "--corpus", "text",
        "--output", "start", "--by-use", "--set", "segments=false",
    )  # fmt: skip
    assert code == 0
    recipe = load_ledger(inputs / "start" / "ledger.parquet").recipe
    assert recipe.precedence == "frequency_weighted"
    assert (recipe.one_to_many, recipe.split_words) == ("order", "all")
    assert not recipe.segments
    told = metaxlm("match", "explain", "▁Katze")[1]
    assert "text rules" in told
    assert '"katze" is German cat' in told


def test_two_plans_compared(metaxlm: Command, encoder: Path, inputs: Path) -> None:
    for name, extra in (("plain", ()), ("dict", ("--dictionary", "muse"))):
        arguments = ("--from", encoder, "--to", "shared", "--output", name, *extra)
        assert metaxlm("match", *arguments)[0] == 0
    code, printed, _ = metaxlm("match", "diff", "plain", "dict")
    assert code == 0
    assert "▁Katze" in printed
    assert printed.rstrip().endswith("changed")
    assert "0 changed" in metaxlm("match", "diff", "dict", "dict")[1]
    assert "2 ledgers below it" in metaxlm.complaint("match", "explain", "▁Katze")


def test_settings_and_parts(metaxlm: Command, encoder: Path, inputs: Path) -> None:
    code, printed, _ = metaxlm(
        "match", "--from", encoder, "--to", "shared", "--output", "start",
        "--set", "rules=[direct]", "--set", "filler=subwords", "--initialize", "words,layers",
        "--positions", "20",
    )  # fmt: skip
    assert code == 0
    assert "note: freshly drawn by choice: positions, embedding_norm, head" in printed
    assert (
        AutoModelForMaskedLM.from_pretrained(inputs / "start").config.max_position_embeddings == 22
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "match: needs --from MODEL, --to TOKENIZER and --output DIR"),
        (("--from", "E", "--to", "./nowhere", "--output", "s"), "./nowhere: no such folder"),
        (("--from", "text", "--to", "shared", "--output", "s"), "text: not a model folder"),
        (("--from", "E", "--to", "shared", "--output", "text"), "text: is there already"),
        (("--set", "filer=normal"), "unknown key 'matching.filer'; did you mean 'filler'?"),
        (("--set", "rules=[fuzzy]"), "matching.rules.0: should be 'direct', 'nfkc'"),
        (("--initialize", "everything"), "no preset 'everything'; choose none, body"),
        (("--dictionary", "nowhere"), "nowhere: no such dictionary folder or file"),
        (("--dictionary", "text"), "text: no dictionary; looked for en-XX.txt"),
        (("--dictionary", "muse", "--languages", "sw"), "muse: no dictionary; looked for en-sw"),
        (("--corpus", "muse"), "muse: no text in it"),
        (("--by-use",), "match: --by-use needs --corpus"),
        (("--positions", "0"), "Invalid value for '--positions'"),
    ],
)
def test_mistakes_are_told_in_one_line(
    metaxlm: Command, encoder: Path, inputs: Path, arguments: tuple[str, ...], expected: str
) -> None:
    if arguments and arguments[0] != "--from":
        arguments = ("--from", "E", "--to", "shared", "--output", "start", *arguments)
    given = [str(encoder) if part == "E" else part for part in arguments]
    assert expected in metaxlm.complaint("match", *given)
    assert not (inputs / "start").exists()


def test_a_pickle_is_refused(metaxlm: Command, encoder: Path, inputs: Path) -> None:
    pickle = inputs / "pickle"
    pickle.mkdir()
    for path in encoder.iterdir():
        if path.suffix != ".safetensors":
            (pickle / path.name).write_bytes(path.read_bytes())
    (pickle / "pytorch_model.bin").write_bytes(b"not to be opened")
    told = metaxlm.complaint("match", "--from", "pickle", "--to", "shared", "--output", "start")
    assert "only pytorch_model.bin, a pickle that can run code; convert" in told


def test_unknown_tokens_and_ledgers(metaxlm: Command, tmp_path: Path) -> None:
    assert "no ledger.parquet in it or below" in metaxlm.complaint("match", "explain", "▁Haus")
    told = metaxlm.complaint("match", "explain", "▁Haus", "nowhere")
    assert "nowhere: no such ledger or folder" in told
    (tmp_path / "broken.parquet").write_bytes(b"x")
    told = metaxlm.complaint("match", "explain", "▁Haus", "broken.parquet")
    assert "broken.parquet: cannot be read" in told

"""`metaxlm match` and `metaxlm trim` with real encoders, tokenizers and files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoModelForMaskedLM, AutoTokenizer, PreTrainedTokenizerBase

from metaxlm.files import read_json
from metaxlm.init.ledger import load_ledger
from metaxlm.model.encoder import EncoderConfig
from metaxlm.model.huggingface import save_pretrained
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.vocab.tokenizer import load_tokenizer
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
    card = ModelCard.load(start / "README.md").data
    assert (card.pipeline_tag, card.library_name) == ("fill-mask", "transformers")
    assert card.language == list(read_json(start / "coverage.json")["by_language"])
    # The text has no Russian, so its dictionary is not used.
    assert list(read_json(start / "coverage.json")["by_dictionary"]) == ["de"]
    for expected in ("Tokens by rule", "Tokens by script", "Tokens by dictionary", "by language"):
        assert expected in printed
    assert "note: the source is a BertModel without a masked language modeling head" in printed
    assert printed.rstrip().endswith("model, tokenizer, ledger and coverage: start")

    # Explain a token, a word and an id; find the ledger from the folder above.
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


@pytest.mark.parametrize("option", ["--frequency-weighted", "--by-use"])
def test_frequency_weighted(metaxlm: Command, encoder: Path, inputs: Path, option: str) -> None:
    code, *_ = metaxlm(
        "match", "--from", encoder, "--to", "shared", "--dictionary", "muse", "--corpus", "text",
        "--output", "start", option, "--set", "segments=false",
    )  # fmt: skip
    assert code == 0
    recipe = load_ledger(inputs / "start" / "ledger.parquet").recipe
    assert recipe.precedence == "frequency_weighted"
    assert (recipe.one_to_many, recipe.split_words) == ("order", "all")
    assert not recipe.segments


def test_settings_and_parts(metaxlm: Command, encoder: Path, inputs: Path) -> None:
    code, printed, _ = metaxlm(
        "match", "--from", encoder, "--to", "shared", "--output", "start",
        "--set", "rules=[direct]", "--set", "filler=subwords", "--initialize", "words,layers",
        "--positions", "20",
    )  # fmt: skip
    assert code == 0
    assert "note: randomly initialized by choice: positions, embedding_norm, head" in printed
    model = AutoModelForMaskedLM.from_pretrained(inputs / "start")
    assert model.config.max_position_embeddings == 20


def test_words_are_added(metaxlm: Command, encoder: Path, inputs: Path) -> None:
    (inputs / "words.txt").write_text("Hundehütte\ncat\nKatze\n", encoding="utf-8")
    code, printed, errors = metaxlm(
        "match", "--from", encoder, "--extend", "words.txt", "--corpus", "text",
        "--dictionary", "muse", "--output", "start",
    )  # fmt: skip
    assert (code, errors) == (0, "")
    old, new = (AutoTokenizer.from_pretrained(one) for one in (encoder, inputs / "start"))
    assert len(new) == len(old) + 2
    assert "note: 1 words were skipped: the vocabulary has them" in printed
    assert len(new.tokenize("die Katze")) == len(old.tokenize("die")) + 1
    story = metaxlm("match", "explain", "katze", "start")[1]
    assert "starts from a copy of cat" in story


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "match: needs --from MODEL, --to TOKENIZER or --extend WORDS, and --output DIR"),
        (("--extend", "de"), "match: needs --from MODEL, --to TOKENIZER or --extend WORDS"),
        (("--from", "E", "--extend", "w.txt", "--output", "s"), "--extend w.txt: no such file"),
        (("--from", "E", "--extend", "de", "--output", "s"), "--extend de: needs --corpus with"),
        (
            ("--from", "E", "--extend", "de", "--corpus", "text", "--size", "5", "--output", "s"),
            "size 5: too small, the characters alone are",
        ),
        (("--from", "E", "--to", "./nowhere", "--output", "s"), "./nowhere: no such folder"),
        (("--from", "text", "--to", "shared", "--output", "s"), "text: not a model folder"),
        (("--from", "E", "--to", "shared", "--output", "text"), "text: is there already"),
        (("--initialize", "everything"), "no preset 'everything'; choose none, body"),
        (("--dictionary", "nowhere"), "nowhere: no such dictionary folder or file"),
        (("--dictionary", "text"), "text: no dictionary; looked for en-XX.txt"),
        (("--corpus", "muse"), "muse: no text in it"),
        (("--frequency-weighted",), "match: --frequency-weighted needs --corpus"),
    ],
)
def test_mistakes_are_reported_in_one_line(
    metaxlm: Command, encoder: Path, inputs: Path, arguments: tuple[str, ...], expected: str
) -> None:
    if arguments and arguments[0] != "--from":
        arguments = ("--from", "E", "--to", "shared", "--output", "start", *arguments)
    given = [str(encoder) if part == "E" else part for part in arguments]
    assert expected in metaxlm.complaint("match", *given)
    assert not (inputs / "start").exists()


def test_unknown_tokens_and_ledgers(metaxlm: Command, tmp_path: Path) -> None:
    assert "no ledger.parquet in it or below" in metaxlm.complaint("match", "explain", "▁Haus")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ledger.parquet").write_bytes(b"x")
    assert "2 ledgers below it" in metaxlm.complaint("match", "explain", "▁Haus")


@pytest.fixture
def finished(tmp_path: Path, multilingual_tokenizer: PreTrainedTokenizerBase) -> Path:
    """A finished model, a tokenizer alone, and text."""
    torch.manual_seed(1)
    model = MaskedLM(EncoderConfig(len(multilingual_tokenizer), 16, 1, 2, 32, max_positions=64))
    save_pretrained(model.eval(), multilingual_tokenizer, tmp_path / "model", "# A model\n")
    multilingual_tokenizer.save_pretrained(tmp_path / "tokenizer")
    (tmp_path / "text").mkdir()
    text = "\n".join(sentences("de"))
    (tmp_path / "text" / "de.txt").write_text(text, encoding="utf-8")
    return tmp_path


def test_a_finished_model(metaxlm: Command, finished: Path) -> None:
    command = "trim --model model --corpus text --output small"
    code, printed, errors = metaxlm(*command.split())
    assert (code, errors) == (0, "")
    for expected in ("tokens kept", "German", "1.00000"):
        assert expected in printed
    big, small = finished / "model", finished / "small"
    assert (small / "model.safetensors").stat().st_size < (big / "model.safetensors").stat().st_size
    states = []
    for folder in (big, small):
        model = AutoModelForMaskedLM.from_pretrained(folder).eval()
        tokenizer = AutoTokenizer.from_pretrained(folder)
        ids = tokenizer("die Katze sieht ein Haus.", return_tensors="pt")
        states.append(model(**ids, output_hidden_states=True).hidden_states[-1])
    assert torch.equal(*states)


def test_a_tokenizer_alone(metaxlm: Command, finished: Path) -> None:
    command = "trim --tokenizer tokenizer --corpus text --output small --size 55"
    code, printed, _ = metaxlm(*command.split())
    assert code == 0
    assert "55 of" in printed
    assert len(AutoTokenizer.from_pretrained(finished / "small")) == 55


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--corpus", "text"), "trim: needs either --model or --tokenizer"),
        (("--corpus", "text", "--tokenizer", "tokenizer", "--languages", "sw"), "language 'sw'"),
        (("--corpus", "text", "--tokenizer", "tokenizer", "--min-count", "9999"), "leaves special"),
    ],
)
def test_mistakes_of_trim_are_reported_in_one_line(
    metaxlm: Command, finished: Path, arguments: tuple[str, ...], expected: str
) -> None:
    assert expected in metaxlm.complaint("trim", *arguments, "--output", "small")
    assert not (finished / "small").exists()


def test_a_vocabulary_needs_no_recipe(metaxlm: Command, tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    for code in ("en", "de"):
        lines = "".join(f"{line}\n" for line in sentences(code))
        (tmp_path / "text" / f"{code}.txt").write_text(lines, encoding="utf-8")
    options = ("vocabulary", "--text", "text", "--size", "60", "--output")
    assert metaxlm(*options, "out")[1].endswith("60 tokens of de, en: out\n")
    tokenizer = load_tokenizer(str(tmp_path / "out"))
    assert len(tokenizer) == 60
    assert metaxlm(*options, "again", "--languages", "de,en")[0] == 0
    names = ("out/tokenizer.json", "again/tokenizer.json")
    assert len({(tmp_path / name).read_bytes() for name in names}) == 1
    assert metaxlm(*options, "german", "--languages", "de", "--size", "40")[0] == 0
    assert load_tokenizer(str(tmp_path / "german")).get_vocab() != tokenizer.get_vocab()
    # With a smaller exponent, a language with less text counts as much as the others.
    lines = "".join(f"{line}\n" for line in sentences("de")[:8])
    (tmp_path / "text" / "de.txt").write_text(lines, encoding="utf-8")
    for alpha in ("0", "1"):
        assert metaxlm(*options, f"alpha{alpha}", "--alpha", alpha, "--size", "50")[0] == 0
    even, uneven = (load_tokenizer(str(tmp_path / f"alpha{alpha}")) for alpha in "01")
    lengths = [len(tokenizer(lines)["input_ids"]) for tokenizer in (even, uneven)]
    assert lengths[0] < lengths[1]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--text text --size 900000", "--size 900000: this much text gives at most"),
        ("--text none --size 300", "none: no such folder; name a folder with files like de.txt"),
        ("--text text --size 300 --languages de,fr", "text: no text of fr; found: de"),
        ("--text empty --size 300", "empty: no text of de in its files"),
        ("--text text --size 300 --output text", "text: is there already"),
    ],
)
def test_vocabularies_that_cannot_be(
    metaxlm: Command, tmp_path: Path, options: str, expected: str
) -> None:
    for name, text in (("text", "Ein Haus.\nZwei Häuser.\n"), ("empty", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "de.txt").write_text(text, encoding="utf-8")
    command = ("vocabulary", "--output", "out", *options.split())
    assert expected in metaxlm.complaint(*command)
    assert not (tmp_path / "out").exists()

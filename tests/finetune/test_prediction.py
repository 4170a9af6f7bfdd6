"""Serving: answers equal what transformers computes one by one, in order, in every format."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from metaxlm.model.finetuned import load_finetuned

from metaxlm.cli import main
from metaxlm.errors import MetaXLMError
from metaxlm.finetune import prediction
from metaxlm.finetune.prediction import predict_file
from metaxlm.finetune.prediction_inputs import choose_format, open_input, read_inputs
from metaxlm.model.any_encoder import AnyEncoder, make_task_model, save_finetuned
from metaxlm.model.heads import HeadKind
from metaxlm.progress import console

from .conftest import CPU, TEXT, MakeEncoder, make_tokenizer

LABELS: dict[HeadKind, tuple[str, ...]] = {
    "classification": ("bad", "good", "so-so"),
    "tagging": ("O", "B-PER", "I-PER", "B-LOC"),
    "span": (),
}
LENGTH = 24
Save = Callable[[HeadKind, str], Path]


@pytest.fixture
def save(make_encoder: MakeEncoder, tmp_path: Path) -> Save:
    """Return a function that saves a small random finetuned model, large heads in it."""

    def write(kind: HeadKind, tokenizer_kind: str = "unigram") -> Path:
        tokenizer = make_tokenizer(tokenizer_kind)
        start = AnyEncoder("trial", tokenizer, make_encoder(tokenizer))
        torch.manual_seed(5)
        model = make_task_model(start, kind, len(LABELS[kind]) or 2)
        with torch.no_grad():
            for name, parameter in model.get_submodule("head").named_parameters():
                parameter.normal_(std=0.0 if name.endswith("bias") else 0.5)
        folder = tmp_path / f"{kind}-{tokenizer_kind}"
        options: dict[str, Any] = {"kind": kind, "labels": LABELS[kind], "facts": {}}
        save_finetuned(model, start, folder, length=LENGTH, stride=6, **options)
        return folder

    return write


def run(folder: Path, source: Path | str, target: Path | str, *more: str) -> int:
    options = ["--model", str(folder), "--input", str(source), "--output", str(target)]
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", ["metaxlm", "predict", *options, "--device", "cpu", *more])
        patch.setattr(console, "quiet", console.quiet)
        main()
    return int(ended.value.code or 0)


def classify(folder: Path, *sides: str) -> tuple[str, float]:
    """Let transformers alone classify one text or pair."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    batch = tokenizer(*sides, return_tensors="pt", truncation=True, max_length=LENGTH)
    with torch.no_grad():
        row = model(**batch).logits[0].softmax(-1)
    return model.config.id2label[int(row.argmax())], float(row.max())


@pytest.mark.parametrize("tokenizer_kind", ["unigram", "bert"])
@pytest.mark.parametrize("layout", ["tsv", "jsonl"])
@pytest.mark.parametrize("is_pair", [False, True])
def test_texts_are_classified_in_order(
    tokenizer_kind: str,
    layout: str,
    is_pair: bool,
    save: Save,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prediction, "CHUNK", 3)
    folder = save("classification", tokenizer_kind)
    rows = [(text, TEXT[-k]) if is_pair else (text,) for k, text in enumerate(TEXT, start=1)]
    names = ("first", "second") if is_pair else ("text",)
    lines = {
        "tsv": ["\t".join(row) for row in rows],
        "jsonl": [json.dumps(dict(zip(names, row, strict=True))) for row in rows],
    }[layout]
    source, target = tmp_path / f"in.{layout}", tmp_path / "out.tsv"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert run(folder, source, target) == 0
    found = [line.split("\t") for line in target.read_text().splitlines()]
    assert len(found) == len(TEXT)
    assert len({probability for _, probability in found}) > 5
    for (label, probability), row in zip(found, rows, strict=True):
        wanted, value = classify(folder, *row)
        assert (label, float(probability)) == (wanted, pytest.approx(value, abs=1e-4))


def tag(folder: Path, words: list[str]) -> list[str]:
    """Tag one sentence word by word from the first piece, without code of ours."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForTokenClassification.from_pretrained(folder)
    pieces = [tokenizer(word, add_special_tokens=False)["input_ids"] for word in words]
    ids = [tokenizer.cls_token_id, *(i for group in pieces for i in group), tokenizer.sep_token_id]
    assert len(ids) <= LENGTH
    with torch.no_grad():
        best = model(torch.tensor([ids])).logits[0].argmax(-1).tolist()
    firsts = [1 + sum(map(len, pieces[:k])) for k in range(len(pieces))]
    return [model.config.id2label[best[k]] for k in firsts]


SENTENCES = [["the", "house"], ["river"], ["not", "the", "hill"], ["is", "it", "?"], ["we"]]


@pytest.mark.parametrize(
    ("name", "sentence_form"),
    [
        ("in.txt", lambda words: " ".join(words) + "\n\n"),
        ("in.conll", lambda words: "".join(f"{w}\tNN\t_\n" for w in words) + "\n\n"),
        ("in.tsv", lambda words: "".join(f"{w} O\n" for w in words) + "\n"),
        (
            "in.conllu",
            lambda words: (
                "# sent_id = 1\n1-2\tcontracted\t_\n"
                + "".join(f"{k}\t{w}\tlemma\n" for k, w in enumerate(words, start=1))
                + "\n"
            ),
        ),
    ],
)
def test_sentences_are_tagged_in_order(
    name: str,
    sentence_form: Callable[[list[str]], str],
    save: Save,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prediction, "CHUNK", 2)
    folder = save("tagging", "bert")
    source, target = tmp_path / name, tmp_path / "out.tsv"
    source.write_text("".join(map(sentence_form, SENTENCES)).rstrip("\n"), encoding="utf-8")
    assert run(folder, source, target) == 0
    wanted = [list(zip(words, tag(folder, words), strict=True)) for words in SENTENCES]
    assert len({t for block in wanted for _, t in block}) > 1
    lines = ["".join(f"{word}\t{t}\n" for word, t in block) for block in wanted]
    assert target.read_text() == "\n".join(lines) + "\n"


def test_long_sentences_lose_no_word(save: Save, tmp_path: Path) -> None:
    folder = save("tagging", "unigram")
    words = (" ".join(TEXT[:6]) * 3).split()
    source, target = tmp_path / "in.txt", tmp_path / "out.tsv"
    source.write_text(" ".join(words), encoding="utf-8")
    assert run(folder, source, target) == 0
    found = [line.split("\t")[0] for line in target.read_text().splitlines() if line]
    assert found == words


def answer(folder: Path, question: str, context: str) -> str:
    """Search the best of all spans of a context that fits one window."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(folder)
    batch = tokenizer(question, context, return_tensors="pt", return_offsets_mapping=True)
    places, sides = batch.pop("offset_mapping")[0].tolist(), batch.sequence_ids(0)
    assert len(places) <= LENGTH
    with torch.no_grad():
        output = model(**batch)
    inside = [k for k, side in enumerate(sides) if side == 1]
    starts, ends = output.start_logits[0].tolist(), output.end_logits[0].tolist()
    first, last = max(
        ((a, b) for a in inside for b in inside if a <= b), key=lambda p: starts[p[0]] + ends[p[1]]
    )
    return context[places[first][0] : places[last][1]].strip()


QUESTIONS = [
    ("where", "the house on hill"),
    ("what", "we do not"),
    ("who", "the river"),
    ("is it", "not the hill"),
    ("how", "we"),
]


@pytest.mark.parametrize("layout", ["jsonl", "squad"])
def test_questions_are_answered(
    layout: str, save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prediction, "CHUNK", 2)
    folder = save("span", "bert")
    source, target = tmp_path / "in.jsonl", tmp_path / "out.json"
    rows = [{"question": question, "context": context} for question, context in QUESTIONS]
    if layout == "jsonl":
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        source = tmp_path / "in.json"
        paragraphs = [
            {"context": row["context"], "qas": [{"id": str(k), "question": row["question"]}]}
            for k, row in enumerate(rows, start=1)
        ]
        source.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    assert run(folder, source, target) == 0
    found = json.loads(target.read_text())
    assert list(found) == ["1", "2", "3", "4", "5"]
    assert list(found.values()) == [answer(folder, *row) for row in QUESTIONS]
    assert len(set(found.values())) == 5


def test_ids_and_answers_may_hold_anything(save: Save, tmp_path: Path) -> None:
    folder = save("span")
    source, target = tmp_path / "in.jsonl", tmp_path / "out.json"
    names = ['a "b"', "ü\\", "c\nd"]
    context = 'the "small" house \\ 我喜欢你。'
    rows = [{"id": name, "question": "?", "context": context} for name in names]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(folder, source, target) == 0
    found = json.loads(target.read_text())
    assert list(found) == names
    assert all(text in context for text in found.values())


def test_streams_go_through(
    save: Save, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Predictions alone are on the standard output, messages on the standard error."""
    folder = save("classification")
    text = "".join(f"{line}\n" for line in TEXT[:4])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    capsys.readouterr()  # what training the tokenizer said
    assert run(folder, "-", "-") == 0
    out, err = capsys.readouterr()
    labels = [line.split("\t")[0] for line in out.splitlines()]
    assert len(labels) == 4
    assert set(labels) <= set(LABELS["classification"])
    assert "4 predicted" in err
    assert not sys.stdin.buffer.closed


def test_a_reader_may_have_enough(save: Save) -> None:
    command = [sys.executable, "-m", "metaxlm", "predict", "--model", str(save("tagging"))]
    done = subprocess.run(
        f"{' '.join(command)} --input - --quiet | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}",
        input="we\n" * 4100,
        capture_output=True,
        text=True,
        shell=True,
        executable="/bin/bash",
        check=True,
    )
    assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.mark.parametrize(
    ("kind", "name", "content", "message"),
    [
        ("classification", "in.tsv", b"a\tb\nc\n", "in.tsv:2: found 1 columns, expected 2"),
        ("classification", "in.tsv", b"a\tb\tc\n", "in.tsv:1: found 3 columns, expected one or"),
        ("classification", "in.tsv", b"a\n\nb\n", "in.tsv:2: a text is empty"),
        ("classification", "in.tsv", b"", "in.tsv:1: nothing to predict"),
        ("classification", "in.tsv", "ok\nschön\n".encode("latin-1"), "in.tsv:2: not UTF-8"),
        ("classification", "in.tsv", "ok\n".encode("utf-16-le"), "in.tsv:1: NUL characters"),
        ("classification", "in.jsonl", b'{"text": "a"}\n{\n', "in.jsonl:2: not valid JSON"),
        ("classification", "in.jsonl", b'{"text": "a"}\n[]\n', "in.jsonl:2: a line must be"),
        ("classification", "in.jsonl", b'{"label": 3}\n', "in.jsonl:1: has no text 'first'"),
        (
            "classification",
            "in.jsonl",
            b'{"text": "a"}\n{"first": "a", "second": "b"}\n',
            "in.jsonl:2: texts and pairs are mixed",
        ),
        ("classification", "in.xml", b"a\n", "in.xml: its name does not tell its format"),
        ("tagging", "in.conllu", b"1\t\tx\n", "in.conllu:1: has no word"),
        ("tagging", "in.conll", b"\n\n", "in.conll:1: nothing to predict"),
        ("tagging", "in.jsonl", b"{}\n", "say --format text or conll or conllu"),
        ("span", "in.jsonl", b'{"question": "a"}\n', "in.jsonl:1: has no text 'context'"),
        (
            "span",
            "in.jsonl",
            b'{"id": 1, "question": "a", "context": "b"}\n' * 2,
            "in.jsonl:2: the id '1' was there before",
        ),
        ("span", "in.json", b"[1]", "not of SQuAD's form"),
    ],
)
def test_bad_input_is_named(
    kind: HeadKind, name: str, content: bytes, message: str, save: Save, tmp_path: Path
) -> None:
    folder = save(kind, "bert")
    source, target = tmp_path / name, tmp_path / "out"
    source.write_bytes(content)
    target.write_text("earlier")
    with pytest.raises(MetaXLMError) as raised:
        predict_file(load_finetuned(folder), str(source), str(target), CPU)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert target.read_text() == "earlier"
    assert not list(tmp_path.glob(".tmp-*"))


def test_the_input_is_not_overwritten(save: Save, tmp_path: Path) -> None:
    folder = save("classification")
    source = tmp_path / "in.tsv"
    source.write_text("the house\n")
    with pytest.raises(MetaXLMError, match="is also an input"):
        predict_file(load_finetuned(folder), str(source), str(tmp_path / "." / "in.tsv"), CPU)
    with pytest.raises(MetaXLMError, match=r"nowhere.tsv: no such file"):
        predict_file(load_finetuned(folder), str(tmp_path / "nowhere.tsv"), "-", CPU)
    assert source.read_text() == "the house\n"


def test_a_byte_order_mark_and_crlf_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "in.tsv").write_bytes(b"\xef\xbb\xbfthe house\r\nriver\r\nhill")
    with open_input(str(tmp_path / "in.tsv")) as lines:
        texts = [text.first for text in read_inputs(lines, "classification", "tsv")]
    assert texts == ["the house", "river", "hill"]
    assert lines.file.closed


def test_the_standard_input_has_a_format() -> None:
    found = [choose_format("-", kind, None) for kind in LABELS]
    assert found == ["tsv", "text", "jsonl"]
    assert choose_format("x.tsv", "classification", "jsonl") == "jsonl"
    with pytest.raises(MetaXLMError, match="whose formats are jsonl, squad"):
        choose_format("x.jsonl", "span", "conll")


def test_only_a_chunk_is_in_memory(
    save: Save, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first answers are written before the last lines are read."""
    monkeypatch.setattr(prediction, "CHUNK", 5)
    folder = save("classification")
    written: list[int] = []

    class Endless(io.RawIOBase):
        def readline(self, size: int | None = -1) -> bytes:
            written.append(capsys.readouterr().out.count("\n"))
            return b"the house\n" if len(written) <= 20 else b""

    class Standard:
        buffer = Endless()
        closed = False

    monkeypatch.setattr(sys, "stdin", Standard())
    assert predict_file(load_finetuned(folder), "-", "-", CPU) == 20
    assert sum(written[:6]) >= 5
    assert sum(written) >= 15

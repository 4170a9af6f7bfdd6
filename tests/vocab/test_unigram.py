"""Training both vocabularies: the sample, the process, the layout."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from tests.conftest import PARTS, sentences
from tests.data.executor_tasks import is_alive, wait_until
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerBase, RobertaTokenizer

from metaxlm.errors import MetaXLMError
from metaxlm.vocab.tokenizer import train_byte_bpe
from metaxlm.vocab.unigram import (
    round_scores,
    sample_counts,
    sample_sentences,
    train_model,
    train_unigram,
)

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def _children(parent: int) -> list[int]:
    """Return the ids of a process's children."""
    pids = map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split())
    return list(filter(is_alive, pids))


def _trainers() -> list[int]:
    """Return the training processes among our children."""
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in _children(os.getpid())}
    return [pid for pid, command in commands.items() if b"sentencepiece_child" in command]


def test_the_model_is_the_one_sentencepiece_trains_itself() -> None:
    lines = [*sentences("en"), *sentences("ru"), "two\nlines", "ﬁ\u0301 ½"]
    writer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=writer, model_type="unigram", vocab_size=80,
        character_coverage=0.9995, num_threads=4, minloglevel=2,
    )  # fmt: skip
    expected = sentencepiece.SentencePieceProcessor(model_proto=round_scores(writer.getvalue()))
    found = sentencepiece.SentencePieceProcessor(model_proto=train_model(lines, 80))
    assert _pieces(found) == _pieces(expected)
    # Scores add up exactly in 32 bits.
    scores = [score for _, score in _pieces(found)] * 30
    total = np.float32(0)
    for score in scores:
        total += np.float32(score)
    assert total == np.sum(np.array(scores, np.float64))
    assert len(set(scores)) > 10
    assert -16_384 < total < -4_000


def _pieces(model: sentencepiece.SentencePieceProcessor) -> list[tuple[str, float]]:
    return [(model.id_to_piece(i), model.get_score(i)) for i in range(len(model))]


@linux
def test_an_interruption_ends_the_process() -> None:
    def interrupted() -> Iterator[str]:
        yield from sentences("en") * 100
        assert len(_trainers()) == 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_unigram(interrupted(), 45)
    assert _trainers() == []


@linux
def test_a_killed_process_is_reported() -> None:
    def killing() -> Iterator[str]:
        yield from sentences("en")
        os.kill(_trainers()[0], signal.SIGKILL)
        yield from sentences("en") * 1_000

    with pytest.raises(MetaXLMError, match=r"ended by signal 9.*lower vocabulary.sample_sentences"):
        train_unigram(killing(), 45)


PROGRAM = """
import itertools
from metaxlm.vocab.unigram import train_model
words = ["".join(letters) for letters in itertools.product("abcdefghij", repeat=4)]
lines = (" ".join(words[i % 7919 : i % 7919 + 30]) for i in range(20_000))
print("go", flush=True)
train_model(lines, 2_000, 20_000)
"""


@linux
def test_the_process_ends_with_its_parent() -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, **pipes, start_new_session=True) as program:
        assert program.stdout is not None
        shown = ""
        while "20,000/20,000" not in shown:  # all is read, training is under way
            shown = program.stdout.readline()
            assert shown, "the program ended early"
        (trainer,) = _children(program.pid)
        program.kill()
        program.wait(timeout=10)
        wait_until(lambda: not is_alive(trainer))


def test_coverage_decides_which_characters_are_known() -> None:
    long = "alpha beta " * 400 + "омега " * 50
    lines = [*sentences("en"), long, "ψ"]
    covered, everything = (train_unigram(lines, 60, coverage=c).get_vocab() for c in (0.999, 1.0))
    assert "ψ" in everything and "ψ" not in covered
    assert {"▁alpha", "▁омега"} <= everything.keys()  # a long sentence is not lost


def _draw(count: int, wanted: int, seed: int) -> list[int]:
    names = [f"{number}" for number in range(count)]
    sample = sample_sentences({"en": names}, {"en": count}, {"en": wanted}, seed)
    return [int(name) for name in sample]


def test_the_sample_is_rebalanced_and_repeats_nothing() -> None:
    counts = {"en": 10_000, "sw": 100}
    wanted = sample_counts(counts, 0.5, 10**9)
    assert wanted["en"] / wanted["sw"] == pytest.approx(10, rel=0.02)
    assert wanted["sw"] == 100
    assert sum(sample_counts(counts, 0.5, 110).values()) == 110
    texts = {code: [f"{code} {i}" for i in range(n)] for code, n in counts.items()}
    sample = list(sample_sentences(texts, counts, wanted, seed=1))
    assert len(sample) == len(set(sample)) == sum(wanted.values())
    assert sample == list(sample_sentences(texts, counts, wanted, seed=1))
    assert sample != list(sample_sentences(texts, counts, wanted, seed=2))
    assert sample_counts({"en": 50, "sw": 0}, 0.7, 20) == {"en": 20, "sw": 0}


def test_several_blocks_give_the_exact_number() -> None:
    for wanted in (0, 1, 2, 70_000, 199_999, 200_000):
        sample = _draw(200_000, wanted, seed=3)
        assert len(sample) == wanted
        assert sample == sorted(set(sample))


def test_every_sentence_is_as_likely_as_any_other() -> None:
    count, wanted, draws = 150_000, 50_000, 6
    hits = np.zeros(count, int)
    for seed in range(draws):
        hits[_draw(count, wanted, seed)] += 1
    expected = draws * wanted / count
    # By fifteenths of the text, by place within a block, and sentence by sentence.
    assert hits.reshape(15, -1).mean(1) == pytest.approx(expected, rel=0.02)
    assert [hits[i::7].mean() for i in range(7)] == pytest.approx([expected] * 7, rel=0.02)
    assert hits.var() == pytest.approx(expected * (1 - wanted / count), rel=0.05)


def test_memory_does_not_grow_with_the_corpus() -> None:
    peaks = []
    for count in (150_000, 600_000):
        texts = {"en": ("x" for _ in range(count))}
        tracemalloc.start()
        taken = sum(1 for _ in sample_sentences(texts, {"en": count}, {"en": count // 3}, 1))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert taken == count // 3
    assert peaks[1] < 1.2 * peaks[0] < 4 << 20


LINES = [
    "the cat sees a house.", "  der  alte Mann ", "кошка видит дом.", "ﬁne ½ Ｗｉｄｅ …",
    "unseen Wörter: ψ 你好, don't!", "tab\there",
]  # fmt: skip


@pytest.mark.parametrize("name", ["multilingual_tokenizer", "monolingual_tokenizer"])
def test_layout_of_ids(name: str, request: pytest.FixtureRequest) -> None:
    tokenizer: PreTrainedTokenizerBase = request.getfixturevalue(name)
    assert tokenizer.convert_tokens_to_ids(["<s>", "<pad>", "</s>", "<unk>"]) == [0, 1, 2, 3]
    assert tokenizer.mask_token_id == len(tokenizer) - 1
    ids = tokenizer("a cat")["input_ids"]
    assert (ids[0], ids[-1]) == (0, 2)
    assert tokenizer("a", "b")["input_ids"].count(2) == 3
    # The mask includes the space before it.
    ids = tokenizer("a cat <mask>")["input_ids"]
    assert ids == [*tokenizer("a cat")["input_ids"][:-1], tokenizer.mask_token_id, 2]


def test_training_twice_gives_the_same_vocabulary(
    multilingual_tokenizer: PreTrainedTokenizerBase, monolingual_tokenizer: PreTrainedTokenizerBase
) -> None:
    lines = [line for language in PARTS for line in sentences(language)]
    assert train_unigram(iter(lines), 110).get_vocab() == multilingual_tokenizer.get_vocab()
    assert train_byte_bpe(sentences("en"), 320).get_vocab() == monolingual_tokenizer.get_vocab()
    assert (len(multilingual_tokenizer), len(monolingual_tokenizer)) == (110, 320)


def test_impossible_sizes_are_rejected() -> None:
    with pytest.raises(MetaXLMError, match=r"vocabulary.size 100000: this much text gives at most"):
        train_unigram(iter(sentences("en")), 100_000)
    with pytest.raises(MetaXLMError, match=r"vocabulary.size 20: too small, the characters"):
        train_unigram(iter(sentences("en")), 20)
    with pytest.raises(MetaXLMError, match=r"monolingual_size 200: .* need 261 rows"):
        train_byte_bpe(iter(sentences("en")), 200)


def test_byte_bpe_is_robertas(monolingual_tokenizer: PreTrainedTokenizerBase) -> None:
    model = json.loads(monolingual_tokenizer.backend_tokenizer.to_str())["model"]
    roberta = RobertaTokenizer(
        vocab=monolingual_tokenizer.get_vocab(),
        merges=[tuple(merge) for merge in model["merges"]],
        mask_token=AddedToken("<mask>", lstrip=True, special=True),  # as in its published files
        add_prefix_space=True,
    )
    for line in [*LINES, "a <mask> house", "naïve 🙂 \u0301", ""]:
        assert monolingual_tokenizer(line)["input_ids"] == roberta(line)["input_ids"]
        pair = monolingual_tokenizer(line, "a cat")["input_ids"]
        assert pair == roberta(line, "a cat")["input_ids"]
        if "<mask>" not in line:
            ids = monolingual_tokenizer(line, add_special_tokens=False)["input_ids"]
            assert monolingual_tokenizer.decode(ids).strip() == line.strip()

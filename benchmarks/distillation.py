"""Measure the cost of a teacher: training steps without and with distillation, in one run.

Both train on the same micro-batches in turns, so that other load affects both equally. `--share` of
the rows are in the source language; the teacher, which has the student's size, reads only those.
Tokenizing them for the teacher is host work that the feed's threads do ahead, so it is measured
separately.

    python benchmarks/distillation.py [--run RUN] [--layers 4 --hidden 128 --batch 32x128]

`--run` is the folder of a run whose vocabularies and shards are prepared; without one, small ones
are made from the phrasebook.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from metaxlm.data.demo import write_phrasebook
from metaxlm.data.shards import open_shard, write_shard
from metaxlm.data.text import read_sentences
from metaxlm.model.encoder import EncoderConfig
from metaxlm.model.huggingface import Pretrained
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.pretrain.batches.masking import Masking
from metaxlm.pretrain.batches.source import BatchSource, MicroBatch
from metaxlm.pretrain.distill import Distillation, TeacherBatch, make_teacher
from metaxlm.pretrain.distributed import choose_device
from metaxlm.pretrain.step import Objective
from metaxlm.recipe import DistillationRecipe, PhrasebookRecipe, TrainingRecipe
from metaxlm.vocab.tokenizer import train_byte_bpe
from metaxlm.vocab.unigram import train_unigram

SOURCE, OTHER = "en", "de"
TEACHINGS = {"none": None, "pooled": DistillationRecipe(pooled=1.0)}
NUM_PIECES = 4
WARM_UP = 2
Tokenizers = Mapping[str, PreTrainedTokenizerBase]


def main() -> None:
    options = parse()
    device = choose_device(options.device)
    with tempfile.TemporaryDirectory() as folder:
        run = options.run or make_run(Path(folder), options)
        names = ("multilingual", "monolingual")
        tokenizers = {n: AutoTokenizer.from_pretrained(run / "vocabulary" / n) for n in names}
        pieces = draw_pieces(run, tokenizers["multilingual"], options)
        report(pieces, tokenizers, options, device)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, help="folder of a prepared run with en and de")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--vocabulary", type=int, default=1500, help="rows, without --run")
    parser.add_argument("--batch", default="32x128", help="sequences x tokens")
    parser.add_argument("--share", type=float, default=0.25, help="rows in the source language")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--device", default="auto")
    return parser.parse_args()


def make_run(folder: Path, options: argparse.Namespace) -> Path:
    sizes = PhrasebookRecipe(source_sentences=12_000, sentences=6_000)
    write_phrasebook(folder / "corpus", [SOURCE, OTHER], 0, sizes)
    text = {
        language: list(read_sentences(folder / "corpus" / "text" / language))
        for language in (SOURCE, OTHER)
    }
    multilingual = train_unigram(iter(text[SOURCE] + text[OTHER]), options.vocabulary)
    multilingual.save_pretrained(folder / "vocabulary" / "multilingual")
    monolingual = train_byte_bpe(iter(text[SOURCE]), options.vocabulary)
    monolingual.save_pretrained(folder / "vocabulary" / "monolingual")
    for language, lines in text.items():
        write_shard(folder / "shards" / "multilingual" / language, lines, multilingual)
    return folder


def draw_pieces(
    run: Path, tokenizer: PreTrainedTokenizerBase, options: argparse.Namespace
) -> list[MicroBatch]:
    """Return whole steps with the wanted share of rows in the source language."""
    batch_size, length = map(int, options.batch.split("x"))
    num_source = round(options.share * batch_size)
    steps: list[list[MicroBatch]] = []
    for language, size in ((SOURCE, num_source), (OTHER, batch_size - num_source)):
        if size:
            recipe = TrainingRecipe(
                steps=NUM_PIECES, warmup_steps=0, batch_size=size, length=length
            )
            shard = open_shard(run / "shards" / "multilingual" / language)
            source = BatchSource({language: shard}, tokenizer, recipe, seed=0)
            steps.append([source.micro_batch(step) for step in range(NUM_PIECES)])
    return [join(list(parts)) for parts in zip(*steps, strict=True)]


def join(parts: list[MicroBatch]) -> MicroBatch:
    rows = sum(len(part.rows_B) for part in parts)
    return MicroBatch(
        torch.cat([part.ids_BL for part in parts]),
        torch.cat([part.lengths_B for part in parts]),
        torch.arange(rows),
        parts[0].dropout_seed,
        [sample for part in parts for sample in part.samples],
        sum(part.num_tokens for part in parts),
    )


def make_model(options: argparse.Namespace, tokenizer: PreTrainedTokenizerBase) -> MaskedLM:
    torch.manual_seed(0)
    config = EncoderConfig(
        vocab_size=len(tokenizer),
        hidden_size=options.hidden,
        num_layers=options.layers,
        num_heads=options.heads,
        ffn_size=4 * options.hidden,
        pad_id=tokenizer.pad_token_id,
        position_offset=tokenizer.pad_token_id + 1,
    )
    return MaskedLM(config)


def report(
    pieces: list[MicroBatch],
    tokenizers: Tokenizers,
    options: argparse.Namespace,
    device: torch.device,
) -> None:
    steps: dict[str, Callable[[int], None]] = {}
    teachers: dict[str, Distillation] = {}
    for name, recipe in TEACHINGS.items():
        student = make_model(options, tokenizers["multilingual"])
        if recipe is not None:
            model = make_model(options, tokenizers["monolingual"])
            source = Pretrained(model, tokenizers["monolingual"], "RobertaForMaskedLM", ())
            teachers[name] = make_teacher(
                source, tokenizers["multilingual"], student.config, recipe, SOURCE, device
            )
        masking = Masking(
            tokenizers["multilingual"], TrainingRecipe(steps=1, warmup_steps=0), device
        )
        steps[name] = make_step(student, teachers.get(name), masking, pieces, device)
    seconds = measure(steps, options.repeats, device)
    num_tokens = statistics.mean(piece.num_tokens for piece in pieces)
    table = Table("teacher", "ms per step", "tokens/s", "of the step without")
    for name, value in seconds.items():
        share = f"{value / seconds['none']:.2f}"
        table.add_row(name, f"{value * 1e3:.1f}", f"{num_tokens / value:,.0f}", share)
    console = Console()
    console.print(f"{device}, {torch.get_num_threads()} threads; {vars(options)}")
    console.print(table)
    describe_reading(teachers["pooled"], pieces, console)


def make_step(
    student: MaskedLM,
    teacher: Distillation | None,
    masking: Masking,
    pieces: list[MicroBatch],
    device: torch.device,
) -> Callable[[int], None]:
    objective = Objective(student.to(device).train(), teacher, kernels="plain")
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-4, fused=True)
    moved = [piece.to(device) for piece in pieces]
    lessons = [
        None if teacher is None else teacher.prepare(piece, piece.samples) for piece in pieces
    ]

    def step(number: int) -> None:
        piece, lesson = moved[number % len(moved)], lessons[number % len(moved)]
        masked = masking(piece.ids_BL, piece.lengths_B, piece.rows_B, number, 0.15)
        bfloat16 = device.type == "cuda"
        with torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
            loss, term = objective(masked, piece.lengths_B, lesson)
        optimizer.zero_grad()
        (loss / len(masked.labels_M) + term).backward()
        optimizer.step()

    return step


def measure(
    steps: Mapping[str, Callable[[int], None]], repeats: int, device: torch.device
) -> dict[str, float]:
    """Return the median time of each step; they take turns, and the first turns are not counted.

    On the CPU it is processor time, all threads together, which other load does not lengthen.
    """
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(WARM_UP + repeats):
        for name, step in steps.items():
            start = clock()
            step(turn)
            if device.type == "cuda":
                torch.cuda.synchronize()
            times[name].append(clock() - start)
    return {name: statistics.median(values[WARM_UP:]) for name, values in times.items()}


def describe_reading(teacher: Distillation, pieces: list[MicroBatch], console: Console) -> None:
    times: list[float] = []
    lessons: list[TeacherBatch] = []
    for piece in pieces * 3:
        start = time.perf_counter()
        lesson = teacher.prepare(piece, piece.samples)
        times.append(time.perf_counter() - start)
        if lesson is not None:
            lessons.append(lesson)
    if not lessons:
        console.print("no row is in the source language")
        return
    ours = statistics.mean(int(lesson.covered_RL.sum()) for lesson in lessons)
    theirs = statistics.mean(lesson.num_tokens for lesson in lessons)
    seconds = min(times)
    console.print(
        f"reading: {seconds * 1e3:.1f} ms per step for {ours:,.0f} of the student's tokens, "
        f"{ours / seconds:,.0f} tokens/s; {theirs / ours:.2f} of the teacher's for one"
    )


if __name__ == "__main__":
    main()

"""Finetuning: our loop and transformers' Trainer, side by side in one run.

    python benchmarks/finetuning.py --model DIR --data DIR --examples 4000 --seeds 5
    python benchmarks/finetuning.py --builtin       # a small random encoder, the built-in corpus

One classification task (XNLI) and one tagging task (UD POS), English. Both sides get the same
encoder, the same token ids and the same numbers: batch size, epochs, AdamW, linear schedule with
10 % warm-up, weight decay (not for biases and LayerNorms), clipping, dropout; float32 on a CPU,
bfloat16 on a GPU. Both score dev after each epoch and keep the best epoch's weights in memory; that
is timed, reading and tokenizing is not. Trainer pads each batch to its longest sequence, as its
collators do; the second peer also groups by length and is given the dev set sorted. The order
alternates, so that other load affects all of them equally. Trainer needs `accelerate`.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
import transformers
from rich.console import Console
from rich.table import Table
from scipy import stats
from torch import nn

from metaxlm.analysis.stats import deviation
from metaxlm.data.demo import write_phrasebook
from metaxlm.finetune.batches import round_total, shuffle_batches, takes_packed
from metaxlm.finetune.catalog import TASKS
from metaxlm.finetune.task import Dataset, TaskData, load_data
from metaxlm.finetune.trainer import make_groups, score_dataset, train_model
from metaxlm.model.any_encoder import AnyEncoder, load_encoder
from metaxlm.model.encoder import Encoder
from metaxlm.model.heads import TaskModel
from metaxlm.model.huggingface import save_pretrained
from metaxlm.pretrain.distributed import choose_device
from metaxlm.progress import set_quiet
from metaxlm.recipe import PhrasebookRecipe
from random_encoder import make_random_encoder
from trainer_peer import HEADS, Case, Outcome, Timer, length_options, run_trainer

console = Console(width=110, highlight=False)
SOURCE = "en"
OURS = "metaxlm"
PEERS = {"Trainer": False, "Trainer by length": True}
Contender = Callable[[Case, int], Outcome]


def main() -> None:
    options = parse()
    if importlib.util.find_spec("accelerate") is None:
        sys.exit("transformers' Trainer needs accelerate: pip install accelerate")
    set_quiet(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    device = choose_device(options.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    threads = "" if device.type == "cuda" else f", {torch.get_num_threads()} threads"
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    console.print(f"{name}{threads}, {versions}; {options.seeds} seeds")
    with tempfile.TemporaryDirectory() as folder:
        if options.builtin:
            options.model, options.data = make_builtin(Path(folder), options.examples)
        start = load_encoder(options.model)
        for task_name in options.tasks.split(","):
            compare(make_case(task_name, start, options, device), options.seeds)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="folder of an encoder, ours or Hugging Face's")
    parser.add_argument("--data", type=Path, help="folder with xnli, mnli, udpos")
    parser.add_argument("--builtin", action="store_true", help="instead of --model and --data")
    parser.add_argument("--tasks", default="xnli,udpos")
    parser.add_argument("--examples", type=int, default=4000, help="to train on, at most")
    parser.add_argument("--scored", type=int, default=2000, help="of dev and of test, at most")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--learning-rate", type=float, help="5e-5; 1e-3 with --builtin")
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    if not options.builtin and not (options.model and options.data):
        parser.error("say --model and --data, or --builtin")
    return options


def make_builtin(folder: Path, examples: int) -> tuple[str, Path]:
    """Write the built-in corpus and an encoder of random weights that fits it."""
    sizes = PhrasebookRecipe(source_sentences=5_000, sentences=500, train_examples=examples)
    write_phrasebook(folder / "data", ["en", "de"], 0, sizes)
    (text,) = (folder / "data" / "text" / "en").glob("*.txt")
    lines = text.read_text(encoding="utf-8").split("\n")
    encoder, tokenizer = make_random_encoder(lines, 600, width=64, layers=2, heads=2, positions=128)
    save_pretrained(encoder, tokenizer, folder / "model", "")
    return str(folder / "model"), folder / "data" / "tasks"


def make_case(
    name: str, start: AnyEncoder, options: argparse.Namespace, device: torch.device
) -> Case:
    task = TASKS[name]
    assert task.kind in HEADS, f"{name} is neither classification nor tagging"
    settings = replace(
        task.settings,
        epochs=options.epochs,
        learning_rate=options.learning_rate or (1e-3 if options.builtin else 5e-5),
        weight_decay=options.weight_decay,
        batch_size=options.batch_size,
        length=options.length,
        select_by="source",
    )
    data = load_data(
        task,
        start.tokenizer,
        options.data,
        source=SOURCE,
        languages=[SOURCE],
        settings=settings,
        config=start.encoder.config,
        limit=max(options.examples, options.scored),
    )
    data = TaskData(
        cut(data.train, options.examples),
        tuple(cut(part, options.scored) for part in data.selecting),
        tuple(cut(part, options.scored) for part in data.scored),
    )
    return Case(task, start, data, settings, device)


def cut(data: Dataset, num_examples: int) -> Dataset:
    features = [sequence for sequence in data.features if sequence.example < num_examples]
    return replace(data, examples=data.examples[:num_examples], features=features)


def compare(case: Case, num_seeds: int) -> None:
    """Train every contender once with each seed, and print the table."""
    contenders: dict[str, Contender] = {OURS: run_ours}
    for name, groups in PEERS.items():
        if not groups or length_options():
            contenders[name] = partial(run_trainer, groups=groups)
    lengths = [len(sequence.ids) for sequence in case.data.train.features]
    console.print(
        f"\n{case.task.title}: {len(lengths):,} training sequences of {np.mean(lengths):.0f} "
        f"tokens on average, {case.settings.epochs} epochs of {case.num_steps} steps of "
        f"{case.settings.batch_size}; dev {len(case.dev.examples):,}, test "
        f"{len(case.test.examples):,} examples; {case.task.metric}"
    )
    warm_up(case, list(contenders.values()))
    outcomes: dict[str, list[Outcome]] = {name: [] for name in contenders}
    for seed in range(num_seeds):
        names = list(contenders)
        names = names[seed % len(names) :] + names[: seed % len(names)]
        for name in names:
            outcome = contenders[name](case, seed)
            outcomes[name].append(outcome)
            console.print(f"  seed {seed}, {name}: {outcome.test:.3f}, {outcome.seconds:.1f} s")
    print_table(outcomes)


def warm_up(case: Case, contenders: Sequence[Contender]) -> None:
    """Let each contender load its libraries and kernels on a few batches, which are not timed."""
    num = (8 if case.device.type == "cuda" else 1) * case.settings.batch_size
    parts = (
        cut(case.data.train, num),
        tuple(cut(data, num) for data in case.data.selecting),
        tuple(cut(data, num) for data in case.data.scored),
    )
    for contender in contenders:
        contender(replace(case, data=TaskData(*parts)), 0)


def run_ours(case: Case, seed: int) -> Outcome:
    with Timer(case.device) as timer:
        trained = train_model(case.task, case.start, case.data, case.settings, seed, case.device)
    config = case.start.encoder.config
    dev, test = (
        score_dataset(case.task, trained.model, data, config, case.device)[case.task.metric]
        for data in (case.dev, case.test)
    )
    return Outcome(timer.seconds, timer.cpu_s, dev, test, our_padding(case, seed))


def our_padding(case: Case, seed: int) -> float:
    lengths = [len(sequence.ids) for sequence in case.data.train.features]
    encoder = case.start.encoder
    is_packed = isinstance(encoder, Encoder) and takes_packed(
        TaskModel(encoder, nn.Identity()), case.device
    )
    computed = 0
    for epoch in range(1, case.settings.epochs + 1):
        for batch in shuffle_batches(lengths, case.settings.batch_size, seed, epoch):
            sizes = [lengths[k] for k in batch]
            groups = make_groups(sizes, case.device)
            padded = sum(group.size * group.length for group in groups)
            total = round_total(sum(sizes), case.device)
            computed += total if is_packed else padded
    return 1 - case.settings.epochs * sum(lengths) / computed


def print_table(outcomes: dict[str, list[Outcome]]) -> None:
    table = Table(
        "", "dev", "test", "ours - it", "seconds", "to ours", "CPU s", "to ours", "padding"
    )
    ours = outcomes[OURS]
    for name, runs in outcomes.items():
        table.add_row(
            name,
            format_spread([outcome.dev for outcome in runs]),
            format_spread([outcome.test for outcome in runs]),
            "" if name == OURS else format_difference(ours, runs),
            *format_times([o.seconds for o in runs], [o.seconds for o in ours]),
            *format_times([o.cpu_s for o in runs], [o.cpu_s for o in ours]),
            f"{np.mean([outcome.padding for outcome in runs]):.1%}",
        )
    console.print(table)


def format_times(times: Sequence[float], ours: Sequence[float]) -> tuple[str, str]:
    """Return the median, and the median of the ratios to ours with the same seed."""
    ratios = [time / other for time, other in zip(times, ours, strict=True)]
    return f"{np.median(times):.2f}", f"{np.median(ratios):.2f}"


def format_spread(values: Sequence[float]) -> str:
    spread = deviation(values)
    return f"{100 * fmean(values):.2f}{'' if spread is None else f' ± {100 * spread:.2f}'}"


def format_difference(ours: Sequence[Outcome], others: Sequence[Outcome]) -> str:
    """Return the difference of the means with its 95 % interval over seeds (Student's)."""
    a, b = (100 * np.array([outcome.test for outcome in runs]) for runs in (ours, others))
    if len(a) < 2:
        return f"{a.mean() - b.mean():+.2f}"
    error = math.sqrt((a.var(ddof=1) + b.var(ddof=1)) / len(a))
    half = float(stats.t.ppf(0.975, 2 * len(a) - 2)) * error
    return f"{a.mean() - b.mean():+.2f} ± {half:.2f}"


if __name__ == "__main__":
    main()

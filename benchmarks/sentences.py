"""Train a sentence encoder: metaxlm and sentence-transformers' multilingual distillation.

    python benchmarks/sentences.py --teacher DIR --student DIR --text en.txt --dictionary muse/
    python benchmarks/sentences.py --builtin --device cpu --steps 4 --batch 16

Both train the same student on the same rewritten pairs, with the same number of texts per step and
the same longest length, in bfloat16 on a GPU. The peer follows its recipe `make_multilingual`: the
student reads an English sentence and its translation, and MSELoss pulls both to the teacher's
vector of the English sentence, which is computed before. So a step of the peer has half as many
pairs. Its texts are rewritten before the clock starts; ours are rewritten during training. Where
`datasets` and `accelerate` are installed, the peer is SentenceTransformerTrainer, otherwise a plain
loop with its model, tokenization and loss. With `--output`, both trained encoders are saved, and
`metaxlm evaluate-sentences` can score them. Needs `sentence-transformers`.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor

from metaxlm.data.demo import write_phrasebook
from metaxlm.init.dictionaries import load_dictionaries
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.model.huggingface import Pretrained, load_pretrained
from metaxlm.pretrain.batches.source import Prefetcher
from metaxlm.pretrain.cost import synchronize
from metaxlm.pretrain.distributed import DistributedContext, choose_device
from metaxlm.probe.sentence_folder import export_sentence_transformers
from metaxlm.progress import set_quiet
from metaxlm.recipe import ExecutionRecipe, PhrasebookRecipe, SentencesRecipe
from metaxlm.sentences.pairs import PairSource
from metaxlm.sentences.preparation import choose_sentences, read_text
from metaxlm.sentences.rewriting import DictionaryPairs
from metaxlm.sentences.sentence_batches import SentenceSource, count_workers
from metaxlm.sentences.sentence_step import SentenceStep
from metaxlm.sentences.teacher import SentenceTeacher, load_teacher
from random_encoder import make_random_encoder

PEER = "sentence-transformers"


@dataclass(frozen=True)
class Case:
    """What both train."""

    teacher: SentenceTeacher
    student: Path  # a sentence-transformers folder
    pairs: PairSource
    vectors_AD: Tensor
    options: argparse.Namespace
    device: torch.device


def main() -> None:
    options = parse()
    if importlib.util.find_spec("sentence_transformers") is None:
        sys.exit("the peer is not installed: pip install sentence-transformers")
    set_quiet(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    device = choose_device(options.device)
    with tempfile.TemporaryDirectory() as name:
        case = make_case(options, Path(name), device)
        ours = run_ours(case)
        print(f"metaxlm: {ours:,.0f} sentences/s", flush=True)
        peer_name, peer = run_peer(case, Path(name))
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(
        f"{where}, torch {torch.__version__}; {options.steps} steps of {options.batch} texts of at "
        f"most {options.length} tokens after {options.warm_up} more\n"
    )
    print("| | sentences/s | ratio |\n|---|---:|---:|")
    print(f"| metaxlm | {ours:,.0f} | {ours / peer:.2f} |")
    print(f"| {peer_name} | {peer:,.0f} | 1.00 |")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--teacher", help="folder of an English sentence encoder")
    parser.add_argument("--student", help="folder of the encoder to train")
    parser.add_argument("--text", type=Path, help="English text")
    parser.add_argument("--dictionary", type=Path, nargs="+", help="folders of dictionaries")
    parser.add_argument("--builtin", action="store_true", help="random encoders, built-in corpus")
    parser.add_argument("--sentences", type=int, default=20_000, help="of the text, at most")
    parser.add_argument("--batch", type=int, default=512, help="texts per step")
    parser.add_argument("--length", type=int, default=64, help="most tokens of a text")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--warm-up", type=int, default=20, help="steps before the clock starts")
    parser.add_argument("--rate", type=float, default=2e-4, help="learning rate, constant")
    parser.add_argument("--output", type=Path, help="folder for both trained encoders")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    given = (options.teacher, options.student, options.text, options.dictionary)
    if any(value is None for value in given) != options.builtin:
        parser.error("name --teacher, --student, --text and --dictionary, or --builtin")
    return options


def make_case(options: argparse.Namespace, folder: Path, device: torch.device) -> Case:
    """Prepare the pairs and the teacher's vectors, which both get."""
    if options.builtin:
        make_builtin(options, folder)
    sentences = choose_sentences(read_text(options.text, "en"), options.sentences, seed=1)
    pairs = DictionaryPairs(sentences, load_dictionaries(options.dictionary), seed=1)
    teacher, student = load_teacher(options.teacher), load_pretrained(options.student)
    encoder = AnyEncoder(options.student, student.tokenizer, student.model.encoder)
    export_sentence_transformers(encoder, folder / "start", normalize=teacher.modules.normalize)
    vectors = teacher.embed(sentences, device, lambda _: None)
    return Case(teacher, folder / "start", pairs, torch.from_numpy(vectors), options, device)


def make_builtin(options: argparse.Namespace, folder: Path) -> None:
    """Write the built-in corpus, and random encoders that fit it."""
    sizes = PhrasebookRecipe(source_sentences=2_000, sentences=500)
    write_phrasebook(folder / "corpus", ["en", "de"], 0, sizes)
    (options.text,) = (folder / "corpus" / "text" / "en").glob("*.txt")
    options.dictionary = [folder / "corpus" / "tasks" / "muse"]
    lines = [
        line
        for language in ("en", "de")
        for path in (folder / "corpus" / "text" / language).glob("*.txt")
        for line in path.read_text("utf-8").splitlines()
    ]
    model, tokenizer = make_random_encoder(lines, 600, width=64, layers=2, heads=2, positions=64)
    for name in ("teacher", "student"):
        encoder = AnyEncoder(name, tokenizer, model.encoder)
        export_sentence_transformers(encoder, folder / name, normalize=True)
        setattr(options, name, str(folder / name))


def run_ours(case: Case) -> float:
    """Return the texts per second of our training."""
    options, device = case.options, case.device
    student: Pretrained = load_pretrained(case.student)
    last = options.warm_up + options.steps
    settings = SentencesRecipe(steps=last, batch_size=options.batch, max_length=options.length)
    step = SentenceStep(
        student.model, case.vectors_AD, "mean", settings, ExecutionRecipe(),
        DistributedContext.alone(device),
    )  # fmt: skip
    workers = count_workers(device)
    with (
        SentenceSource(
            case.pairs, np.arange(len(case.pairs.anchors)), student.tokenizer,
            batch_size=options.batch, max_length=options.length, seed=1, device=device,
            workers=workers,
        ) as source,
        Prefetcher(source, 0, last, [0], 1, max(1, workers)) as batches,
    ):  # fmt: skip
        start = 0.0
        for number in range(last):
            if number == options.warm_up:
                synchronize(device)
                start = time.perf_counter()
            step(batches.get(number), options.rate, 0)
        synchronize(device)
        seconds = time.perf_counter() - start
    if options.output is not None:
        encoder = AnyEncoder(str(case.student), student.tokenizer, step.model.eval().cpu().encoder)
        normalize = case.teacher.modules.normalize
        export_sentence_transformers(encoder, options.output / "metaxlm", normalize=normalize)
    return float(options.steps * options.batch / seconds)


def run_peer(case: Case, folder: Path) -> tuple[str, float]:
    """Return the peer's name and its texts per second."""
    import sentence_transformers

    model = sentence_transformers.SentenceTransformer(str(case.student), device=str(case.device))
    model.max_seq_length = case.options.length
    has_trainer = all(importlib.util.find_spec(name) for name in ("datasets", "accelerate"))
    run = run_trainer if has_trainer else run_loop
    version = f"{PEER} {sentence_transformers.__version__}"
    name = f"{version}, {'Trainer' if has_trainer else 'plain loop'}"
    speed = run(case, model, folder)
    if case.options.output is not None:
        model.save(str(case.options.output / "peer"), create_model_card=False)
    return name, speed


def draw_pairs(case: Case) -> tuple[list[str], list[str], Tensor]:
    """Return English sentences, their translations and the teacher's vectors, for all steps."""
    options = case.options
    count = (options.warm_up + options.steps) * (options.batch // 2)
    drawn = case.pairs.draw(np.arange(count))
    english = [case.pairs.anchors[row] for row in drawn.anchors.tolist()]
    return english, drawn.texts, case.vectors_AD[torch.from_numpy(drawn.anchors)].float()


def run_trainer(case: Case, model: Any, folder: Path) -> float:
    """Train with SentenceTransformerTrainer."""
    import datasets
    from sentence_transformers import (
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
        losses,
    )

    options, is_gpu = case.options, case.device.type == "cuda"
    english, texts, vectors_ND = draw_pairs(case)
    columns = {"english": english, "non_english": texts, "label": vectors_ND.tolist()}
    clock = Clock(options.warm_up, case.device)
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder / "peer"),
        max_steps=options.warm_up + options.steps,
        per_device_train_batch_size=options.batch // 2,
        learning_rate=options.rate,
        bf16=is_gpu,
        use_cpu=not is_gpu,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_num_workers=count_workers(case.device),
    )
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments,
        train_dataset=datasets.Dataset.from_dict(columns),
        loss=losses.MSELoss(model=model),
        callbacks=[clock],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    return float(options.steps * options.batch / clock.stop())


class Clock(transformers.TrainerCallback):  # type: ignore[misc]
    """Starts after some steps of a Trainer."""

    def __init__(self, first: int, device: torch.device) -> None:
        self._first, self._device, self._start = first, device, 0.0

    def on_step_begin(self, _arguments: Any, state: Any, *_: Any, **__: Any) -> None:
        if state.global_step == self._first:
            synchronize(self._device)
            self._start = time.perf_counter()

    def stop(self) -> float:
        synchronize(self._device)
        return time.perf_counter() - self._start


def run_loop(case: Case, model: Any, _folder: Path) -> float:
    """Train as a Trainer does, without its overhead."""
    from sentence_transformers import losses

    options, device = case.options, case.device
    english, texts, vectors_ND = draw_pairs(case)
    rows = list(zip(english, texts, vectors_ND, strict=True))

    def collate(batch: list[tuple[str, str, Tensor]]) -> tuple[list[Any], Tensor]:
        columns = [model.preprocess([row[side] for row in batch]) for side in (0, 1)]
        return columns, torch.stack([row[2] for row in batch])

    loader: Any = torch.utils.data.DataLoader(
        rows, options.batch // 2, collate_fn=collate,  # type: ignore[arg-type]
        num_workers=count_workers(device), pin_memory=device.type == "cuda",
    )  # fmt: skip
    loss = losses.MSELoss(model=model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate, fused=True)
    model.train()
    start = 0.0
    for number, (columns, targets_BD) in enumerate(loader):
        if number == options.warm_up:
            synchronize(device)
            start = time.perf_counter()
        features = [move(column, device) for column in columns]
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            value = loss(features, targets_BD.to(device, non_blocking=True))
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    synchronize(device)
    return float(options.steps * options.batch / (time.perf_counter() - start))


def move(column: dict[str, Any], device: torch.device) -> dict[str, Any]:
    return {
        name: value.to(device, non_blocking=True) if isinstance(value, Tensor) else value
        for name, value in column.items()
    }


if __name__ == "__main__":
    # The peer's loader forks; with tokenizers' threads its processes may wait forever.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    main()

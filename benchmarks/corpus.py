"""Corpus preparation beside `datasets.map`, and how its cost grows with the input.

    python benchmarks/corpus.py peer  --text data/text --tokenizer runs/x/vocabulary/multilingual
    python benchmarks/corpus.py scale --text data/text --tokenizer runs/x/vocabulary/multilingual

`peer` takes the sentences of every language in a folder of `XX.txt[.xz|.gz]`, and turns them into
token shards twice in one run: by metaxlm, and by `datasets.map` with the same tokenizer (fast, in
batches of 1,000, attention masks off), two processes each. Reading the text into the peer's own
format is not counted against it. Then every step of the path from the raw files is timed. `scale`
runs the whole path on 1/16, 1/8, ... of the text, and prints time and peak memory. Without `--text`
the built-in corpus serves, which is so small that the start of the workers is most of what is seen.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from metaxlm.data.demo import write_phrasebook
from metaxlm.data.pipeline import Seconds, prepare_text, tokenize_text
from metaxlm.data.readers.inputs import find_inputs
from metaxlm.data.text import list_parts, read_counts, read_sentences
from metaxlm.progress import set_quiet
from metaxlm.recipe import CorpusRecipe, EngineRecipe, PhrasebookRecipe
from metaxlm.streams import open_stream
from metaxlm.vocab.unigram import train_unigram


def list_languages(folder: Path) -> list[str]:
    """Return the languages of a folder of text files."""
    return sorted({path.name.split(".")[0] for path in folder.glob("*.txt*")})


def cut(source: Path, target: Path, languages: list[str], share: float) -> int:
    """Write the first share of every language's lines; return the bytes."""
    target.mkdir(parents=True)
    for language in languages:
        (path,) = find_inputs(source, "text", language)
        with open_stream(path) as file:
            total = sum(1 for _ in file)
        with open_stream(path) as file, (target / f"{language}.txt").open("wb") as output:
            output.writelines(islice(file, round(total * share)))
    return sum(path.stat().st_size for path in target.iterdir())


def prepare(text: Path, languages: list[str], workers: int, tokenizer: Path, work: Path) -> Seconds:
    """Run the whole path; return the seconds of each step."""
    recipe = CorpusRecipe(source="text", path=text)
    engine = EngineRecipe(workers=workers)
    times = prepare_text(recipe, languages, engine, work / "text", work / "corpus")
    shards = {name: (tokenizer / "tokenizer.json", work / "text" / name) for name in languages}
    return times | tokenize_text(shards, engine, work / "shards", work / "tokens")


def run_peer(text: Path, workers: int, tokenizer: Path, work: Path) -> float:
    """Tokenize prepared text with `datasets.map`; return the seconds of the map alone."""
    import datasets
    from transformers import AutoTokenizer

    datasets.disable_progress_bars()
    fast = AutoTokenizer.from_pretrained(tokenizer)
    files = [str(path) for path in sorted(text.glob("*/*.txt"))]
    loaded = datasets.load_dataset("text", data_files=files, split="train", cache_dir=str(work))
    sentences = loaded.filter(lambda row: bool(row["text"]), num_proc=workers)

    def encode(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        encoded = fast(batch["text"], add_special_tokens=False, return_attention_mask=False)
        return {"input_ids": encoded["input_ids"]}

    start = time.perf_counter()
    sentences.map(encode, batched=True, num_proc=workers, remove_columns=["text"])
    return time.perf_counter() - start


def compare(arguments: argparse.Namespace, work: Path) -> None:
    """Print ours and the peer side by side, then every step."""
    languages = list_languages(arguments.text)
    raw = cut(arguments.text, work / "raw", languages, arguments.share)
    workers = arguments.workers
    times = prepare(work / "raw", languages, workers, arguments.tokenizer, work)
    size = sum(read_counts(work / "text" / name).text.bytes for name in languages)
    ours = times["tokenize"] + times["join"]
    theirs = run_peer(work / "text", workers, arguments.tokenizer, work / "peer")
    print(f"sentences to token shards, {len(languages)} languages, {size / 1e6:.0f} MB, "
          f"{workers} processes each")  # fmt: skip
    print(f"  metaxlm        {ours:7.1f} s  {size / 1e6 / ours:6.1f} MB/s")
    print(f"  datasets.map   {theirs:7.1f} s  {size / 1e6 / theirs:6.1f} MB/s")
    print(f"  ratio          {theirs / ours:7.2f}")
    print(f"the whole path from {raw / 1e6:.0f} MB of raw text")
    for step, seconds in times.items():
        print(f"  {step:<26} {seconds:7.1f} s  {raw / 1e6 / seconds:7.1f} MB/s")
    total = sum(times.values())
    print(f"  {'all':<26} {total:7.1f} s  {raw / 1e6 / total:7.1f} MB/s")


def measure_share(arguments: argparse.Namespace, work: Path) -> None:
    """Run the whole path on one share; print bytes, seconds, peak memory of any process."""
    languages = list_languages(arguments.text)
    raw = cut(arguments.text, work / "raw", languages, arguments.share)
    start = time.perf_counter()
    prepare(work / "raw", languages, arguments.workers, arguments.tokenizer, work)
    seconds = time.perf_counter() - start
    peaks = [resource.getrusage(who).ru_maxrss / 1024
             for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]  # fmt: skip
    parts = sum(len(list_parts(work / "text" / name)) for name in languages)
    print(f"  1/{round(1 / arguments.share):<3} {raw / 1e6:7.1f} MB  {seconds:7.1f} s  "
          f"{raw / 1e6 / seconds:5.1f} MB/s  parent {peaks[0]:5.0f} MiB, "
          f"largest worker {peaks[1]:5.0f} MiB, {parts} parts", flush=True)  # fmt: skip


def scale(arguments: argparse.Namespace) -> None:
    """Run each share in a process of its own, so that peak memory is its own."""
    print("whole path from raw text to shards")
    sys.stdout.flush()
    for share in (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1):
        command = [sys.executable, __file__, "share", "--share", str(share)]
        command += ["--text", str(arguments.text), "--tokenizer", str(arguments.tokenizer)]
        command += ["--workers", str(arguments.workers)]
        subprocess.run(command, check=True)


def make_text(folder: Path) -> tuple[Path, Path]:
    """Write text of the built-in corpus and train a tokenizer; return their folders."""
    languages = ["en", "de", "fr", "ru", "tr", "zh"]
    sizes = PhrasebookRecipe(source_sentences=60_000, sentences=9_600)
    write_phrasebook(folder / "phrasebook", languages, 1, sizes)
    (folder / "made").mkdir()
    for language in languages:
        written = folder / "phrasebook" / "text" / language / "00000.txt"
        shutil.copy(written, folder / "made" / f"{language}.txt")
    sentences = (s for name in languages for s in read_sentences(folder / "phrasebook/text" / name))
    train_unigram(sentences, 8_000).save_pretrained(folder / "tokenizer")
    return folder / "made", folder / "tokenizer"


def main() -> None:
    """Parse the command line and run one comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=["peer", "scale", "share"])
    parser.add_argument("--text", type=Path, help="folder of XX.txt[.gz|.xz]")
    parser.add_argument("--tokenizer", type=Path, help="folder of a tokenizer")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--share", type=float, default=1.0, help="of each language's lines")
    arguments = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    set_quiet(True)
    with TemporaryDirectory(prefix="metaxlm-bench-") as folder:
        if arguments.text is None or arguments.tokenizer is None:
            arguments.text, arguments.tokenizer = make_text(Path(folder))
        if arguments.what == "scale":
            scale(arguments)
        else:
            run = compare if arguments.what == "peer" else measure_share
            run(arguments, Path(folder))


if __name__ == "__main__":
    main()

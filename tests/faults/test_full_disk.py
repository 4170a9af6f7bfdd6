"""A full disk: one line, and nothing half-written under a final name.

As a program, `python -m tests.faults.test_full_disk DISK` trains on a small disk that fills up.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import PARTS, sentences
from tests.faults.programs import ROOT, SETTINGS
from tests.faults.test_kills import make_training
from tests.trainings import RECIPE as TRAINING
from tests.trainings import ending

from metaxlm.errors import MetaXLMError
from metaxlm.pretrain.checkpoint import list_checkpoints, load_newest

RECIPE = """\
name: full
languages: [en, de]
corpus: {{source: text, path: {text}, task_mb: 1, cleaning: {{deduplicate: false}}}}
vocabulary: {{size: 110, monolingual_size: 300}}
model: {{layers: 1, hidden: 16, heads: 2, ffn: 32, max_positions: 32}}
meta: {{length: 32, steps: 1, warmup_steps: 0}}
pretraining: {{length: 32, steps: 1, warmup_steps: 0}}
variants: {{xlm: {{initialize: none}}}}
evaluation: {{retrieval: null, alignment: null}}
"""
# In a mount namespace of its own, so that nothing stays mounted.
SCRIPT = """
mount -t tmpfs -o size={size}k tmpfs {disk} || exit 99
"$@"
code=$?
find {disk} -path '*/text/*' -o -path '*/shards/*' -o -path '*/paragraphs/*' -o -name '.tmp-*'
exit $code
"""
needs_unshare = pytest.mark.skipif(
    shutil.which("unshare") is None, reason="needs unshare (util-linux)"
)


def run_on_small_disk(
    disk: Path, size: int, *arguments: object
) -> subprocess.CompletedProcess[str]:
    """Run `python ARGUMENTS` where a file system of `size` kilobytes is mounted."""
    disk.mkdir()
    script = SCRIPT.format(disk=disk, size=size)
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c", script, "sh", sys.executable]
    done = subprocess.run(
        [*command, *map(str, arguments)],
        check=False,
        cwd=ROOT,
        env=os.environ | SETTINGS,
        capture_output=True,
        text=True,
    )
    is_started = "metaxlm" in done.stderr or "Traceback" in done.stderr
    if done.returncode in (1, 99) and not is_started:
        pytest.skip(f"no mount namespaces here: {done.stderr.strip()}")
    return done


@needs_unshare
@pytest.mark.parametrize(
    "size", [700, *(pytest.param(size, marks=pytest.mark.faults) for size in (200, 20_000))]
)
def test_a_full_disk_is_one_line_and_nothing_half(tmp_path: Path, size: int) -> None:
    text, recipe = tmp_path / "text", tmp_path / "full.yaml"
    text.mkdir()
    for language in PARTS:
        words = [word for line in sentences(language) for word in line.strip(".").split()]
        draw = random.Random(1)
        lines = [" ".join(draw.choices(words, k=8)) + "." for _ in range(9_000)]
        (text / f"{language}.txt").write_text("\n".join(lines), encoding="utf-8")
    recipe.write_text(RECIPE.format(text=text), encoding="utf-8")
    disk = tmp_path / "disk"
    stage = ("--stage", "shards", "--output", disk, "--quiet")
    done = run_on_small_disk(disk, size, "-m", "metaxlm", "run", recipe, *stage)
    if size == 20_000:  # large enough
        assert done.returncode == 0, done.stderr
        assert "full/shards/multilingual/en/tokens.bin" in done.stdout
        return
    assert done.returncode == 2, done.stderr
    assert "No space left on device" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    left = [line.partition("/disk/")[2] for line in done.stdout.splitlines()]
    assert not [name for name in left if "/.tmp-" in name]
    # Finished tasks may stay in the work folder; the folders of stages do not exist.
    assert not [name for name in left if name.startswith(("full/corpus/text", "full/shards"))]


@pytest.mark.faults
@needs_unshare
def test_a_training_survives_a_disk_that_fills_up(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    done = run_on_small_disk(disk, 4_096, "-m", "tests.faults.test_full_disk", disk)
    assert done.returncode == 0, done.stderr[-3000:]
    rejected, failed, left, same = re.findall("^RESULT (.*)", done.stdout, re.MULTILINE)
    assert "checkpoints need" in rejected
    assert "No space left on device" in failed
    assert "step-00000020" in failed
    assert "training will resume after step 10" in failed
    assert left == "step-00000010"
    assert same == "True"
    print(f"{rejected}\n{failed}\nafter space was freed, the run ended like an undisturbed one")


def train_on(disk: Path) -> None:
    """Fill the disk after the first checkpoint; make room again; print what came of it."""
    training = make_training(disk.parent / "shards")
    training.run(disk.parent / "whole")
    try:
        training.run(disk / "run", TRAINING.model_copy(update={"keep_checkpoints": 20}))
    except MetaXLMError as error:
        rejected = str(error)
    shutil.rmtree(disk / "run")
    filler = disk / "filler"

    def fill(step: int) -> None:
        if step == 15:  # the checkpoint of step 10 is complete, or `load_newest` fails below
            while not list_checkpoints(disk / "run"):
                pass
            free = shutil.disk_usage(disk).free - 20_000  # the log still fits
            filler.write_bytes(bytes(free))

    try:
        training.run(disk / "run", act=fill)
    except MetaXLMError as error:
        failed = str(error)
    assert load_newest(disk / "run") is not None
    left = [path.name for path in (disk / "run").glob("*step-*")]
    filler.unlink()
    training.run(disk / "run")
    same = ending(disk / "run") == ending(disk.parent / "whole")
    for result in (rejected, failed, *left, same):
        print("RESULT", result)


if __name__ == "__main__":
    train_on(Path(sys.argv[1]))

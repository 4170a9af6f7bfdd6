"""Guesses of time: what is counted is what runs, and records are scaled as they should be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedTokenizerBase

from metaxlm.config import PhrasebookRecipe, Recipe
from metaxlm.data.demo import write_phrasebook
from metaxlm.errors import MetaXLMError
from metaxlm.experiments import estimates
from metaxlm.experiments.estimates import (
    UNKNOWN,
    CellClock,
    Estimate,
    Pace,
    Preparation,
    count_bytes,
    estimate_training,
    fit_pace,
)
from metaxlm.experiments.evaluation_plan import (
    FeaturePlan,
    TaskPlan,
    Wishes,
    plan_features,
    plan_task,
)
from metaxlm.experiments.features import USUAL_SETTINGS
from metaxlm.experiments.past_runs import (
    PastCell,
    PastRuns,
    PastStage,
    count_weights,
    read_past,
)
from metaxlm.experiments.training import encoder_config
from metaxlm.experiments.workload import Counter, make_stand_in
from metaxlm.pretraining.cost import count_step_flops
from metaxlm.pretraining.device import describe_device
from metaxlm.tasks.readers import read_tatoeba
from metaxlm.tasks.registry import TASKS
from metaxlm.tasks.task_data import load_data
from metaxlm.vocabulary.unigram import train_unigram

RECIPE = Recipe.model_validate(
    {
        "name": "toy",
        "languages": ["en", "de"],
        "vocabulary": {"size": 500},
        "model": {"layers": 2, "hidden": 16, "heads": 2, "ffn": 32, "max_positions": 128},
        "meta": {"length": 32},
        "pretraining": {"length": 32, "batch_size": 4, "steps": 100, "held_out": 6},
        "variants": {"xlm": {"initialize": "none"}, "metaxlm": {"initialize": "both"}},
    }
)
CONFIG = encoder_config(RECIPE, 500)
CPU = torch.device("cpu")
SIZES = PhrasebookRecipe(
    source_sentences=200, sentences=100, test_pairs=12, aligned_pairs=8, train_examples=40,
    test_examples=12,
)  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "corpus"
    write_phrasebook(folder, ("en", "de"), 3, SIZES)
    return folder


@pytest.fixture(scope="module")
def tokenizer(corpus: Path) -> PreTrainedTokenizerBase:
    lines = (corpus / "text/en/00000.txt").read_text("utf-8").splitlines()
    return train_unigram(iter([line for line in lines if line]), 300)


def make_plan(corpus: Path, name: str, **values: object) -> TaskPlan:
    wishes = Wishes(("en", "de"), ("en",), {name: {"length": 64, **values}})
    return plan_task(TASKS[name], corpus / "tasks", wishes)


@pytest.mark.parametrize("name", ["udpos", "xquad", "xnli"])
def test_what_is_counted_is_what_a_cell_reads(
    corpus: Path, tokenizer: PreTrainedTokenizerBase, name: str
) -> None:
    plan = make_plan(corpus, name, epochs=3, batch_size=8, stride=16)
    work = Counter(tokenizer).count_task(plan, "en")
    config = replace(CONFIG, vocab_size=len(tokenizer))
    data = load_data(
        plan.task, tokenizer, plan.data_dir, source="en", languages=plan.languages,
        settings=plan.settings, config=config,
    )  # fmt: skip
    tokens = {
        name: sum(len(feature.ids) for part in parts for feature in part.features)
        for name, parts in (
            ("train", [data.train]),
            ("selecting", data.selecting),
            ("judged", data.judged),
        )
    }
    assert work.trained == pytest.approx(3 * tokens["train"])
    assert work.judged == pytest.approx(3 * tokens["selecting"] + tokens["judged"])
    assert work.steps == 3 * -(-len(data.train.features) // 8)
    assert Counter(tokenizer).count_judging(plan, "en").judged == pytest.approx(tokens["judged"])


def test_retrieval_counts_the_tokens_of_both_sides(
    corpus: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    feature = plan_features("tatoeba", corpus / "tasks", Wishes())
    pairs = read_tatoeba(corpus / "tasks", "de")
    texts = [*pairs.foreign, *pairs.english]
    expected = sum(len(ids) for ids in tokenizer(texts)["input_ids"])
    assert Counter(tokenizer).count_feature(feature).judged == expected


def test_the_stand_in_cuts_about_as_a_vocabulary_does() -> None:
    tokenizer = make_stand_in()
    assert len(tokenizer("The children are reading books.")["input_ids"]) == 2 + 8
    assert len(tokenizer("孩子们在读书。")["input_ids"]) == 2 + 4
    assert len(tokenizer("a", "b")["input_ids"]) == 6


def test_a_broken_file_shows(corpus: Path, tmp_path: Path) -> None:
    plan = make_plan(corpus, "xnli")
    broken = tmp_path / "train.tsv"
    broken.write_text("only one column\n", encoding="utf-8")
    files = tuple(replace(f, path=broken) if f.split == "train" else f for f in plan.files)
    with pytest.raises(MetaXLMError, match=r"train\.tsv:1"):
        Counter(make_stand_in()).count_task(replace(plan, files=files), "en")


def test_two_steps_make_a_pace() -> None:
    pace = fit_pace((1e6, 0.003), (101e6, 0.013))
    assert pace.rate == pytest.approx(1e10)
    assert pace.time_steps(10, 1e9) == pytest.approx(10 * 0.0029 + 0.1)
    # The larger step seemed faster: work must not become free.
    assert fit_pace((1e6, 0.02), (100e6, 0.01)).rate == pytest.approx(1e11)


def test_the_pace_of_a_device_is_measured() -> None:
    pace = estimates.measure_pace(CONFIG, CPU)
    assert pace is not None
    assert 1e6 < pace.rate < 1e13
    assert 0 <= pace.step_s < 1


def test_a_training_counts_its_steps_and_its_held_out_blocks() -> None:
    recipe = RECIPE.pretraining
    found = estimate_training(CONFIG, recipe, 0.5, 40, num_languages=2)
    # Twelve blocks forward are four with gradients, which is one step of four.
    assert found.seconds == pytest.approx(0.5 * 41)
    assert recipe.batch_size == 4 and recipe.evaluate_every >= 40
    frozen = estimate_training(CONFIG, recipe, 0.5, 40, num_languages=2, frozen_body=True)
    assert frozen.seconds is not None and found.seconds is not None
    assert 0.5 * found.seconds < frozen.seconds < 0.95 * found.seconds


def make_clock(corpus: Path, *cells: PastCell, pace: Pace | None = None) -> CellClock:
    past = PastRuns(cells=cells)
    clock = CellClock(RECIPE, corpus, past, Counter(make_stand_in()), CONFIG, CPU)
    clock.__dict__["pace"] = pace
    return clock


def past_cell(corpus: Path, task: str, seconds: float, epochs: int | None = 2) -> PastCell:
    weights = count_weights(RECIPE.model)
    return PastCell(corpus, task, "en", seconds, describe_device(CPU), epochs, weights)


def test_recorded_cells_are_scaled_by_epochs_and_size(corpus: Path) -> None:
    plan = make_plan(corpus, "xnli", epochs=6)
    own = past_cell(corpus, "xnli", 10.0)
    [found] = make_clock(corpus, own).estimate_group([plan], "en")
    assert found == Estimate(30.0, "recorded")
    large = replace(own, run=corpus.parent, weights=2 * own.weights)
    [found] = make_clock(corpus, large).estimate_group([plan], "en")
    assert found == Estimate(15.0, "recorded")
    # Cells of the run itself count more than those of its neighbors.
    [found] = make_clock(corpus, large, own).estimate_group([plan], "en")
    assert found == Estimate(30.0, "recorded")
    for stranger in (replace(own, device="H200"), replace(own, task="pawsx")):
        assert make_clock(corpus, stranger).estimate_group([plan], "en") == [UNKNOWN]


def test_a_shared_training_counts_once(corpus: Path) -> None:
    plans = [make_plan(corpus, name, epochs=2, stride=16) for name in ("xquad", "mlqa")]
    cells = [past_cell(corpus, "xquad", 20.0), past_cell(corpus, "mlqa", 23.0)]
    recorded = make_clock(corpus, *cells).estimate_group(plans, "en")
    assert [found.seconds for found in recorded] == [20.0, 3.0]
    [alone] = make_clock(corpus, *cells).estimate_group(plans[1:], "en")
    assert alone.seconds == 23.0
    clock = make_clock(corpus, pace=Pace(0.1, 1e9))
    _, second = clock.estimate_group(plans, "en")
    judged = clock.counter.count_judging(plans[1], "en")
    length = round(judged.length)
    token = count_step_flops(CONFIG, 1, length, 0) / length
    assert second.seconds == pytest.approx(token * judged.judged / 3 / 1e9)
    [alone] = clock.estimate_group(plans[1:], "en")
    assert (alone.seconds or 0) > (second.seconds or 0) + 0.2


def test_cells_without_a_record_are_computed(corpus: Path) -> None:
    plan = make_plan(corpus, "xnli", epochs=6, batch_size=8)
    [found] = make_clock(corpus, pace=Pace(0.5, 1e9)).estimate_group([plan], "en")
    work = Counter(make_stand_in()).count_task(plan, "en")
    length = round(work.length)
    token = count_step_flops(CONFIG, 1, length, 0) / length
    expected = 6 * 5 * 0.5 + token * (work.trained + work.judged / 3) / 1e9
    assert found.seconds == pytest.approx(expected)
    assert found.basis == "computed"
    feature = FeaturePlan("tatoeba", ("de",), corpus / "tasks", USUAL_SETTINGS["tatoeba"])
    assert make_clock(corpus).estimate_feature(feature) == UNKNOWN
    found = make_clock(corpus, past_cell(corpus, "tatoeba", 4.0, None)).estimate_feature(feature)
    assert found == Estimate(4.0, "recorded")


def past_stage(name: str, seconds: float, recipe: Recipe, **facts: object) -> PastStage:
    inputs = {"corpus": recipe.corpus.model_dump(mode="json"), **facts}
    inputs["vocabulary"] = recipe.vocabulary.model_dump(mode="json")
    return PastStage(name, seconds, recipe, inputs, 1_000_000)


def change(**sections: object) -> Recipe:
    return Recipe.model_validate(RECIPE.model_dump() | sections)


def test_stages_are_scaled_by_their_text(tmp_path: Path) -> None:
    text = change(corpus={"source": "text", "path": str(tmp_path)})
    files = [["a/en.txt", 4_000_000, 0]]
    past = PastRuns(
        [
            past_stage("corpus", 20.0, text, files=files),
            past_stage("vocabulary", 6.0, text),
            past_stage("shards", 10.0, text),
        ]
    )
    known = Preparation(text, past, raw_bytes=8_000_000, text_bytes=3_000_000)
    assert known.estimate("corpus", None, CONFIG) == Estimate(40.0, "recorded")
    assert known.estimate("vocabulary", None, CONFIG) == Estimate(18.0, "recorded")
    assert known.estimate("shards", None, CONFIG) == Estimate(30.0, "recorded")
    other = replace(known, recipe=change(corpus=text.corpus.model_dump(), vocabulary={"size": 900}))
    assert other.estimate("vocabulary", None, CONFIG) == UNKNOWN


def test_what_nobody_knows_is_not_invented(tmp_path: Path) -> None:
    text = change(corpus={"source": "text", "path": str(tmp_path)})
    new = Preparation(text, PastRuns(), raw_bytes=10**9, text_bytes=10**9)
    assert new.estimate("vocabulary", None, CONFIG) == UNKNOWN
    corpus = new.estimate("corpus", None, CONFIG)
    assert corpus.basis == "usual" and 20 < (corpus.seconds or 0) < 200
    remote = replace(new, recipe=change(corpus=text.corpus.model_dump(), engine="slurm"))
    assert remote.estimate("corpus", None, CONFIG) == UNKNOWN
    dump = replace(new, recipe=change(corpus={"source": "dump", "path": str(tmp_path)}))
    assert dump.estimate("corpus", None, CONFIG) == UNKNOWN
    built_in = Preparation(RECIPE, PastRuns(), 0, 0, sampled_s=7.0)
    assert built_in.estimate("corpus", None, CONFIG) == Estimate(7.0, "measured")
    assert built_in.estimate("shards", None, CONFIG) == UNKNOWN


def test_compressed_files_hold_more_text() -> None:
    assert count_bytes([["de.txt", 100, 5], ["en.txt.xz", 100, 5]]) == 500


def test_runs_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    for name in ("broken", "odd"):
        (tmp_path / name).mkdir()
    (tmp_path / "broken" / "recipe.yaml").write_text("name: [", encoding="utf-8")
    recipe = "name: odd\nlanguages: [en, de]\nvariants: {xlm: {initialize: none}}\n"
    (tmp_path / "odd" / "recipe.yaml").write_text(recipe, encoding="utf-8")
    (tmp_path / "odd/corpus").mkdir()
    (tmp_path / "odd/corpus/.stage.json").write_text("{}", encoding="utf-8")
    good = '{"task": "xnli", "source": "en", "seconds": 2, "device": "cpu", "limit": null, '
    good += '"variant": "xlm", "settings": {"epochs": 3}}'
    for seed, content in enumerate((good, "[1]", "{", good.replace("null", "9"))):
        cell = tmp_path / f"odd/cells/xlm/xnli/en-{seed}/cell.json"
        cell.parent.mkdir(parents=True)
        cell.write_text(content, encoding="utf-8")
    past = read_past(tmp_path)
    assert not past.stages
    assert [(cell.seconds, cell.epochs) for cell in past.cells] == [(2.0, 3)]
    assert read_past(tmp_path / "nowhere") == PastRuns([], [])

"""The shipped recipes have the hyperparameters, tables and figures of the paper."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.recipes.paper_tables import AMAZON, FEATURES, IDEAS, OTHERS, TABLES, XTREME

from metaxlm.languages import LANGUAGES, task_languages
from metaxlm.recipe import Recipe, Section
from metaxlm.recipe.recipe_file import load_recipe
from metaxlm.run.grid import list_blocks
from metaxlm.run.task_plans import choose_tasks

RECIPES = Path(__file__).parents[2] / "recipes"
FOLDERS = ("paper", "twin")
TABLE_RECIPES = [(folder, name) for folder in FOLDERS for name in TABLES[folder]]

# Table 7. The linear schedule has no key.
PRETRAINING = {
    "steps": 200_000, "batch_size": 64, "adam_epsilon": 1e-6, "adam_betas": [0.9, 0.98],
    "learning_rate": 1e-4, "warmup_steps": 10_000, "clip": 1.0, "weight_decay": 0.01,
}  # fmt: skip
MODEL = {"layers": 12, "hidden": 768, "ffn": 3072, "heads": 12, "dropout": 0.1}
# Table 8, one column per task. All warm up in 10 % of the steps.
FINETUNING = {
    "udpos": (32, 1e-5, 0.0, 10),
    "panx": (8, 7e-6, 0.0, 10),
    "xquad": (32, 3e-5, 0.0, 4),
    "mlqa": (32, 3e-5, 0.0, 4),
    "tydiqa": (32, 4e-5, 0.0, 40),
    "xnli": (32, 1e-5, 0.01, 6),
    "pawsx": (32, 2e-5, 0.01, 10),
    **dict.fromkeys(AMAZON, (32, 2e-5, 0.01, 5)),
}
# Table 6 column by column.
PAPER_LANGUAGES = """\
    af am ar as az ba be bg bn ca ckb cs cy da de el en eo es et eu fa fi fr ga gl gu he hi
    hr hu hy id is it ja ka kk km kn ko ky la lo lt lv mk ml mn mr ms mt my ne nl nn no or
    pa pl ps pt ro ru sa sd si sk sl sq sr sv sw ta te tg th tl tr tt ug uk ur uz vi yi zh
"""

FOLDERS_OF = {"tatoeba": "tatoeba", "alignment": "wordalign"}
GridJob = tuple[str, str, int, int]  # variant, task, step, number of the seed


def load(folder: str, name: str) -> Recipe:
    return load_recipe(RECIPES / folder / f"{name}.yaml")


def list_grid(recipe: Recipe) -> set[GridJob]:
    """List the jobs of a recipe, without training languages."""
    found: set[GridJob] = set()
    for block in list_blocks(recipe):
        assert block.sources is None
        tasks, features = choose_tasks(block.tasks)
        # Finetuned tasks have the paper's languages by default, features all that their data has.
        pinned = [task_languages(FOLDERS_OF[name]) for name in features]
        assert block.languages is None or [tuple(block.languages)] == pinned
        assert block.languages is not None or recipe.name != "paper" or not features
        seeds = {task.name: recipe.evaluation.finetune[task.name].seeds for task in tasks}
        if block.seeds is not None:
            seeds = dict.fromkeys(seeds, block.seeds)
        kept = recipe.pretraining.list_kept() if block.steps == "kept" else []
        found |= {
            (variant, task, step, seed)
            for variant in block.variants or recipe.variants
            for task, num_seeds in (seeds | dict.fromkeys(features, 1)).items()
            for step in (*kept, recipe.pretraining.steps)
            for seed in range(num_seeds)
        }
    return found


def explicit(section: Section) -> dict[str, object]:
    return {name: getattr(section, name) for name in section.model_fields_set}


@pytest.mark.parametrize(
    "path", sorted(RECIPES.rglob("*.yaml")), ids=lambda p: str(p.relative_to(RECIPES))
)
def test_a_recipe_loads(path: Path) -> None:
    recipe = load_recipe(path)
    own_run = {
        "twin/minilm.yaml": "twin_minilm", "third/mpnet.yaml": "third_mpnet",
        "third/longer.yaml": "third_longer",
    }  # fmt: skip
    shared_run = path.stem if path.parent.name == RECIPES.name else path.parent.name
    assert recipe.name == own_run.get(f"{path.parent.name}/{path.name}", shared_run)
    assert set(recipe.languages) <= set(LANGUAGES)


def test_each_table_and_figure_has_a_recipe_in_both_folders() -> None:
    found = {f: {path.stem for path in (RECIPES / f).glob("*.yaml")} for f in FOLDERS}
    further = {"base", "readings", "trade_off"}
    assert found["paper"] == {*further, *TABLES["paper"]}
    assert found["twin"] == {*further, *TABLES["twin"], "ideas", "minilm"}


def test_the_paper_pretrains_as_its_appendix_prints() -> None:
    recipe = load("paper", "base")
    assert explicit(recipe.pretraining).items() >= PRETRAINING.items()
    assert explicit(recipe.model).items() >= MODEL.items()
    assert recipe.model.max_positions == recipe.pretraining.length == 512  # section 3.1
    assert explicit(recipe.pretraining)["alpha"] == 0.7
    assert recipe.languages == PAPER_LANGUAGES.split()
    assert recipe.source_language == "en"
    assert (recipe.meta.model, recipe.vocabulary.model) == ("roberta-base", "xlm-roberta-base")
    assert recipe.vocabulary.min_count == 0  # all 250K pieces
    assert recipe.corpus.source == "dump"


def test_the_paper_finetunes_as_its_appendix_prints() -> None:
    finetune = load("paper", "base").evaluation.finetune
    keys = ("batch_size", "learning_rate", "weight_decay", "epochs")
    for name, values in FINETUNING.items():
        expected = dict(zip(keys, values, strict=True)) | {"warmup": 0.1, "seeds": 5}
        assert explicit(finetune[name]) == expected, name
    assert list(finetune) == list(FINETUNING)


def test_the_curves_of_the_paper_have_its_steps() -> None:
    assert load("paper", "curves").pretraining.keep_steps == list(range(2_000, 40_001, 2_000))
    twin = load("twin", "curves").pretraining
    assert len(twin.list_kept()) == len(twin.keep_steps) >= 8  # enough points for a lag


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_variants_are_the_papers(folder: str) -> None:
    variants = {name: explicit(v) for name, v in load(folder, "base").variants.items()}
    distill = variants["xlm+kd"].pop("distill")
    assert distill is not None
    assert variants == {
        "xlm": {"initialize": "none"},
        "metaxlm": {"initialize": "both"},
        "metaxlm+dict": {"initialize": "both", "dictionaries": True},
        "xlm+kd": {"initialize": "none"},
        "freeze": {"initialize": "both", "freeze": "body"},
        "body": {"initialize": "body"},
        "embeddings": {"initialize": "embeddings"},
    }


def test_the_twin_has_three_seeds_and_a_shape_like_the_papers() -> None:
    recipe = load("twin", "base")
    assert {task.seeds for task in recipe.evaluation.finetune.values()} == {3}
    assert set(recipe.evaluation.finetune) == set(FINETUNING)
    assert recipe.model.layers == MODEL["layers"]
    assert recipe.model.ffn == 4 * recipe.model.hidden
    assert (recipe.pretraining.alpha, len(recipe.languages)) == (0.7, 22)


@pytest.mark.parametrize(("folder", "name"), TABLE_RECIPES)
def test_a_recipe_has_what_its_table_shows(folder: str, name: str) -> None:
    table, recipe = TABLES[folder][name], load(folder, name)
    last = recipe.pretraining.steps
    assert tuple(recipe.variants) == table.variants
    grid = list_grid(recipe)
    assert {(v, t) for v, t, _, _ in grid} == {(v, t) for v in table.variants for t in table.tasks}
    steps = {*recipe.pretraining.keep_steps, last} if table.along_steps else {last}
    for task in table.tasks:
        assert {s for _, t, s, _ in grid if t == task} == steps
    seeds = {number for _, task, _, number in grid if task not in FEATURES}
    if seeds:
        assert seeds == set(range(5 if folder == "paper" else 3))


@pytest.mark.parametrize("folder", FOLDERS)
def test_base_is_all_tables_together(folder: str) -> None:
    tables = set().union(*(list_grid(load(folder, name)) for name in TABLES[folder]))
    rest = list_grid(load(folder, "base")) - tables
    assert not tables - list_grid(load(folder, "base"))
    # The twin also aligns the variants of tables 3 to 5, which is fast.
    others = OTHERS if folder == "twin" else ()
    assert {(v, t) for v, t, _, _ in rest} == {(v, t) for v in others for t in FEATURES}


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_the_paper_leaves_open_is_measured_beside_its_variants(folder: str) -> None:
    base, readings, trade_off = (load(folder, n) for n in ("base", "readings", "trade_off"))
    for recipe in (readings, trade_off):
        own = {"variants", "evaluation"}
        assert recipe.model_dump(exclude=own) == base.model_dump(exclude=own)
        assert base.variants.items() <= recipe.variants.items()
    first, second = (readings.variants[name] for name in ("metaxlm+dict", "dict-first"))
    orders = [readings.find_matching(variant).precedence for variant in (first, second)]
    assert orders == ["text", "dictionary"]
    assert second.model_copy(update={"matching": None}) == first
    jobs = list_grid(readings)
    by_order = [
        {job[1:] for job in jobs if job[0] == name} for name in ("metaxlm+dict", "dict-first")
    ]
    assert by_order[0] == by_order[1]
    table_5 = list_grid(load(folder, "initialization"))
    for name in ("remainder", "body+embeddings"):
        assert {job[1:] for job in jobs if job[0] == name} >= {job[1:] for job in table_5}
    alphas = {name: trade_off.variants[name].alpha for name in ("xlm+source", "xlm", "xlm+target")}
    assert alphas == {"xlm+source": 1.0, "xlm": None, "xlm+target": 0.3}


def test_what_the_paper_leaves_open_differs_in_nothing_else_in_the_third_round() -> None:
    readings, base = load("third", "readings"), load("third", "minilm")
    shared = {"variants", "evaluation"}
    assert readings.model_dump(exclude=shared) == base.model_dump(exclude=shared)
    assert base.variants.items() <= readings.variants.items()
    differences = {
        "dict-first": ("metaxlm+dict", {"matching"}), "xlm+source": ("xlm", {"alpha"}),
        "xlm+target": ("xlm", {"alpha"}), "remainder": ("embeddings", {"initialize"}),
        "body+embeddings": ("metaxlm", {"initialize"}),
    }  # fmt: skip
    for name, (other, keys) in differences.items():
        mine, its = readings.variants[name].model_dump(), base.variants[other].model_dump()
        assert {key for key in mine if mine[key] != its[key]} == keys
    alphas = [readings.variants[name].alpha for name in ("xlm+source", "xlm+target")]
    assert alphas == [1.0, 0.3]
    first = readings.find_matching(readings.variants["dict-first"])
    assert first == base.matching.model_copy(update={"precedence": "dictionary"})
    jobs = list_grid(readings)
    assert {job[0] for job in jobs} - set(base.variants) == set(differences)


def test_larger_dictionaries_are_the_only_difference_of_the_merged_variants() -> None:
    merged, base = load("third", "dictionaries"), load("third", "minilm")
    for name in ("dict+use", "metaxlm+dict"):
        mine, other = merged.variants[f"{name}+merged"], base.variants[name]
        matching = [one.find_matching(v) for one, v in ((merged, mine), (base, other))]
        folders = [one.dictionaries for one in matching]
        assert folders[0] is not None and folders[0] != folders[1]
        first, second = (one.model_copy(update={"dictionaries": None}) for one in matching)
        assert first == second
        assert mine.model_copy(update={"matching": other.matching}) == other
    shared = {name: merged.variants[name] for name in base.variants}
    assert shared == base.variants
    assert merged.matching == base.matching  # so that they are not trained again


def test_the_ideas_are_evaluated_like_the_dictionaries() -> None:
    recipe, base = load("twin", "ideas"), list_grid(load("twin", "base"))
    assert {job for job in list_grid(recipe) if job[0] not in IDEAS} == base
    tasks = {*XTREME, *FEATURES}
    dictionaries = {job[1:] for job in base if job[0] == "metaxlm+dict" and job[1] in tasks}
    for name in IDEAS:
        assert {job[1:] for job in list_grid(recipe) if job[0] == name} == dictionaries
        assert recipe.variants[name].dictionaries
        assert (recipe.variants[name].switch is not None) == name.endswith("+switch")


def test_the_recipe_of_an_imported_encoder_differs_in_nothing_else() -> None:
    recipe, base, ideas = (load("twin", name) for name in ("minilm", "base", "ideas"))
    assert recipe.meta.model is not None
    assert recipe.variants == {**base.variants, "dict+use": ideas.variants["dict+use"]}
    for part in ("languages", "corpus", "vocabulary", "matching", "pretraining", "seed"):
        assert getattr(recipe, part) == getattr(base, part)
    assert recipe.evaluation.finetune == base.evaluation.finetune
    # all-MiniLM-L6-v2
    shape = recipe.model
    assert (shape.layers, shape.hidden, shape.heads, shape.ffn) == (6, 384, 12, 1536)
    wanted = {job for job in list_grid(ideas) if job[0] in recipe.variants}
    assert list_grid(recipe) >= wanted
    more = {job[:2] for job in list_grid(recipe) - wanted}
    assert more == {("metaxlm+dict", task) for task in FEATURES}

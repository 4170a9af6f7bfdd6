"""Answer the questions of the page of `metaxlm view` about one run, as JSON values.

Scores, losses and coverage are read once and sent with the page. Neighbors and alignments are
computed on demand with the models of the run, and tokens are looked up in the ledgers of its
variants. A publication has neither: `content` lists what is missing and the command that makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from inspect import signature
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from metaxlm.analysis.results import FEATURES, display_name, name_metric, read_rows, select
from metaxlm.analysis.run_folder import find_log, read_run
from metaxlm.analysis.style import assign_looks, classify_links, describe_links
from metaxlm.errors import MetaXLMError
from metaxlm.languages import language_name
from metaxlm.recipe.schema import ENCODER
from metaxlm.run.layout import RunLayout

if TYPE_CHECKING:
    from metaxlm.finetune.readers.parallel import AlignmentSet, ParallelSentences
    from metaxlm.init.match_plan import Plan
    from metaxlm.model.any_encoder import AnyEncoder

Value = Any  # what JSON can write
NUM_NEIGHBORS = 10
NUM_SIMILAR = 40  # largest number of tokens that a search lists
_NUMBERS = ("step", "layer", "sentence")  # parameters that are integers
_STEPS = "steps"  # folder of the models of earlier steps
_CONFIG = "config.json"  # `hub.CONFIG`, without the import of transformers
_LEDGER = "initialization/ledger.parquet"
_COLUMNS = ("variant", "step", "task", "scenario", "source", "language", "layer", "split")


class Explorer:
    """The content of one run, and the models that are open."""

    def __init__(self, run_dir: Path) -> None:
        """Read the run; reject a folder that is not one."""
        if not (run_dir / "recipe.yaml").is_file():
            raise MetaXLMError(f"{run_dir}: not a run folder, it has no recipe.yaml")
        self.run_dir, self.layout, self.run = run_dir, RunLayout(run_dir), read_run(run_dir)
        data = self.run.settings("evaluation").get("data")
        self.data_dir = Path(str(data)) if data else self.layout.tasks
        # One computation at a time, and a few results in memory.
        self._lock = Lock()
        self._open = lru_cache(2)(self._open_model)
        self._embed = lru_cache(2)(self._embed_pairs)
        self._score = lru_cache(64)(self._score_pair)
        self._read = lru_cache(8)(self._read_pairs)
        self._load = lru_cache(4)(self._load_ledger)

    def answer(self, question: str, query: Mapping[str, str]) -> Value:
        """Return the answer to a question of the page, or raise an error in one line."""
        answers: dict[str, Callable[..., Value]] = {
            "run": lambda: self.content,
            "pairs": self.list_pairs,
            "neighbors": self.find_neighbors,
            "alignment": self.align_pair,
            "ledger": self.look_up,
        }
        if question not in answers:
            raise MetaXLMError(f"{question}: unknown question; known: {', '.join(answers)}")
        names = list(signature(answers[question]).parameters)
        try:
            values = [int(query[n]) if n in _NUMBERS else query[n] for n in names]
        except (KeyError, ValueError) as error:
            raise MetaXLMError(f"{question}: needs {', '.join(names)}") from error
        with self._lock:
            return answers[question](*values)

    @cached_property
    def models(self) -> dict[str, dict[int, Path]]:
        """Folders of the models by variant and step."""
        found: dict[str, dict[int, Path]] = {}
        for variant in self.run.variants:
            home = self.layout.variant(variant)
            kept = [(p.name.removeprefix("step-"), p) for p in (home / _STEPS).glob("step-*")]
            folders = {int(number): path for number, path in kept if number.isdecimal()}
            last = self.run.results.final_steps.get(variant)
            last = self.run.settings("pretraining").get("steps") if last is None else last
            final = home / "model"
            if variant.endswith(ENCODER):
                final = self.layout.encoder(variant.removesuffix(ENCODER))
            folders[int(last or 0)] = final
            whole = {step: p for step, p in sorted(folders.items()) if (p / _CONFIG).is_file()}
            found |= {variant: whole} if whole else {}
        return found

    @cached_property
    def pairs(self) -> dict[str, list[str]]:
        """Languages with sentence pairs, by task."""
        from metaxlm.finetune.readers.parallel import list_tatoeba, list_word_alignment

        listed = {"tatoeba": list_tatoeba(self.data_dir)}
        listed["alignment"] = list_word_alignment(self.data_dir)
        known = [str(code) for code in self.run.recipe.get("languages") or ()]
        return {t: [c for c in codes if c in known or not known] for t, codes in listed.items()}

    @cached_property
    def content(self) -> Value:
        """What the page shows without further questions."""
        run, results = self.run, self.run.results
        looks, infos = assign_looks(run.variants), {t: results.info(t) for t in results.tasks}
        ledgers = [v for v in run.variants if (self.layout.variant(v) / _LEDGER).is_file()]
        scores = self._collect_scores()
        codes = {*scores["source"], *scores["language"], *(run.recipe.get("languages") or ())}
        return {
            "name": run.name,
            "variants": {
                v: {
                    "label": display_name(v), "look": looks[v].css_class, "dash": looks[v].dash,
                    "start": run.describe_initialization(v),
                }
                for v in run.variants
            },
            "languages": {code: language_name(code) for code in sorted(codes)},
            "tasks": {
                t: {
                    "title": one.title, "metric": name_metric(one.metric), "lower": one.lower,
                    "layered": t in FEATURES,
                }
                for t, one in infos.items()
            },
            "scores": scores,
            "losses": self._collect_losses(),
            "coverage": run.coverage,
            "models": {v: list(steps) for v, steps in self.models.items()},
            "pairs": self.pairs,
            "ledgers": ledgers,
            "examples": {
                v: {
                    "tatoeba": [_describe_retrieval(one) for one in found["tatoeba"]],
                    "alignment": [_describe_example(one) for one in found["alignment"]],
                }
                for v, found in run.examples.items()
            },
            "missing": self._list_missing(ledgers),
        }  # fmt: skip

    def _list_missing(self, ledgers: list[str]) -> dict[str, str]:
        """Return a sentence for each view that lacks its source, with the command that makes it."""
        command = f"metaxlm run {self.run_dir / 'recipe.yaml'} --stage"
        then = f"and the data that it names, then open `metaxlm view runs/{self.run.name}`."
        untrained = f"This folder has no models. Train them with `{command} pretrain` {then}"
        unread = (
            f"{self.data_dir} has no such sentence pairs. Set `evaluation.data` to their folder."
        )
        missing = {}
        for view, task in (("neighbors", "tatoeba"), ("alignments", "alignment")):
            if not self.models or not self.pairs[task]:
                missing[view] = unread if self.models else untrained
        if not ledgers:
            missing["ledger"] = (
                f"This folder has no ledger. Write it with `{command} initialize` {then}"
            )
        return missing

    def _collect_scores(self) -> dict[str, list[Value]]:
        """Return scores in columns: means over seeds of each task's metric, at every step."""
        import pandas as pd

        results = self.run.results
        frame, parts = results.frame, []
        for task in results.tasks:
            final = select(frame, task=task)
            earlier = select(frame[~frame["is_final"]], task=task, step="all")
            rows = pd.concat([final, earlier]) if len(earlier) else final
            is_shown = (rows["metric"] == results.info(task).metric) & rows["variant"].notna()
            parts.append(rows[is_shown])
        grouped = pd.concat(parts).groupby(list(_COLUMNS), dropna=False, sort=False)["value"]
        table = grouped.agg(value="mean", seeds="count").reset_index()
        table["value"] = table["value"].round(5)
        table[["step", "layer"]] = table[["step", "layer"]].fillna(-1).astype(int)
        return {str(name): column.tolist() for name, column in table.items()}

    def _collect_losses(self) -> dict[str, Value]:
        """Return the training loss and the held-out loss by language of each training."""
        losses = {}
        places = {v: self.layout.variant(v) for v in self.run.variants}
        for name, folder in {"": self.layout.meta, **places}.items():
            trained = self.run.meta_log if not name else self.run.logs.get(name, [])
            held_out: dict[str, list[tuple[int, float]]] = {}
            log = find_log(folder)
            for row in read_rows(log) if log else ():
                for code, loss in (row.get("held_out") or {}).items():
                    held_out.setdefault(code, []).append((row["step"], round(loss, 4)))
            points = [(row["step"], round(row["loss"], 4)) for row in trained]
            if points:
                losses[name] = {"training": points, "held_out": held_out}
        return losses

    def list_pairs(self, task: str, language: str) -> Value:
        """Return the sentence pairs of a language, the foreign sentence first."""
        found = self._read(task, language)
        if task == "tatoeba":
            return list(zip(found.foreign, found.english, strict=True))
        return [(" ".join(pair.source), " ".join(pair.target)) for pair in found.pairs]

    def find_neighbors(
        self, variant: str, step: int, language: str, layer: int, sentence: int, direction: str
    ) -> Value:
        """Return the sentences of the other side that are nearest to a sentence, by cosine."""
        import torch.nn.functional as F

        vectors_YND = self._embed(variant, step, language)
        texts = self._read("tatoeba", language)
        sides = [(texts.foreign, 0), (texts.english, len(texts.english))]
        (queries, first), (keys, start) = sides if direction == "to_source" else sides[::-1]
        _check_place("layer", layer, len(vectors_YND))
        _check_place("sentence", sentence, len(queries))
        query_D = vectors_YND[layer, first + sentence]
        cosines_N = F.cosine_similarity(
            vectors_YND[layer, start : start + len(keys)], query_D[None]
        )
        best = cosines_N.topk(min(NUM_NEIGHBORS, len(keys)))
        found = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return {
            "query": queries[sentence],
            "expected": keys[sentence],
            "rank": 1 + int((cosines_N > cosines_N[sentence]).sum()),
            "num_searched": len(keys),
            "found": [
                {
                    "text": keys[k],
                    "similarity": round(cosine, 4),
                    "right": keys[k] == keys[sentence],
                }
                for k, cosine in found
            ],
        }

    def align_pair(
        self, variant: str, step: int, language: str, layer: int, sentence: int
    ) -> Value:
        """Return the links of a sentence pair in a layer, their kinds and the aligner's weights."""
        pairs = self._read("alignment", language).pairs
        _check_place("sentence", sentence, len(pairs))
        pair, layers = pairs[sentence], self._score(variant, step, language, sentence)
        _check_place("layer", layer, len(layers))
        words = {"source_words": pair.source, "target_words": pair.target}
        links = {"predicted": layers[layer].links, "sure": pair.sure, "possible": pair.possible}
        weights = [[round(weight, 2) for weight in row] for row in layers[layer].weights.tolist()]
        return {**_describe_example({**words, **links}), "weights": weights}

    def look_up(self, variant: str, token: str) -> Value:
        """Return how the embeddings of a token are initialized, and tokens that begin like it."""
        from metaxlm.init.ledger import explain, find_rows

        plan, forms = self._load(variant)
        exact = [row for row, form in enumerate(forms) if form == token]
        rows = list(dict.fromkeys([*find_rows(plan, token), *exact])) if token else []
        similar = [row for row, form in enumerate(forms) if token and form.startswith(token)]
        similar = [row for row in similar if row not in rows][:NUM_SIMILAR]
        stories = []
        for row in rows:
            story = explain(plan, row)
            origin = story.origin
            stories.append(
                {
                    "row": row, "token": origin.token, "description": story.description,
                    "steps": story.steps, "outcome": story.outcome,
                    "sources": [
                        (text, place, round(weight, 4))
                        for text, place, weight in zip(
                            origin.source_tokens, origin.source_rows, origin.weights, strict=True
                        )
                    ],
                }
            )  # fmt: skip
        named = [(row, plan.tokens[row], plan.origin(row).rule) for row in similar]
        return {"found": stories, "similar": named, "size": len(plan)}

    def _open_model(self, variant: str, step: int) -> AnyEncoder:
        from metaxlm.run.models import NamedModel, open_model

        folder = self.models.get(variant, {}).get(step)
        if folder is None:
            raise MetaXLMError(f"{variant}: the run has no model of step {step}; run its recipe")
        return open_model(NamedModel(variant, folder, step, variant))

    def _embed_pairs(self, variant: str, step: int, language: str) -> Any:
        from metaxlm.probe.embedding import embed_texts

        texts = self._read("tatoeba", language)
        title = f"{variant} {step} {language}: embed"
        return embed_texts(self._open(variant, step), [*texts.foreign, *texts.english], title=title)

    def _score_pair(self, variant: str, step: int, language: str, sentence: int) -> Any:
        from metaxlm.probe.alignment import score_words

        pair = self._read("alignment", language).pairs[sentence]
        return score_words(self._open(variant, step), (pair.source, pair.target))

    def _read_pairs(self, task: str, language: str) -> Any:
        from metaxlm.finetune.readers.parallel import read_tatoeba, read_word_alignment

        if language not in self.pairs.get(task, ()):
            raise MetaXLMError(f"{self.data_dir}: no pairs of {task} for {language!r}")
        read = read_tatoeba if task == "tatoeba" else read_word_alignment
        found: ParallelSentences | AlignmentSet = read(self.data_dir, language)
        return found

    def _load_ledger(self, variant: str) -> tuple[Plan, list[str]]:
        """Return a variant's plan, and the text of each token; a special token is its own text."""
        from metaxlm.init.ledger import load_ledger
        from metaxlm.vocab.tokens import surface_form

        if variant not in self.run.variants:
            raise MetaXLMError(f"{variant}: not a variant; known: {', '.join(self.run.variants)}")
        plan = load_ledger(self.layout.variant(variant) / _LEDGER)
        forms = (surface_form(token, plan.kind) for token in plan.tokens)
        return plan, [t if f is None else f[0] for t, f in zip(plan.tokens, forms, strict=True)]


def _check_place(what: str, place: int, count: int) -> None:
    if not 0 <= place < count:
        raise MetaXLMError(f"{what} {place}: out of range; use 0 to {count - 1}")


def _describe_retrieval(example: Mapping[str, Value]) -> Value:
    return {**example, "right": example["found"] == example["expected"]}


def _describe_example(example: Mapping[str, Value]) -> Value:
    """Return the words of a pair and its links by kind."""
    links = classify_links(*(map(tuple, example[k]) for k in ("predicted", "sure", "possible")))
    kept = {
        k: example[k] for k in ("source_words", "target_words", "language", "layer") if k in example
    }
    return {**kept, "kinds": links, "verdict": describe_links(links)}

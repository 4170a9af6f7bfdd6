"""Score sentence encoders: retrieval, mining, zero-shot classification, English kept, STS.

Every measure is a function of the encoder's sentence vectors, which are scaled to length 1. The
teacher is always scored too, with its own vocabulary: a student that ends below it has gained
nothing. Settings are to be chosen on the even lines of Tatoeba and reported on the odd ones.
Shapes: N texts, D hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from scipy.stats import spearmanr
from torch import Tensor

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.catalog import GROUPS, TASKS
from metaxlm.finetune.readers.input_lines import read_lines
from metaxlm.finetune.readers.parallel import ParallelSentences, list_tatoeba, read_tatoeba
from metaxlm.finetune.readers.texts import LabeledText
from metaxlm.finetune.task import AnyTask, DataFile
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.model.sentence_modules import SentenceModules
from metaxlm.probe.calibration import FEWEST_PAIRS, calibrate
from metaxlm.probe.embedding import embed_texts
from metaxlm.probe.linear_head import join_pair, train_head
from metaxlm.probe.nearest import find_both
from metaxlm.probe.pool import LayerChoice
from metaxlm.progress import say

Lines = Literal["all", "even", "odd"]
"""Lines of Tatoeba whose sentences are queries, counted from 0; all lines are candidates."""
Scores = dict[str, Any]

NUM_ENGLISH = 2_000
"""Sentences whose pairwise similarities are compared with the teacher's."""
MOST_TRAINED = 100_000
"""Training pairs of the linear head; of more, evenly spaced ones are used."""


@dataclass
class SentenceEncoder:
    """An encoder with the steps of its sentence-transformers folder."""

    name: str
    model: AnyEncoder
    modules: SentenceModules
    device: torch.device
    layer: LayerChoice | None = None  # default: the last layer

    def encode(self, texts: Sequence[str], title: str) -> Tensor:
        """Return the vectors of texts, scaled to length 1, [N, D]."""
        return F.normalize(self.embed(texts, title), dim=1)

    def embed(self, texts: Sequence[str], title: str) -> Tensor:
        """Return the vectors of texts, [N, D]; equal texts are read once."""
        rows = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        layer = self.layer or LayerChoice((self.model.encoder.config.num_layers,))
        named = f"{self.name}: {title}"
        found_ND = embed_texts(
            self.model, list(rows), self.device, layers=[layer], modules=self.modules, title=named
        )[0]
        return found_ND[torch.tensor([rows[text] for text in texts])]


@dataclass(frozen=True)
class Classification:
    """A task with its English training set and a test set for each language."""

    task: AnyTask
    train: list[LabeledText]
    tests: dict[str, list[LabeledText]]


@dataclass(frozen=True)
class SentenceData:
    """What the encoders are scored on, read and checked before any of them is loaded."""

    tatoeba: list[ParallelSentences] = field(default_factory=list)
    english: list[str] = field(default_factory=list)
    tasks: dict[str, list[Classification]] = field(default_factory=dict)
    sts: dict[str, list[tuple[str, str, float]]] = field(default_factory=dict)
    lines: Lines = "all"


def read_sentence_data(
    data: Path | None,
    *,
    languages: Sequence[str] | None = None,
    english: Path | None = None,
    sts: Sequence[Path] = (),
    lines: Lines = "all",
    limit: int | None = None,
) -> SentenceData:
    """Read all data sets below a folder, and log each that is missing."""
    if data is not None and not data.is_dir():
        raise MetaXLMError(f"--data {data}: no such folder")
    tatoeba: list[ParallelSentences] = []
    tasks: dict[str, list[Classification]] = {}
    if data is not None:
        present = list_tatoeba(data)
        chosen = present if languages is None else [code for code in languages if code in present]
        tatoeba = [_cut_pairs(read_tatoeba(data, code), limit) for code in chosen]
        if not tatoeba:
            say(f"tatoeba: skipped, no files of the languages in {data / 'tatoeba'}")
        for group, names in (("xnli", ("xnli",)), ("reviews", GROUPS["amazon"])):
            found = [_read_task(TASKS[name], data, languages, limit) for name in names]
            tasks[group] = [task for task in found if task is not None]
            if not tasks[group]:
                say(f"{group}: skipped, no English training set and labeled test sets in {data}")
    sentences = [] if english is None else [line for line in read_lines(english) if line.strip()]
    if english is None:
        rows = (_select(pairs.english, lines) for pairs in tatoeba)
        sentences = [sentence for row in rows for sentence in row]
    sentences = _spread(list(dict.fromkeys(sentences)), NUM_ENGLISH)
    if len(sentences) < 3:
        say("English: skipped, it needs --english FILE or Tatoeba")
        sentences = []
    scored = {path.stem: _read_sts(path) for path in sts}
    if len(scored) < len(sts):
        raise MetaXLMError("--sts: two files have the same name; rename one, it is its column")
    tasks = {name: found for name, found in tasks.items() if found}
    known = {pairs.language for pairs in tatoeba}
    known |= {code for found in tasks.values() for task in found for code in task.tests}
    if missing := [code for code in languages or () if code not in known]:
        found_codes = " ".join(sorted(known))
        raise MetaXLMError(
            f"--languages {','.join(missing)}: no data set has them; found: {found_codes}"
        )
    if not tatoeba and not tasks and not sentences and not scored:
        raise MetaXLMError("evaluate-sentences: nothing to score; name --data, --english or --sts")
    return SentenceData(tatoeba, sentences, tasks, scored, lines)


def score_sentences(
    encoder: SentenceEncoder, data: SentenceData, teacher_ND: Tensor | None = None
) -> tuple[Scores, Tensor | None]:
    """Return all scores of an encoder as fractions, and its vectors of the English sentences.

    `teacher_ND` are the teacher's vectors of the same sentences; None if it is the teacher.
    """
    scores: Scores = {}
    if data.tatoeba:
        scores["tatoeba"] = {}
        scores["mining"] = {}
        for pairs in data.tatoeba:
            sides = [
                encoder.encode(side, f"tatoeba {pairs.language}")
                for side in (pairs.foreign, pairs.english)
            ]
            accuracy = measure_directions(sides[0], sides[1], data.lines)
            scores["tatoeba"][pairs.language] = accuracy
            if mined := measure_mining(sides[0], sides[1], data.lines):
                scores["mining"][pairs.language] = mined
    for name, tasks in data.tasks.items():
        found = [_score_task(encoder, task) for task in tasks]
        codes = dict.fromkeys(code for accuracies in found for code in accuracies)
        scores[name] = {
            code: float(np.mean([accuracies[code] for accuracies in found if code in accuracies]))
            for code in codes
        }
    vectors_ND = None
    if data.english:
        vectors_ND = encoder.encode(data.english, "English")
        scores["english"] = compare_with_teacher(
            vectors_ND, vectors_ND if teacher_ND is None else teacher_ND
        )
    for name, rows in data.sts.items():
        first_ND = encoder.encode([row[0] for row in rows], f"STS {name}")
        second_ND = encoder.encode([row[1] for row in rows], f"STS {name}")
        cosines_N = F.cosine_similarity(first_ND.double(), second_ND.double(), dim=1)
        gold = [row[2] for row in rows]
        scores.setdefault("sts", {})[name] = float(spearmanr(cosines_N.numpy(), gold).statistic)
    return scores, vectors_ND


def measure_directions(foreign_ND: Tensor, english_ND: Tensor, lines: Lines = "all") -> Scores:
    """Return accuracy@1 into and from English of the chosen lines among all lines."""
    own_N = torch.arange(len(foreign_ND))
    to_en, from_en = (
        float(_select((nearest.indices_Qk[:, 0] == own_N).double(), lines).mean())
        for nearest in find_both(foreign_ND, english_ND)
    )
    return {"to_en": to_en, "from_en": from_en, "mean": (to_en + from_en) / 2}


def measure_mining(foreign_ND: Tensor, english_ND: Tensor, lines: Lines = "all") -> Scores:
    """Mine the chosen lines with distractors (see `calibration`); {} if there are too few.

    Every other line chooses the threshold of the best F1, and the others are scored.
    """
    sides = _select(foreign_ND, lines), _select(english_ND, lines)
    if len(sides[0]) < FEWEST_PAIRS:
        return {}
    # The margin distance, because cosines of neighbors may be negative.
    found = calibrate(*sides, margin="distance")
    parts = {name: getattr(found.scores, name) for name in ("f1", "precision", "recall")}
    return {**parts, "threshold": found.threshold}


def compare_with_teacher(vectors_ND: Tensor, teacher_ND: Tensor) -> Scores:
    """Return the mean cosine of both, if they are equally wide, and the correlation of pairs."""
    scores: Scores = {}
    if vectors_ND.shape == teacher_ND.shape:
        cosines_N = F.cosine_similarity(vectors_ND.double(), teacher_ND.double(), dim=1)
        scores["cosine"] = float(cosines_N.mean())
    above = np.triu_indices(len(vectors_ND), k=1)
    ours, theirs = ((side @ side.T).numpy()[above] for side in (vectors_ND, teacher_ND))
    scores["spearman"] = float(spearmanr(ours, theirs).statistic)
    return scores


def _score_task(encoder: SentenceEncoder, found: Classification) -> dict[str, float]:
    """Train the head in English and return its accuracy in each language."""
    task = found.task

    def featurize(examples: Sequence[LabeledText], title: str) -> Tensor:
        first_ND = encoder.encode([example.first for example in examples], title)
        if examples[0].second is None:
            return first_ND
        return join_pair(first_ND, encoder.encode([e.second or "" for e in examples], title))

    def number(examples: Sequence[LabeledText]) -> Tensor:
        return torch.tensor([task.labels.index(example.label or "") for example in examples])

    features_NF = featurize(found.train, f"{task.name} training set")
    head = train_head(features_NF, number(found.train), len(task.labels), encoder.device)
    accuracies = {}
    for code, examples in found.tests.items():
        answers_N = head.predict(featurize(examples, f"{task.name} {code}"))
        accuracies[code] = float((answers_N == number(examples)).double().mean())
    return accuracies


def _read_task(
    task: AnyTask, data: Path, languages: Sequence[str] | None, limit: int | None
) -> Classification | None:
    """Read the English training set and the test sets, or dev sets where labels are missing."""
    wanted = None if languages is None else {"en", *languages}
    files = task.list_files(data)
    tests: dict[str, list[LabeledText]] = {}
    for file in sorted(files, key=lambda file: file.split != "test"):
        is_wanted = file.split in ("dev", "test") and (wanted is None or file.language in wanted)
        if not is_wanted or file.language in tests:
            continue
        if examples := _read_labeled(task, file)[:limit]:
            tests[file.language] = examples
    train = [file for file in files if (file.split, file.language) == ("train", "en")]
    if not train or not tests:
        return None
    examples = _spread(_read_labeled(task, train[0]), min(limit or MOST_TRAINED, MOST_TRAINED))
    return Classification(task, examples, tests)


def _read_labeled(task: AnyTask, file: DataFile) -> list[LabeledText]:
    examples = task.read(file)
    for notice in examples.notices:
        say(notice)
    return [example for example in examples.items if example.label is not None]


def _read_sts(path: Path) -> list[tuple[str, str, float]]:
    rows = []
    for number, line in enumerate(read_lines(path), start=1):
        fields = line.split("\t")
        try:
            first, second, score = fields[0], fields[1], float(fields[2])
        except (IndexError, ValueError) as error:
            raise MetaXLMError(
                f"{path}:{number}: cannot be read; write text TAB text TAB score"
            ) from error
        if len(fields) > 3 or not first.strip() or not second.strip() or not np.isfinite(score):
            raise MetaXLMError(f"{path}:{number}: needs two texts and a finite score between tabs")
        rows.append((first, second, score))
    if len({row[2] for row in rows}) < 2:
        raise MetaXLMError(f"{path}: all scores are equal, so nothing correlates with them")
    return rows


def _cut_pairs(pairs: ParallelSentences, limit: int | None) -> ParallelSentences:
    return ParallelSentences(pairs.language, pairs.foreign[:limit], pairs.english[:limit])


def _select(items: Any, lines: Lines) -> Any:
    return items[{"all": slice(None), "even": slice(0, None, 2), "odd": slice(1, None, 2)}[lines]]


def _spread(items: list[Any], most: int) -> list[Any]:
    """Return at most this many evenly spaced items."""
    if len(items) <= most:
        return items
    return [items[k * len(items) // most] for k in range(most)]

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from metaxlm.finetune.amazon import DOMAINS, AmazonTask
from metaxlm.finetune.data_folder.finetuning_sets import XNLI
from metaxlm.finetune.pawsx import PawsxTask
from metaxlm.finetune.xnli import LABELS, XnliTask
from transformers import PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.classification import ClassificationTask
from metaxlm.finetune.metrics import compute_accuracy
from metaxlm.finetune.readers import LabeledText
from metaxlm.finetune.task import IGNORED, FinetuneSettings
from tests.finetune.conftest import TEXT

TASK = XnliTask()
PAIRS = [LabeledText(TEXT[k], TEXT[k + 1], LABELS[k % 3]) for k in range(6)]
REVIEWS = AmazonTask("books")


def settings(length: int) -> FinetuneSettings:
    return FinetuneSettings(epochs=1, learning_rate=1e-5, length=length)


class TestFeatures:
    def test_pairs(self, any_tokenizer: PreTrainedTokenizerBase) -> None:
        encoded = TASK.featurize(PAIRS, any_tokenizer, settings(256))
        assert encoded.notice == ""
        assert [sequence.labels.tolist() for sequence in encoded.features] == [[0], [1], [2]] * 2
        assert [sequence.example for sequence in encoded.features] == list(range(6))
        for pair, sequence in zip(PAIRS, encoded.features, strict=True):
            expected = any_tokenizer(pair.first, pair.second, return_token_type_ids=True)
            assert sequence.ids.tolist() == expected["input_ids"]
            assert sequence.token_types is not None
            assert sequence.token_types.tolist() == expected["token_type_ids"]

    def test_single_texts(self, any_tokenizer: PreTrainedTokenizerBase) -> None:
        texts = [LabeledText(TEXT[0], None, "positive"), LabeledText(TEXT[1], None, None)]
        encoded = REVIEWS.featurize(texts, any_tokenizer, settings(256))
        assert [sequence.labels.tolist() for sequence in encoded.features] == [[1], [IGNORED]]
        for text, sequence in zip(texts, encoded.features, strict=True):
            assert sequence.ids.tolist() == any_tokenizer(text.first)["input_ids"]

    @pytest.mark.parametrize(
        ("task", "second", "noun"), [(TASK, "we", "pairs"), (REVIEWS, None, "texts")]
    )
    def test_cutting_is_said(
        self,
        tokenizer: PreTrainedTokenizerBase,
        task: ClassificationTask,
        second: str | None,
        noun: str,
    ) -> None:
        texts = [LabeledText("we", second, None), LabeledText(" ".join(TEXT), second, None)]
        encoded = task.featurize(texts, tokenizer, settings(30))
        assert encoded.notice == f"1 of 2 {noun} are longer than 30 tokens; cut"
        assert len(encoded.features[1].ids) == 30


class TestLoss:
    def test_is_cross_entropy_over_labeled_examples(self) -> None:
        logits = torch.tensor([[2.0, 0.0, 0.0], [9.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
        labels, lengths = torch.tensor([[0], [IGNORED], [1]]), torch.ones(3)
        expected = -torch.log_softmax(logits, dim=1)[[0, 2], [0, 1]].mean()
        assert TASK.compute_loss(logits, labels, lengths) == pytest.approx(float(expected))

    def test_a_batch_without_labels_changes_nothing(self) -> None:
        logits = torch.randn(2, 3, requires_grad=True)
        loss = TASK.compute_loss(logits, torch.full((2, 1), IGNORED), torch.ones(2))
        loss.backward()
        assert float(loss.detach()) == 0.0
        assert logits.grad is not None and not logits.grad.any()


class TestScores:
    def test_decoding_and_accuracy(self, tokenizer: PreTrainedTokenizerBase) -> None:
        features = TASK.featurize(PAIRS, tokenizer, settings(256)).features
        logits = [np.eye(3, dtype=np.float32)[int(s.labels[0])] for s in features]
        predictions = TASK.decode(PAIRS, features, logits)
        assert predictions == [pair.label for pair in PAIRS]
        predictions[0] = "contradiction"
        tally = TASK.tally(PAIRS, predictions, "de")
        assert tally.tolist() == [[0, 1], *[[1, 1]] * 5]
        gold = [pair.label for pair in PAIRS]
        assert TASK.score(PAIRS, predictions, "de") == {
            "accuracy": compute_accuracy(gold, predictions)
        }
        assert TASK.tally([], [], "de").shape == (0, 2)

    def test_many_sums_at_once(self) -> None:
        totals = np.array([[[1.0, 2.0], [3.0, 4.0]]])
        assert TASK.summarize(totals)["accuracy"].tolist() == [[0.5, 0.75]]

    def test_labeled(self) -> None:
        assert TASK.is_labeled(PAIRS[0])
        assert not TASK.is_labeled(LabeledText("a", "b", None))

    def test_majority_answers_the_most_frequent_label(self) -> None:
        train = [LabeledText("a", "b", label) for label in ("neutral", *["entailment"] * 2)]
        assert TASK.answer_majority(train, PAIRS) == ["entailment"] * 6

    def test_chance_draws_each_label_equally_often(self) -> None:
        texts = [LabeledText("a", "b", "neutral")] * 30_000
        answers = TASK.answer_randomly([], texts, np.random.default_rng(3))
        assert answers == TASK.answer_randomly([], texts, np.random.default_rng(3))
        counts = Counter(answers)
        assert counts.keys() == {*LABELS}
        assert all(abs(count - 10_000) < 400 for count in counts.values())

    def test_submission_has_a_label_a_line(self) -> None:
        assert TASK.format_predictions(PAIRS[:2], ["neutral", "entailment"]) == (
            "neutral\nentailment\n"
        )


class TestXnli:
    def test_paper(self) -> None:
        assert (TASK.name, TASK.title, TASK.metric, len(TASK.languages)) == (
            "xnli", "XNLI", "accuracy", 15,
        )  # fmt: skip
        assert TASK.settings == FinetuneSettings(
            epochs=6, learning_rate=1e-5, batch_size=32, weight_decay=0.01, length=256
        )

    def test_training_pairs_from_either_folder(self, tmp_path: Path) -> None:
        assert TASK.list_files(tmp_path) == []
        for name, text in (
            ("mnli/mnli_train.tsv", "premise\thypothesis\tlabel\ts\na\tb\tcontradictory\tx\n"),
            ("xnli/train-en.tsv", "c\td\tneutral\n"),
        ):
            (tmp_path / name).parent.mkdir()
            (tmp_path / name).write_text(text)
            (file,) = TASK.list_files(tmp_path)
            assert (file.language, file.split, file.name) == ("en", "train", "train")
            (pair,) = TASK.read(file).items
            if name.startswith("mnli"):
                assert pair == LabeledText("a", "b", "contradiction")
        assert pair == LabeledText("c", "d", "neutral")

    def test_the_release_with_all_languages_in_one_file(self, tmp_path: Path) -> None:
        (tmp_path / "xnli.test.tsv").write_text(
            "language\tgold_label\tsentence1\tsentence2\tpairID\nde\tneutral\ta\tb\t1\n"
            "zh\tcontradiction\tc\td\t1\n"
        )
        files = {file.language: file for file in TASK.list_files(tmp_path)}
        assert set(files) == {*TASK.languages}
        assert TASK.read(files["zh"]).items == [LabeledText("c", "d", "contradiction")]
        with pytest.raises(MetaXLMError, match="no line of 'sw'"):
            TASK.read(files["sw"])

    def test_published(self, published: Callable[[str], Path]) -> None:
        published("mnli")
        files = TASK.list_files(published("xnli"))
        found = {(f.split, f.language): f for f in files}
        for split in ("dev", "test"):
            assert {c for s, c in found if s == split} == {*TASK.languages}, XNLI.name
        assert found["train", "en"].name == "train-subset"
        assert len(TASK.read(found["train", "en"]).items) == 57_040
        for language in ("el", "zh"):  # Greek has U+2028-like characters inside sentences
            for split, size in (("dev", 2_490), ("test", 5_010)):
                labels = Counter(pair.label for pair in TASK.read(found[split, language]).items)
                assert labels == dict.fromkeys(LABELS, size // 3)


class TestPawsx:
    def test_paper(self) -> None:
        task = PawsxTask()
        assert (task.name, task.title, task.labels) == ("pawsx", "PAWS-X", ("0", "1"))
        assert len(task.languages) == 7
        assert task.settings == FinetuneSettings(
            epochs=10, learning_rate=2e-5, batch_size=32, weight_decay=0.01, length=256
        )

    def test_the_release(self, tmp_path: Path) -> None:
        path = tmp_path / "x-final" / "fr" / "dev_2k.tsv"
        path.parent.mkdir(parents=True)
        path.write_text("id\tsentence1\tsentence2\tlabel\n1\ta\tb\t0\n")
        (file,) = PawsxTask().list_files(tmp_path)
        assert (file.language, file.split) == ("fr", "dev")
        assert PawsxTask().read(file).items == [LabeledText("a", "b", "0")]

    def test_published(self, published: Callable[[str], Path]) -> None:
        files = PawsxTask().list_files(published("pawsx"))
        names = {file.language: file.name for file in files if file.split == "test"}
        derived = dict.fromkeys(("en", "es", "fr", "ja", "ko"), "test-derived")
        assert names == {"de": "test", "zh": "test", **derived}
        sizes = {f.name: len(PawsxTask().read(f).items) for f in files}
        assert sizes == {
            "dev": 2_000, "test": 2_000, "test-derived": 1_983, "train-subset": 6_488,
        }  # fmt: skip


class TestAmazon:
    def test_paper(self) -> None:
        for domain in DOMAINS:
            task = AmazonTask(domain)
            assert task.name == f"amazon-{domain}"
            assert task.sources == task.languages == ("en", "de", "fr", "ja")
            assert task.settings == FinetuneSettings(
                epochs=5, learning_rate=2e-5, batch_size=32, weight_decay=0.01, length=256,
                select_by="last",
            )  # fmt: skip

    def test_each_domain_has_its_files(self, published: Callable[[str], Path]) -> None:
        folder = published("cls")
        for domain in DOMAINS:
            task = AmazonTask(domain)
            files = task.list_files(folder)
            assert [(file.language, file.split) for file in files] == [
                (code, split) for split in ("test", "train") for code in ("de", "en", "fr", "ja")
            ]
            assert {file.path.parent.name for file in files} == {domain}
        japanese = files[3]
        assert japanese.path.parts[-3] == "jp"
        assert Counter(text.label for text in task.read(japanese).items) == {
            "negative": 1_000, "positive": 1_000,
        }  # fmt: skip

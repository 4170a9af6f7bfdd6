"""Published layouts and Hugging Face datasets on disk become own tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.classification import ClassificationTask, MultiLabelTask, RegressionTask
from metaxlm.finetune.custom import load_custom_task
from metaxlm.finetune.layouts import list_flores, read_flores
from metaxlm.finetune.multiple_choice import MultipleChoiceTask
from metaxlm.finetune.readers.texts import LabeledText
from metaxlm.finetune.task import AnyTask
from metaxlm.languages import find_code
from tests.finetune.conftest import MakeEncoder, make_tokenizer, write
from tests.finetune.test_custom import EXAMPLES, find
from tests.finetune.test_trainer import BRIEF, Setting


def load(folder: Path, text: str) -> AnyTask:
    return load_custom_task(write(folder / "task.yaml", text))


def problem(folder: Path, text: str) -> str:
    with pytest.raises(MetaXLMError) as caught:
        task = load(folder, text)
        for file in task.list_files(folder):
            task.read(file)
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(f"{folder}/", "")


def write_sib200(folder: Path) -> None:
    rows = '1\tsports\tThe house\n2\ttravel\t"We ""do"" not"\n'
    for name in ("eng_Latn", "deu_Latn", "arb_Arab", "arb_Latn", "cmn_Hans", "zho_Hans"):
        for split in ("train", "dev", "test"):
            text = f"index_id\tcategory\ttext\n{rows}"
            write(folder / f"annotated/{name}/{split}.tsv", text)


def write_taxi1500(folder: Path) -> None:
    for name in ("eng", "lan"):
        for split in ("train", "dev", "test"):
            write(folder / f"{split}/{name}.tsv", "4001\tFaith\tThe house\n4002\tSin\tWe do not\n")


def write_massive(folder: Path) -> None:
    for name in ("en-US", "zh-TW"):
        rows = [
            {"locale": name, "partition": split, "utt": text, "intent": intent, "scenario": "x"}
            for split in ("train", "dev", "test")
            for text, intent in ((f"wake {split}", "alarm_set"), ("we do", "play_music"))
        ]
        write(folder / f"data/{name}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


WRITERS = {"sib200": write_sib200, "taxi1500": write_taxi1500, "massive": write_massive}


@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize(
    ("layout", "languages", "first"),
    [
        (
            "sib200",
            {"en", "de", "ar", "arb_Latn", "zh", "zho_Hans"},  # two folders of one language
            LabeledText("The house", None, "sports"),
        ),
        ("taxi1500", {"en", "lan"}, LabeledText("The house", None, "Faith")),
        ("massive", {"en", "zh-Hant"}, LabeledText("wake dev", None, "alarm_set")),
    ],
)
def test_a_published_folder_is_a_task(
    tmp_path: Path, layout: str, languages: set[str], first: LabeledText, is_named: bool
) -> None:
    WRITERS[layout](tmp_path / "data")
    named = f"layout: {layout}\n" if is_named else ""
    task = load(tmp_path, f"name: topics\nfolder: data\nepochs: 2\n{named}")
    assert (set(task.languages), task.sources, len(task.labels)) == (languages, ("en",), 2)
    assert (task.settings.epochs, task.settings.select_by) == (2, "source")
    for language in languages:
        for split in ("train", "dev", "test"):
            assert len(task.read(find(task, split, language)).items) == 2
    assert task.read(find(task, "dev", "en")).items[0] == first
    if layout == "sib200":
        assert task.read(find(task, "test", "de")).items[1].first == 'We "do" not'


def test_a_published_folder_trains(tmp_path: Path, make_encoder: MakeEncoder) -> None:
    write_massive(tmp_path)
    task = load(tmp_path, "name: intents\nfolder: .\nmetric: micro_f1\n")
    learn = Setting(make_encoder(make_tokenizer("words")), tmp_path)
    scores = learn(task, ("en", "zh-Hant"), settings=BRIEF).find("zh-Hant")
    assert set(scores.values) == {"micro_f1", "accuracy"}
    assert scores.values["micro_f1"] == scores.values["accuracy"]
    assert sum(map(sum, scores.confusion)) == scores.num_examples == 2
    assert set(scores.submission.split()) <= {"alarm_set", "play_music"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("folder: none\n", "none: no such folder"),
        ("folder: data\nlayout: massive\n", "data: expected the files of one layout, found noth"),
        ("folder: data\nlayout: xcopa\n", "task.yaml:3: layout: "),
        ("layout: sib200\n", "task.yaml:2: layout: of which folder?"),
        ("folder: data\ntest: {de: a.tsv}\n", "task.yaml:3: test: `folder` has all files"),
        ("folder: data\nkind: regression\n", "task.yaml:3: kind: sib200 is classification"),
        ("kind: classification\n", "task.yaml: key 'train' is missing, or `folder`"),
        ("train: {de: a.tsv}\n", "task.yaml: key 'kind' is missing, or `folder`"),
    ],
)
def test_mistakes_about_folders(tmp_path: Path, text: str, expected: str) -> None:
    write_sib200(tmp_path / "data")
    assert problem(tmp_path, f"name: t\n{text}").startswith(expected)


@pytest.mark.parametrize(
    ("split", "expected"),
    [("train", "no training file of sib200"), ("dev", "data/annotated/deu_Latn/test.tsv:1: no c")],
)
def test_missing_splits_and_columns(tmp_path: Path, split: str, expected: str) -> None:
    write_sib200(tmp_path / "data")
    for path in (tmp_path / "data").rglob(f"{split}.tsv"):
        path.unlink()
    write(tmp_path / "data/annotated/deu_Latn/test.tsv", "index_id\tcategory\n1\tsports\n")
    assert expected in problem(tmp_path, "name: t\nfolder: data\n")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("deu_Latn", "de"), ("swh_Latn", "sw"), ("als_Latn", "sq"), ("zho_Hans", "zh"),
        ("zho_Hant", "zh-Hant"), ("arb_Arab", "ar"), ("arb_Latn", "arb_Latn"), ("nb-NO", "no"),
        ("zh-TW", "zh-Hant"), ("pt-PT", "pt"), ("ace_Arab", "ace_Arab"), ("lan", "lan"),
    ],
)  # fmt: skip
def test_codes_of_file_names(name: str, code: str) -> None:
    assert find_code(name) == code


CLASSES = {"names": ["bad", "good"], "_type": "ClassLabel"}


def save_dataset(
    folder: Path, columns: dict[str, list[Any]], features: dict[str, Any], num_shards: int = 1
) -> None:
    """Write the files of `Dataset.save_to_disk`."""
    folder.mkdir(parents=True)
    table = pa.table(columns)
    names = [f"data-{k:05}-of-{num_shards:05}.arrow" for k in range(num_shards)]
    size = -(-len(table) // num_shards)
    for k, name in enumerate(names):
        part = table.slice(k * size, size)
        with ipc.new_stream(str(folder / name), part.schema) as stream:
            stream.write_table(part)
    write(folder / "state.json", json.dumps({"_data_files": [{"filename": n} for n in names]}))
    write(folder / "dataset_info.json", json.dumps({"features": features}))


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    for split, labels in (("train", [0, 1, 1]), ("validation", [1, 0, 0]), ("test", [1, -1, 0])):
        columns = {"text": ["a b", "c", "d"], "label": labels}
        save_dataset(tmp_path / "hf" / split, columns, {"label": CLASSES}, 2)
    write(tmp_path / "hf/dataset_dict.json", '{"splits": ["train", "validation", "test"]}')
    return tmp_path


YAML = "name: t\nkind: classification\ntrain: {en: hf}\ndev: {en: hf}\ntest: {en: hf}\n"


def test_a_saved_dataset_has_the_names_of_its_classes(dataset: Path) -> None:
    task = load(dataset, YAML)
    assert task.labels == ("bad", "good")
    items = task.read(find(task, "test", "en")).items
    assert [(item.first, item.label) for item in items] == [
        ("a b", "good"), ("c", None), ("d", "bad"),
    ]  # fmt: skip
    shards = [path.name for path in find(task, "train", "en").paths]
    assert shards == ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]
    one = load(dataset, YAML.replace("test: {en: hf}", "test: {en: hf/test}"))
    assert one.read(find(one, "test", "en")).items == items
    both = load(dataset, YAML.replace("train: {en: hf}", "train: {en: hf, de: hf/test/../train}"))
    assert len(both.read(find(both, "train", "en+de")).items) == 6


def test_lists_and_numbers_of_datasets(dataset: Path) -> None:
    features = {"label": {"feature": CLASSES, "_type": "List"}}
    save_dataset(dataset / "lists", {"text": ["a", "b"], "label": [[0, 1], []]}, features)
    text = YAML.replace("hf", "lists").replace("classification", "multi_label")
    task = load(dataset, text)
    assert [item.label for item in task.read(find(task, "dev", "en")).items] == ["bad,good", ""]
    parquet.write_table(pa.table({"text": ["a", "b"], "label": [0.5, 2.0]}), dataset / "x.parquet")
    text = YAML.replace("hf", "x.parquet").replace("classification", "regression")
    task = load(dataset, text)
    assert [item.label for item in task.read(find(task, "dev", "en")).items] == ["0.5", "2.0"]


def test_class_names_inside_the_file(tmp_path: Path) -> None:
    table = pa.table({"text": ["a", "b"], "label": [0, 1]})
    about = json.dumps({"info": {"features": {"label": CLASSES}}})
    parquet.write_table(
        table.replace_schema_metadata({"huggingface": about}), tmp_path / "x.parquet"
    )
    assert load(tmp_path, YAML.replace("hf", "x.parquet")).labels == ("bad", "good")


def test_mistakes_about_datasets(dataset: Path) -> None:
    def change(old: str, new: str) -> str:
        return problem(dataset, YAML.replace(old, new))

    assert change("dev: {en: hf}", "dev: {en: hf/dev}").startswith(
        "task.yaml:4: dev.en: hf/dev: no"
    )
    assert "expected text" not in change("kind: classification", "kind: tagging")
    assert change("train: {en: hf}", "train: {en: hf/test}").endswith("label the row")  # it has -1
    write(dataset / "hf/dataset_dict.json", '{"splits": ["train", "test"]}')
    found = "hf: no split dev; found: train, test; name the folder of one"
    assert problem(dataset, YAML) == found
    (dataset / "hf/train/data-00001-of-00002.arrow").unlink()
    assert problem(dataset, YAML).startswith("hf/train/data-00001-of-00002.arrow: no such file")
    write(dataset / "hf/train/data-00001-of-00002.arrow", "x")
    text = YAML.replace("dev: {en: hf}\n", "")
    assert problem(dataset, text).startswith("hf/train/data-00001-of-00002.arrow: cannot be read")
    (dataset / "hf/train/state.json").unlink()
    assert problem(dataset, text).startswith("hf/train: has neither dataset_dict.json nor state")


def test_the_examples_of_the_guide_load(tmp_path: Path) -> None:
    texts = {
        "topics/train.jsonl": '{"text": "x", "label": ["a", "b"]}\n',
        "topics/dev.jsonl": '{"text": "x", "label": []}\n',
        "topics/test.csv": "text,label\nx,a;b\n",
        "sts/train.tsv": "x\ty\t1.5\nx\tz\t0\n",
        "sts/dev.tsv": "x\ty\t1\n",
        "sts/test.tsv": "x\ty\t1\n",
        "sts/test.de.tsv": "x\ty\t1\n",
    }
    for name in ("train.jsonl", "dev.jsonl", "test.jsonl", "test.sw.jsonl"):
        row = {"passage": "x", "question": "y", "options": ["a", "b"], "key": "B"}
        texts[f"exam/{name}"] = json.dumps(row)
    for name, text in texts.items():
        write(tmp_path / name, text)
    columns = {"text": ["a", "b"], "label": [0, 1]}
    for name in ("saved/train", "saved/validation", "saved/test", "saved_de/test"):
        save_dataset(tmp_path / name, columns, {"label": CLASSES})
    write(tmp_path / "saved/dataset_dict.json", '{"splits": ["train", "validation", "test"]}')
    write_sib200(tmp_path / "data/sib-200")
    kinds = (MultiLabelTask, RegressionTask, MultipleChoiceTask, ClassificationTask)
    for example, kind in zip(EXAMPLES[3:], (*kinds, ClassificationTask), strict=True):
        task = load(tmp_path, example)
        assert isinstance(task, kind)
        assert all(task.read(file).items for file in task.list_files(tmp_path))


def test_flores_is_read_by_id_or_line(tmp_path: Path) -> None:
    for name, texts in (("eng_Latn", ["a", "b"]), ("deu_Latn", ["x", "y"])):
        for split in ("dev", "devtest"):
            text = "".join(f"{split} {text}\n" for text in texts)
            write(tmp_path / f"old/flores200_dataset/{split}/{name}.{split}", text)
        rows = list(enumerate(texts))[:: 1 if name == "eng_Latn" else -1]
        lines = "".join(json.dumps({"id": k, "text": text}) + "\n" for k, text in rows)
        write(tmp_path / f"new/dev/{name}.jsonl", lines)
    for folder, pairs in (
        ("old", {("devtest x", "devtest a"), ("devtest y", "devtest b")}),
        ("new", {("x", "a"), ("y", "b")}),
    ):
        assert list_flores(tmp_path / folder) == ["de"]
        found = read_flores(tmp_path / folder, "de")
        assert set(zip(found.foreign, found.english, strict=True)) == pairs
    with pytest.raises(MetaXLMError, match="no file of FLORES for 'fr'; found here: de en"):
        read_flores(tmp_path / "new", "fr")
    write(tmp_path / "new/dev/deu_Latn.jsonl", '{"id": 7, "text": "x"}\n')
    with pytest.raises(MetaXLMError, match=r"have other sentences \(1 and 2\)"):
        read_flores(tmp_path / "new", "de")

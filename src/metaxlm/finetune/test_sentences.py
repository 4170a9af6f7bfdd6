"""List the sentences of the dev and test sets in a folder, to keep them out of a corpus."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.data_files import MANY, list_files, match_files
from metaxlm.finetune.data_sets import DATA_SETS, MUSE, WIKIPEDIA
from metaxlm.finetune.readers.conll import TaggedSentence
from metaxlm.finetune.readers.parallel import AlignedPair
from metaxlm.finetune.readers.questions import Question
from metaxlm.finetune.readers.texts import LabeledText
from metaxlm.finetune.task import DataFile, Split


def list_test_sentences(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield each text of every dev and test set with the name of the set; raise if there is none.

    Training sets are left out: a model may know them. Paragraphs of questions count as one text.
    """
    paths, _ = list_files(folder)
    is_empty = True
    for data_set in DATA_SETS:
        if data_set in (MUSE, WIKIPEDIA):
            continue
        for match in match_files(data_set, paths):
            if match.split.split()[-1] == "train":
                continue
            is_empty = False
            language = "" if match.language == MANY else match.language
            file = DataFile(language, cast("Split", match.split), match.path, match.split)
            for item in (match.layout.read or data_set.read)(file).items:
                for text in _list_texts(item):
                    yield data_set.name, text
    if is_empty:
        fix = f"`metaxlm data check {folder}` lists the known layouts"
        raise MetaXLMError(f"{folder}: no dev or test set found; {fix}")


def _list_texts(item: Any) -> list[str]:
    if isinstance(item, LabeledText):
        return [item.first] if item.second is None else [item.first, item.second]
    if isinstance(item, Question):
        return [item.context, item.question]
    if isinstance(item, TaggedSentence):
        return [" ".join(item.words)]
    assert isinstance(item, AlignedPair)
    return [" ".join(item.source), " ".join(item.target)]

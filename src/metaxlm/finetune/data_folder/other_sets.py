"""The data sets that need no finetuning, as people have them on their disks.

Nothing comes in; descriptions go out: Tatoeba and the gold alignments (the paper's Section 4.4),
MUSE's dictionaries (+Dict) and Wikipedia (pretraining, its Section 4.1).
"""

from __future__ import annotations

from metaxlm.finetune.data_folder import content
from metaxlm.finetune.data_folder.description import ALL, DATA, START, XX, DataSet, Files, Layout
from metaxlm.languages import LANGUAGES, task_languages

_FEWER_PAIRS = {
    "jv": 205, "te": 234, "ta": 307, "sw": 390, "th": 548, "kk": 575, "ml": 687, "ka": 746,
}  # fmt: skip

TATOEBA = DataSet(
    name="Tatoeba",
    purpose="sentence retrieval",
    home="https://github.com/facebookresearch/LASER (data/tatoeba/v1)",
    license="CC BY 2.0 FR",
    needs={"test": task_languages("tatoeba")},
    sizes={"test": {ALL: 1_000, **_FEWER_PAIRS}},
    archives=r"tatoeba\.tar\.\w+",
    advice="XTREME's script sorts the English lines to hide the pairs; LASER's files have them",
    layouts=(
        Layout(
            "LASER",
            "tatoeba/tatoeba.XXX-eng.{XXX,eng}, a sentence a line",
            (
                Files(
                    r"(?P<folder>[^/]+)/tatoeba\.(?P<language>[a-z]{3})-eng\.(?P=language)$",
                    content.count_parallel, "test",
                ),
            ),
            "yes", DATA, levels=1, folder="tatoeba",
        ),
        Layout(
            "XTREME",
            "tatoeba/XX-en.{XX,en}; the English lines are sorted",
            (
                Files(
                    r"(?:^|/)tatoeba/(?P<language>[a-z]{2,3})-(?:en|eng)\.(?P=language)$",
                    content.count_parallel, "test",
                ),
            ),
            "no", "take LASER's files: they are named as metaxlm reads them, and in order",
        ),
    ),
)  # fmt: skip

WORDALIGN = DataSet(
    name="Word alignment",
    purpose="gold alignments",
    home="https://github.com/CZWin32768/XLM-Align (word_aligner/alignment-test-sets.tar.gz)",
    license="research, per set",
    needs={"test": task_languages("wordalign")},
    sizes={"test": {"de": 508, "fr": 447, "hi": 90, "ro": 199}},
    archives=r"alignment-test-sets\.tar\.gz|wordalign\.tar\.\w+",
    layouts=(
        Layout(
            "XLM-Align",
            "wordalign/{de-en,en-fr,en-hi,ro-en}/{test.XX,test.en,alignv2.txt}",
            (
                Files(
                    r"(?P<folder>[^/]+)/(?=en-|[a-z]{2}-en/)(?:en-)?"
                    r"(?P<language>(?!en[-/])[a-z]{2})(?:-en)?/test\.(?P=language)$",
                    content.count_aligned, "test",
                ),
            ),
            "yes", DATA, levels=2, folder="wordalign",
        ),
    ),
)  # fmt: skip

_MUSE_LANGUAGES = tuple(code for code, known in LANGUAGES.items() if known.has_dictionary)
_MUSE_FOLDER = r"(?:^|/)(?:dictionaries|muse|MUSE|dicts?)/"

MUSE = DataSet(
    name="MUSE",
    purpose="dictionaries for +Dict",
    home="https://github.com/facebookresearch/MUSE",
    license="CC BY-NC 4.0",
    needs={"en-XX|XX-en": _MUSE_LANGUAGES},
    archives=r"muse\.tar\.\w+|dictionaries\.(?:zip|tar\.\w+)",
    traps={
        _MUSE_FOLDER + r"[a-z]{2}-[a-z]{2}\.(?:0-5000|5000-6500)\.txt$":
        "en-XX.0-5000.txt and en-XX.5000-6500.txt are not used: they are parts of en-XX.txt"
    },
    layouts=(
        Layout(
            "MUSE",
            "dictionaries/{en-XX,XX-en}.txt: a word and its translation a line",
            (
                Files(_MUSE_FOLDER + rf"en-{XX}\.txt$", content.count_entries, "en-XX"),
                Files(_MUSE_FOLDER + rf"(?!en-){XX}-en\.txt$", content.count_entries, "XX-en"),
            ),
            "yes", "matching.dictionaries: {}", unit="entries",
        ),
    ),
)  # fmt: skip

_PRETRAINED = tuple(code for code, known in LANGUAGES.items() if known.in_xlmr)

WIKIPEDIA = DataSet(
    name="Wikipedia",
    purpose="pretraining text",
    home="https://dumps.wikimedia.org, https://huggingface.co/datasets/wikimedia/wikipedia",
    license="CC BY-SA 4.0",
    needs={"dump|dump (multistream)|parquet": _PRETRAINED},
    layouts=(
        Layout(
            "dumps",
            "XXwiki-DATE-pages-articles-multistream.xml.bz2",
            (
                Files(
                    START + r"(?P<language>[a-z][a-z_]*?)wiki-(?:\d{8}|latest)-pages-articles"
                    r"(?:-(?P<variant>multistream))?\d*\.xml(?:-p\d+p\d+)?(?:\.bz2|\.gz)?$",
                    content.measure_dump, "dump",
                ),
            ),
            "yes", "corpus: {{source: dump, path: {}}}", unit="bytes",
        ),
        Layout(
            "Hugging Face parquet",
            "DATE.XX/*.parquet",
            (
                Files(
                    START + r"\d{8}\.(?P<language>[a-z][a-z-]*)/[^/]+\.parquet$",
                    content.count_rows, "parquet",
                ),
            ),
            "yes", "corpus: {{source: parquet, path: {}}}", levels=1, unit="articles",
        ),
    ),
)  # fmt: skip

OTHER_SETS = (TATOEBA, WORDALIGN, MUSE, WIKIPEDIA)

from __future__ import annotations

from pathlib import Path

import pytest

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.readers.parallel import list_tatoeba, read_tatoeba
from metaxlm.languages import LANGUAGES, task_languages
from tests.finetune.readers.files import Published, refuse, write

RELEASE = """
afr amh ang ara arq arz ast awa aze bel ben ber bos bre bul cat cbk ceb ces cha cmn cor csb cym
dan deu dsb dtp ell epo est eus fao fin fra fry gla gle glg gsw heb hin hrv hsb hun hye ido ile
ina ind isl ita jav jpn kab kat kaz khm kor kur kzj lat lfn lit lvs mal mar max mhr mkd mon nds
nld nno nob nov oci orv pam pes pms pol por ron rus slk slv spa sqi srp swe swg swh tam tat tel
tgl tha tuk tur tzl uig ukr urd uzb vie war wuu xho yid yue zsm
"""


class TestTatoeba:
    def test_reads_iso_names(self, tmp_path: Path) -> None:
        write(tmp_path / "tatoeba/tatoeba.cmn-eng.cmn", "你好\n再见\n")
        write(tmp_path / "tatoeba/tatoeba.cmn-eng.eng", "hello\ngoodbye\n")
        sentences = read_tatoeba(tmp_path, "zh")
        assert sentences.language == "zh"
        assert sentences.foreign == ("你好", "再见")
        assert sentences.english == ("hello", "goodbye")

    def test_unknown_language(self, tmp_path: Path) -> None:
        with pytest.raises(MetaXLMError, match=r"^tatoeba: unknown language 'xx'; known: af am ar"):
            read_tatoeba(tmp_path, "xx")
        with pytest.raises(MetaXLMError, match="'en' is the other side of every pair"):
            read_tatoeba(tmp_path, "en")
        with refuse("tatoeba: unknown language 'ger'; did you mean 'de'?"):
            read_tatoeba(tmp_path, "ger")
        with refuse("tatoeba: unknown language 'Kantonese'; did you mean 'yue'?"):
            read_tatoeba(tmp_path, "Kantonese")

    def test_languages_beyond_our_table_go_by_their_files(self, tmp_path: Path) -> None:
        for code in ("nds", "deu", "ber", "qqq"):
            write(tmp_path / f"tatoeba/tatoeba.{code}-eng.{code}", "Moin\n")
            write(tmp_path / f"tatoeba/tatoeba.{code}-eng.eng", "hello\n")
        assert list_tatoeba(tmp_path) == ["de", "ber", "nds"]
        sentences = read_tatoeba(tmp_path, "nds")
        assert (sentences.language, sentences.foreign) == ("nds", ("Moin",))

    def test_all_112_languages_of_the_release_have_a_code(self, tmp_path: Path) -> None:
        codes = RELEASE.split()
        assert len(codes) == 112
        for code in codes:
            write(tmp_path / f"tatoeba/tatoeba.{code}-eng.{code}", f"{code}\n")
            write(tmp_path / f"tatoeba/tatoeba.{code}-eng.eng", "hello\n")
        languages = list_tatoeba(tmp_path)
        assert len(set(languages)) == 112
        read = {read_tatoeba(tmp_path, language).foreign[0] for language in languages}
        assert read == set(codes)
        assert set(task_languages("tatoeba")) < set(languages)

    def test_missing_language_names_what_is_there(self, tmp_path: Path) -> None:
        path = tmp_path / "tatoeba" / "tatoeba.deu-eng.deu"
        with refuse("{}: no such folder; unpack the task's data there", path.parent):
            read_tatoeba(tmp_path, "de")
        write(tmp_path / "tatoeba/tatoeba.cmn-eng.cmn", "你好\n")
        write(tmp_path / "tatoeba/tatoeba.afr-eng.eng", "hello\n")
        with refuse("{}: no such file; found here: af zh", path):
            read_tatoeba(tmp_path, "de")

    def test_missing_side(self, tmp_path: Path) -> None:
        write(tmp_path / "tatoeba/tatoeba.deu-eng.deu", "hallo\n")
        with refuse("{}: no such file", tmp_path / "tatoeba" / "tatoeba.deu-eng.eng"):
            read_tatoeba(tmp_path, "de")

    def test_sides_of_different_length(self, tmp_path: Path) -> None:
        path = write(tmp_path / "tatoeba/tatoeba.deu-eng.deu", "eins\nzwei\n")
        write(tmp_path / "tatoeba/tatoeba.deu-eng.eng", "one\n")
        with refuse(
            "{}:2: has 2 lines, tatoeba.deu-eng.eng has 1; parallel files need equally many", path
        ):
            read_tatoeba(tmp_path, "de")

    def test_empty_line(self, tmp_path: Path) -> None:
        write(tmp_path / "tatoeba/tatoeba.deu-eng.deu", "eins\nzwei\n")
        path = write(tmp_path / "tatoeba/tatoeba.deu-eng.eng", "one\n \n")
        with refuse("{}:2: the line is empty; every line is a sentence", path):
            read_tatoeba(tmp_path, "de")

    def test_published(self, published: Published) -> None:
        folder = published("tatoeba")
        codes = {path.name.split(".")[1][:3] for path in (folder / "tatoeba").iterdir()}
        languages = [code for code, entry in LANGUAGES.items() if entry.iso3 in codes]
        sizes = {code: len(read_tatoeba(folder, code).foreign) for code in languages}
        assert len(sizes) == 36
        small = {"jv": 205, "te": 234, "ta": 307, "sw": 390, "th": 548, "kk": 575, "ml": 687}
        assert {k: n for k, n in sizes.items() if n < 1_000} == {**small, "ka": 746}
        german = read_tatoeba(folder, "de")
        assert len(german.english) == 1_000

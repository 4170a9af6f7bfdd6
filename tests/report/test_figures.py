from __future__ import annotations

import re
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import matplotlib
import pytest
from matplotlib.colors import to_hex

from metaxlm.languages import LANGUAGES as KNOWN_LANGUAGES
from metaxlm.report.figures import draw_coverage, draw_layers, draw_loss, draw_transfer, thin_log
from metaxlm.report.palette import assign_looks, list_tones, write_css_variables
from metaxlm.report.plates import Plate, make_plates
from metaxlm.report.run_folder import Run, read_run
from metaxlm.report.vector import embed_svg, render_pdf, render_svg

from .fake_run import LANGUAGES, LAYERS, VARIANTS, make_row, make_run, retrieval_value

TEMPLATES = Path(sys.modules["metaxlm.report"].__file__ or "").parent / "templates"


@pytest.fixture
def run(run_dir: Path) -> Run:
    return read_run(run_dir)


def test_thick_lines_are_means_over_languages(run: Run) -> None:
    looks = assign_looks(run.variants)
    figure = draw_layers(run.rows, looks, task="tatoeba", metric="accuracy", label="accuracy")
    assert figure is not None
    lines = figure.axes[0].lines
    thick = [line for line in lines if line.get_linewidth() > 2]
    assert [line.get_color() for line in thick] == [looks[v].tone.light for v in VARIANTS]
    for line, variant in zip(thick, VARIANTS, strict=True):
        expected = [
            100 * statistics.fmean(retrieval_value(variant, layer, x) for x in LANGUAGES)
            for layer in range(LAYERS)
        ]
        assert list(line.get_ydata()) == pytest.approx(expected)
        assert list(line.get_xdata()) == list(range(LAYERS))
    assert len(lines) - len(thick) == len(VARIANTS) * len(LANGUAGES)


def test_many_languages_become_a_band() -> None:
    codes = [code for code in KNOWN_LANGUAGES if code != "en"][:20]
    rows = [
        make_row("xlm", "tatoeba", "accuracy", code, 0.01 * number + 0.1 * layer, layer=layer)
        for number, code in enumerate(codes)
        for layer in (0, 1)
    ]
    figure = draw_layers(rows, assign_looks(["xlm"]), task="tatoeba", metric="accuracy", label="")
    assert figure is not None
    (band,) = figure.axes[0].collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == pytest.approx((0.0, 29.0))
    assert len(figure.axes[0].lines) == 1


def test_bars_and_majority_level(run: Run) -> None:
    figure = draw_transfer(run.rows, assign_looks(run.variants))
    assert figure is not None
    (axis,) = figure.axes
    heights = [bar.get_height() for bar in axis.patches]
    assert heights[:5] == pytest.approx([86.0, 37.0, 36.0, 35.0, 34.0])
    assert len(heights) == 3 * 5
    (levels,) = axis.collections  # with one seed there are no whiskers
    assert len(levels.get_segments()) == 5
    assert levels.get_segments()[0][:, 1] == pytest.approx([100 / 3, 100 / 3])
    assert [label.get_text() for label in axis.get_xticklabels()] == ["en", *LANGUAGES]


def test_bars_have_whiskers_where_there_are_seeds() -> None:
    rows = [
        make_row("xlm", "udpos", "f1", code, value, scenario="transfer") | {"seed": seed}
        for code, values in (("de", (0.5, 0.7)), ("fr", (0.4,)), ("ru", (0.2, 0.2)))
        for seed, value in enumerate(values)
    ]
    figure = draw_transfer(rows, assign_looks(["xlm"]))
    assert figure is not None
    (axis,) = figure.axes
    bars = dict(zip(("de", "fr", "ru"), axis.patches, strict=True))
    assert [bar.get_height() for bar in bars.values()] == pytest.approx([60.0, 40.0, 20.0])
    whiskers = axis.collections[0].get_segments()
    half = 100 * statistics.stdev((0.5, 0.7))
    assert whiskers[0][:, 1] == pytest.approx([60 - half, 60 + half])
    assert whiskers[1][:, 1] == pytest.approx([20.0, 20.0])
    for code, whisker in zip(("de", "ru"), whiskers, strict=True):
        middle = bars[code].get_x() + bars[code].get_width() / 2
        assert whisker[:, 0] == pytest.approx([middle, middle])


def test_many_languages_break_into_rows() -> None:
    codes = list(KNOWN_LANGUAGES)[:33]
    rows = [
        make_row(variant, "udpos", "f1", code, 0.5, scenario="transfer")
        for variant in VARIANTS
        for code in codes
    ]
    figure = draw_transfer(rows, assign_looks(VARIANTS))
    assert figure is not None
    shown = [[tick.get_text() for tick in axis.get_xticklabels()] for axis in figure.axes]
    assert len(shown) > 1
    assert sorted(code for row in shown for code in row) == sorted(codes)
    assert render_svg(figure)


def test_stacked_rules_fill_the_bar(run: Run) -> None:
    figure = draw_coverage(run.coverage, assign_looks(run.variants))
    assert figure is not None
    bars = figure.axes[0].patches
    assert len(bars) == 2 * 5  # kinds of normalization and of dictionary entries are one each
    assert sum(bar.get_width() for bar in bars[:5]) == pytest.approx(100)
    assert bars[2].get_width() == pytest.approx(100 * 500 / 8000)
    assert bars[8].get_width() == pytest.approx(100 * 2600 / 8000)
    tokens = [bar.get_height() for bar in figure.axes[1].patches[:5]]
    assert tokens == pytest.approx([97.0, 31.0, 5.0, 4.0, 3.0])


def test_loss_has_meta_pretraining_beside(run: Run) -> None:
    looks = assign_looks(run.variants)
    figure = draw_loss(run.meta_log, run.logs, looks)
    assert figure is not None
    assert [axis.get_title("left") for axis in figure.axes] == [
        "Meta-pretraining",
        "Cross-lingual pretraining",
    ]
    assert len(figure.axes[1].lines) == len(VARIANTS)
    alone = draw_loss([], run.logs, looks)
    assert alone is not None and len(alone.axes) == 1
    assert draw_loss([], {}, looks) is None


def test_long_logs_are_thinned_by_averaging() -> None:
    log = [{"step": step, "loss": float(step % 2)} for step in range(1, 601)]
    steps, losses = thin_log(log)
    assert len(steps) == 300
    assert set(losses) == {0.5} and steps[0] == 1.5


def test_figures_are_reproducible_and_leave_no_state(run: Run) -> None:
    looks = assign_looks(run.variants)
    first = make_plates(run, looks)
    with matplotlib.rc_context({"font.size": 17, "svg.fonttype": "path", "axes.grid": False}):
        before = dict(matplotlib.rcParams)
        second = make_plates(run, looks)
        assert render_svg(second[0].figure) == render_svg(first[0].figure)
        assert dict(matplotlib.rcParams) == before
    assert [p.name for p in first] == ["retrieval", "alignment", "transfer", "loss", "coverage"]
    for one, other in zip(first, second, strict=True):
        svg = render_svg(one.figure)
        assert svg == render_svg(other.figure)
        assert "dc:date" not in svg and "system-ui" in svg and "<text" in svg
    pdf = render_pdf(first[0].figure)
    assert pdf == render_pdf(second[0].figure)
    assert pdf.startswith(b"%PDF") and b"CreationDate" not in pdf


def test_figures_do_not_need_pyplot(small_run_dir: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from metaxlm.report import write_report; "
        f"write_report(Path({str(small_run_dir)!r})); "
        "assert 'matplotlib.pyplot' not in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_embedded_figures_follow_the_page(run: Run) -> None:
    ids: list[str] = []
    for plate in make_plates(run, assign_looks(run.variants)):
        svg = embed_svg(render_svg(plate.figure), plate.name, plate.title)
        assert svg.startswith("<svg viewBox=") and plate.title in svg
        assert "var(--figure-ink)" in svg
        assert not re.findall(r"#[0-9a-f]{6}\b", svg), "a fixed color does not follow dark mode"
        assert "http" not in svg and "<metadata" not in svg
        own = re.findall(r'\bid="([^"]+)"', svg)
        used = re.findall(r'(?:href="|url\()#([^")]+)', svg)
        assert used and set(used) <= set(own)
        ids += own
    assert len(ids) == len(set(ids))


def test_variants_keep_their_colors() -> None:
    alone = assign_looks(["metaxlm+dict"])
    among = assign_looks(["body", "xlm", "metaxlm", "metaxlm+dict", "freeze"])
    assert alone["metaxlm+dict"] == among["metaxlm+dict"]
    assert len({look.place for look in among.values()}) == 5
    crowd = assign_looks([f"variant{n}" for n in range(12)])
    assert len(crowd) == 12


def luminance(color: str) -> float:
    red, green, blue = (int(to_hex(color)[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [
        c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def read_css_colors() -> tuple[dict[str, str], dict[str, str]]:
    css = (TEMPLATES / "page.css").read_text(encoding="utf-8")
    light, dark = (
        dict(re.findall(r"(--[a-z]+): (#[0-9a-f]{6});", block))
        for block in re.findall(r":root \{(.*?)\}", css, flags=re.DOTALL)[:2]
    )
    return light, dark


def test_text_and_lines_contrast_with_the_page() -> None:
    for number, colors in enumerate(read_css_colors()):
        for ground in (colors["--background"], colors["--raised"]):
            for text in ("--ink", "--quiet", "--link", "--right", "--wrong"):
                assert contrast(colors[text], ground) >= 4.5, (text, ground)
            for tone in list_tones():
                color = (tone.light, tone.dark)[number]
                if tone.variable == "--figure-ink":
                    assert contrast(color, ground) >= 4.5
                elif not tone.variable.startswith(("--rule", "--figure")):
                    assert contrast(color, ground) >= 3, (tone, ground)


def test_every_color_has_a_dark_value() -> None:
    css = write_css_variables()
    dark = css[css.index("prefers-color-scheme: dark") :]
    assert all(f"{tone.variable}:{tone.dark};" in dark for tone in list_tones())


def test_partial_runs_draw_what_they_have(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path, transfer=False, alignment=False))
    names = [plate.name for plate in make_plates(run, assign_looks(run.variants))]
    assert names == ["retrieval", "loss", "coverage"]


def test_long_and_odd_variant_names_still_draw() -> None:
    names = ["x" * 60, "a$b$c", "<&>"]
    rows = [make_row(v, "xnli", "accuracy", x, 0.5, scenario="transfer")
            for v in names for x in ("en", "de")]  # fmt: skip
    figure = draw_transfer(rows, assign_looks(names))
    assert figure is not None
    svg = render_svg(figure)
    assert ">a$b$c<" in svg and "&lt;&amp;&gt;" in svg and "x" * 60 not in svg


def test_of_many_variants_the_first_are_drawn_by_language_and_the_caption_says_so(
    tmp_path: Path,
) -> None:
    run = read_run(make_run(tmp_path, transfer=False))
    names = [f"variant-{number}" for number in range(6)]
    scores = [make_row(v, "xnli", "accuracy", x, 0.5, scenario="transfer")
              for v in names for x in ("en", "de")]  # fmt: skip

    def find_plate(shown: list[str]) -> Plate:
        rows = [row for row in scores if row["variant"] in shown]
        plates = make_plates(replace(run, rows=rows, logs={}, coverage={}), assign_looks(shown))
        return next(plate for plate in plates if plate.name == "transfer")

    legend = find_plate(names).figure.legends[0]
    assert [text.get_text() for text in legend.get_texts()] == [*names[:4], "majority label"]
    assert find_plate(names).caption.endswith("The first 4 of 6 variants; the tables have all.")
    assert "variants; the tables" not in find_plate(names[:4]).caption


def test_no_two_variants_look_alike() -> None:
    own = [f"own-{number}" for number in range(8)]
    looks = assign_looks(["xlm", *own, "metaxlm", "metaxlm+dict"])
    assert len({look.marker for look in looks.values()}) == 11
    assert len({(look.tone, look.dash) for look in looks.values()}) == 11  # lines without markers
    few = assign_looks(["metaxlm", *own[:4], "xlm"])
    assert len({look.tone for look in few.values()}) == 6
    assert looks["metaxlm"] == few["metaxlm"]


def test_paths_have_two_digits_and_texts_stay_as_they_are() -> None:
    rows = [make_row("0.12345", "xnli", "accuracy", x, 1 / 3, scenario="transfer")
            for x in ("en", "de")]  # fmt: skip
    figure = draw_transfer(rows, assign_looks(["0.12345"]))
    assert figure is not None
    svg = render_svg(figure)
    paths = re.findall(r' d="([^"]*)"', svg)
    assert len(paths) > 3
    assert all(not re.search(r"\.\d{3}", path) for path in paths)
    assert ">0.12345<" in svg

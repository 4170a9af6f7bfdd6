"""`metaxlm view`: its answers, what it rejects, and the page in a real browser."""

from __future__ import annotations

import http.client
import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import torch.nn.functional as F

from metaxlm.cli.view import HOST, open_server
from metaxlm.files import write_text
from metaxlm.init.ledger import LEDGER, save_ledger
from metaxlm.init.start import match
from metaxlm.model.any_encoder import load_encoder
from metaxlm.model.huggingface import load_pretrained
from metaxlm.probe.embedding import embed_texts
from metaxlm.run.explorer import Explorer
from tests.analysis.fake_run import (
    BEST_LAYER,
    LANGUAGES,
    make_row,
    make_run,
    retrieval_value,
    write_lines,
)
from tests.commands import Command

STEP = 1000  # of the made-up run
SENTENCE = {"variant": "metaxlm", "step": STEP, "language": "de", "sentence": 0}
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without models and data."""
    folder = make_run(tmp_path_factory.mktemp("published"))
    log = folder / "variants" / "metaxlm" / "log.jsonl"
    rows = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    write_lines(log, [*rows, {"step": 500, "held_out": {"de": 4.0, "ru": 5.0}}])
    return folder


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory, models: Path, data: Path) -> Path:
    """A run with the model and the ledger of one variant, and task data."""
    folder = make_run(tmp_path_factory.mktemp("complete"))
    recipe = folder / "recipe.yaml"
    write_text(recipe, f"{recipe.read_text('utf-8')}evaluation:\n  data: {data}\n")
    home = folder / "variants" / "metaxlm"
    shutil.copytree(models / "one", home / "model")
    start = match(load_pretrained(models / "one"), load_pretrained(models / "two").tokenizer)
    save_ledger(start.plan, home / "initialization" / LEDGER)
    return folder


@contextmanager
def serving(run_dir: Path) -> Iterator[int]:
    with open_server(Explorer(run_dir)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def port(complete: Path) -> Iterator[int]:
    with serving(complete) as port:
        yield port


def request(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    connection.request(method, path, headers=headers)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


def ask(port: int, question: str, **query: Any) -> Any:
    status, text = request(port, f"/ask/{question}?{urlencode(query)}")
    assert status == 200, text
    return json.loads(text)


def test_scores_and_losses_are_those_of_the_run(published: Path) -> None:
    content = Explorer(published).content
    scores = content["scores"]
    names = ("variant", "task", "language", "layer", "step")
    wanted = ("metaxlm", "tatoeba", "de", BEST_LAYER, STEP)
    rows = list(zip(*(scores[name] for name in names), strict=True))
    value = scores["value"][rows.index(wanted)]
    assert value == pytest.approx(retrieval_value("metaxlm", BEST_LAYER, "de"), abs=1e-4)
    assert len(set(rows)) == len(rows) == len(scores["value"])
    assert content["losses"]["metaxlm"]["training"][-1][0] == STEP
    assert content["losses"]["metaxlm"]["held_out"] == {"de": [(500, 4.0)], "ru": [(500, 5.0)]}
    assert content["tasks"]["alignment"]["lower"] and not content["tasks"]["tatoeba"]["lower"]


def test_missing_parts_are_named_with_the_command_that_makes_them(published: Path) -> None:
    content = Explorer(published).content
    assert content["models"] == {} and content["ledgers"] == []
    assert set(content["missing"]) == {"neighbors", "alignments", "ledger"}
    assert f"metaxlm run {published / 'recipe.yaml'} --stage" in content["missing"]["neighbors"]
    assert content["examples"]["metaxlm"]["tatoeba"][0]["right"] is True


def test_a_publication_can_be_viewed() -> None:
    folder = Path(__file__).parents[2] / "docs" / "results" / "twin_minilm"
    content = Explorer(folder).content
    assert {"xlm", "metaxlm", "metaxlm+dict"} <= set(content["variants"])
    assert "tatoeba" in content["scores"]["task"]


@pytest.mark.parametrize("direction", ["to_source", "from_source"])
@pytest.mark.parametrize("layer", [0, 1])
def test_neighbors_are_those_of_the_layer(
    complete: Path, port: int, layer: int, direction: str
) -> None:
    pairs = ask(port, "pairs", task="tatoeba", language="de")
    found = ask(port, "neighbors", **SENTENCE, layer=layer, direction=direction)
    sides = [list(side) for side in zip(*pairs, strict=True)]
    queries, keys = sides if direction == "to_source" else sides[::-1]
    assert [found["query"], found["expected"]] == [queries[0], keys[0]]
    assert found["num_searched"] == len(pairs)
    encoder = load_encoder(complete / "variants/metaxlm/model")
    vectors = [embed_texts(encoder, texts)[layer] for texts in (queries[:1], keys)]
    cosines = F.cosine_similarity(*vectors)
    assert found["rank"] == 1 + int((cosines > cosines[0]).sum())
    best = cosines.topk(10)
    assert [one["text"] for one in found["found"]] == [keys[k] for k in best.indices]
    similarities = [one["similarity"] for one in found["found"]]
    assert similarities == pytest.approx(best.values.tolist(), abs=1e-3)


def test_an_alignment_has_weights_and_kinds_of_links(port: int) -> None:
    pair = ask(port, "alignment", **SENTENCE, layer=1)
    assert len(pair["weights"]) == len(pair["source_words"])
    assert {len(row) for row in pair["weights"]} == {len(pair["target_words"])}
    assert set(pair["kinds"]) == {"sure", "possible", "wrong", "missed"}


def test_the_ledger_explains_a_token_and_lists_those_that_begin_like_it(port: int) -> None:
    answer = ask(port, "ledger", variant="metaxlm", token="d")
    [story, *_] = answer["found"]
    assert story["steps"][-1][0] == "direct"  # both vocabularies are the same
    assert story["sources"] == [[story["token"], story["row"], 1.0]]
    assert answer["similar"] and all("d" in token for _, token, _ in answer["similar"])
    [again] = ask(port, "ledger", variant="metaxlm", token=f"#{story['row']}")["found"]
    assert again == story


def test_a_finished_run_has_every_part(toy_run: Path) -> None:
    explorer = Explorer(toy_run)
    content = explorer.content
    [variant, *_] = content["ledgers"]
    [*_, step] = content["models"][variant]
    assert content["missing"] == {} and content["pairs"] == {"tatoeba": ["de"], "alignment": ["de"]}
    place = {"variant": variant, "step": step, "language": "de", "layer": 1, "sentence": 0}
    query = {name: str(value) for name, value in place.items()} | {"direction": "to_source"}
    found = explorer.answer("neighbors", query)
    stored = content["examples"][variant]["tatoeba"][0]
    assert (found["query"], found["expected"]) == (stored["query"], stored["expected"])
    if stored["layer"] == 1:
        best = found["found"][0]
        assert best["text"] == stored["found"]
        assert best["similarity"] == pytest.approx(stored["similarity"], abs=1e-3)
    assert explorer.answer("alignment", query)["weights"]


@pytest.mark.parametrize(
    "path",
    [
        "/../../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/recipe.yaml",
        "/view.css/../../page.css", "/ask", "/\\..\\recipe.yaml",
    ],
)  # fmt: skip
def test_no_other_file_can_be_requested(port: int, path: str) -> None:
    assert request(port, path)[0] == 404


@pytest.mark.parametrize(
    ("question", "query", "expected"),
    [
        ("secrets", {}, "unknown question"),
        ("neighbors", {}, "needs variant, step"),
        ("neighbors", {**SENTENCE, "layer": "x", "direction": "to_source"}, "needs variant"),
        ("neighbors", {**SENTENCE, "layer": 9, "direction": "to_source"}, "use 0 to 1"),
        ("alignment", {**SENTENCE, "layer": 0, "sentence": 999}, "use 0 to 7"),
        ("alignment", {**SENTENCE, "layer": 0, "variant": "../xlm"}, "no model"),
        ("pairs", {"task": "tatoeba", "language": "../de"}, "no pairs"),
        ("ledger", {"variant": "../metaxlm", "token": "a"}, "not a variant"),
        ("ledger", {"variant": "xlm", "token": "a"}, "no such ledger"),
    ],
)
def test_a_bad_question_gets_one_line(
    port: int, question: str, query: dict[str, Any], expected: str
) -> None:
    status, text = request(port, f"/ask/{question}?{urlencode(query)}")
    assert status == 400
    assert expected in json.loads(text)["error"] and "\n" not in json.loads(text)["error"]


def test_other_hosts_and_methods_are_rejected(port: int) -> None:
    assert request(port, "/", Host="example.org")[0] == 403
    assert request(port, "/", Host=f"localhost:{port}")[0] == 200
    assert request(port, "/", "POST")[0] == 501
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    connection.request("GET", "/")
    policy = connection.getresponse().headers["Content-Security-Policy"]
    connection.close()
    assert policy.startswith("default-src 'none'; script-src 'self';")
    page = request(port, "/")[1] + request(port, "/view.js")[1] + request(port, "/view.css")[1]
    assert "https://" not in page and "http://" not in page.replace("http://www.w3.org", "")


def test_other_machines_cannot_connect(complete: Path) -> None:
    with open_server(Explorer(complete)) as server:
        assert server.server_address[0] == "127.0.0.1"


def test_scores_of_earlier_steps_are_shown(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    row = make_row("metaxlm", "tatoeba", "accuracy", "de", 0.125, layer=1, step=STEP // 2)
    results = folder / "results.jsonl"
    write_text(results, f"{results.read_text('utf-8')}{json.dumps(row)}\n")
    scores = Explorer(folder).content["scores"]
    earlier = [k for k, step in enumerate(scores["step"]) if step == STEP // 2]
    assert [scores["value"][k] for k in earlier] == [0.125]


def test_bad_input_gets_one_line(metaxlm: Command, published: Path, tmp_path: Path) -> None:
    assert "not a run folder" in metaxlm.complaint("view", tmp_path, "--no-browser")
    with socket.create_server((HOST, 0)) as taken:
        number = str(taken.getsockname()[1])
        line = metaxlm.complaint("view", published, "--port", number, "--no-browser")
    assert f"--port {number}: cannot be used" in line


@pytest.mark.slow
def test_ctrl_c_ends_it(published: Path) -> None:
    program = [sys.executable, "-m", "metaxlm", "view", str(published), "--no-browser"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        assert b"http://127.0.0.1:" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=20)[0].decode()
    assert process.returncode == 75 and len(rest.splitlines()) == 1 and "stopped" in rest


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    path = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("needs Chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened(browser: Any, port: int, choices: str = "", width: int = 1280) -> Iterator[Any]:
    """Open the page; any error in it fails the test."""
    page = browser.new_page(viewport={"width": width, "height": 844})
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    page.goto(f"http://{HOST}:{port}/#{choices}")
    page.wait_for_selector("#views button")
    yield page
    page.close()
    assert not problems


VIEWS = {
    "scores": "td strong", "loss": ".chart path", "layers": ".chart path",
    "neighbors": ".near li", "alignments": ".matrix td", "ledger": ".story li",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
def test_every_view_shows_its_content_without_a_wide_page(
    browser: Any, port: int, width: int
) -> None:
    for view, expected in VIEWS.items():
        choices = f"view={view}&variant=metaxlm&language=de&layer=1&token=d"
        with opened(browser, port, choices, width) as page:
            page.wait_for_selector(f"main {expected}", state="attached")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            unnamed = "[...document.querySelectorAll('select, input')].filter((e) => !e.labels[0])"
            assert page.evaluate(f"{unnamed}.length") == 0


@pytest.mark.slow
def test_the_keyboard_reaches_every_control(browser: Any, port: int) -> None:
    with opened(browser, port, "view=scores&task=tatoeba") as page:
        reached = []
        for _ in range(25):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.id || document.activeElement.value"
                                         " || document.activeElement.dataset.view"))  # fmt: skip
        assert {"scores", "ledger", "xlm", "metaxlm+dict", "task", "layer"} <= set(reached)
        page.focus("#layer")
        page.keyboard.press("ArrowDown")
        assert "layer=0" in page.url
        page.focus("[data-sort=xlm]")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.dataset.sort") == "xlm"
        assert page.get_attribute("th:has([data-sort=xlm])", "aria-sort") == "descending"
        page.keyboard.press("/")
        page.keyboard.type("d")
        page.wait_for_selector(".story")
        assert "view=ledger" in page.url and "token=d" in page.url


@pytest.mark.slow
def test_a_linked_view_is_the_same_again(browser: Any, port: int) -> None:
    with opened(browser, port, "view=scores&task=xnli&variants=xlm,metaxlm") as page:
        page.click("[data-sort=metaxlm]")
        table, address = page.inner_text("main"), page.url
    with opened(browser, port, address.partition("#")[2]) as page:
        assert page.inner_text("main") == table
        assert "MetaXLM+Dict" not in table
    place = "view=neighbors&variant=metaxlm&language=de&layer=1&sentence=3"
    with opened(browser, port, place) as page:
        page.wait_for_selector(".near li")
        assert page.inner_text("h2") == ask(port, "pairs", task="tatoeba", language="de")[3][0]


@pytest.mark.slow
def test_means_are_of_the_best_layer(browser: Any, port: int) -> None:
    best = [retrieval_value("metaxlm", BEST_LAYER, language) for language in LANGUAGES]
    expected = f"{100 * sum(best) / len(best):.1f}"
    with opened(browser, port, "view=scores&task=tatoeba&layer=0&variants=metaxlm") as page:
        assert expected not in page.inner_text("main")
        page.select_option("#task", "all tasks")
        assert expected in page.inner_text("tr:has(th:text('Tatoeba'))")
        page.select_option("#task", "tatoeba")
        page.select_option("#layer", "best")
        assert expected in page.inner_text("tr.reference")


@pytest.mark.slow
def test_markup_in_sentences_is_text(browser: Any, published: Path) -> None:
    with (
        serving(published) as port,
        opened(browser, port, "view=neighbors&variant=xlm&language=de") as page,
    ):
        page.wait_for_selector(".near li")
        assert "<script>alert(1)</script>" in page.inner_text("main")
        assert "metaxlm run" in page.inner_text(".missing")

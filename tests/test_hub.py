"""Sources of models: paths stay local, hub names reach the hub, one module loads both."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

import metaxlm
from metaxlm.errors import MetaXLMError
from metaxlm.hub import find_local, is_hub_name, reject_code

SOURCES = Path(metaxlm.__file__).parent
REVISION = "0123456789abcdef0123456789abcdef01234567"

LOAD = """
import json, socket, sys
from metaxlm.errors import MetaXLMError
from metaxlm.model.any_encoder import load_encoder
from metaxlm.vocab.tokenizer import load_tokenizer

opened, connect = [], socket.socket.connect
socket.socket.connect = lambda self, address: (opened.append(address), connect(self, address))[1]
for source in sys.argv[1:]:
    opened.clear()
    try:
        for load in (load_encoder, load_tokenizer):
            load(source)
        message = "loaded"
    except MetaXLMError as error:
        message = str(error)
    print(json.dumps([source, message, len(opened)]))
"""


class Hub(BaseHTTPRequestHandler):
    """A local copy of the Hugging Face hub with one repository, `org/encoder`."""

    folder: Path

    def do_GET(self) -> None:
        name = self.path.split("?")[0].removeprefix("/api/models").strip("/")
        files = sorted(path.name for path in self.folder.iterdir())
        siblings = [{"rfilename": file} for file in files]
        about = {"id": "org/encoder", "sha": REVISION, "siblings": siblings}
        if name.startswith("org/gone"):
            self.close_connection = True  # as a network that fails on the way
        elif name in ("org/encoder", "org/encoder/revision/main"):
            self.answer(json.dumps(about).encode())
        elif name == f"org/encoder/tree/{REVISION}":
            sizes = {file: (self.folder / file).stat().st_size for file in files}
            rows = [{"type": "file", "path": f, "size": s, "oid": f} for f, s in sizes.items()]
            self.answer(json.dumps(rows).encode())
        elif name.startswith(f"org/encoder/resolve/{REVISION}/"):
            self.answer((self.folder / Path(name).name).read_bytes())
        else:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

    do_HEAD = do_GET

    def answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        self.send_header("X-Repo-Commit", REVISION)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def endpoint(encoder: Path) -> Iterator[str]:
    handler = type("Served", (Hub,), {"folder": encoder})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_only_names_that_cannot_be_paths_reach_the_hub(tmp_path: Path, endpoint: str) -> None:
    (tmp_path / "runs/demo").mkdir(parents=True)
    paths = {
        "runs/dmeo": "runs/dmeo: no such folder (for a model of the Hugging Face hub write hf:runs",
        "./org/encoder": "./org/encoder: no such folder",
        "~/dmeo": "~/dmeo: no such folder",
        "~unknown-user/dmeo": "~unknown-user/dmeo: no such folder",
        "dmeo/": "dmeo/: no such folder",
        "org/encoder/model": "org/encoder/model: no such folder",
        "org\\encoder": "org\\encoder: no such folder",
        str(tmp_path / "dmeo"): f"{tmp_path}/dmeo: no such folder",
    }
    absent = "{}: no such folder, and the Hugging Face hub did not provide {} ("
    names = {
        "org/encoder": "loaded",
        "org/absent": absent.format("org/absent", "org/absent"),
        "hf:runs/dmeo": absent.format("hf:runs/dmeo", "runs/dmeo"),
        "org/gone": absent.format("org/gone", "org/gone"),
    }
    cached = {"hf:org/encoder": "loaded"}
    cache = str(tmp_path / "cache")
    environment = {"HF_ENDPOINT": endpoint, "HF_HOME": cache, "HF_HUB_OFFLINE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", LOAD, *paths, *names, *cached],
        cwd=tmp_path,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [source for source, _, _ in rows] == [*paths, *names, *cached]
    for source, message, num_opened in rows:
        assert message.startswith((paths | names | cached)[source])
        assert "\n" not in message
        assert (num_opened > 0) == (source in names), (source, num_opened)


def test_hub_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    (tmp_path / "file").touch()
    for source in ("roberta-base", "FacebookAI/xlm-roberta-base", "hf:here/model"):
        assert is_hub_name(source)
    for source in ("here", "here/model", "file", "a b", "", Path("roberta-base")):
        assert not is_hub_name(source)


def test_odd_names_are_not_folders(tmp_path: Path) -> None:
    for name in ("", "x" * 5000, "~unknown-user", "a\0b"):
        assert find_local(name) is None


@pytest.mark.parametrize("text", ["[" * 100_000, '{"n": ' + "9" * 5000 + "}"])
def test_a_configuration_that_json_cannot_read_is_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(MetaXLMError, match=r"config\.json: .*; restore the file") as caught:
        reject_code(tmp_path)
    assert "\n" not in str(caught.value)


def test_one_module_loads_models_of_others() -> None:
    """No other module calls `from_pretrained` on a source, unpickles weights, or downloads."""
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if re.search(r"huggingface_hub|torch\.load|cached_file|trust_remote_code=True", text):
            found.append((path.name, "huggingface_hub"))
        for node in ast.walk(ast.parse(text)) if "from_pretrained(" in text else ():
            is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            if is_call and node.func.attr == "from_pretrained":
                words = ast.unparse(node)
                if ast.unparse(node.args[0]) != "None":
                    found.append((path.name, words.split("(")[0]))
                    assert "trust_remote_code=False" in words
                    assert "local_files_only=True" in words
    assert found == [
        ("hub.py", "huggingface_hub"),
        ("hub.py", "AutoTokenizer.from_pretrained"),
        ("hub.py", "AutoConfig.from_pretrained"),
    ]

"""`metaxlm view`: serve a page on this machine in which a person browses a run."""

from __future__ import annotations

import json
import threading
import webbrowser
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import parse_qsl, urlsplit

from typer import Option

from metaxlm.cli.options import RunFolder
from metaxlm.errors import MetaXLMError, describe_failure
from metaxlm.progress import say

if TYPE_CHECKING:
    from metaxlm.run.explorer import Explorer

HOST = "127.0.0.1"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:"
)
_HEADERS = {
    "Content-Security-Policy": f"{_POLICY}; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_QUESTIONS = "/ask/"


def view_command(
    run_dir: RunFolder,
    port: Annotated[int, Option(min=0, max=65535, help="Port (default: a free one).")] = 0,
    no_browser: Annotated[bool, Option("--no-browser", help="Only print the address.")] = False,
) -> None:
    """Browse a run or a publication in the browser: scores, losses, layers, sentences, tokens."""
    from metaxlm.run.explorer import Explorer

    with open_server(Explorer(run_dir), port) as server:
        address = f"http://{HOST}:{server.server_port}/"
        say(f"{run_dir}: open {address}; Ctrl-C ends it")
        if not no_browser:
            # In a thread, because a browser in the terminal runs until it is closed.
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        server.serve_forever()


def open_server(explorer: Explorer, port: int = 0) -> ThreadingHTTPServer:
    """Listen on this machine only; 0 is any free port."""
    handler = partial(_Handler, explorer, _read_files())
    try:
        server = ThreadingHTTPServer((HOST, port), handler)
    except OSError as error:
        why = f"cannot be used ({error.strerror})"
        raise MetaXLMError(f"--port {port}: {why}; choose another or leave it out") from error
    server.daemon_threads = True
    return server


def _read_files() -> dict[str, tuple[str, bytes]]:
    """Return the files of the page by path, with their types; no other file can be requested."""
    from metaxlm.analysis.style import TEMPLATES, write_css_variables

    def read(name: str) -> str:
        return (TEMPLATES / name).read_text(encoding="utf-8")

    styles = (read("page.css"), write_css_variables(), read("alignment.css"), read("view.css"))
    files = {
        "/": ("text/html", read("view.html")),
        "/view.css": ("text/css", "\n".join(styles)),
        "/view.js": ("text/javascript", read("view.js")),
    }
    return {path: (kind, text.encode()) for path, (kind, text) in files.items()}


class _Handler(BaseHTTPRequestHandler):
    """Answer GET requests for the page and its questions."""

    def __init__(self, explorer: Explorer, files: dict[str, tuple[str, bytes]], *more: Any) -> None:
        self.explorer, self.files = explorer, files
        super().__init__(*more)

    def do_GET(self) -> None:
        """Answer a request; one that another site made through its own name is rejected."""
        assert isinstance(self.server, ThreadingHTTPServer)
        hosts = [f"{name}:{self.server.server_port}" for name in (HOST, "localhost")]
        if self.headers.get("Host") not in hosts:
            self._answer(HTTPStatus.FORBIDDEN, {"error": "unknown host"})
            return
        place = urlsplit(self.path)
        if place.path in self.files:
            kind, content = self.files[place.path]
            self._send(HTTPStatus.OK, kind, content)
        elif place.path.startswith(_QUESTIONS):
            question = place.path.removeprefix(_QUESTIONS)
            try:
                answer = self.explorer.answer(
                    question, dict(parse_qsl(place.query, keep_blank_values=True))
                )
                self._answer(HTTPStatus.OK, answer)
            except MetaXLMError as error:
                self._answer(HTTPStatus.BAD_REQUEST, {"error": str(error)})
            except Exception as error:  # the page shows it, and goes on
                reason = describe_failure(error) or f"{type(error).__name__}: {error}"
                self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": reason})
        else:
            self._answer(HTTPStatus.NOT_FOUND, {"error": "no such page"})

    def _answer(self, status: HTTPStatus, value: Any) -> None:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        self._send(status, "application/json", text.encode())

    def _send(self, status: HTTPStatus, kind: str, content: bytes) -> None:
        self.send_response(status)
        headers = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(content))}
        for name, value in (headers | _HEADERS).items():
            self.send_header(name, value)
        with suppress(ConnectionError):  # the browser may have left
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

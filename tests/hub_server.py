"""A local server with the parts of the Hugging Face hub's HTTP interface that a model needs."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from huggingface_hub import ModelCard

TOKEN = "hf_of_me"
REVISION = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Repository:
    """One repository; only `me` may write to those of `me`."""

    private: bool = False
    files: dict[str, bytes] = field(default_factory=dict)
    stored: dict[str, str] = field(default_factory=dict)  # `lfs` or `regular`
    commits: list[str] = field(default_factory=list)


class HubServer(BaseHTTPRequestHandler):
    """Create repositories, take commits and large files, and serve what was committed."""

    repositories: dict[str, Repository]
    objects: dict[str, bytes]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.split("?")[0]
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.answer({"error": "Invalid credentials"}, 401)
        elif path == "/api/repos/create":
            self.create(json.loads(body))
        elif path == "/api/validate-yaml":
            self.validate(json.loads(body)["content"])
        elif path.endswith(".git/info/lfs/objects/batch"):
            rows = json.loads(body)["objects"]
            place = f"http://{self.headers['Host']}/upload"
            actions = [{"upload": {"href": f"{place}/{row['oid']}"}} for row in rows]
            found = [row | {"actions": act} for row, act in zip(rows, actions, strict=True)]
            self.answer({"transfer": "basic", "objects": found})
        else:
            name, _, action = (
                path.removeprefix("/api/models/").rpartition("/main")[0].rpartition("/")
            )
            if not name.startswith("me/"):
                self.answer({"error": "You may not write here"}, 403)
            elif action == "preupload":
                found = [
                    {"path": path, "uploadMode": _choose_mode(path), "shouldIgnore": False}
                    for path in (row["path"] for row in json.loads(body)["files"])
                ]
                self.answer({"files": found})
            else:
                self.commit(name, [json.loads(row) for row in body.splitlines()])

    def create(self, wanted: dict[str, Any]) -> None:
        name = f"{wanted.get('organization') or 'me'}/{wanted['name']}"
        address = {"url": f"http://{self.headers['Host']}/{name}"}
        if name in self.repositories:
            self.answer({"error": "You already created this model repo"} | address, 409)
        elif not name.startswith("me/"):
            self.answer({"error": "You don't have the rights to create a model there"}, 403)
        else:
            self.repositories[name] = Repository(wanted.get("visibility") == "private")
            self.answer(address)

    def validate(self, content: str) -> None:
        """Check the keys that the hub checks; the library raises for a bad model-index."""
        values = ModelCard(content).data.to_dict()
        good = all(isinstance(code, str) for code in values.get("language", []))
        good &= values.get("license", "mit") in ("mit", "apache-2.0", "other")
        errors = [] if good else [{"message": '"license" must be one of [apache-2.0, mit, other]'}]
        self.answer({"warnings": [], "errors": errors}, 200 if good else 400)

    def commit(self, name: str, rows: list[dict[str, Any]]) -> None:
        repository = self.repositories[name]
        for row in rows:
            value = row["value"]
            if row["key"] == "header":
                repository.commits.append(value["summary"])
            elif row["key"] == "file":
                repository.files[value["path"]] = base64.b64decode(value["content"])
                repository.stored[value["path"]] = "regular"
            elif row["key"] == "lfsFile":
                repository.files[value["path"]] = self.objects[value["oid"]]
                repository.stored[value["path"]] = "lfs"
        address = f"http://{self.headers['Host']}/{name}/commit/{REVISION}"
        self.answer({"success": True, "commitOid": REVISION, "commitUrl": address})

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        digest = hashlib.sha256(body).hexdigest()
        assert self.path == f"/upload/{digest}"
        self.objects[digest] = body
        self.answer({})

    def do_GET(self) -> None:
        parts = self.path.split("?")[0].removeprefix("/api/models").strip("/").split("/")
        name, rest = "/".join(parts[:2]), parts[2:]
        repository = self.repositories.get(name)
        if repository is None:
            self.answer({}, 404, {"X-Error-Code": "RepoNotFound"})
        elif rest[:1] == ["resolve"]:
            self.answer(repository.files["/".join(rest[2:])])
        elif rest[:1] == ["tree"]:
            rows = [
                {"type": "file", "path": path, "size": len(content), "oid": path}
                for path, content in repository.files.items()
            ]
            self.answer(rows)
        else:
            siblings = [{"rfilename": path} for path in repository.files]
            about = {"id": name, "sha": REVISION, "private": repository.private}
            self.answer(about | {"siblings": siblings})

    do_HEAD = do_GET

    def answer(self, body: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", REVISION)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


def _choose_mode(path: str) -> str:
    return "lfs" if path.endswith(".safetensors") else "regular"


@contextmanager
def serve_hub() -> Iterator[tuple[str, dict[str, Repository]]]:
    """Yield the address of a new hub, and its repositories."""
    repositories: dict[str, Repository] = {}
    handler = type("Served", (HubServer,), {"repositories": repositories, "objects": {}})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", repositories
        server.shutdown()

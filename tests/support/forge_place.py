"""A stand-in for the interfaces of forges on this machine: it answers like GitHub, GitLab or Gitea, by a script."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

REPOSITORY, IDENTITY = "acme/skills", 71


@dataclass
class MergeRequest:
    """A pull or merge request.

    listed: the commit that it is listed for, '' for its own. answered: the number in the answer that describes it, 0
    for its own.
    """

    number: int
    commit: str
    login: str = "ada"
    user: int = 7
    repository: int = IDENTITY
    branch: str = "main"
    merged: bool = True
    auto: bool = False
    answered: int = 0
    listed: str = ""
    squashed: bool = False


@dataclass
class ScriptedForge:
    """What the forge answers with. status: of every answer. body: instead of every answer."""

    kind: str = "github"
    identity: int = IDENTITY
    users: dict[str, int] = field(default_factory=lambda: {"ada": 7, "mallory": 13})
    requests: list[MergeRequest] = field(default_factory=list)
    manual: object = False
    status: int = 200
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    address: str = ""

    def answer(self, path: str) -> tuple[int, Any]:
        """Return the status and the answer to a path."""
        path, _, query = path.partition("?")
        words = path.strip("/").split("/")
        if self.kind == "gitlab":
            return self._gitlab([unquote(one) for one in words], query)
        if words[0] == "users":
            known = self.users.get(words[1])
            return (200, {"login": words[1], "id": known}) if known else (404, {"message": "Not Found"})
        if "/".join(words[1:3]) != REPOSITORY:
            return 404, {"message": "Not Found"}
        if len(words) == 3:
            return 200, {"id": self.identity, "autodetect_manual_merge": self.manual}
        if words[3] == "commits":
            found = [self._pull(one) for one in self.requests if (one.listed or one.commit) == words[4]]
            if self.kind == "gitea":
                return (200, found[0]) if found else (404, {"message": "not found"})
            lists = [{key: value for key, value in one.items() if key not in ("merged", "merged_by")} for one in found]
            return 200, lists
        found = [self._pull(one) | {"number": one.answered or one.number} for one in self._of(int(words[4]))]
        return (200, found[0]) if found else (404, {"message": "Not Found"})

    def _of(self, number: int) -> list[MergeRequest]:
        return [one for one in self.requests if one.number == number]

    @staticmethod
    def _pull(one: MergeRequest) -> dict[str, Any]:
        return {
            "number": one.number,
            "state": "closed",
            "merged": one.merged,
            "merged_by": {"login": one.login, "id": one.user},
            "merge_commit_sha": one.commit,
            "auto_merge": {"enabled_by": {"login": one.login}} if one.auto else None,
            "base": {"ref": one.branch, "repo": {"id": one.repository, "full_name": REPOSITORY}},
        }

    def _gitlab(self, words: list[str], query: str) -> tuple[int, Any]:
        if words[0] == "users":
            name = query.partition("=")[2]
            return 200, [{"username": name, "id": self.users[name]}] if name in self.users else []
        if words[1] != REPOSITORY:
            return 404, {"message": "404 Project Not Found"}
        if len(words) == 2:
            return 200, {"id": self.identity}
        if words[2] == "repository":
            return 200, [{"iid": one.number} for one in self.requests if (one.listed or one.commit) == words[4]]
        (one,) = self._of(int(words[3]))
        made = {"merge_commit_sha": one.commit, "squash_commit_sha": None}
        if one.squashed:
            made = {"merge_commit_sha": None, "squash_commit_sha": one.commit}
        return 200, {
            "iid": one.answered or one.number,
            "state": "merged" if one.merged else "opened",
            "target_project_id": one.repository,
            "target_branch": one.branch,
            "merge_user": {"username": one.login, "id": one.user},
            **made,
        }


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        forge: ScriptedForge = self.server.forge  # type: ignore[attr-defined]
        forge.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        status, answer = forge.answer(self.path)
        body = json.dumps(answer).encode() if forge.body is None else forge.body
        self.send_response(status if forge.status == 200 else forge.status)
        for name, value in {**forge.headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return


@contextmanager
def serve_forge(forge: ScriptedForge) -> Iterator[ScriptedForge]:
    """Serve it on a port of this machine, which its address names."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.forge = forge  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        forge.address = f"http://127.0.0.1:{server.server_port}"
        try:
            yield forge
        finally:
            server.shutdown()
            thread.join()

"""A person's machine, reached only as an attacker reaches it: commands, a server over stdio or
HTTP, and files.

Imports nothing of the product, so that the same attack runs against any commit of it.
"""

import contextlib
import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import account_place

PROGRAM = (sys.executable, "-P", "-m", "evolvable_server")
INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


def skill_text(name: str, description: str = "", body: str = "one\n\ntwo\n\nthree") -> str:
    return (
        f"---\nname: {name}\ndescription: {description or f'Works with {name} files.'}\n---\n\n"
        f"{body}\n"
    )


class Machine:
    """A home folder, a project and a library below `root`."""

    def __init__(self, root: Path) -> None:
        self.root, self.user, self.home, self.project = (
            root,
            root / "user",
            root / "library",
            root / "project",
        )
        self.user.mkdir()
        self.project.mkdir()

    def environment(self, *, person: bool = True, **more: str) -> dict[str, str]:
        """Return the whole environment of a process; person: its standard input and output count as
        a terminal.
        """
        kept = {
            name: os.environ[name]
            for name in ("PATH", "SYSTEMROOT", "TEMP", "TMP")
            if name in os.environ
        }
        own = {
            "HOME": str(self.user),
            "USERPROFILE": str(self.user),
            "EVOLVABLE_HOME": str(self.home),
        }
        own |= {"EVOLVABLE_EMBEDDER": "off", "PYTHONPATH": str(account_place.FOLDER)}
        own |= {
            "EVOLVABLE_TEST_ACCOUNT": str(self.user),
            "EVOLVABLE_TEST_TERMINAL": "1" if person else "",
        }
        return {**kept, **own, **more}

    def run(
        self,
        *words: object,
        person: bool = True,
        stdin: str | None = None,
        cwd: Path | None = None,
        **env: str,
    ) -> "subprocess.CompletedProcess[str]":
        """Run one command to its end, however it ends.

        Where nothing is written to it, a person's `init` hears yes.
        """
        if stdin is None:
            stdin = "y\n" * 20 if person and "init" in words[:1] else ""
        return subprocess.run(
            [*PROGRAM, *map(str, words)],
            input=stdin,
            cwd=cwd or self.project,
            env=self.environment(person=person, **env),
            capture_output=True,
            encoding="utf-8",
            timeout=300,
            check=False,
        )

    def json(self, *words: object, **options: Any) -> Any:
        """Return what a command writes as JSON."""
        ran = self.run(*words, "--json", **options)
        assert ran.stdout, ran.stderr
        return json.loads(ran.stdout)

    def save(self, path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def own(self, *names: str, text: str | None = None) -> Path:
        """Have the person import skills of these names from the folder of their client; return the
        folder.
        """
        skills = self.user / ".claude/skills"
        for name in names:
            self.save(skills / name / "SKILL.md", text or skill_text(name))
        self.run("init", skills)
        return skills

    def git(self, folder: Path, *words: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        command = [
            "git",
            "-c",
            "user.name=e",
            "-c",
            "user.email=e@e",
            "-c",
            "protocol.file.allow=always",
            *words,
        ]
        env = {**self.environment(), "GIT_CONFIG_NOSYSTEM": "1"}
        subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True)

    def commit(self, folder: Path) -> None:
        if not (folder / ".git").exists():
            self.git(folder, "init", "-q")
        self.git(folder, "add", "-Af")
        self.git(folder, "commit", "-qm", "docs")

    def outside(self) -> dict[str, tuple[int, str]]:
        """Return what lies in the person's home folder but for the product's own: mode, and text or
        link.
        """
        found = {}
        for path in sorted(self.user.rglob("*")):
            if path.relative_to(self.user).parts[0] not in (".config", ".local", ".cache"):
                text = (
                    os.readlink(path)
                    if path.is_symlink()
                    else path.read_text()
                    if path.is_file()
                    else ""
                )
                found[str(path.relative_to(self.user))] = (path.lstat().st_mode, text)
        return found

    @contextlib.contextmanager
    def client(self, cwd: Path | None = None, **env: str) -> Iterator["Client"]:
        """A client of a stdio server that is below this process."""
        process = subprocess.Popen(
            [*PROGRAM, "serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=cwd or self.project,
            env=self.environment(person=False, **env),
            encoding="utf-8",
        )
        try:
            yield Client(process)
        finally:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.close()
            try:
                process.wait(timeout=30)
            finally:
                process.kill()
                process.wait()
                process.stdout.close()

    def token(self, name: str, *permissions: str) -> str:
        """Have the person make a token; return its secret."""
        return str(self.json("token", "add", name, *permissions)["secret"])

    @contextlib.contextmanager
    def http(self) -> Iterator["Http | None"]:
        """A server over HTTP on a free port; None when it refused to start."""
        process = subprocess.Popen(
            [*PROGRAM, "serve", "--http", "127.0.0.1:0"],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=self.project,
            env=self.environment(person=False),
            encoding="utf-8",
        )
        assert process.stderr is not None
        try:
            line = next((line for line in process.stderr if "Serving http" in line), None)
            yield Http(process, int(line.split("/mcp")[0].rsplit(":", 1)[1])) if line else None
        finally:
            process.kill()
            process.communicate()


class Client:
    """A connection over stdio, of the handshake era."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process, self._number = process, 0
        self.ask("initialize", INITIALIZE)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, frame: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(frame) + "\n")
        self._process.stdin.flush()

    def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        """Return the result of a request, or its error."""
        self._number += 1
        self.send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            if answer.get("id") == self._number:
                return answer.get("result", answer.get("error"))
        raise AssertionError("the server ended")

    def call(self, tool: str, **arguments: Any) -> Any:
        """Return the whole result of a tool."""
        return self.ask("tools/call", {"name": tool, "arguments": arguments})

    def text(self, tool: str, **arguments: Any) -> str:
        """Return all text of a tool's result."""
        return "\n".join(str(block["text"]) for block in self.call(tool, **arguments)["content"])


class Http:
    """What a client may send a server over HTTP."""

    def __init__(self, process: "subprocess.Popen[str]", port: int) -> None:
        self.process, self.port = process, port

    def post(
        self,
        method: str,
        params: Mapping[str, Any],
        secret: str = "",
        session: str = "",
        **more: str,
    ) -> tuple[int, Mapping[str, str], str]:
        """Make one request of the handshake era; return status, headers and body."""
        headers = {
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            **more,
        }
        headers |= {"MCP-Protocol-Version": INITIALIZE["protocolVersion"]}  # type: ignore[dict-item]
        headers |= {"Authorization": f"Bearer {secret}"} if secret else {}
        headers |= {"Mcp-Session-Id": session} if session else {}
        frame = {"jsonrpc": "2.0", "method": method, "params": params}
        frame |= {} if method.startswith("notifications/") else {"id": 1}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        http.client._MAXHEADERS = 100_000  # type: ignore[attr-defined]
        try:
            connection.request("POST", "/mcp", json.dumps(frame), headers)
            answer = connection.getresponse()
            return (
                answer.status,
                {name.lower(): value for name, value in answer.getheaders()},
                answer.read().decode(),
            )
        finally:
            connection.close()

    def session(self, secret: str) -> str:
        """Open a session of the handshake era; return its id, empty when it was refused."""
        status, headers, _ = self.post("initialize", INITIALIZE, secret)
        session = headers.get("mcp-session-id", "") if status == 200 else ""
        if session:
            self.post("notifications/initialized", {}, secret, session)
        return session

    def call(self, secret: str, session: str, tool: str, **arguments: Any) -> tuple[int, str]:
        status, _, body = self.post(
            "tools/call", {"name": tool, "arguments": arguments}, secret, session
        )
        return status, body

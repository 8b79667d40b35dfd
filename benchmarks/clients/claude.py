"""Claude Code: started with -p, and as a person does, in a terminal."""

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from model import Model, Say, Use
from place import KEY, PLUGIN, TOLD, Place, wait_for
from talks import Check, hot, hot_checks, whole, whole_checks

SERVER, IN_PLUGIN = "evolvable", "plugin_evolvable_evolvable"
QUIET = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER", "DISABLE_TELEMETRY")


class Claude:
    """The binary, with a home and a model of its own."""

    def __init__(self, binary: Path, place: Place, model: Model, **environment: str) -> None:
        self._binary, self._place, self._model = str(binary), place, model
        self._more = dict.fromkeys(QUIET, "1") | {
            "ANTHROPIC_BASE_URL": model.url,
            "ANTHROPIC_API_KEY": KEY,
            **environment,
        }

    @property
    def environment(self) -> dict[str, str]:
        """What the client is started with besides what the place gives."""
        return dict(self._more)

    def add(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Add the server as the documentation says, with these options of `serve`."""
        library = f"EVOLVABLE_HOME={self._place.library}"
        command = [sys.executable, "-m", "evolvable_server", "serve", *options]
        return self.run("mcp", "add", SERVER, "-s", "user", "-e", library, "--", *command)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self._place.run(self._binary, *words, **self._more)

    def ask(self, prompt: str, *more: str) -> list[dict[str, Any]]:
        """Return the events of `claude -p`."""
        words = (
            "--output-format",
            "stream-json",
            "--verbose",
            "--allowedTools",
            f"mcp__{SERVER},mcp__{IN_PLUGIN}",
        )
        done = self.run("-p", prompt, *words, *more)
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def type(
        self,
        prompt: str,
        until: Callable[[], object],
        *more: str,
        answer: "Callable[[Terminal], None]" = lambda _: None,
    ) -> str:
        """Type a prompt into the interactive client, wait until something holds, leave, and return
        the screen.

        answer: answers what the client asks on the way. Raises TimeoutError when it does not hold
        within a minute.
        """
        self.welcome()
        words = [self._binary, "--allowedTools", f"mcp__{SERVER},mcp__{IN_PLUGIN}", *more]
        terminal = Terminal(words, self._place.environment | self._more, self._place.project)
        try:
            wait_for(lambda: "❯" in terminal.screen, "no prompt came", 30)
            terminal.type(prompt)
            answer(terminal)
            wait_for(until, f"the session did not come to its end: {terminal.screen[-600:]!r}", 60)
            terminal.type("/exit")
            terminal.ends(10)
        finally:
            terminal.close()
        return terminal.screen

    def welcome(self) -> None:
        """Answer what a first start asks: theme, key, trust in the folder."""
        path = self._place.home / ".claude.json"
        settings = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        trusted = {
            "hasTrustDialogAccepted": True,
            "hasCompletedProjectOnboarding": True,
            "allowedTools": [],
        }
        settings |= {
            "hasCompletedOnboarding": True,
            "theme": "dark",
            "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
            "projects": {str(self._place.project): trusted},
        }
        path.write_text(json.dumps(settings), encoding="utf-8")


class Terminal:
    """A program in a terminal of 160 columns; reads whatever it prints."""

    def __init__(self, words: list[str], environment: dict[str, str], folder: Path) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        self._process = subprocess.Popen(
            words,
            env=environment,
            cwd=folder,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.screen = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError, ValueError):
            while self._process.poll() is None or select.select([self._master], [], [], 0)[0]:
                if select.select([self._master], [], [], 0.2)[0]:
                    data = os.read(self._master, 65536)
                    if b"\x1b[6n" in data:  # it asks where the cursor is
                        os.write(self._master, b"\x1b[1;1R")
                    self.screen += data.decode("utf-8", "replace")

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())
        time.sleep(0.4)  # what comes at once counts as pasted, and its newline does not send it
        os.write(self._master, b"\r")

    def press(self, key: str) -> None:
        os.write(self._master, key.encode())

    def ends(self, seconds: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def close(self) -> None:
        self._process.terminate()
        self.ends(5)
        self._process.kill()
        self._process.wait()
        self._reader.join(5)
        os.close(self._master)


def in_print_mode(binary: Path, place: Place, era: str) -> Iterator[Check]:
    """claude -p: the whole way, in one era of the protocol."""
    old = {"MCP_PROTOCOL_NEGOTIATION": "legacy"} if era == "handshake" else {}
    with Model(whole(SERVER)) as model:
        claude = Claude(binary, place, model, **old)
        added = claude.add()
        yield "mcp add takes the server", added.returncode == 0, added.stderr
        listed = claude.run("mcp", "list").stdout
        yield "mcp list says that it is connected", "Connected" in listed, listed
        events = claude.ask("Fill in the form.")
        result = events[-1].get("result", "") if events else ""
        yield "the session ends with the model's words", result == "DONE 6", str(events[-1:])
        yield from whole_checks(model, place)


def reload_in_print_mode(binary: Path, place: Place) -> Iterator[Check]:
    with Model(hot(SERVER, place)) as model:
        claude = Claude(binary, place, model)
        claude.add()
        claude.ask("Send the report.")
        yield from hot_checks(model, listing=False)


def in_a_terminal(binary: Path, place: Place) -> Iterator[Check]:
    """The interactive client: the whole way."""
    with Model(whole(SERVER)) as model:
        claude = Claude(binary, place, model)
        claude.add()
        claude.type("Fill in the form.", lambda: len(model.asked) >= 7)
        yield from whole_checks(model, place)


def reload_in_a_terminal(binary: Path, place: Place) -> Iterator[Check]:
    with Model(hot(SERVER, place, Use("ListMcpResourcesTool", {}))) as model:
        claude = Claude(binary, place, model)
        claude.add()
        claude.type("Send the report.", lambda: len(model.asked) >= 5 or model.failures)
        yield from hot_checks(model, listing=True)


def with_the_plugin(binary: Path, place: Place) -> Iterator[Check]:
    """The plugin's hooks, in a session with two prompts of which the second has nothing new to be
    told.
    """
    with Model([lambda _: Say("DONE"), lambda _: Say("DONE")]) as model:
        claude = Claude(binary, place, model)
        checked = claude.run("plugin", "validate", str(PLUGIN), "--strict")
        yield (
            "plugin validate --strict passes",
            checked.returncode == 0,
            checked.stdout + checked.stderr,
        )
        events = claude.ask("Fill in a PDF form for me, please.", "--plugin-dir", str(PLUGIN))
        first = json.dumps(model.asked[0]["messages"]) if model.asked else ""
        yield "UserPromptSubmit adds the skill that fits", TOLD in first, first[-1500:]
        session = next((event["session_id"] for event in events if "session_id" in event), "")
        yield from queue_checks(place, session)
        claude.ask("And another PDF form.", "--plugin-dir", str(PLUGIN), "--resume", session)
        second = (
            json.dumps(model.asked[1]["messages"][-1:])
            if len(model.asked) > 1
            else "nothing was asked"
        )
        yield "the same session is not told of it again", TOLD not in second, second[-1500:]
    with Model([lambda _: Say("DONE")]) as model:
        Claude(binary, place, model, EVOLVABLE_HOOKS="off").ask(
            "Fill in a PDF form.", "--plugin-dir", str(PLUGIN)
        )
        told = json.dumps(model.asked[0]["messages"]) if model.asked else TOLD
        yield "EVOLVABLE_HOOKS=off adds nothing", TOLD not in told, told[-1500:]


def plugin_in_a_terminal(binary: Path, place: Place) -> Iterator[Check]:
    """The plugin's hooks as a person has them, and switched off."""
    with Model([lambda _: Say("DONE")]) as model:
        claude = Claude(binary, place, model)
        claude.type("Fill in a PDF form for me, please.", place.queued, "--plugin-dir", str(PLUGIN))
        first = json.dumps(model.asked[0]["messages"]) if model.asked else ""
        yield "UserPromptSubmit adds the skill that fits", TOLD in first, first[-1500:]
        waiting = place.queued()
        yield from queue_checks(place, str(waiting[0].get("session_id")) if waiting else "")
        ended = [job.get("event") for job in place.queued()]
        yield "SessionEnd brings the queued review up to date", ended == ["SessionEnd"], str(ended)
    with Model([lambda _: Say("DONE")]) as model:
        claude = Claude(binary, place, model, EVOLVABLE_HOOKS="off")
        claude.type("And another PDF form.", lambda: model.asked, "--plugin-dir", str(PLUGIN))
        told = json.dumps(model.asked[0]["messages"]) if model.asked else TOLD
        off = TOLD not in told and len(place.queued()) == 1
        yield (
            "EVOLVABLE_HOOKS=off adds nothing and queues nothing",
            off,
            told[-1500:] + str(place.queued()),
        )


def queue_checks(place: Place, session: str) -> Iterator[Check]:
    """Yield whether the end of the session was put in the queue of reviews, with a transcript that
    is there.
    """
    with suppress(TimeoutError):
        wait_for(place.queued, "nothing was queued", 5)
    waiting = [
        job
        for job in place.queued()
        if job.get("session_id") == session or job.get("session") == session
    ]
    yield (
        "Stop puts the session in the queue of reviews",
        bool(session and waiting),
        str(place.queued()),
    )
    there = [Path(job.get("transcript_path") or "/none").exists() for job in waiting]
    yield (
        "the queued review names a transcript that is there",
        bool(there) and all(there),
        str(waiting),
    )

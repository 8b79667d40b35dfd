"""Automatic reviews in Copilot CLI, OpenCode, Qwen Code and Droid: the client that held a session
reviews it.

Sessions are held with the real client and the hooks that `evolvable connect` writes; the same
client, started by Evolvable without a person, answers the review. The model is scripted. OpenCode
and Qwen Code tell no end of a session, nor does Droid here: half an hour without an event passes by
setting the time in the queue back, and the start of the next session takes it.
"""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

from chat import ChatModel
from model import Model, Say, Seen, Use
from place import BODY, Place, wait_for
from reviewing import SAID, TALK, candidates, evolvable, is_worker, on_path
from talks import CHANGED, Check
from whole_way_clients import Driver, ServerEnvironment

SERVER = "evolvable"
SECONDS = 400
"""How long a review by a client may take on a busy machine."""

_SESSION = re.compile(r'"(?:sessionId|sessionID|session_id)":\s*"([^"]+)"')


@dataclass(frozen=True)
class HeadlessClient:
    """A client that reviews its own sessions. program: what Evolvable starts. resume: its option
    for a session, which ends with = where the id is a part of the word.

    tells_end: whether a hook of it says that a session ended.
    """

    driver: Driver
    program: str
    resume: str
    tells_end: bool

    def configure(self, place: Place, model: ChatModel) -> None:
        """Configure the client so that it needs no option and no address in its environment for its
        model.
        """
        self.driver.configure(place, model)
        on_path(place, self.driver.binary, self.program)
        address = f"{model.url}/v1"
        if self.program == "copilot":
            place.address(address, "copilot_provider")
        if self.program == "qwen":
            auth = {"auth": {"selectedType": "openai", "apiKey": "dummy", "baseUrl": address}}
            _merge(
                place.home / ".qwen/settings.json",
                {"security": auth, "model": {"name": "stub-model"}},
            )
        if self.program == "droid":
            _merge(
                place.home / ".factory/settings.json",
                {"sessionDefaultSettings": {"model": "custom:stub"}},
            )

    def talk(self, place: Place, model: ChatModel, messages: Sequence[str]) -> str:
        """Say these messages in one session, and return its id."""
        if self.resume:
            session = self.say(place, model, messages[0])
            for words in messages[1:]:
                self.say(place, model, words, session)
            return session
        command = [
            *self.driver.command("", True)[:-3],
            "-o",
            "stream-json",
            "--input-format",
            "stream-json",
        ]
        words = (str(self.driver.binary), *command)
        environment = place.environment | self._environment(place, model)
        with (
            (place.root / "errors").open("w+") as errors,
            place.start(words, environment, errors) as process,
        ):
            try:
                printed = _converse(process, model, messages)
            finally:
                process.kill()
        return self._session_of(0, printed, (place.root / "errors").read_text())

    def say(self, place: Place, model: ChatModel, words: str, session: str = "") -> str:
        """Say something in a new session or in one that is there, and return its id."""
        command = self.driver.command(words, True)
        if session and self.resume.endswith("="):
            command = [f"{self.resume}{session}", *command]
        elif session:
            command = [*command[:-1], self.resume, session, command[-1]]
        return self._run(place, model, command)

    def _run(self, place: Place, model: ChatModel, command: Sequence[str]) -> str:
        own = self._environment(place, model)
        done = place.run(str(self.driver.binary), *command, seconds=SECONDS, **own)
        return self._session_of(done.returncode, done.stdout, done.stderr)

    def _environment(self, place: Place, model: ChatModel) -> dict[str, str]:
        path = os.pathsep.join((str(place.root / "bin"), self.driver.path(place)["PATH"]))
        return {**self.driver.environment(model), "PATH": path}

    def _session_of(self, code: int, printed: str, errors: str) -> str:
        found = _SESSION.findall(printed)
        if code or not found:
            raise RuntimeError(
                f"{self.program} ended with {code}: {printed[-600:]} {errors[-300:]}"
            )
        return str(found[-1])


def _converse(process: "subprocess.Popen[str]", model: ChatModel, messages: Sequence[str]) -> str:
    """Say the messages to a client that reads them line by line, and return what it printed."""
    assert process.stdin is not None and process.stdout is not None
    for number, message in enumerate(messages, 1):
        process.stdin.write(json.dumps({"role": "user", "content": message}) + "\n")
        process.stdin.flush()
        # What comes before an answer is read together with the message before it.
        answered = partial(_has_answered, model, number)
        wait_for(answered, f"no answer to {message}", SECONDS)
    process.stdin.close()
    return process.stdout.read()


def _has_answered(model: ChatModel, messages: int) -> bool:
    return sum(isinstance(said, Say) for said in model.said) >= messages


def _merge(path: Path, values: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    there = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps({**there, **values}, indent=2), encoding="utf-8")


AGAIN = "Fill in the next PDF form."
"""What a later session asks for: its words differ from those of the first."""


def answer(seen: Seen, server: str = SERVER) -> Say | Use:
    """Say what fits the conversation: the session with the correction, a later one with the same
    task, or neither.

    By what was said and not by counting: clients make requests of their own between those of a
    person's.
    """
    said = json.dumps(
        [seen.request.get(name) for name in ("messages", "input")], ensure_ascii=False
    )
    load = Use("load_skill", {"ref": "skill:pdf"}, server)
    if AGAIN in said:
        uses = [Use("find_skill", {"task": "fill in a PDF form"}, server), load]
        return uses[len(seen.results)] if len(seen.results) < len(uses) else Say("DONE")
    if SAID in said:
        return Say("Understood.")
    if TALK[0] in said:
        return Say("I counted the pages.") if seen.results else load
    return Say("Hello.")


def reviewed_by_itself(client: HeadlessClient, place: Place) -> Iterator[Check]:
    """No command of the person between the correction and the lesson, one answer to keep it, one
    call to undo it.
    """
    with ChatModel(repeat(answer), candidates) as model:
        client.configure(place, model)
        pairs = [word for pair in ServerEnvironment(place).pairs for word in ("--env", pair)]
        done = place.person("connect", client.driver.name, *client.driver.options(True), *pairs)
        yield "connect", done.returncode == 0, done.stdout + done.stderr
        evolvable(place, "review", "auto", "on")
        session = client.talk(place, model, TALK[:2])
        if not client.tells_end:
            half_an_hour_passes(place)
            client.say(place, model, "Hello.")
        try:
            wait_for(lambda: evolvable(place, "inbox")["proposals"], "no lesson came", SECONDS)
        except TimeoutError as error:
            yield "a lesson comes", False, f"{error}: {review_state(place, model)}"
            return
        (waiting,) = evolvable(place, "inbox")["proposals"]
        yield "the lesson waits, of that session", waiting["session"] == session, str(waiting)
        yield "the reviewer was asked once", len(model.reviewed) == 1, str(len(model.reviewed))
        yield "it was offered no tool", _offered(model) == [], str(_offered(model))
        ours = {one.get("session") for one in place.queued()} - {session}
        yield (
            "the session of the review is not queued",
            not ours & _reviews(place),
            str(place.queued()),
        )
        decided = evolvable(place, "inbox", "approve", str(waiting["proposal_id"]))
        yield "one answer makes version 2", decided["version"] == 2, str(decided)
        client.say(place, model, AGAIN)
        last = model.seen.last
        yield (
            "the next session finds the changed skill",
            CHANGED in last and BODY not in last,
            last[-600:],
        )
        used = evolvable(place, "stats", "pdf")["resources"][0]
        yield "its use in that session is counted", used["loaded"] >= 2, str(used)
        made = evolvable(place, "history", "pdf")["versions"][0]
        evolvable(place, "undo", str(made["operation"]), "--yes")
        yield (
            "one call takes it back",
            BODY in place.text("pdf", place.heads()["pdf"]),
            str(place.heads()),
        )
        workers = [path for path in Path("/proc").glob("[0-9]*/cmdline") if is_worker(path, place)]
        wait_for(
            lambda: not [one for one in workers if is_worker(one, place)], "a worker stays", SECONDS
        )
        yield "no process of reviews is left", True, ""


def review_state(place: Place, model: Model) -> str:
    """Return what there is to see of reviews, for a session of which none came."""
    kept = {
        str(path.relative_to(place.library)): path.read_text(encoding="utf-8", errors="replace")[
            -600:
        ]
        for path in (place.library / "reviews").rglob("*")
        if path.is_file()
    }
    asked, listed = len(model.reviewed), evolvable(place, "sessions")["sessions"]
    return f"asked {asked} times; {evolvable(place, 'review', 'auto')}; {listed}; {kept}"


def half_an_hour_passes(place: Place) -> None:
    """Set the time of what waits back by more than the half hour after which a session counts as
    ended.
    """
    then = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 3600))
    for path in (place.library / "reviews" / "queue").glob("*.json"):
        path.write_text(
            json.dumps({**json.loads(path.read_text(encoding="utf-8")), "time": then}),
            encoding="utf-8",
        )
        os.utime(path, (time.time() - 3600,) * 2)


def _offered(model: ChatModel) -> list[str]:
    """Return the tools that the model was offered with the question, but for a search among those
    that there are.
    """
    tools = [tool for one in model.questions for tool in one.get("tools") or []]
    return [str(tool.get("function", {}).get("name")) for tool in tools]


def _reviews(place: Place) -> set[str]:
    """Return the sessions that are known as reviews."""
    listed = evolvable(place, "sessions")["sessions"]
    return {str(one["session"]) for one in listed if one["taken"] == "skipped"}


CLIENTS: Mapping[str, tuple[str, bool]] = {
    "copilot": ("--resume=", True),
    "opencode": ("-s", False),
    "qwen": ("-r", False),
    "droid": ("", False),  # without a network it resumes no session, so all is said in one process
}
"""Client -> its option for a session that goes on, and whether it tells the end of one here."""


def automatic_review(driver: Driver) -> Callable[[Path, Place], Iterator[Check]]:
    """Return the session in which a client reviews what was said in it."""
    resume, tells_end = CLIENTS[driver.name]
    return lambda _, place: reviewed_by_itself(
        HeadlessClient(driver, driver.name, resume, tells_end), place
    )

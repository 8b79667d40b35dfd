"""A session goes in, a proposal comes out, a person approves it, and the next session finds the
changed skill.

The session is held with the real client, its transcript is the one that the client writes, and
whoever thinks is asked in each of the ways there are: the calling agent (a hand-off), the Anthropic
API, and the client's own command.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from claude import IN_PLUGIN, Claude
from codex import SERVER as CODEX_SERVER
from codex import Codex
from model import Model, Say, Seen, Turn, Use
from place import BODY, KEY, PLUGIN, Place, wait_for
from talks import CHANGED, Check, found

from evolvable_tools.llm.headless_clients import CODEX

SAID = "We always count the pages twice"
TALK = (
    "Fill in the PDF form.",
    f"No, don't count them once. {SAID}, before and after.",
    "Perfect, thanks.",
)
LONG_ENOUGH = 62.0
"""Seconds of a session that a queue reviews by itself."""

Ask = Callable[[str], str]
"""Says something to the client in the session that is open, and returns the session's id."""


def candidates(data: dict[str, Any]) -> dict[str, Any]:
    """Return what a model would propose that has read the session."""
    span = next(one["id"] for one in data["evidence"] if SAID in one["text"])
    edit = {"op": "text", "old": BODY, "new": CHANGED}
    one = {
        "kind": "skill-edit",
        "target": "skill:pdf",
        "claim": "The pages are counted twice.",
        "edits": [edit],
    }
    return {"candidates": [{**one, "evidence": [{"span": span, "quote": SAID}]}]}


def talk(server: str) -> list[Turn]:
    """Return the turns of the session that something can be learned from."""
    load = Use("load_skill", {"ref": "skill:pdf"}, server)
    return [lambda _: load, *[lambda _: Say("I counted the pages.")] * len(TALK)]


def handing_off(server: str, session: Callable[[], str]) -> list[Turn]:
    """Return the turns of an agent that is asked to review a session and thinks about it itself."""

    def submit(seen: Seen) -> Use:
        begun = found(seen.last)
        assert begun["state"] == "begun", begun
        answer = {"review_id": begun["review_id"], **candidates(begun["packet"]["data"])}
        return Use("submit_review", answer, server)

    return [
        lambda _: Use("review_session", {"session": session()}, server),
        submit,
        lambda _: Say("DONE"),
    ]


def next_time(server: str) -> list[Turn]:
    """Return the turns of a later session with the same task."""
    find = Use("find_skill", {"task": "fill in a PDF form"}, server)

    def load(seen: Seen) -> Use:
        return Use("load_skill", {"ref": found(seen.last)["use"]["ref"]}, server)

    return [lambda _: find, load, lambda _: Say("DONE")]


def evolvable(place: Place, *words: str, **environment: str) -> Any:
    """Run a command of a person's, and return what it answers as JSON.

    Raises RuntimeError when it fails.
    """
    done = place.person(*words, "--json", **environment)
    if done.returncode:
        raise RuntimeError(f"evolvable {' '.join(words)}: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def named(place: Place, *command: str) -> None:
    """Names a command `own` as a reviewer, as a person does.

    Raises RuntimeError when that fails.
    """
    done = place.person("reviewer", "add", "own", "--", *command)
    if done.returncode:
        raise RuntimeError(f"evolvable role reviewer add: {done.stdout}{done.stderr}")


def approved(place: Place, session: str) -> Iterator[Check]:
    """Yield whether one proposal waits with its evidence, and approves it as a person does."""
    waiting = evolvable(place, "inbox")["proposals"]
    yield (
        "one proposal waits, of that session",
        [one["session"] for one in waiting] == [session],
        str(waiting),
    )
    quoted = [
        (quote["origin"], quote["turn"], quote["quote"])
        for quote in waiting[0]["grounds"]["evidence"]
    ]
    yield "its evidence is what the person typed", quoted == [("user", 2, SAID)], str(quoted)
    decided = evolvable(place, "inbox", "approve", str(waiting[0]["proposal_id"]))
    yield "a person's approval makes version 2", decided["version"] == 2, str(decided)


def changed(model: Model) -> Check:
    last = model.seen.last
    return (
        "the next session finds the changed skill",
        CHANGED in last and BODY not in last,
        last[-600:],
    )


def by_hand_off(
    ask: Ask, server: str, place: Place, model: Model, session: list[str]
) -> Iterator[Check]:
    """The session, the review by the agent in a session of its own, the approval, and the next
    session.
    """
    for words in TALK:
        session[:] = [ask(words) if words == TALK[0] else ask(words) and session[0]]
    its = session[0]
    reviewing = ask("")
    answer = found(model.seen.last) if model.seen.results else {}
    yield (
        "submit_review answers with a proposal",
        len(answer.get("proposals", [])) == 1,
        model.seen.last[-900:],
    )
    yield from approved(place, its)
    ask("Fill in the PDF form.")
    yield changed(model)
    yield "the script went through", not model.failures, str(model.failures)
    again = evolvable(place, "review", reviewing)
    yield (
        "the session that reviewed it teaches nothing",
        again["proposals"] == [] and again["packet"] is None,
        str(again),
    )


class Conversation:
    """Talks with a client: the first messages in one session, what follows in sessions of their
    own.
    """

    def __init__(self, say: Callable[[str, str | None], str]) -> None:
        self.say, self._said, self.session = say, 0, ""

    def __call__(self, words: str) -> str:
        self._said += 1
        new = self._said == 1 or self._said > len(TALK)
        named = self.say(
            words or "Review that session with Evolvable, please.", None if new else self.session
        )
        if self._said == 1:
            self.session = named
        return named

    def new(self, words: str) -> str:
        """Say this in a session of its own."""
        return self.say(words, None)


def with_claude(claude: Claude, *more: str) -> Conversation:
    def say(words: str, session: str | None) -> str:
        resumed = ("--resume", session) if session else ()
        events = claude.ask(words, *more, *resumed)
        return next((str(event["session_id"]) for event in events if "session_id" in event), "")

    return Conversation(say)


def with_codex(codex: Codex, *more: str, **environment: str) -> Conversation:
    def say(words: str, session: str | None) -> str:
        events = codex.ask(words, *more, *(("resume", session) if session else ()), **environment)
        return next(
            (str(event["thread_id"]) for event in events if "thread_id" in event), session or ""
        )

    return Conversation(say)


def claude_hand_off(binary: Path, place: Place) -> Iterator[Check]:
    """Claude Code, in which an agent thinks about what another session of Claude Code shows."""
    session: list[str] = []
    turns = [*talk(IN_PLUGIN), *handing_off(IN_PLUGIN, lambda: session[0]), *next_time(IN_PLUGIN)]
    with Model(turns) as model:
        ask = with_claude(Claude(binary, place, model), "--plugin-dir", str(PLUGIN))
        yield from by_hand_off(ask, IN_PLUGIN, place, model, session)


def codex_hand_off(binary: Path, place: Place) -> Iterator[Check]:
    """The same in Codex."""
    session: list[str] = []
    turns = [
        *talk(CODEX_SERVER),
        *handing_off(CODEX_SERVER, lambda: session[0]),
        *next_time(CODEX_SERVER),
    ]
    with Model(turns) as model:
        codex = Codex(binary, place, model)
        codex.add()
        codex.require()
        yield from by_hand_off(with_codex(codex), CODEX_SERVER, place, model, session)


def claude_queue(binary: Path, place: Place) -> Iterator[Check]:
    """The hooks queue the session, and the queue asks the Anthropic API through its SDK."""
    turns = [*talk(IN_PLUGIN), *next_time(IN_PLUGIN)]
    with Model(turns, candidates) as model:
        ask = with_claude(Claude(binary, place, model), "--plugin-dir", str(PLUGIN))
        begun = time.monotonic()
        for words in TALK:
            if words == TALK[-1]:  # what takes less than a minute is not reviewed by itself
                time.sleep(max(0.0, LONG_ENOUGH - (time.monotonic() - begun)))
            ask(words)
        place.address(model.url)
        api = {"ANTHROPIC_API_KEY": KEY}
        evolvable(place, "model", "role", "reviewer", "anthropic", "--yes")
        (done,) = evolvable(place, "review", "--queue", **api)["reviews"]
        yield "the queue's review makes a proposal", len(done["proposals"]) == 1, str(done)
        yield (
            "it says who thought, and what it took",
            done["cost"]["thinker"].startswith("anthropic:"),
            str(done["cost"]),
        )
        yield "the API was asked once", len(model.reviewed) == 1, str(len(model.reviewed))
        left = evolvable(place, "review", "--queue", **api)["reviews"]
        yield "nothing is left in the queue", left == [] == place.queued(), str(left)
        yield from approved(place, ask.session)
        ask("Fill in the PDF form.")
        yield changed(model)


def claude_headless(binary: Path, place: Place) -> Iterator[Check]:
    """`claude -p` thinks, as it is set by the word alone; then as a person's own command, with
    hooks and transcript.
    """
    with Model([*talk(IN_PLUGIN), *next_time(IN_PLUGIN)], candidates) as model:
        client = Claude(binary, place, model)
        ask = with_claude(client, "--plugin-dir", str(PLUGIN))
        for words in TALK:
            ask(words)
        there = transcripts(place)
        place.address(model.url)
        environment = client.environment | {"PATH": on_path(place, binary, "claude")}
        evolvable(place, "model", "role", "reviewer", "claude", "--yes")
        done = evolvable(place, "review", ask.session, **environment)
        yield "the reviewer claude makes a proposal", len(done["proposals"]) == 1, str(done)
        yield (
            "its tokens are those that it tells",
            0 < done["cost"]["tokens"] < 1_000,
            str(done["cost"]),
        )
        yield (
            "it leaves no transcript",
            transcripts(place) == there,
            str(transcripts(place) - there),
        )
        yield from approved(place, ask.session)
        ask("Fill in the PDF form.")
        yield changed(model)


def claude_own_command(binary: Path, place: Place) -> Iterator[Check]:
    """A person's own command, with the plugin's hooks and a transcript: neither is ever taken for a
    session.
    """
    with Model(
        [*talk(IN_PLUGIN)], lambda _: {"candidates": [], "why_none": "nothing new"}
    ) as model:
        client = Claude(binary, place, model)
        ask = with_claude(client, "--plugin-dir", str(PLUGIN))
        for words in TALK:
            ask(words)
        there, waiting = transcripts(place), len(place.queued())
        own = (str(binary), "-p", "--output-format", "json", "--plugin-dir", str(PLUGIN))
        named(place, *own)
        place.address(model.url)
        evolvable(place, "model", "role", "reviewer", "own", "--yes")
        done = evolvable(place, "review", ask.session, **client.environment)
        yield "a command of a person's own is asked too", done["why"] == "nothing new", str(done)
        yield "its hooks queue nothing", len(place.queued()) == waiting, str(place.queued())
        (written,) = transcripts(place) - there
        listed = {one["path"]: one["taken"] for one in evolvable(place, "sessions")["sessions"]}
        yield (
            "its transcript is known as a review",
            listed.get(str(written)) == "skipped",
            str(listed),
        )
        skipped = evolvable(place, "review", str(written))
        yield "and is not reviewed", "itself a review" in skipped["why"], str(skipped)


def automatic(ask: Conversation, place: Place, model: Model) -> Iterator[Check]:
    """No command of the person between the correction and the lesson, one answer to keep it, one
    call to undo it.
    """
    for words in TALK[:2]:  # it ends with the correction
        ask(words)
    wait_for(lambda: evolvable(place, "inbox")["proposals"], "no lesson came", 120)
    wait_for(lambda: not place.queued(), "the queue is not worked off", 60)
    yield "the lesson waits", True, ""
    yield "the reviewer was asked once", len(model.reviewed) == 1, str(len(model.reviewed))
    yield from approved(place, ask.session)
    ask.new("Fill in the PDF form.")
    yield changed(model)
    used = evolvable(place, "stats", "pdf")["resources"][0]
    yield "its use in that session is counted", used["loaded"] >= 2, str(used)
    made = evolvable(place, "history", "pdf")["versions"][0]
    evolvable(place, "undo", str(made["operation"]), "--yes")
    yield (
        "one call takes it back",
        place.text("pdf", place.heads()["pdf"]).count(BODY) == 1,
        str(place.heads()),
    )
    workers = [path for path in Path("/proc").glob("[0-9]*/cmdline") if is_worker(path, place)]
    yield "no process of reviews is left", workers == [], str(workers)


def is_worker(path: Path, place: Place) -> bool:
    """Return whether a process reviews sessions of this place."""
    try:
        ours = b"evolvable_server.auto_review" in path.read_bytes()
        return ours and str(place.library).encode() in path.with_name("environ").read_bytes()
    except OSError:
        return False


def claude_automatic(binary: Path, place: Place) -> Iterator[Check]:
    """Sessions of Claude Code end, and `claude -p` reviews them by itself, through the plugin's
    hooks alone.
    """
    with Model([*talk(IN_PLUGIN)[:3], *next_time(IN_PLUGIN)], candidates) as model:
        client = Claude(binary, place, model, PATH=on_path(place, binary, "claude"))
        place.address(model.url)
        evolvable(place, "review", "auto", "on")
        yield from automatic(with_claude(client, "--plugin-dir", str(PLUGIN)), place, model)


def codex_automatic(binary: Path, place: Place) -> Iterator[Check]:
    """The same in Codex, reviewed by `codex exec` with the person's own model and provider."""
    with Model([*talk(CODEX_SERVER)[:3], *next_time(CODEX_SERVER)], candidates) as model:
        codex = Codex(binary, place, model)
        codex.run("plugin", "marketplace", "add", str(PLUGIN.parents[1]))
        codex.run("plugin", "add", "evolvable@evolvable")
        evolvable(place, "review", "auto", "on")
        more = {"PATH": on_path(place, binary, "codex")}
        yield from automatic(
            with_codex(codex, "--dangerously-bypass-hook-trust", **more), place, model
        )


def codex_headless(binary: Path, place: Place) -> Iterator[Check]:
    """`codex exec` thinks, with the settings of the place, as no account is there."""
    with Model([*talk(CODEX_SERVER), *next_time(CODEX_SERVER)], candidates) as model:
        codex = Codex(binary, place, model)
        codex.add()
        codex.require()
        ask = with_codex(codex)
        for words in TALK:
            ask(words)
        there = transcripts(place)
        words = [str(binary), *(word for word in CODEX[1:] if word != "--ignore-user-config")]
        named(place, *words)
        own = {"CODEX_HOME": str(codex.home), "SCRIPT_KEY": "dummy"}
        evolvable(place, "model", "role", "reviewer", "own", "--yes")
        done = evolvable(place, "review", ask.session, **own)
        yield "codex exec makes a proposal", len(done["proposals"]) == 1, str(done)
        yield (
            "its tokens are those that it tells",
            0 < done["cost"]["tokens"] < 1_000,
            str(done["cost"]),
        )
        yield (
            "it leaves no transcript",
            transcripts(place) == there,
            str(transcripts(place) - there),
        )
        yield from approved(place, ask.session)
        ask("Fill in the PDF form.")
        yield changed(model)


def transcripts(place: Place) -> set[Path]:
    """Return the transcripts of both clients."""
    return {
        path
        for folder in (".claude/projects", ".codex/sessions")
        for path in (place.home / folder).rglob("*.jsonl")
    }


def on_path(place: Place, binary: Path, name: str) -> str:
    """Return a PATH on which this binary has this name."""
    folder = place.root / "bin"
    folder.mkdir(exist_ok=True)
    (folder / name).symlink_to(binary)
    return f"{folder}{os.pathsep}{place.environment['PATH']}"

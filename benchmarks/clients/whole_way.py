"""The whole way of one client: connect, find, load, edit, report, a review of that session, undo.

The client is connected by `evolvable connect`, as its user does it, and runs with its default
approvals. Where these refuse a step while nobody can answer, the whole session is held on a
terminal, in the same approvals, and a person answers what the client asks; a call about which it
asked counts as `asks`. Such a client is tried again with its own switch for sessions without a
person. docs/clients.md has the table that `matrix` makes.
"""

import json
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from model import Model, Say, Seen, Turn, Use
from place import BODY, TOLD, Place
from reviewing import evolvable
from talks import CHANGED, Check
from whole_way_clients import Driver, ServerEnvironment

SERVER = "evolvable"
PROMPT = "Fill in the PDF form. From now on, always count the pages twice."
CALLS = ("find", "load", "report", "edit")
"""The calls of the session. The edit is last: a client may end its run where it refuses one."""

TOOLS = {
    "find": "find_skill",
    "load": "load_skill",
    "report": "report_outcome",
    "edit": "update_resource",
}
"""The tool of each call."""

STEPS = ("connect", *CALLS, "review", "undo")
EXTRAS = ("hint", "queue")
"""What hooks bring besides: the skill that fits beside the prompt, and the session in the review
queue.
"""


@dataclass
class WholeWay:
    """What was seen of one client. steps: `yes`, `asks` where it asked the person about it, or
    `no`.

    refused: the calls that its default refuses where nobody can answer; allows: whether the switch
    allows all of them.
    """

    title: str
    version: str
    switch: str
    steps: dict[str, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    allows: bool = False


def turns() -> list[Turn]:
    """Return the turns of the session, which go on after a refusal."""

    def load(seen: Seen) -> Use:
        search = re.search(r"search-[0-9a-f]{8,}", seen.last)
        return Use(
            "load_skill",
            {"ref": "skill:pdf", **({"search_id": search[0]} if search else {})},
            SERVER,
        )

    def report(seen: Seen) -> Use:
        use = re.search(r"use-[0-9a-f]{8,}", " ".join(seen.results))
        return Use(
            "report_outcome",
            {"use_id": use[0] if use else "use-00000000", "outcome": "succeeded"},
            SERVER,
        )

    edit = {"path": "SKILL.md", "old": BODY, "new": CHANGED}
    update = Use(
        "update_resource", {"ref": "skill:pdf", "edits": [edit], "reason": "count again"}, SERVER
    )
    find = Use("find_skill", {"task": "fill in a PDF form"}, SERVER)
    return [lambda _: find, load, report, lambda _: update, lambda _: Say("DONE")]


def steps_of(model: Model, place: Place) -> dict[str, bool]:
    """Return which calls were answered, by what the model was shown and what the library holds."""
    results = [*model.seen.results, *[""] * len(CALLS)]
    return {
        "find": "skill:pdf" in results[0],
        "load": BODY in results[1],
        "report": bool(re.search(r'succeeded\\?"\s*:\s*1', results[2])),
        "edit": place.heads()["pdf"] == 2,
    }


def walk(driver: Driver, root: Path, way: WholeWay) -> Iterator[Check]:
    """Yield the checks of one client, and fill in what was seen.

    The session in the default approvals is the one without a person where that does all, else the
    one on a terminal.
    """
    alone = hold(driver, root / "alone", Manner.ALONE)
    way.refused = [step for step, good in alone.steps.items() if not good]
    asking = bool(way.refused) and driver.dialogue is not None
    main = hold(driver, root / "answered", Manner.ANSWERED) if asking else alone
    for step, good in main.steps.items():
        way.steps[step] = "no" if not good else "asks" if TOOLS[step] in main.asked else "yes"
    queued = [one.get("client") for one in main.place.queued()]
    way.steps["hint"] = "yes" if _told(main.model) else "no"
    way.steps["queue"] = "yes" if driver.name in queued else "no"
    way.steps["connect"] = "yes" if main.connected.returncode == 0 else "no"
    yield "connect", main.connected.returncode == 0, main.connected.stdout + main.connected.stderr
    told = f"{main.model.seen.results} {main.model.failures} {main.told}"
    for step in CALLS:
        yield f"{step}: {way.steps[step]}", way.steps[step] != "no", told
    for step, check in (("review", review_check), ("undo", undo_check)):
        good, instead = check(driver, main.place)
        way.steps[step] = "yes" if good else "no"
        yield step, good, instead
    if asking:
        allowed = hold(driver, root / "allowed", Manner.ALLOWED)
        way.allows = all(allowed.steps.values())
        yield (
            f"{driver.switch} allows all without a person",
            way.allows,
            f"{allowed.steps} {allowed.model.seen.results} {allowed.told}",
        )


class Manner(Enum):
    """Who answers a client: nobody, a person at a terminal, or the client's own switch that allows
    our tools.
    """

    ALONE = "alone"
    ANSWERED = "answered"
    ALLOWED = "allowed"


@dataclass
class Session:
    """What came of one session.

    asked: the tools about which the client asked; told: what it wrote or showed last.
    """

    place: Place
    model: Model
    connected: subprocess.CompletedProcess[str]
    steps: dict[str, bool]
    asked: Sequence[str]
    told: str


def hold(driver: Driver, root: Path, manner: Manner) -> Session:
    """Connect the client in a place of its own, as its user does, and hold the session."""
    place, allowed = Place(root), manner is Manner.ALLOWED
    with driver.model(turns()) as model:
        driver.configure(place, model)
        options = [word for pair in ServerEnvironment(place).pairs for word in ("--env", pair)]
        connected = place.person("connect", driver.name, *driver.options(allowed), *options)
        if manner is Manner.ANSWERED:
            asked, told = driver.talk(place, model, PROMPT)
        else:
            asked, told = [], driver.ask(place, model, PROMPT, allowed)
    return Session(place, model, connected, steps_of(model, place), asked, told[-3000:])


def _told(model: Model) -> bool:
    """Return whether the first request names the skill to the model outside of the list of tools
    and results.
    """
    first = model.asked[0] if model.asked else {}
    return TOLD in json.dumps(
        [first.get(key) for key in ("messages", "input", "system", "instructions")]
    )


def session_of(driver: Driver, place: Place) -> str:
    """Return the newest session that the client wrote down, '' without one."""
    listed = evolvable(place, "sessions")["sessions"]
    return next((str(one["session"]) for one in listed if one["client"] == driver.name), "")


def review_check(driver: Driver, place: Place) -> tuple[bool, str]:
    """Return whether a review of the session asks about it, with what the person typed
    as evidence.
    """
    session = session_of(driver, place)
    if not session:
        return False, "no session is listed"
    begun = evolvable(place, "review", session)
    data = (begun["packet"] or {}).get("data") or {}
    evidence = [(one["origin"], one["text"]) for one in data.get("evidence", [])]
    named = (data.get("session"), data.get("client")) == (session, driver.name)
    return named and ("user", PROMPT) in evidence, str(begun)[:900]


def undo_check(driver: Driver, place: Place) -> tuple[bool, str]:
    """Return whether `undo --session` with the id of the transcript brings the bytes from before
    the session back.
    """
    done = place.person("undo", "--session", session_of(driver, place), "--yes")
    now = place.text("pdf", place.heads()["pdf"])
    return now == place.text("pdf", 1) and place.heads()[
        "pdf"
    ] > 2, f"{done.stdout} {done.stderr} {now[-300:]}"


BEGIN, END = "<!-- the whole way: generated -->", "<!-- the whole way: end -->"


HEAD = f"| client | seen | {' | '.join((*STEPS, *EXTRAS))} | with nobody to answer |"


def row(way: WholeWay, day: str) -> str:
    """Return the row of the table for what was seen of a client."""
    cells = [way.steps.get(column, "no") for column in (*STEPS, *EXTRAS)]
    alone = f"refuses {', '.join(way.refused)}" if way.refused else "the same"
    alone += f"; {way.switch} allows all" if way.allows else ""
    return f"| {way.title} {way.version} | {day} | {' | '.join(cells)} | {alone} |"


def write_matrix(page: Path, ways: Sequence[WholeWay]) -> None:
    """Write the rows of these clients into the table between its marks on a page; the rows of
    others stay.
    """
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    table, _, after = rest.partition(END)
    lines = table.strip().splitlines()
    rows = lines[2:] if lines[:1] == [HEAD] else []
    for way in ways:
        new = row(way, time.strftime("%Y-%m-%d"))
        at = next(
            (at for at, old in enumerate(rows) if old.startswith(f"| {way.title} ")), len(rows)
        )
        rows[at : at + 1] = [new]
    table = "\n".join([HEAD, "|---" * HEAD.count(" | ") + "|---|", *rows])
    page.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")

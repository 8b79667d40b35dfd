"""The whole way of one client: connect, find, load, edit, report, a review of that session, undo.

The client is connected by `evolvable connect`, as its user does it, and runs with its default approvals. Where these
refuse a step while nobody can answer, the session is held once more with the client's own switch for it, and the step
counts as `asks`. docs/clients.md has the table that `matrix` makes.
"""

import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
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

STEPS = ("connect", *CALLS, "review", "undo")
EXTRAS = ("hint", "queue")
"""What hooks bring besides: the skill that fits beside the prompt, and the session in the review queue."""


@dataclass
class WholeWay:
    """What was seen of one client. steps: `yes`, `asks` where its default refuses it, or `no`."""

    title: str
    version: str
    switch: str
    steps: dict[str, str] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return all(self.steps.get(step) in ("yes", "asks") for step in STEPS)


def turns() -> list[Turn]:
    """Return the turns of the session, which go on after a refusal."""

    def load(seen: Seen) -> Use:
        search = re.search(r"search-[0-9a-f]{8,}", seen.last)
        return Use("load_skill", {"ref": "skill:pdf", **({"search_id": search[0]} if search else {})}, SERVER)

    def report(seen: Seen) -> Use:
        use = re.search(r"use-[0-9a-f]{8,}", " ".join(seen.results))
        return Use("report_outcome", {"use_id": use[0] if use else "use-00000000", "outcome": "succeeded"}, SERVER)

    edit = {"path": "SKILL.md", "old": BODY, "new": CHANGED}
    update = Use("update_resource", {"ref": "skill:pdf", "edits": [edit], "reason": "count again"}, SERVER)
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
    """Yield the checks of one client, and fill in what was seen."""
    for allowed in (False, True):
        place = Place(root / ("allowed" if allowed else "default"))
        with driver.model(turns()) as model:
            driver.configure(place, model)
            options = [word for pair in ServerEnvironment(place).pairs for word in ("--env", pair)]
            connected = place.person("connect", driver.name, *driver.options(allowed), *options)
            said = driver.ask(place, model, PROMPT, allowed)
            seen = steps_of(model, place)
        for step, good in seen.items():
            before = way.steps.get(step)
            way.steps[step] = before if before == "yes" else ("asks" if allowed else "yes") if good else "no"
        queued = [one.get("client") for one in place.queued()]
        way.steps["hint"] = "yes" if _told(model) else "no"
        way.steps["queue"] = "yes" if driver.name in queued else "no"
        if all(seen.values()) or not driver.switch:
            break
    way.steps["connect"] = "yes" if connected.returncode == 0 else "no"
    yield "connect", connected.returncode == 0, connected.stdout + connected.stderr
    for step in CALLS:
        told = f"{model.seen.results} {model.failures} {said[-1500:]}"
        yield f"{step}: {way.steps[step]}", way.steps[step] != "no", told
    for step, check in (("review", review_check), ("undo", undo_check)):
        good, instead = check(driver, place)
        way.steps[step] = "yes" if good else "no"
        yield step, good, instead


def _told(model: Model) -> bool:
    """Return whether the first request names the skill to the model outside of the list of tools and results."""
    first = model.asked[0] if model.asked else {}
    return TOLD in json.dumps([first.get(key) for key in ("messages", "input", "system", "instructions")])


def session_of(driver: Driver, place: Place) -> str:
    """Return the newest session that the client wrote down, '' without one."""
    listed = evolvable(place, "sessions")["sessions"]
    return next((str(one["session"]) for one in listed if one["client"] == driver.name), "")


def review_check(driver: Driver, place: Place) -> tuple[bool, str]:
    """Return whether a review of the session asks about it, with what the person typed as evidence."""
    session = session_of(driver, place)
    if not session:
        return False, "no session is listed"
    begun = evolvable(place, "review", session)
    data = (begun["packet"] or {}).get("data") or {}
    evidence = [(one["origin"], one["text"]) for one in data.get("evidence", [])]
    named = (data.get("session"), data.get("client")) == (session, driver.name)
    return named and ("user", PROMPT) in evidence, str(begun)[:900]


def undo_check(driver: Driver, place: Place) -> tuple[bool, str]:
    """Return whether `undo --session` with the id of the transcript brings the bytes from before the session back."""
    done = place.person("undo", "--session", session_of(driver, place), "--yes")
    now = place.text("pdf", place.heads()["pdf"])
    return now == place.text("pdf", 1) and place.heads()["pdf"] > 2, f"{done.stdout} {done.stderr} {now[-300:]}"


BEGIN, END = "<!-- the whole way: generated -->", "<!-- the whole way: end -->"


def matrix(ways: Sequence[WholeWay], day: str) -> str:
    """Return the table of what was seen of the clients."""
    columns = (*STEPS, *EXTRAS)
    lines = [f"| client | {' | '.join(columns)} | what lets it do what asks |", "|---" * (len(columns) + 2) + "|"]
    for way in ways:
        cells = [way.steps.get(column, "no") for column in columns]
        switch = way.switch if "asks" in cells else ""
        lines.append(f"| {way.title} {way.version} | {' | '.join(cells)} | {switch} |")
    return "\n".join([f"Seen on {day}, on Linux, with a scripted model:", "", *lines])


def write_matrix(page: Path, ways: Sequence[WholeWay]) -> None:
    """Write the table between its marks on a page."""
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    table = matrix(ways, time.strftime("%Y-%m-%d"))
    page.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")

"""Sessions that fail alike, a round that learns from them, a person's decision, and the client's
next session.

The skill delegates to an agent, which lacks a folder. The stand-in for the model follows what it
reads: the sub-agent makes the folder only where the skill's text says so. The round asks the same
stand-in through the Anthropic SDK.
"""

import json
import shutil
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

from claude import IN_PLUGIN, Claude
from delegating import AGENT, CHECK, SKILL, following, furnish, hold
from model import Model, Say, Seen, Turn, Use
from place import KEY, Place
from reviewing import evolvable
from talks import Check

from evolvable_store.resource import Ref
from evolvable_store.storage.evidence import Grade
from evolvable_store.store import Store

MAKES = "mkdir -p filed"
GUARD = f"First make the folder `filed` with `{MAKES}`."
CLAIM = "The folder filed is made before a paper is sorted."
MISSING = "the folder filed is missing"
"""What the project's test says while the folder is not there."""

_SORTER = '#!/bin/sh\ncp "$1" filed/\n'
_TEST = f"""import os, unittest
class Filed(unittest.TestCase):
    def test_filed(self):
        self.assertTrue(os.path.isdir("filed"), "{MISSING}")
        self.assertTrue(os.path.exists("filed/paper.txt"), "the paper is not filed")
"""


def working(told: list[str]) -> Turn:
    """Return the turn of a sub-agent that works by the skill as it reads it.

    told: filled with what it was told.
    """

    def clerk(seen: Seen) -> Say | Use:
        said = json.dumps(seen.request.get("messages"))
        if SKILL not in said:
            return (
                Say("There is no skill.")
                if seen.results
                else Use("load_skill", {"ref": "skill:filing"}, IN_PLUGIN)
            )
        steps = (CHECK, *([MAKES] if MAKES in said else []), "./sorter.sh paper.txt", CHECK)
        done = [one for one in seen.results if "use_id" not in one]
        if len(done) < len(steps):
            return Use("Bash", {"command": steps[len(done)], "description": "work"})
        told.append(said)
        return Say("The work is done.")

    return clerk


def repair(data: dict[str, Any]) -> dict[str, Any]:
    """Return what a model would propose that has read a session that failed."""
    span = next((one["id"] for one in data["evidence"] if MISSING in one["text"]), "s0")
    quotes = [{"span": span, "quote": MISSING}]
    edit = {"op": "add-guard", "path": "SKILL.md", "old": SKILL, "new": GUARD}
    one = {
        "kind": "skill-edit",
        "target": data["cluster"],
        "claim": CLAIM,
        "evidence": quotes,
        "edits": [edit],
    }
    cause = {"cause": "missing precondition", "repair": "add-guard", "quotes": quotes}
    return {"diagnoses": [cause], "candidates": [one]}


class Office:
    """A project whose paper is to be filed, and the sessions of the client in it.

    served: what load_skill answered each session; told: what each sub-agent was told. preloaded:
    the client gives the sub-agent the skill of the folder; otherwise the sub-agent calls
    load_skill.
    """

    def __init__(self, binary: Path, place: Place, *, preloaded: bool) -> None:
        furnish(place, _TEST, _SORTER, "skills: filing\n" if preloaded else "")
        self.place = place
        self.served: list[str] = []
        self.told: list[str] = []
        self.model = Model(repeat(self._keeping(following(IN_PLUGIN, working(self.told)))), repair)
        self._claude = Claude(binary, place, self.model)

    def _keeping(self, follows: Turn) -> Turn:
        def turn(seen: Seen) -> Say | Use:
            if len(seen.results) == 1 and AGENT not in json.dumps(seen.request.get("system")):
                self.served.append(seen.results[0])
            return follows(seen)

        return turn

    def session(self, *, folder: bool = False) -> str:
        """Hold a session, have its transcript read, and return its id.

        folder: whether the folder is there.
        """
        filed = self.place.project / "filed"
        shutil.rmtree(filed, ignore_errors=True)
        if folder:
            filed.mkdir()
        session = hold(self._claude)
        evolvable(self.place, "review", session)
        return session

    def credited(self, session: str) -> str:
        """Return the verified end of the skill's use by the agent, else what there is instead."""
        with Store.open(self.place.library) as store:
            found = {
                one.executor: one for one in store.backend.observations.executions(session=session)
            }
            filing = store.head(Ref.parse("filing")).id
        uses = (
            [one for one in found["agent:clerk"].uses if one.resource == filing]
            if "agent:clerk" in found
            else []
        )
        if [(one.used, one.grade) for one in uses] != [(True, Grade.VERIFIED)]:
            return f"{found}"
        return str(uses[0].outcome)

    def round(self) -> dict[str, Any]:
        """Run a round as a person does, with the Anthropic API as its proposer model."""
        self.place.address(self.model.url)
        return dict(evolvable(self.place, "round", "--brain", "anthropic", ANTHROPIC_API_KEY=KEY))


def learned(office: Office) -> Iterator[Check]:
    """Yield what must be seen of two sessions that fail, one that works, and a round."""
    place = office.place
    done = place.person("checkout", "claude-code", "--only", "filing")
    yield "checkout writes the skill and its agent", done.returncode == 0, done.stderr
    sessions = [office.session(folder=folder) for folder in (False, True, False)]
    yield (
        "each session ran the sub-agent",
        len(office.told) == 3,
        f"{len(office.told)} {office.model.failures}",
    )
    ends = [office.credited(session) for session in sessions]
    yield (
        "the skill's use is the agent's, with a verified end",
        ends == ["failed", "succeeded", "failed"],
        str(ends),
    )
    (clerk,) = evolvable(place, "stats", "agent:clerk")["resources"] or [{}]
    counted = (clerk.get("used"), clerk["verified"]["successes"], clerk["verified"]["n"])
    yield "stats agent:clerk says 1 of 3 verified uses", counted == (3, 1, 3), json.dumps(clerk)
    report = office.round()
    counted = (report["episodes"], report["successes"], report["retained"].get("repeated-failure"))
    yield "the round retains the two failures as repeated", counted == (3, 1, 2), str(report)
    shown = json.dumps(office.model.reviewed)
    asked = len(office.model.reviewed) == 2 and SKILL in shown and MISSING in shown
    yield "the API is shown the skill and the check that failed", asked, shown[:1500]
    found = {(one["cluster"], one["cause"], one["sign"]) for one in report["diagnosed"]}
    yield (
        "both have one cause, of the skill",
        found == {("skill:filing", "missing precondition", "A-")},
        str(found),
    )
    made = [
        (one["action"], one["ref"], bool(one["proposal_id"]), bool(one["trial"]))
        for one in report["changes"]
    ]
    right = made == [("refine", "skill:filing", True, False)] and GUARD not in current(place)
    yield "the round proposes one edit of it, which waits for a person", right, str(report)


def current(place: Place) -> str:
    """Return the text of the skill's head."""
    return place.text("filing", place.heads()["filing"])


def waiting(place: Place) -> str:
    """Return the number of the proposal that changes the skill."""
    (one,) = (one for one in evolvable(place, "inbox")["proposals"] if one["ref"] == "skill:filing")
    return str(one["proposal_id"])


def next_session(office: Office, changed: bool, when: str) -> Iterator[Check]:
    """Yield whether the next session is served the changed skill, and end as that text
    has it end.
    """
    session = office.session()
    served = [GUARD in office.served[-1], GUARD in office.told[-1]]
    text = "the changed skill" if changed else "the old skill"
    yield (
        f"{when} the session and its sub-agent are given {text}",
        served == [changed] * 2,
        office.served[-1],
    )
    end = office.credited(session)
    yield (
        f"{when} its work {'succeeds' if changed else 'fails'}",
        end == ("succeeded" if changed else "failed"),
        end,
    )


def by_approval(binary: Path, place: Place) -> Iterator[Check]:
    """The change waits, a person approves it, and the client preloads the changed skill."""
    office = Office(binary, place, preloaded=True)
    with office.model:
        yield from learned(office)
        decided = evolvable(place, "inbox", "approve", waiting(place))
        copy = (place.home / ".claude" / "skills" / "filing" / "SKILL.md").read_text(
            encoding="utf-8"
        )
        yield (
            "a person's approval makes version 2",
            decided["version"] == 2 and GUARD in copy,
            f"{decided} {copy}",
        )
        yield from next_session(office, True, "after the approval")
        yield "the script went through", not office.model.failures, str(office.model.failures)


def by_trial(binary: Path, place: Place) -> Iterator[Check]:
    """A person puts the change on trial, promotes it, and takes that back; the sub-agent calls
    load_skill.
    """
    office = Office(binary, place, preloaded=False)
    with office.model:
        yield from learned(office)
        trial = evolvable(place, "pool", "start", waiting(place))
        right = (trial["ref"], trial["state"]) == ("skill:filing", "trial")
        yield (
            "the change is on trial, and the skill is as it was",
            right and GUARD not in current(place),
            str(trial),
        )
        for number in (1, 2):
            yield from arm_of(office, str(trial["id"]), f"session {number} of the trial")
        ended = evolvable(place, "pool", "promote", str(trial["id"]), "-m", "it makes the folder")
        yield (
            "promoted, it is live",
            ended["state"] == "promoted" and GUARD in current(place),
            str(ended),
        )
        yield from next_session(office, True, "after the promotion")
        undone = evolvable(place, "undo", str(ended["operation"]))
        yield (
            "undo takes the promotion back",
            not undone["conflicts"] and GUARD not in current(place),
            str(undone),
        )
        yield from next_session(office, False, "after the undo")
        yield "the script went through", not office.model.failures, str(office.model.failures)


def arm_of(office: Office, trial: str, when: str) -> Iterator[Check]:
    """Yield whether a session is served the version of its arm, and whether its end counts for that
    arm.
    """
    before = evolvable(office.place, "pool", "show", trial)
    session = office.session()
    after = evolvable(office.place, "pool", "show", trial)
    new = [after[arm]["assigned"] - before[arm]["assigned"] for arm in ("trial", "control")]
    yield f"{when} is assigned to one arm", sorted(new) == [0, 1], f"{before} {after}"
    tried = new == [1, 0]
    served = [GUARD in office.served[-1], GUARD in office.told[-1]]
    yield f"{when} is served the version of its arm", served == [tried] * 2, office.served[-1]
    end = office.credited(session)
    yield (
        f"{when} ends as that version has it end",
        end == ("succeeded" if tried else "failed"),
        end,
    )
    arm = "trial" if tried else "control"
    counted = [after[arm][name] - before[arm][name] for name in ("verified", "successes")]
    yield f"{when} counts for its arm", counted == [1, int(tried)], f"{before} {after}"

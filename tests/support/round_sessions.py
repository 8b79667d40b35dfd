"""Real sessions for rounds: served over a connection of their own, written as Claude Code writes,
and taken in.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from earned import client
from model_api import Asked, ModelApi, Reply, says
from transcripts import Event, Mcp, Run, User, session_id, write_claude_code

from evolvable_store.resource import Ref
from evolvable_tools.library import Library
from evolvable_tools.outcomes.ingest import record_uses
from evolvable_tools.redaction.redactor import Redactor
from evolvable_tools.review.review_config import ReviewSettings
from evolvable_tools.sessions.parser import read_session
from evolvable_tools.verbs.load import load_skill
from evolvable_tools.verbs.search import find_skill

REDACTOR = Redactor()


class Sessions:
    """Sessions of one library, whose transcripts lie below `home`."""

    def __init__(self, library: Library, home: Path) -> None:
        self.library, self.home = library, home
        self.paths: dict[str, Path] = {}
        self.served: dict[str, int | None] = {}

    def run(
        self,
        name: str,
        skill: str,
        task: str,
        events: Sequence[Event],
        *,
        start: datetime | None = None,
        search: bool = True,
    ) -> str:
        """One session: it is served the skill, does the events, and its transcript is taken in.
        Returns its id.

        search: it finds the skill first.
        """
        identity, at = session_id(name), start or datetime.now(UTC)
        who = client(identity)
        before: list[Event] = [User(task)]
        if skill:
            found = find_skill(self.library, who, task, to_agent=True).search_id if search else None
            loaded = load_skill(self.library, who, Ref.parse(skill), search_id=found)
            self.served[identity] = loaded.version
            said = f"...\nuse_id: {loaded.use_id} (report_outcome with it when the task is done)"
            before.append(Mcp("evolvable", "load_skill", {"ref": skill}, said))
            before.append(Mcp("evolvable", "load_skill", {"ref": skill, "path": "notes.md"}, said))
        else:
            self.library.impressions.note_session(
                identity, f"client-{identity}", self.library.store.now()
            )
            self.library.impressions.flush()
        path = write_claude_code(self.home, [*before, *events], session=name, start=at, noise=False)
        self.paths[identity] = path
        record_uses(self.library, read_session(path, redactor=REDACTOR))
        return identity

    def settings(self, **more: Any) -> ReviewSettings:
        """The settings of a round over these sessions."""
        return ReviewSettings(REDACTOR, transcript=self.paths.get, **more)


def failing(command: str = "pytest -q", why: str = "that is wrong") -> list[Event]:
    """Work whose check passed before and fails in the end."""
    return [
        Run(command, "1 passed"),
        Run("sed -i s/a/b/ a.py"),
        Run(command, "1 failed", code=1),
        User(why),
    ]


def passing(command: str = "pytest -q", word: str = "it works") -> list[Event]:
    """Work whose check failed before and passes in the end."""
    return [
        Run(command, "1 failed", code=1),
        Run("sed -i s/a/b/ a.py"),
        Run(command, "1 passed"),
        User(word),
    ]


class RoundModel(ModelApi):
    """A model whose answers a function of the document makes.

    It stands behind HTTP as the real one does.
    """

    def __init__(self, answers: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
        super().__init__()
        self._answers = answers

    def answer(self, asked: Asked) -> Reply:
        """Return the answer to one request."""
        self.asked.append(asked)
        return says(json.dumps(self._answers(json.loads(asked.body["messages"][0]["content"]))))


def guard(
    document: Mapping[str, Any], quote: str, old: str, new: str, claim: str
) -> dict[str, Any]:
    """An answer: one cause, and a guard after `old` in the skill that the trace is about."""
    span = next((piece["id"] for piece in document["evidence"] if quote in piece["text"]), "s0")
    cited = [{"span": span, "quote": quote}]
    edit = {"op": "add-guard", "path": "SKILL.md", "old": old, "new": new}
    candidate = {
        "kind": "skill-edit",
        "claim": claim,
        "target": document["cluster"],
        "evidence": cited,
        "edits": [edit],
    }
    named = {"cause": "missing precondition", "repair": "add-guard", "quotes": cited}
    return {"diagnoses": [named], "candidates": [{**candidate, "edits": [edit]}]}

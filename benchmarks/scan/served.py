"""Measure what reaches an agent of a later session without marks, of the hostile texts that were
held out.

An agent adds each text of `hostile/fresh.jsonl` to a skill of the person's over the verb that MCP
calls, and another time makes a new skill of it. Then another session loads the skill: the text is
held where the answer lacks it, marked where the answer says whose it is, else plain. A plain text
has the line of provenance beside it.
"""

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

from hostile import HOSTILE, added

from evolvable_store.errors import NotFound, Unsafe
from evolvable_store.operation import Actor, Principal
from evolvable_store.resource import Ref
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.verbs import edit, load

SKILL = (HOSTILE / "skills" / "release-notes.md").read_bytes()
PERSON = Caller(Actor.HUMAN, "person", principal=Principal.PERSON, via="terminal")


def agent(session: str) -> Caller:
    return Caller(
        Actor.AGENT,
        session,
        connection=session,
        principal=Principal.AGENT,
        via="client:claude-code",
    )


def main() -> int:
    lines = (HOSTILE / "fresh.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [one for one in map(json.loads, lines) if one["half"] == "held-out"]
    for what in ("updates", "new skills"):
        with (
            tempfile.TemporaryDirectory() as name,
            Library.open(Path(name), create=True) as library,
        ):
            found = Counter(outcome(library, number, one, what) for number, one in enumerate(texts))
        shares = ", ".join(
            f"{word} {count} ({100 * count / len(texts):.1f} %)"
            for word, count in sorted(found.items())
        )
        print(f"{len(texts)} texts as {what}: {shares}")
    return 0


def outcome(library: Library, number: int, one: dict[str, str], what: str) -> str:
    """Return what a later session gets of a text: held, marked or plain."""
    name = f"notes-{number}"
    before = {"SKILL.md": SKILL.replace(b"name: release-notes", f"name: {name}".encode())}
    ref, after = Ref.parse(f"skill:{name}"), added(before, one)
    if what == "updates":
        edit.update_resource(library, PERSON, ref, "mine", files=before, create=True)
    try:
        version = 1 if what == "updates" else None
        edit.update_resource(
            library,
            agent("first"),
            ref,
            "more",
            files=after,
            create=version is None,
            expected_version=version,
        )
        loaded = load.load_skill(library, agent(f"later-{number}"), ref, path=one["path"])
    except (Unsafe, NotFound):  # refused, or a proposal that made nothing yet
        return "held"
    if one["text"].removeprefix("description:").strip()[:40] not in loaded.text:
        return "held"
    return "marked" if loaded.notice else "plain"


if __name__ == "__main__":
    sys.exit(main())

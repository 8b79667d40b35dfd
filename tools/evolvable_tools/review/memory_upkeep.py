"""The upkeep of memories by use: which lines sessions needed, and the proposal to take out those
that none did.

A session needed a line if a third of the line's words, or a name in it, stand in what the person
typed or the agent did. The counts lie in a file of the library's folder, on this machine.
Nothing is taken out without a decision. What goes stays in the archive beside the memory, from
which it comes back when it is said again.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from evolvable_store import main_path, read_regular, write_private
from evolvable_store.resource import Kind, Ref
from evolvable_store.storage import OPEN, REJECTED, Draft
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.review.lesson_rules import contradict, line_terms
from evolvable_tools.review.review_request import ECHOED
from evolvable_tools.review.rules import entities
from evolvable_tools.sessions import UNTRUSTED, Session
from evolvable_tools.verbs import content_terms, parse_facts, retire_facts

# A lower number proposes removals sooner; a higher one keeps stale lines longer.
SESSIONS = 50
"""Sessions in which a line was there and not needed, after which its removal is proposed."""

NEEDED = 0.3
"""Share of a line's words in a session, from which the session needed it."""

MEMORIES = ("USER", "MEMORY")
UNUSED = "unused-memory"
"""What such a proposal is, in its grounds."""

_FILE, _LOCK, _MAX = "memory-use.json", "memory-use.lock", 4_000_000


@dataclass(frozen=True, slots=True)
class LineUse:
    """How often one line was there, and how often it was needed."""

    seen: int = 0
    needed: int = 0


def count_use(library: Library, caller: Caller, session: Session) -> None:
    """Count of each line of the memories whether a session needed it.

    Where the file of counts cannot be written, nothing is counted.
    """
    facts = {
        _hash_line(ref, fact): fact
        for ref, _, text in _read_memories(library, caller)
        for fact in parse_facts(text)
    }
    if not facts:
        return
    # Text that the library itself or a third party put in says nothing about what was needed.
    own = (
        span
        for span in session.spans
        if span.origin not in ECHOED and span.origin not in UNTRUSTED and not span.copied
    )
    session_text = "\n".join(f"{span.text[:20_000]} {span.input or ''}" for span in own)
    words, names = content_terms(session_text), entities(session_text)
    home = library.store.home
    # The lock covers the read, the count and the write; a lost count is better than a blocked
    # review.
    with contextlib.suppress(OSError, Timeout), FileLock(home / _LOCK, timeout=2, mode=0o600):
        counts = _read_counts(home)
        counted = {}
        for key, fact in facts.items():
            before, needed = counts.get(key, LineUse()), is_needed(fact, words, names)
            counted[key] = [before.seen + 1, before.needed + needed]
        # Lines of memories that this caller does not see keep their counts.
        others = {key: [use.seen, use.needed] for key, use in counts.items() if key not in counted}
        write_private(home / _FILE, json.dumps(others | counted) + "\n")


def is_needed(fact: str, words: set[str], names: set[str]) -> bool:
    """Return whether a session with these words and names is about what a line says."""
    fact_terms = content_terms(fact)
    return bool(entities(fact) & names) or (
        bool(fact_terms) and len(fact_terms & words) >= NEEDED * len(fact_terms)
    )


def unused_drafts(library: Library, caller: Caller, expires: str) -> list[Draft]:
    """Return the changes that take out the lines that no session needed.

    A change that waits already, or was rejected, is left out.
    """
    # Read without the lock: the file is replaced whole, so it is never half written.
    counts = _read_counts(library.store.home)
    if not counts:
        return []
    proposals = library.store.backend.proposals
    earlier_marks = {
        proposal.fingerprint
        for state in (OPEN, REJECTED)
        for proposal in proposals.in_state(state, 500)
    }
    drafts = []
    for ref, version, text in _read_memories(library, caller):
        unused = [
            fact
            for fact in parse_facts(text)
            if _is_unused(counts.get(_hash_line(ref, fact), LineUse()))
        ]
        mark = hashlib.sha256("\n".join([str(ref), *sorted(unused)]).encode()).hexdigest()[:32]
        if not unused or mark in earlier_marks:
            continue
        number = f"{len(unused)} line{'s' * (len(unused) > 1)}"
        reason = (
            f"No session of the last {SESSIONS} needed {number} of it: {'; '.join(unused)[:300]}"
        )
        says: dict[str, Any] = {
            "what": UNUSED,
            "says": " ".join(unused),
            "evidence": [],
            "near": [],
            "adds": None,
            "cost": None,
        }
        before = library.store.files(library.store.head(ref))
        files = retire_facts(before, ref.name, unused)
        grounds = json.dumps(says, ensure_ascii=False)
        drafts.append(
            Draft(ref, version, files, reason, grounds=grounds, fingerprint=mark, expires=expires)
        )
    return drafts


def memory_conflicts(library: Library, caller: Caller) -> list[str]:
    """Return a line for each two lines of the memories that say the contrary of each other."""
    lines = [
        (ref, fact)
        for ref, _, text in _read_memories(library, caller)
        for fact in parse_facts(text)
    ]
    pairs = ((line, other) for at, line in enumerate(lines) for other in lines[at + 1 :])
    return [
        f"{ref}: “{fact}” and {other}: “{contrary}” say the contrary"
        for (ref, fact), (other, contrary) in pairs
        if contradict(line_terms(fact), line_terms(contrary))
    ]


def _is_unused(use: LineUse) -> bool:
    return use.seen >= SESSIONS and not use.needed


def _read_memories(library: Library, caller: Caller) -> Iterator[tuple[Ref, int, str]]:
    """Yield the memories of facts that the caller sees, each with its version and its text."""
    for scope in caller.scopes:
        for name in MEMORIES:
            ref = Ref(Kind.MEMORY, name, scope)
            head = library.store.head_or_none(ref)
            if head is None or head.version is None:
                continue
            if path := main_path(ref.kind, name, library.store.manifest(head)):
                text = library.store.file(head, path).data.decode("utf-8", "replace")
                yield ref, head.version, text


def _hash_line(ref: Ref, fact: str) -> str:
    terms = " ".join(sorted(content_terms(fact)))
    return hashlib.sha256(f"{ref}\n{terms}".encode()).hexdigest()[:32]


def _read_counts(home: Path) -> dict[str, LineUse]:
    try:
        document: Any = json.loads(read_regular(home / _FILE, _MAX))
    except (OSError, ValueError, RecursionError):
        return {}
    rows: Iterable[tuple[Any, Any]] = document.items() if isinstance(document, dict) else ()
    return {str(key): LineUse(*row) for key, row in rows if _is_row(row)}


def _is_row(row: object) -> bool:
    if not isinstance(row, list) or len(row) != 2:
        return False
    return all(isinstance(count, int) and count >= 0 for count in row)

"""The three memories: SOUL, which only a person writes, USER and MEMORY, which hold facts of one
line each.

A fact is a line `- 2026-11-21: Prefers pnpm to npm.`. The day is when it was last said. A memory
has caps in characters and lines, as a model reads it whole. What is too old, or has to make room,
goes to archive.txt beside it, from which it comes back when it is said again. Lines of another form
are a person's, and stay where they are.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from evolvable_store import MEMORY_CAPS, Actor, File, Files
from evolvable_store.errors import InvalidArgument, Refused
from evolvable_store.resource import Kind, Ref, main_file
from evolvable_store.search import FUNCTION_WORDS, terms, tokenize
from evolvable_tools.authors import version_authorship
from evolvable_tools.caller import Caller
from evolvable_tools.file_edits import check_text
from evolvable_tools.library import Library

ARCHIVE = "archive.txt"
"""Where facts go that nobody said for long, or that had to make room."""

AGES_AFTER = timedelta(days=180)
"""A fact that nobody said for so long goes to the archive with the next change.

A shorter time forgets what is said once a season. A longer one fills the caps with old facts.
"""

SOUL_CAP = (4_000, 80)
"""Characters and lines of SOUL that are checked out. A person may write more."""

SAME = 0.7
"""Share of words in common from which two facts say the same."""

COVERED = 0.8
"""Share of a fact's words in one paragraph of a text, from which that text says it already."""

_FACT = re.compile(r"- (?P<day>\d{4}-\d\d-\d\d): (?P<text>.+)")
_TABLE = tomllib.loads(Path(__file__).with_name("memory_facts.toml").read_text(encoding="utf-8"))
_TITLES = {"USER": "# The user", "MEMORY": "# What is known"}
_NEGATIONS = frozenset(
    {"not", "no", "never", "don't", "dont", "without", "instead", "stop", "nor", "neither"}
)


@dataclass(frozen=True, slots=True)
class Added:
    """What adding a fact did.

    outcome: new, renewed (it was known), or returned (from the archive).
    """

    files: Files
    outcome: str


def add_fact(files: Files, name: str, fact: str, day: date) -> Added:
    """Return the files of a memory with one fact more, or with a known one renewed.

    Facts that are too old go to the archive, and the oldest ones too while the caps are passed.
    Raises InvalidArgument for SOUL, for an empty fact, for a memory that is not text, and when what
    a person wrote leaves no room.
    """
    if name not in MEMORY_CAPS:
        raise InvalidArgument(
            f"memory:{name} takes no facts.", "A fact goes to memory:USER or memory:MEMORY."
        )
    fact = " ".join(fact.split())
    if not fact:
        raise InvalidArgument("The fact is empty.", "Say it in one line.")
    path = main_file(Kind.MEMORY, name)
    lines = _read_lines(files, path, _TITLES[name])
    archive = _read_lines(files, ARCHIVE, "# Archive")
    outcome = "new"
    for place, word in ((lines, "renewed"), (archive, "returned")):
        for line in [line for line in place if same_fact(_strip_day(line), fact)]:
            outcome = word
            place.remove(line)
    lines.append(f"- {day.isoformat()}: {fact}")
    gone = [
        line for line in lines if (at := _parse_day(line)) is not None and day - at > AGES_AFTER
    ]
    lines = [line for line in lines if line not in gone]
    # The line that is added now is the last one and never goes.
    while over := over_caps(name, _join_lines(lines)):
        facts = [line for line in lines[:-1] if _parse_day(line) is not None]
        if not facts:
            raise InvalidArgument(
                f"memory:{name} is full: {over}.", "Shorten what stands there by hand."
            )
        oldest = min(facts, key=lambda line: _parse_day(line) or day)
        lines.remove(oldest)
        gone.append(oldest)
    changed = {**files, path: File(_join_lines(lines).encode())}
    if gone or len(archive) > 1 or ARCHIVE in files:
        changed[ARCHIVE] = File(_join_lines([*archive, *gone]).encode())
    return Added(changed, outcome)


def retire_facts(files: Files, name: str, facts: Iterable[str]) -> Files:
    """Return the files of a memory without these facts, which go to the archive."""
    path, going = main_file(Kind.MEMORY, name), set(facts)
    lines = _read_lines(files, path, _TITLES[name])
    archive = _read_lines(files, ARCHIVE, "# Archive")
    gone = [line for line in lines if _strip_day(line) in going]
    remaining = [line for line in lines if line not in gone]
    return {
        **files,
        path: File(_join_lines(remaining).encode()),
        ARCHIVE: File(_join_lines([*archive, *gone]).encode()),
    }


def over_caps(name: str, text: str) -> str:
    """Return which cap a memory's text passes, '' when it keeps them."""
    most, most_lines = MEMORY_CAPS[name]
    if len(text) > most:
        return f"it has {len(text):,} characters, the limit is {most:,}"
    lines = text.count("\n")
    return f"it has {lines:,} lines, the limit is {most_lines}" if lines > most_lines else ""


def parse_facts(text: str) -> list[str]:
    """Return the lines of a memory that say something, without their days."""
    return [
        fact for line in text.split("\n") if (fact := _strip_day(line)) and not fact.startswith("#")
    ]


def same_fact(left: str, right: str) -> bool:
    """Return whether two lines say the same: most words in common, and both deny or
    neither does.
    """
    left_terms, right_terms = content_terms(left), content_terms(right)
    # "Uses tabs" and "never uses tabs" share nearly all words and say the contrary.
    if not left_terms or not right_terms or _denies(left) != _denies(right):
        return False
    return len(left_terms & right_terms) / len(left_terms | right_terms) >= SAME


def says_already(fact: str, texts: Iterable[str]) -> bool:
    """Return whether a paragraph or a line of one of these texts says a fact already."""
    fact_terms = content_terms(fact)
    if not fact_terms:
        return False
    return any(
        len(fact_terms & content_terms(part)) / len(fact_terms) >= COVERED
        and _denies(part) >= _denies(fact)
        for text in texts
        for part in re.split(r"\n\s*(?:\n|[-*+] |\d+\. |#)", text)
    )


def content_terms(text: str) -> set[str]:
    """Return the terms of a text that carry its meaning."""
    return set(terms(word for word in tokenize(text) if word not in FUNCTION_WORDS))


def read_memories(library: Library, caller: Caller) -> dict[str, str]:
    """Return the texts of SOUL, USER and MEMORY that the caller sees, those that there are.

    A model takes them for the user's own notes. Of a stranger's text that nobody approved, a line
    says so in its place.
    """
    memories: dict[str, str] = {}
    for name in ("SOUL", *MEMORY_CAPS):
        head = library.store.head_or_none(Ref(Kind.MEMORY, name), caller.scopes)
        if head is None or head.version is None:
            continue
        authorship = version_authorship(library, head, head.version, caller)
        if authorship.is_strangers:
            memories[name] = (
                f"[left out, as nobody has approved it: {authorship.main.why}; evolvable approve "
                f"{head.ref}]"
            )
        else:
            file = library.store.file(head, main_file(Kind.MEMORY, name))
            memories[name] = file.data.decode("utf-8", "replace")
    return memories


def memories_for_clients(library: Library, caller: Caller) -> str:
    """Return the memories as they are written where a client reads them: each within its cap,
    without secrets.

    What a memory says stands in a fence, in which clients carry out nothing, such as the import of
    another file.
    """
    memories = read_memories(library, caller)
    parts = ["# Memory: what is known of the user and the work"]
    for name, text in memories.items():
        if text.strip():
            parts.append(f"## {name}\n\n{_put_in_fence(library, name, text)}")
    return "\n\n".join([*parts, *_list_first_questions(memories), RULES])


def project_memory(library: Library, scope: str) -> str:
    """Return what clients read of a project's memory in its own files: `memory:MEMORY` of that
    scope, '' for none.

    What a project's `memory:USER` says is about a person, and stays out of a file that others may
    read. Raise Refused for a text that reaches an agent between marks: such a file has none.
    """
    head = library.store.head_or_none(Ref(Kind.MEMORY, "MEMORY", scope))
    if head is None or head.version is None:
        return ""
    reader = Caller(Actor.AGENT, None, (scope,))
    authorship = version_authorship(library, head, head.version, reader)
    if authorship.is_marked:
        raise Refused(
            f"Nobody has approved what {head.ref} says: {authorship.main.why}.",
            f"Look at it: evolvable approve {head.ref}",
        )
    file = library.store.file(head, main_file(Kind.MEMORY, "MEMORY"))
    text = file.data.decode("utf-8", "replace")
    if not parse_facts(text):
        return ""
    fenced = _put_in_fence(library, "MEMORY", text)
    return f"# Memory of this project: what earlier sessions left\n\n{fenced}"


def _put_in_fence(library: Library, name: str, text: str) -> str:
    """Return a memory within its cap and without secrets, in a fence that nothing in it ends."""
    content = library.redact(_cut_to_cap(name, text.replace("\r\n", "\n").strip("\n")))
    # Longer than any run of backticks inside, so that the text cannot end its own fence.
    fence = "`" * (max((len(run) for run in re.findall("`+", content)), default=0) + 4)
    return f"{fence}\n{content}\n{fence}"


def _cut_to_cap(name: str, text: str) -> str:
    """Return the first lines of a memory, as many as its cap allows."""
    most, most_lines = MEMORY_CAPS.get(name, SOUL_CAP)
    lines: list[str] = []
    for line in text.split("\n")[:most_lines]:
        most -= len(line) + 1
        if most < 0:
            break
        lines.append(line)
    if len(lines) <= text.count("\n"):
        lines.append(f"[cut; the whole of it: get_resource memory:{name}]")
    return "\n".join(lines)


QUESTIONS: list[str] = _TABLE["questions"]
"""What is asked at the first contact, as long as nothing is known of the user."""


def briefing(library: Library, caller: Caller) -> str:
    """Return what a model is told of the memories: their text, and how to treat them."""
    memories = read_memories(library, caller)
    texts = {name: library.redact(text.strip()) for name, text in memories.items()}
    parts = [f"<{name}>\n{text}\n</{name}>" for name, text in texts.items() if text]
    return "\n\n".join([*parts, *_list_first_questions(memories), RULES])


def _list_first_questions(memories: Mapping[str, str]) -> list[str]:
    """Return what is to be asked at the first contact: nothing once something is known."""
    if parse_facts(memories.get("USER", "")):
        return []
    questions = "\n".join(f"- {question}" for question in QUESTIONS)
    return [
        (
            "Nothing is known of the user yet. When it fits, ask one or two of these, not all:\n"
            f"{questions}"
        )
    ]


RULES: str = _TABLE["rules"].strip()
"""How memories are treated: EvoAgent's five ways of learning of a user, as far as the model carries
them out.
"""


def _read_lines(files: Files, path: str, title: str) -> list[str]:
    if path not in files:
        return [title]
    return check_text(path, files[path].data).rstrip("\n").split("\n")


def _join_lines(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"


def _parse_day(line: str) -> date | None:
    match = _FACT.fullmatch(line.strip())
    try:
        return date.fromisoformat(match["day"]) if match else None
    except ValueError:
        return None


def _strip_day(line: str) -> str:
    match = _FACT.fullmatch(line.strip())
    return match["text"] if match else line.strip().removeprefix("- ").strip()


def _denies(text: str) -> bool:
    return bool(_NEGATIONS.intersection(re.findall(r"[a-z']+", text.casefold())))

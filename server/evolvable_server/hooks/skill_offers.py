"""The skills that a prompt is offered: one or two that fit, usually none, and each once in a
session.

A small file for each skill records the offer, so that no process repeats it.
"""

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from evolvable_store import file_name, read_regular, write_private
from evolvable_store.resource import Ref
from evolvable_tools import AuthorKind, Caller, Library, author_words, split_marks
from evolvable_tools.retrieval import FITS, SearchDependencies, Verdict
from evolvable_tools.verbs import FoundSkills, find_skill, record_impressions

if TYPE_CHECKING:
    from evolvable_store.search import Match


DAYS = 7.0
"""Days after its last offer for which a session is remembered."""

NEWS = 0
"""The number of the news of automatic reviews in the offers of a session; no resource has it."""

# A client chooses the names of its sessions: the limits bound the number of files.
SESSIONS, SKILLS = 200, 50
"""Sessions that are remembered, and skills that are offered to one session."""


class OfferLog:
    """The skills that the sessions of a library were offered. An offer does not count as a use."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "hooks" / "offered"

    def claim(self, session: str, resource: int, search_id: str) -> bool:
        """Return whether this skill may be offered to this session: True once, to one process.

        False too where the offer cannot be recorded, or the session was offered SKILLS skills.
        """
        try:
            place = self._make_folder(session)
            if sum(1 for _ in os.scandir(place)) >= SKILLS:
                return False
            # "x": of two processes at once, the one that creates the file offers the skill.
            with (
                open(place / str(resource), "x", encoding="utf-8") as file,
                _remove_unless_written(place / str(resource)),
            ):
                file.write(json.dumps({"search_id": search_id}))
                file.flush()
            return True
        except OSError:
            return False

    def begin_prompt(self, session: str, prompt_id: str) -> bool:
        """Return whether this prompt of a session is new: Qwen Code reports one again with each
        request for it.

        False too where that cannot be recorded, so that nothing is offered twice.
        """
        try:
            file = self._make_folder(session) / "prompt"
            if file.is_file() and read_regular(file).decode("utf-8", "replace") == prompt_id:
                return False
            write_private(file, prompt_id)
            return True
        except (OSError, ValueError):
            return False

    def search_of(self, session: str, resource: int) -> str | None:
        """Return the search after which this skill was offered to this session, None when it was
        not.
        """
        try:
            record = json.loads(read_regular(self._make_path(session) / str(resource)))
        except (OSError, ValueError):
            return None
        search = record.get("search_id") if isinstance(record, dict) else None
        return search if isinstance(search, str) else None

    def _make_path(self, session: str) -> Path:
        return self._folder / file_name(session)

    def _make_folder(self, session: str) -> Path:
        place = self._make_path(session)
        if not place.is_dir():
            # Only as a session begins, so that no other prompt waits for it.
            self._clean_up()
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        return place

    def _clean_up(self) -> None:
        modified: dict[Path, float] = {}
        with suppress(FileNotFoundError):
            for entry in os.scandir(self._folder):
                with suppress(FileNotFoundError):
                    modified[Path(entry.path)] = entry.stat().st_mtime
        newest = sorted(modified, key=modified.__getitem__, reverse=True)
        oldest_kept = time.time() - DAYS * 86_400
        for place in newest:
            # One less than the limit: the folder of the new session is about to be made.
            if modified[place] < oldest_kept or place in newest[SESSIONS - 1 :]:
                shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _remove_unless_written(place: Path) -> Iterator[None]:
    """Remove a file that the body could not write whole: on a full disk, the skill was
    not offered.
    """
    try:
        yield
    except OSError:
        with suppress(OSError):
            place.unlink()
        raise


# About 150 tokens, which each prompt with a fitting skill costs.
LIMIT = 600
"""Characters that a prompt gets at most."""

MOST = 2
"""Skills that are offered at once."""

MAX_TASK = 4_000
"""Characters of a prompt that are searched by; what is longer is mostly pasted."""


def suggest_skills(
    library: Library,
    caller: Caller,
    prompt: str,
    offered: OfferLog,
    dependencies: SearchDependencies,
) -> str:
    """Return the text about the skills that fit, in LIMIT characters at most; '' when none fits.

    With a sure verdict that is the skill to use, else those that fit in a library of any size. A
    skill that the session was offered before or has loaded is not named. A caller without a session
    gets '', because its offers could not be recorded.
    """
    task = prompt.strip()
    if caller.session is None or not task or task.startswith("/"):  # a command of the client
        return ""
    # A client shows what a hook offers beside every prompt: only what fits in a large library too.
    alone = replace(dependencies, judge_model=None, uses_client_model=False, fits=FITS)
    found = find_skill(library, caller, task[:MAX_TASK], dependencies=alone)
    fitting = found.matches[:1] if found.verdict is Verdict.SURE else found.fitting[:MOST]
    fresh = [match for match in fitting if _claim_offer(library, caller, match, found, offered)]
    return _format_offer(fresh, found.search_id) if fresh else ""


def _claim_offer(
    library: Library, caller: Caller, match: "Match", found: FoundSkills, offered: OfferLog
) -> bool:
    head = library.store.head_or_none(Ref.parse(match.ref))
    if head is None or caller.session is None:
        return False
    if library.evidence.used_in(caller.session, [head.id]):
        return False
    if not offered.claim(caller.session, head.id, found.search_id):
        return False
    # After the claim: an offer that was not made does not count as shown.
    record_impressions(library, caller, found.search_id, [(head.id, match.version)])
    return True


def _format_offer(matches: "list[Match]", search_id: str) -> str:
    before = "From the user's Evolvable library, for this task:\n"
    after = f"\nIf it fits, open it with load_skill (search_id {search_id}) before you start."
    notices = [
        f"; {author_words(offer.author, offer.by)}" if offer.author != AuthorKind.YOU else ""
        for offer in matches
    ]
    names = [
        f"- {match.ref} ({match.confidence:.0%} sure{notice})"
        for match, notice in zip(matches, notices, strict=True)
    ]
    # Three more a line: the colon, the space behind it and the line end.
    room = (LIMIT - len(before) - len(after) - sum(len(name) + 3 for name in names)) // len(matches)
    lines = [
        f"{name}: {_shorten(match.description, room)}"
        for name, match in zip(names, matches, strict=True)
    ]
    return f"{before}{chr(10).join(lines)}{after}"[:LIMIT]


def _shorten(text: str, room: int) -> str:
    """Return a description on one line of `room` characters at most, without control characters.

    The signs of tags are left out too. Clients put the text of a hook between tags of their own.
    The author of a description must not end them and go on in the client's name. A description
    between marks keeps its marks.
    """
    begin, inner, end = split_marks(text)
    if begin:
        return f"{begin}{_shorten(inner, max(0, room - len(begin) - len(end)))}{end}"
    harmless = (char if char.isprintable() and char not in "<>" else " " for char in text)
    line = " ".join("".join(harmless).split())
    return line if len(line) <= room else line[: max(0, room - 1)].rstrip() + "…"

"""UserPromptSubmit: the one or two skills that fit what was asked, in a few words; usually none."""

import re
from dataclasses import replace

from evolvable_server.hooks.offered import Offered
from evolvable_store.resource import Ref
from evolvable_tools.library import Caller, Library
from evolvable_tools.retrieval import SearchDependencies
from evolvable_tools.trust import Trust
from evolvable_tools.verbs.search import FoundMatch, FoundSkills, find_skill, record_impressions

LIMIT = 600
"""Characters that a prompt gets at most."""

MOST = 2
"""Skills that are offered at once."""

MAX_TASK = 4_000
"""Characters of a prompt that are searched by; what is longer is mostly pasted."""


def offer(library: Library, caller: Caller, prompt: str, offered: Offered, means: SearchDependencies) -> str:
    """Returns what a model shall be told of the skills that fit, in LIMIT characters at most; '' when none does.

    Neither one that its session was offered before nor one that it has loaded is named. A caller without a session is
    told nothing, as nothing could be remembered.
    """
    task = prompt.strip()
    if caller.session is None or not task or task.startswith("/"):  # a command of the client
        return ""
    alone = replace(means, thinker=None, caller_thinks=False, client_thinks=False)
    found = find_skill(library, caller, task[:MAX_TASK], means=alone, shown=False)
    fresh = [match for match in _fitting(found, means.fits) if _claimed(library, caller, match, found, offered)]
    return _said(fresh, found.search_id) if fresh else ""


def _fitting(found: FoundSkills, fits: float) -> list[FoundMatch]:
    if found.none_fits:
        return []
    first, *others = found.matches
    return [first, *(match for match in others if match.confidence >= fits)][:MOST]


def _claimed(library: Library, caller: Caller, match: FoundMatch, found: FoundSkills, offered: Offered) -> bool:
    head = library.store.head_or_none(Ref.parse(match.ref))
    if head is None or caller.session is None or library.evidence.used_in(caller.session, [head.id]):
        return False
    if not offered.claim(caller.session, head.id, found.search_id):
        return False
    record_impressions(library, caller, found.search_id, [(head.id, match.version)])
    return True


def _said(matches: list[FoundMatch], search_id: str) -> str:
    before = "From the user's Evolvable library, for this task:\n"
    after = f"\nIf it fits, open it with load_skill (search_id {search_id}) before you start."
    names = [f"- {match.ref} ({match.confidence:.0%} sure{_standing(match)})" for match in matches]
    room = (LIMIT - len(before) - len(after) - sum(len(name) + 3 for name in names)) // len(matches)
    lines = [f"{name}: {_short(match.description, room)}" for name, match in zip(names, matches, strict=True)]
    return f"{before}{chr(10).join(lines)}{after}"[:LIMIT]


def _standing(match: FoundMatch) -> str:
    return f"; {match.notice}" if match.notice and match.trust != Trust.PROVEN else ""


def _short(text: str, room: int) -> str:
    """Returns a description as one line of so many characters at most, without what steers a terminal.

    Nor does it keep what begins and ends a tag: clients put what a hook says between tags of their own, and whoever
    wrote a description must not end them and go on in the client's name. A description between marks keeps them.
    """
    marked = _MARKED.fullmatch(text)
    if marked is not None:
        inner = _short(marked["text"], max(0, room - 2 * len(marked["number"]) - 7))
        return f"[{marked['number']}] {inner} [/{marked['number']}]"
    line = " ".join("".join(c if c.isprintable() and c not in "<>" else " " for c in text).split())
    return line if len(line) <= room else line[: max(0, room - 1)].rstrip() + "…"


_MARKED = re.compile(r"\[(?P<number>[0-9a-f]{16})\] (?P<text>.*) \[/(?P=number)\]", re.DOTALL)

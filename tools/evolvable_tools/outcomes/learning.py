"""Learned tasks: what lookup learns from sessions that ended well, and from a person's labels.

A quarter of the labels is held out: lookup is measured with them, and neither they nor near
duplicates are learned. A session teaches the message that a person typed before a skill was loaded,
and only where the end of that use is verified. What transcripts alone teach, where the person opted
in, is in `past_prompts`. No text of a skill, a model, a tool or a file is ever learned.
"""

import hashlib
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from evolvable_store import Head
from evolvable_store.errors import InvalidArgument, NoSuchUse
from evolvable_store.resource import Kind, Ref
from evolvable_store.search import NEAR_DUPLICATE, content_terms, likeness, nearest
from evolvable_store.storage import Attempt, LearnedTask, Outcome, TaskSource
from evolvable_tools.authors import AuthorKind, Authorship, authorships, subject_of
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.secret_leaks import check_may_decide

if TYPE_CHECKING:
    from evolvable_tools.sessions import Session

MAX_TASK = 300
"""Characters of a learned task."""

MIN_TERMS = 3
"""Words other than function words; a shorter message, such as "go on", says nothing of its task."""

MAX_TAUGHT = 3
"""Skills that one session teaches a task at most."""

HELD_OUT = 4
"""One of so many labels of a person is held out, chosen by the hash of its words."""

FOUND_AMONG = 5
"""A session teaches a task only to a skill that its words alone find among so many, or that the
person named.
"""

_WEIGHTS = (TaskSource.PERSON, TaskSource.SESSION, TaskSource.TRANSCRIPT)
"""Sources of tasks; none overrules one before it."""

# Also a block that the text cuts off.
_CODE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
# A command of a client and no path: `/name` with nothing behind it that goes on the path.
_COMMAND = re.compile(r"\A\s*[/$](?P<name>[\w:-]{1,64})(?![\w/-])")


@dataclass(frozen=True, slots=True)
class LoadedSkill:
    """A skill that a session loaded.

    turn: of the first load; used: whether it was followed. In the order of loads.
    """

    resource: int
    turn: int
    used: bool


@dataclass(frozen=True, slots=True)
class ListedTask:
    """A learned task as it is listed.

    against: another skill was right for it. held_out: it only tests lookup.
    """

    id: int
    ref: str
    task: str
    at: str
    against: bool
    source: str
    held_out: bool = False


def shorten_task(text: str) -> str:
    """Return a task on one line without code blocks and a leading command, cut at a word after
    MAX_TASK characters.
    """
    # Far more than a task needs, so that a large paste costs bounded time.
    plain = _COMMAND.sub("", _CODE.sub(" ", text[: 20 * MAX_TASK]))
    line = " ".join("".join(char if char.isprintable() else " " for char in plain).split())
    if len(line) <= MAX_TASK:
        return line
    # A text without a space is cut within the word.
    return line[: MAX_TASK + 1].rpartition(" ")[0] or line[:MAX_TASK]


def learn_from_session(
    library: Library,
    session: "Session",
    identity: str,
    loaded: Sequence[LoadedSkill],
    scopes: Collection[str],
) -> int:
    """Store what an ingested session teaches, in place of what it taught before, and that this is
    done.

    Returns how many tasks that is. loaded: what the session showed. A skill that was loaded for the
    same message before the right one, and not followed, gets the task against it. scopes: of the
    session's projects and of the user; no other scope's skills learn.
    """
    heads = library.store.backend.heads_by_id(skill.resource for skill in loaded)
    right = _find_verified_successes(library, identity, own_skills(library, heads.values(), scopes))
    tasks: list[LearnedTask] = []
    held_out = library.store.backend.learned.held_out() if right else []
    for at, skill in enumerate(loaded):
        # One session must not decide about many skills.
        if skill.resource not in right or sum(not task.against for task in tasks) == MAX_TAUGHT:
            continue
        typed = _join_typed(session, skill.turn)
        # The secrets go before the text is cut: half a secret would not be found.
        text = shorten_task(library.redact(typed))
        head = heads[skill.resource]
        terms = content_terms(text)
        # Near duplicates of held-out labels would let lookup learn what it is measured with.
        if len(terms) < MIN_TERMS or nearest(terms, held_out)[1] >= NEAR_DUPLICATE:
            continue
        if not is_plausible(library, head, typed, text):
            continue
        attempt = right[skill.resource]
        about = (text, attempt.at, TaskSource.SESSION, identity, attempt.link)
        tasks.append(_make_task(skill.resource, *about, against=False))
        # Loaded for the same message and not followed: the task counts against these.
        before = (
            other.resource for other in loaded[:at] if other.turn == skill.turn and not other.used
        )
        tasks += [_make_task(resource, *about, against=True) for resource in dict.fromkeys(before)]
    new = [task for task in tasks if not is_known(library, task, identity)]
    library.store.backend.observations.learn(identity, session.digest, new)
    return len(new)


def _make_task(
    resource: int,
    text: str,
    at: str,
    source: TaskSource,
    session: str | None,
    link: str | None,
    *,
    against: bool,
) -> LearnedTask:
    return LearnedTask(resource, text, at, against, source, session, link)


def own_skills(library: Library, heads: Iterable[Head], scopes: Collection[str]) -> set[int]:
    """Return which of these resources learn: those of these scopes that are the person's, or their
    agent's.

    Left out: what a stranger wrote and no person approved, and what an agent made and nobody looked
    at.
    """
    here = [head.id for head in heads if head.scope in scopes and head.kind is Kind.SKILL]
    return {
        resource
        for resource, authorship in authorships(library, here).items()
        if _is_own(authorship)
    }


def _is_own(authorship: Authorship) -> bool:
    if authorship.is_new or authorship.kind is AuthorKind.MEMBER:
        return False
    return not authorship.why or authorship.kind is AuthorKind.AGENT


def _find_verified_successes(
    library: Library, identity: str, heads: Iterable[int]
) -> dict[int, Attempt]:
    """Return the resources whose use in this session is verified to have ended well, and that
    somebody trusts.
    """
    ids = list(heads)
    untrusted = library.store.backend.authorship.untrusted_resources(ids) if ids else set()
    return {
        attempt.resource: attempt
        for attempt in library.evidence.list_attempts(ids)
        if attempt.key == identity
        and attempt.verified
        and attempt.used
        and attempt.outcome is Outcome.SUCCEEDED
        and attempt.resource not in untrusted
    }


def _join_typed(session: "Session", turn: int) -> str:
    """Return what a person typed in this turn."""
    return "\n".join(
        span.text
        for span in session.spans
        if span.turn == turn and span.typed and span.agent is None
    )


def is_plausible(library: Library, head: Head, typed: str, text: str) -> bool:
    """Return whether the skill fits the task without anything learned, or the person named it.

    Otherwise a session that loads one skill for everything would teach it everything.
    """
    command = _COMMAND.match(typed)
    called = command["name"].rpartition(":")[2] if command is not None else ""
    if called.casefold() == head.name.casefold():
        return True
    ranking = library.index.search(text, kind=head.kind, limit=FOUND_AMONG, learned=False)
    return any(match.entry.id == head.id for match in ranking.scored)


def is_known(library: Library, new: LearnedTask, session: str) -> bool:
    """Return whether a near duplicate is there already, of another session; remove those of the
    opposite sign.

    A person's label takes the place of what sessions taught: it stays when those are withdrawn.
    """
    learned = library.store.backend.learned
    every = learned.tasks_of([new.resource]).get(new.resource, ())
    others = [task for task in every if task.session != session and not task.held_out]
    terms = content_terms(new.task)
    same = _find_near_duplicates(terms, (task for task in others if task.against is new.against))
    # A label stays when its session is withdrawn, so it replaces that session's entry.
    if new.source is TaskSource.PERSON:
        for task in same:
            if task.source is TaskSource.SESSION:
                _remove(library, task)
        same = [task for task in same if task.source is TaskSource.PERSON]
    if same:
        return True
    contrary, alike = nearest(terms, [task for task in others if task.against is not new.against])
    if contrary is not None and alike >= NEAR_DUPLICATE:
        if _WEIGHTS.index(contrary.source) < _WEIGHTS.index(new.source):
            return True  # a session does not overrule a person, nor a prompt alone a verified end
        _remove(library, contrary)
    return False


def _remove(library: Library, task: LearnedTask) -> None:
    with suppress(NoSuchUse):  # another process was first
        library.store.backend.learned.remove(task.id)


def correct_task(
    library: Library, caller: Caller, task: str, right: Ref, wrong: Ref | None = None
) -> list[ListedTask]:
    """Store that a task is for one resource, and not for another; return what is
    stored, as listed.

    One of HELD_OUT labels is held out, by the hash of its words; near duplicates go where the first
    of them went. Raises Refused for anybody but a person, NoSuchResource, InvalidArgument for a
    task that says too little.
    """
    check_may_decide(caller, "correct what lookup learned")
    text = shorten_task(library.redact(task))
    if len(content_terms(text)) < MIN_TERMS:
        raise InvalidArgument(
            "The task says too little.", f"Write it with at least {MIN_TERMS} words of its own."
        )
    heads = [library.store.head(ref, caller.scopes) for ref in (right, wrong) if ref is not None]
    if len({head.id for head in heads}) < len(heads):
        raise InvalidArgument(f"{right} cannot be both right and wrong.", "Name two resources.")
    if _is_held_out(library, text):
        _hold_out(library, _make_label(library, caller, heads[0], text))
        library.record(caller, "hold out label", str(heads[0].ref))
        return [
            listed_task
            for listed_task in _list_tasks(library, [heads[0].id])
            if listed_task.held_out and listed_task.task == text
        ]
    return _store_labels(library, caller, text, heads)


def reassign_task(library: Library, caller: Caller, identity: int, right: Ref) -> list[ListedTask]:
    """Let a learned task count for another resource, and against the one that it was for; return
    what is stored.

    The task becomes a label of the person, which is learned. Raises InvalidArgument for a task that
    is held out, counts against its resource, or is for `right` already. Raises Refused for anybody
    but a person, NoSuchUse, NoSuchResource.
    """
    check_may_decide(caller, "correct what lookup learned")
    learned = library.store.backend.learned
    task = learned.task(identity)
    if task.held_out or task.against:
        state = "held out" if task.held_out else "against its skill"
        hint = "Remove it with --remove, and name the right skill with --task."
        raise InvalidArgument(
            f"Task {identity} is {state}, so it has no other skill to count for.", hint
        )
    head = library.store.head(right, caller.scopes)
    if head.id == task.resource:
        raise InvalidArgument(f"Task {identity} is for {head.ref} already.", "Name another skill.")
    # `refuse`: the session must not teach this resource the task again.
    learned.remove(identity, refuse=True)
    wrong = library.store.backend.heads_by_id([task.resource]).values()
    return _store_labels(library, caller, task.task, [head, *wrong])


def _make_label(
    library: Library, caller: Caller, head: Head, text: str, *, against: bool = False
) -> LearnedTask:
    at = library.store.now()
    return _make_task(head.id, text, at, TaskSource.PERSON, caller.session, None, against=against)


def _store_labels(
    library: Library, caller: Caller, text: str, heads: Sequence[Head]
) -> list[ListedTask]:
    """Store that a task is for the first of these resources and not for the others.

    Return what is stored.
    """
    # The first resource is right, the others are wrong for the task.
    tasks = [
        _make_label(library, caller, head, text, against=bool(place))
        for place, head in enumerate(heads)
    ]
    library.store.backend.learned.add([task for task in tasks if not is_known(library, task, "")])
    library.record(caller, "correct learned task", *(str(head.ref) for head in heads))
    ids, terms = {head.id for head in heads}, content_terms(text)
    return [
        listed_task
        for listed_task in _list_tasks(library, ids)
        if content_terms(listed_task.task) == terms and not listed_task.held_out
    ]


def _find_near_duplicates(terms: frozenset[str], tasks: Iterable[LearnedTask]) -> list[LearnedTask]:
    return [task for task in tasks if likeness(terms, content_terms(task.task)) >= NEAR_DUPLICATE]


def _iterate_tasks(library: Library) -> Iterator[LearnedTask]:
    learned = library.store.backend.learned
    return itertools.chain.from_iterable(learned.tasks_of(learned.resources()).values())


def _is_held_out(library: Library, text: str) -> bool:
    """Return whether a label belongs to the test set: as its near duplicates do, else by the hash
    of its words.

    Where some are learned and others held out, it is held out with all of them.
    """
    terms = content_terms(text)
    near = _find_near_duplicates(terms, _iterate_tasks(library))
    if near:
        return any(task.held_out for task in near)
    # The first byte of the hash: one of four labels, the same one on every machine.
    return hashlib.sha256(" ".join(sorted(terms)).encode()).digest()[0] % HELD_OUT == 0


def _hold_out(library: Library, new: LearnedTask) -> None:
    """Store a held-out label; it replaces its near duplicates, since a person's last word counts.

    Labels that were learned are held out from now on, and what sessions taught is removed: nothing
    teaches and tests.
    """
    learned = library.store.backend.learned
    moved = []
    for duplicate in _find_near_duplicates(content_terms(new.task), _iterate_tasks(library)):
        learned.remove(duplicate.id)
        if duplicate.source is TaskSource.PERSON and not (duplicate.held_out or duplicate.against):
            moved.append(replace(duplicate, held_out=True, id=0))
    learned.add([*moved, replace(new, held_out=True)])


def list_learned(
    library: Library, caller: Caller, ref: Ref | None = None, *, shows: bool = False
) -> list[ListedTask]:
    """Return the learned tasks of one resource, or of all that the caller sees. Raises
    NoSuchResource.

    Only the person of this account gets the text of a prompt that a transcript taught; for others
    it is ''. For an agent's shell the text of each task is ''. shows: the caller's person reads the
    answer.
    """
    learned = library.store.backend.learned
    if ref is not None:
        listed = _list_tasks(library, [library.store.head(ref, caller.scopes).id])
    else:
        heads = library.store.backend.heads_by_id(learned.resources()).values()
        listed = _list_tasks(library, [head.id for head in heads if head.scope in caller.scopes])
    if shows or (caller.decides and not subject_of(caller.via)):
        return listed
    is_shell = caller.identity.via.startswith("client:")
    return [
        replace(task, task="") if is_shell or task.source == TaskSource.TRANSCRIPT else task
        for task in listed
    ]


def _list_tasks(library: Library, ids: Iterable[int]) -> list[ListedTask]:
    tasks = library.store.backend.learned.tasks_of(ids)
    heads = library.store.backend.heads_by_id(tasks)
    return [
        ListedTask(
            task.id,
            str(heads[resource].ref),
            task.task,
            task.at,
            task.against,
            task.source.value,
            task.held_out,
        )
        for resource, resource_tasks in tasks.items()
        for task in resource_tasks
    ]


def remove_learned(library: Library, caller: Caller, identity: int) -> None:
    """Remove one learned task for good; its session teaches that resource nothing more.

    Raises Refused for anybody but a person, NoSuchUse.
    """
    check_may_decide(caller, "remove what lookup learned")
    library.store.backend.learned.remove(identity, refuse=True)
    library.record(caller, "remove learned task", f"task {identity}")

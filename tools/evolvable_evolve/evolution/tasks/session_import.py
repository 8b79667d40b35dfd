"""Make a task set of the tasks found in sessions, try its checks, and propose it to a person."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evolvable_evolve.evolution.executors import WorkspaceError
from evolvable_evolve.evolution.scorers import MIN_KNOWN_ANSWERS, TaskSetScorer, sample_list
from evolvable_evolve.evolution.task import ScorerError, Split, Task, TaskSet
from evolvable_evolve.evolution.tasks.dependency_folders import find_dependencies
from evolvable_evolve.evolution.tasks.reader import (
    ENVIRONMENT_FILE,
    LINES,
    InvalidTaskSet,
    read_taskset,
    scorer_files,
    split_lines,
    task_folders,
)
from evolvable_evolve.evolution.tasks.scorer_calibration import (
    MAX_CONCURRENT,
    KnownAnswer,
    parse_known_answer,
    score_known_answer,
)
from evolvable_evolve.evolution.tasks.session_completion import (
    OTHER,
    choose_categories,
    complete_bad,
    complete_from_birth,
    count_known_answers,
    find_refused,
    find_shortage,
    join_answers,
    same_words,
)
from evolvable_evolve.evolution.tasks.session_files import CHECK_SCRIPT, command_files
from evolvable_evolve.evolution.tasks.session_tasks import (
    CheckKind,
    NoTask,
    SessionTask,
    find_session_tasks,
)
from evolvable_store import MAX_FILES, MAX_RESOURCE, File
from evolvable_store.errors import EvolvableError, InvalidArgument, quote_text
from evolvable_store.resource import USER_SCOPE, Kind, Ref, slugify
from evolvable_store.workingcopy import commit_files, recent_commits
from evolvable_tools import Caller, Library, verbs
from evolvable_tools.outcomes import own_part
from evolvable_tools.sessions import (
    NoTranscript,
    Session,
    TranscriptNotRead,
    UnreadableMessages,
    read_session,
)
from evolvable_tools.verbs import copied_from

SESSION_SOURCE = "session:"
"""The beginning of the source of a task that was found in a session."""

RUBRIC = (
    "The answer does what the task asks, and what the correction says that a person made "
    "(expected)."
)

# A repository beyond it is not copied once for each task.
MAX_TREE_FILES, MAX_TREE_BYTES = 5_000, 8 * 2**20
"""The most files and bytes of a project that are stored with one task."""

_ABOUT = """---
name: {name}
description: Tasks that were found in finished sessions, \
each with the check that showed the work to be right.
---

Made by `evolvable evolve taskset from-sessions`. \
A task has the prompt that a person typed and the files as they
were. Its check failed before the work and passed after it, \
or the person corrected the answer and accepted the next
one.
"""


@dataclass(frozen=True)
class FoundSessionTask:
    """A task that was found, for people. tried: '' where its check was not tried yet."""

    id: str
    session: str
    prompt: str
    check: str
    files: int
    accepted: bool
    split: str
    tried: str = ""


@dataclass(frozen=True)
class SessionTaskSet:
    """Outcome of a search for tasks in sessions.

    left_out: by reason, the number of sessions and tasks without a task. proposal: None without
    tasks. shortage: what the task set lacks for its check, '' for nothing.
    """

    ref: str
    sessions: int
    tasks: list[FoundSessionTask]
    left_out: dict[str, int]
    proposal: int | None = None
    shortage: str = ""


@dataclass
class SessionDraft:
    """A task set that is not proposed yet: its files and the outcome of the sessions.

    base: the version that it adds to. projects: by the id of a new task, the name of its project.
    links: by task, the folders of its project's dependencies: the path in the workspace -> the path
    on this machine.
    """

    ref: Ref
    base: int
    files: dict[str, bytes]
    sessions: int
    found: list[FoundSessionTask] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    projects: dict[str, str] = field(default_factory=dict)
    links: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def taskset(self) -> TaskSet:
        """The task set that the files make."""
        return read_taskset(self.ref.name, self.files)

    @property
    def outcome(self) -> SessionTaskSet:
        """The outcome before the set is proposed."""
        shortage = find_shortage(self.taskset) if self.found else ""
        left_out = dict(self.left_out.most_common())
        return SessionTaskSet(str(self.ref), self.sessions, self.found, left_out, shortage=shortage)


def draft_from_sessions(
    library: Library, transcripts: Iterable[Path], name: str = "session-tasks"
) -> SessionDraft:
    """Return the tasks in these transcripts as a task set; nothing is run or stored.

    Texts are redacted, also those of files. The library's environment of this name stays as it is,
    and a task that it has already is not added again. Raises InvalidArgument for a name that is
    none and for a set of folders, and InvalidTaskSet.
    """
    if slugify(name) != name:
        raise InvalidArgument(
            f"{quote_text(name)} is no name of an environment.",
            f"Such as {slugify(name) or 'tasks'}.",
        )
    ref = Ref(Kind.ENVIRONMENT, name, USER_SCOPE)
    head = library.store.head_or_none(ref)
    before = library.store.files(head) if head is not None and head.version else {}
    files = {path: file.data for path, file in before.items()}
    draft = SessionDraft(ref, (head.version if head else None) or 0, files, 0)
    known_ids = _known_ids(ref, files)
    learned_sessions = sessions_behind_proposals(library)
    judged: list[SessionTask] = []
    # The work of earlier sessions: a fork repeats that of the session that it was made from.
    owners: dict[int, str] = {}
    # The oldest first, so that a fork is the one that is left out.
    for path in sorted(transcripts, key=_modified_time):
        try:
            session = read_session(path, redactor=library.redactor())
        except UnreadableMessages:
            draft.left_out["its messages have no text that can be read"] += 1
            continue
        except NoTranscript:
            draft.left_out["it is no transcript"] += 1
            continue
        except TranscriptNotRead:
            draft.left_out["it cannot be read now"] += 1
            continue
        draft.sessions += 1
        # Work that an earlier session has is not taken from a copy.
        session = own_part(library, session, earlier=owners)
        for task in find_session_tasks(session, read_trees):
            if isinstance(task, NoTask):
                draft.left_out[task.why] += 1
            elif task.id in known_ids:
                draft.left_out["the task set has it already"] += 1
            # Judged tasks need the answers of all sessions, so they are added after the loop.
            elif task.kind is CheckKind.CORRECTION:
                judged.append(task)
            else:
                known_ids.add(task.id)
                _add_task(
                    draft, task, command_files(library, task), task.session in learned_sessions
                )
    _add_judged(draft, judged, learned_sessions)
    _settle(draft)
    return draft


def _modified_time(path: Path) -> float:
    """Return when a file was last written; of files with the same work, the oldest has the task."""
    try:
        return path.stat().st_mtime
    except (OSError, ValueError):
        return 0.0


def read_trees(
    session: Session, commit_id: str
) -> tuple[Mapping[str, bytes], Mapping[str, bytes] | None]:
    """Return the files of the commit that a session began at, and of the one that it made.

    The first is the commit that the client records, else the parent of the made one, else the
    newest before the session. The second is None without one. Without a repository there are no
    files. Raises TreeTooLarge.
    """
    folder = Path(session.project or "")
    if not folder.is_absolute() or not folder.is_dir():
        return {}, None
    commits = list(recent_commits(folder))
    made = (commit for commit in commits if commit_id and commit.id.startswith(commit_id))
    own = next(made, None)
    begun = session.commit or (own.parent if own else "")
    # Clients that record no commit: the newest before the session is the best guess.
    if not begun and session.started is not None:
        begun = next((commit.id for commit in commits if commit.at <= session.started), "")
    limits = (MAX_TREE_FILES, MAX_TREE_BYTES)
    tree = commit_files(folder, begun, *limits) if begun else None
    if own is None or tree is None:
        return tree or {}, None
    return tree, commit_files(folder, own.id, *limits)


def sessions_behind_proposals(
    library: Library, refs: Sequence[Ref] | None = None
) -> frozenset[str]:
    """Return the sessions whose evidence led to proposals for these resources, by default for all.

    Proposals for the original of a copy count for the copy.
    """
    proposals = library.store.backend.proposals
    if refs is None:
        heads = library.store.heads()
        refs = [head.ref.at(None) for head in heads]
    sessions: set[str] = set()
    for ref in _with_originals(library, refs):
        for proposal in proposals.about(ref):
            if proposal.grounds is None:
                continue
            for citation in json.loads(proposal.grounds).get("evidence") or ():
                if isinstance(citation, dict) and "session" in citation:
                    sessions.add(str(citation["session"]))
            if proposal.session:
                sessions.add(proposal.session)
    return frozenset(sessions)


def _with_originals(library: Library, refs: Sequence[Ref]) -> Iterator[Ref]:
    """Yield resources and their originals: a copy contains the lessons of its original."""
    waiting, visited = list(refs), set[Ref]()
    while waiting:
        requested = waiting.pop()
        ref = requested.within(requested.scope or USER_SCOPE).at(None)
        # Copies of copies may form a circle.
        if ref in visited:
            continue
        visited.add(ref)
        yield ref
        head = library.store.head_or_none(ref)
        if head is not None and (original := copied_from(library, head)):
            waiting.append(Ref.parse(original))


def _known_ids(ref: Ref, files: Mapping[str, bytes]) -> set[str]:
    """Return the ids of the tasks that an environment has already.

    Raises InvalidTaskSet, and InvalidArgument for a set of folders, whose tasks a file of lines
    would hide.
    """
    if LINES in files:
        return {task.id for task in read_taskset(ref.name, files).tasks}
    if task_folders(files):
        raise InvalidArgument(
            f"{ref} has a folder for each task.", f"Tasks are added to {LINES} alone; name another."
        )
    return set()


def _add_task(
    draft: SessionDraft,
    task: SessionTask,
    content: tuple[dict[str, Any], dict[str, bytes]] | str,
    learned: bool,
) -> None:
    """Add a task to the draft, or count why not.

    learned: its session led to a proposal, so it is never a test.
    """
    if isinstance(content, str):
        draft.left_out[content] += 1
        return
    record, files = content
    head = {ENVIRONMENT_FILE: _ABOUT.format(name=draft.ref.name).encode()}
    # Also in place of an earlier version of the script, which can do less.
    if task.kind is CheckKind.EXIT_CODE:
        files = {**files, CHECK_SCRIPT: Path(__file__).with_name("session_check.txt").read_bytes()}
    split = {"split": str(Split.TRAIN)} if learned else {}
    tags = [str(task.kind), *(["accepted"] if task.accepted else [])]
    about = {"id": task.id, "prompt": task.prompt, "category": OTHER}
    # All tasks of a session are one group: they are dealt to one split.
    origin = {"tags": tags, "group": _make_source(task)[:200], "source": _make_source(task)}
    line = json.dumps({**about, **record, **split, **origin}, ensure_ascii=False)
    lines = draft.files.get(LINES, b"")
    # A person's file may lack its last line break.
    lines += b"\n" if lines and not lines.endswith(b"\n") else b""
    all_files = {**head, **draft.files, **files, LINES: lines + line.encode() + b"\n"}
    if len(all_files) > MAX_FILES or sum(map(len, all_files.values())) > MAX_RESOURCE:
        draft.left_out["the task set is full"] += 1
        return
    # Each task is read at once: one that is no task must not spoil the whole set.
    try:
        read_taskset(draft.ref.name, all_files)
    except InvalidTaskSet as error:
        draft.left_out[f"it is no task: {error.problems[0][:120]}"] += 1
        return
    draft.files = all_files
    if task.argv:
        check = " ".join((*task.options, *task.argv))
    else:
        check = f"a judge, by the correction: {task.correction[:200]}"
    summary = (task.id, task.session, task.prompt[:400], check, len(task.start), task.accepted)
    draft.found.append(FoundSessionTask(*summary, split=split.get("split", "auto")))
    if task.project and (links := find_dependencies(Path(task.project), task.start)):
        draft.links[task.id] = links
    draft.projects[task.id] = slugify(Path(task.project or "").name)[:60] or OTHER


def _make_source(task: SessionTask) -> str:
    return SESSION_SOURCE + "-".join(task.session.split())


def _add_judged(draft: SessionDraft, tasks: Sequence[SessionTask], learned: frozenset[str]) -> None:
    """Add the tasks that a judge scores, with the answers of all sessions that asked the same."""
    before = draft.taskset if LINES in draft.files else None
    existing = {
        (same_words(task.prompt), same_words(task.expected or ""))
        for task in (before.tasks if before else ())
    }
    fresh = [
        task
        for task in tasks
        if (same_words(task.prompt), same_words(task.correction)) not in existing
    ]
    draft.left_out.update(["the task set has it already"] * (len(tasks) - len(fresh)))
    counts = count_known_answers(before, RUBRIC)
    # Bad answers of other prompts before the reworded ones: they differ in substance.
    for judged_task in complete_from_birth(complete_bad(join_answers(fresh), counts[1]), counts):
        args = {"rubric": RUBRIC, "good": judged_task.good, "bad": judged_task.bad}
        scorer = {"type": "judge", "args": args}
        record = {"expected": judged_task.task.correction, "scorer": scorer}
        _add_task(
            draft, judged_task.task, (record, {}), not learned.isdisjoint(judged_task.sessions)
        )


def _settle(draft: SessionDraft) -> None:
    """Leave out the tasks that the check would refuse, and put the new tasks into categories."""
    # In a loop: leaving a task out can show the next fault.
    while draft.found:
        refused = find_refused(draft.taskset, [found_task.id for found_task in draft.found])
        if not refused:
            break
        _leave_out(draft, refused)
    taskset = draft.taskset if draft.found else None
    judged = [
        task.id
        for task in (taskset.tasks if taskset else ())
        if task.scorer.type == "judge" and task.id in draft.projects
    ]
    count = min(count_known_answers(taskset, RUBRIC))
    if judged and count < MIN_KNOWN_ANSWERS:
        why = (
            f"a judge needs {MIN_KNOWN_ANSWERS} known good and bad answers, and all sessions "
            f"together have {count}"
        )
        _leave_out(draft, dict.fromkeys(judged, why))
    if draft.found:
        categories = choose_categories(draft.taskset, draft.projects)
        _write_lines(draft, [_in_category(line, categories) for line in _read_lines(draft)])


def _in_category(line: str, categories: Mapping[str, str]) -> str:
    """Return the line of a task in its category; of a task without one here, the line as it is."""
    record = json.loads(line)
    if record["id"] not in categories:
        return line
    return json.dumps(record | {"category": categories[record["id"]]}, ensure_ascii=False)


def _read_lines(draft: SessionDraft) -> list[str]:
    text = draft.files.get(LINES, b"").decode("utf-8-sig")
    return [line for line in split_lines(text) if line.strip()]


def _write_lines(draft: SessionDraft, lines: Iterable[str]) -> None:
    draft.files[LINES] = "".join(f"{line}\n" for line in lines).encode()


async def try_checks(draft: SessionDraft, scoring: TaskSetScorer) -> None:
    """Run the check of each new task on the files before and after the work.

    A task whose check does not distinguish them is left out. A person has to have approved the
    commands. Judges are not asked: a run calibrates them before it spends anything.
    """
    taskset = draft.taskset
    new, places = {found_task.id for found_task in draft.found}, asyncio.Semaphore(MAX_CONCURRENT)
    own = [task for task in taskset.tasks if task.id in new and task.scorer.type == "command"]
    scoring = replace(scoring, files=scorer_files(taskset))
    faults = await asyncio.gather(*(_try_check(taskset, task, scoring, places) for task in own))
    refused = {task.id: why for task, why in zip(own, faults, strict=True) if why}
    _leave_out(draft, refused)
    # Without the tasks left out, a judge or a category may lack members.
    _settle(draft)
    tried = {task.id for task in own}
    draft.found = [
        replace(found_task, tried="fails before, passes after")
        if found_task.id in tried
        else found_task
        for found_task in draft.found
    ]


async def _try_check(
    taskset: TaskSet, task: Task, scoring: TaskSetScorer, places: asyncio.Semaphore
) -> str:
    """Return the fault of a check, '' when it fails before the work and passes after it, twice."""
    after = parse_known_answer(sample_list(task.scorer.args["good"])[0], good=True)
    before = KnownAnswer("", {}, good=False)
    async with places:
        try:
            # The good state twice: a flaky test passes once.
            values = [
                (await score_known_answer(taskset, task, known_answer, scoring)).value
                for known_answer in (before, after, after)
            ]
        except (ScorerError, WorkspaceError):
            return "its check cannot be run here"
    if values == [0.0, 1.0, 1.0]:
        return ""
    return "its check does not tell the files before and after the work apart"


def _leave_out(draft: SessionDraft, refused: Mapping[str, str]) -> None:
    """Remove new tasks from a draft and count why. refused: the reason of each, by id."""
    draft.left_out.update(refused.values())
    starts = tuple(f"{folder}/{id_}/" for id_ in refused for folder in ("work", "checks"))
    # `startswith` is false for an empty tuple.
    draft.files = {path: data for path, data in draft.files.items() if not path.startswith(starts)}
    lines = [line for line in _read_lines(draft) if json.loads(line)["id"] not in refused]
    _write_lines(draft, lines)
    draft.found = [found_task for found_task in draft.found if found_task.id not in refused]
    draft.projects = {id_: project for id_, project in draft.projects.items() if id_ not in refused}


def propose_session_tasks(library: Library, caller: Caller, draft: SessionDraft) -> SessionTaskSet:
    """Propose the task set, which waits in the inbox whatever the policy.

    Nothing is proposed without a task.
    """
    outcome = draft.outcome
    if draft.found:
        reason = f"{len(draft.found)} tasks from {draft.sessions} sessions"
        files = {path: File(data) for path, data in draft.files.items()}
        identity = verbs.propose(library, caller, draft.ref, draft.base, files, reason)
        return replace(outcome, proposal=identity)
    return outcome


class LearnedFrom(EvolvableError):
    """A task of val or test is from a session that the program was made from."""


def refuse_learned_sessions(library: Library, taskset: TaskSet, refs: Sequence[Ref]) -> None:
    """Raise LearnedFrom where a session of val or test led to a proposal for these resources."""
    own = [
        task
        for task in taskset.tasks
        if task.split is not Split.TRAIN and task.source.startswith(SESSION_SOURCE)
    ]
    if not own:
        return
    learned = {"-".join(session.split()) for session in sessions_behind_proposals(library, refs)}
    tasks = [task for task in own if task.source.removeprefix(SESSION_SOURCE) in learned]
    if tasks:
        more = f" and {len(tasks) - 5} more" if len(tasks) > 5 else ""
        names = ", ".join(task.id for task in tasks[:5]) + more
        raise LearnedFrom(
            f"{names} {'is' if len(tasks) == 1 else 'are'} in val or test and from sessions that "
            f"led to proposals for {', '.join(map(str, refs))}: what was learned from a session "
            "is not tested on it.",
            f'Write "split": "train" on {"it" if len(tasks) == 1 else "them"}.',
        )

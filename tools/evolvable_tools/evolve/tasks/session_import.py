"""Make a task set of the tasks found in sessions, try its scorers, and propose it: a person decides in the inbox."""

import asyncio
import io
import json
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evolvable_store.errors import EvolvableError, InvalidArgument, quoted
from evolvable_store.objects import MAX_FILES, MAX_RESOURCE, File
from evolvable_store.resource import USER_SCOPE, Kind, Ref, slugify
from evolvable_store.workingcopy.git_history import commit_files, recent_commits
from evolvable_tools.evolve.executors.base import WorkspaceError
from evolvable_tools.evolve.scorers.registry import TaskSetScorer, sample_list
from evolvable_tools.evolve.task import ScorerError, Split, Task, TaskSet
from evolvable_tools.evolve.tasks.reader import (
    ENVIRONMENT_FILE,
    LINES,
    InvalidTaskSet,
    read_taskset,
    scorer_files,
    split_lines,
    task_folders,
)
from evolvable_tools.evolve.tasks.scorer_calibration import MAX_CONCURRENT, KnownAnswer, given_answer, score_known
from evolvable_tools.evolve.tasks.session_tasks import CheckKind, NoTask, SessionTask, find_session_tasks
from evolvable_tools.library import Caller, Library
from evolvable_tools.outcomes.ingest import own_part
from evolvable_tools.sessions import NoTranscript, Session, UnreadableMessages
from evolvable_tools.sessions.parser import read_session
from evolvable_tools.verbs import proposal_inbox
from evolvable_tools.verbs.resource_info import copied_from

SESSION_SOURCE = "session:"
"""How the source of a task that was found in a session begins."""

CHECK_SCRIPT = "check_exit.py"
RUBRIC = "The answer does what the task asks, and what the correction says that a person made (expected)."

MAX_TREE_FILES, MAX_TREE_BYTES = 5_000, 8 * 2**20
"""Files and bytes of a project that are kept with one task."""

_MAX_PLAIN = 30  # files of a workspace that are kept one by one; more are packed into one archive
_ARCHIVE = "project.zip"
_UNPACK = ["python3", "-m", "zipfile", "-e", _ARCHIVE, "."]
_SECRET_FILES = (".env", ".pem", ".key", ".p12", ".pfx", "id_rsa", "id_ed25519", ".netrc", ".npmrc", ".pypirc")
_TEST_FOLDERS = frozenset(("test", "tests", "__tests__", "spec", "testdata"))
_TEST_WORDS = ("test_", "_test.", ".test.", ".spec.", "_spec.", "conftest.py")
_CONFIGURATION = ("pytest.ini", "tox.ini", "setup.cfg", "noxfile.py", "jest.config", "vitest.config", ".mocharc")
_ABOUT = """---
name: {name}
description: Tasks that were found in finished sessions, each with the check that showed the work to be right.
---

Made by `evolvable taskset from-sessions`. A task has the prompt that a person typed and the files as they were. Its
check failed before the work and passed after it, or the person corrected the answer and accepted the next one.
"""


@dataclass(frozen=True)
class FoundSessionTask:
    """A task that was found, as a person is shown it. tried: '' where its check was not tried yet."""

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
    """What was found in sessions. left_out: why sessions gave no task, with how many. proposal: None without tasks."""

    ref: str
    sessions: int
    tasks: list[FoundSessionTask]
    left_out: dict[str, int]
    proposal: int | None = None


@dataclass
class SessionDraft:
    """A task set that is not proposed yet: its files and the outcome of the sessions. base: the version it adds to."""

    ref: Ref
    base: int
    files: dict[str, bytes]
    sessions: int
    found: list[FoundSessionTask] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    @property
    def taskset(self) -> TaskSet:
        """The task set that the files make."""
        return read_taskset(self.ref.name, self.files)


def draft_from_sessions(library: Library, transcripts: Iterable[Path], name: str = "session-tasks") -> SessionDraft:
    """Return the tasks in these transcripts as a task set; nothing is run or kept.

    Texts are redacted, also those of files. What the library's environment of this name has stays, and a task that it
    has already is not added again. Raises InvalidArgument for a name that is none and for a set of folders, and
    InvalidTaskSet.
    """
    if slugify(name) != name:
        raise InvalidArgument(f"{quoted(name)} is no name of an environment.", f"Such as {slugify(name) or 'tasks'}.")
    ref = Ref(Kind.ENVIRONMENT, name, USER_SCOPE)
    head = library.store.head_or_none(ref)
    before = library.store.files(head) if head is not None and head.version else {}
    files = {path: file.data for path, file in before.items()}
    draft = SessionDraft(ref, (head.version if head else None) or 0, files, 0)
    known = _known_ids(ref, files)
    told = sessions_behind_proposals(library)
    judged: list[SessionTask] = []
    owners: dict[int, str] = {}
    for path in sorted(transcripts, key=_written):
        try:
            session = read_session(path, redactor=library.redactor())
        except UnreadableMessages:
            draft.left_out["its messages have no text that can be read"] += 1
            continue
        except NoTranscript:
            draft.left_out["it is no transcript"] += 1
            continue
        draft.sessions += 1
        session = own_part(library, session, earlier=owners)
        for one in find_session_tasks(session, read_trees):
            if isinstance(one, NoTask):
                draft.left_out[one.why] += 1
            elif one.id in known:
                draft.left_out["the task set has it already"] += 1
            elif one.kind is CheckKind.CORRECTION:
                judged.append(one)
            else:
                known.add(one.id)
                _add(draft, one, _command_files(library, one), one.session in told)
    _add_judged(draft, judged, told)
    return draft


def _written(path: Path) -> float:
    """Return when a file was written last: of several that have the same work, the first has the task."""
    try:
        return path.stat().st_mtime
    except (OSError, ValueError):
        return 0.0


def read_trees(session: Session, made: str) -> tuple[Mapping[str, bytes], Mapping[str, bytes] | None]:
    """Return the files of the commit that a session began at, and of the one that its work made, None without it.

    The first is the commit that the client notes, else the parent of the one that was made, else the newest before the
    session began. Nothing where there is no repository any more. Raises TreeTooLarge.
    """
    folder = Path(session.project) if session.project and Path(session.project).is_absolute() else None
    if folder is None or not folder.is_dir():
        return {}, None
    commits = list(recent_commits(folder))
    own = next((one for one in commits if made and one.id.startswith(made)), None)
    begun = session.commit or (own.parent if own else "")
    if not begun and session.started is not None:
        begun = next((one.id for one in commits if one.at <= session.started), "")
    limits = (MAX_TREE_FILES, MAX_TREE_BYTES)
    tree = commit_files(folder, begun, *limits) if begun else None
    return tree or {}, commit_files(folder, own.id, *limits) if own and tree is not None else None


def sessions_behind_proposals(library: Library, refs: Sequence[Ref] | None = None) -> frozenset[str]:
    """Return the sessions whose evidence led to proposals for these resources, by default for any resource.

    What a resource is a copy of counts as the resource.
    """
    proposals = library.store.backend.proposals
    if refs is None:
        heads = library.store.heads()
        refs = [head.ref.at(None) for head in heads]
    found: set[str] = set()
    for ref in _with_originals(library, refs):
        for proposal in proposals.about(ref):
            if proposal.grounds is not None:
                cited = json.loads(proposal.grounds).get("evidence") or ()
                found |= {str(one["session"]) for one in cited if isinstance(one, dict) and "session" in one}
                found |= {proposal.session} if proposal.session else set()
    return frozenset(found)


def _with_originals(library: Library, refs: Sequence[Ref]) -> Iterator[Ref]:
    """Yield resources and those that they are copies of: what an original learned stands in its copy."""
    waiting, seen = list(refs), set[Ref]()
    while waiting:
        given = waiting.pop()
        ref = given.within(given.scope or USER_SCOPE).at(None)
        if ref in seen:
            continue
        seen.add(ref)
        yield ref
        head = library.store.head_or_none(ref)
        if head is not None and (original := copied_from(library, head)):
            waiting.append(Ref.parse(original))


def _known_ids(ref: Ref, files: Mapping[str, bytes]) -> set[str]:
    """Return the ids of the tasks that an environment has already, none where it has no tasks.

    Raises InvalidTaskSet, and InvalidArgument for a set of folders, whose tasks a file of lines would hide.
    """
    if LINES in files:
        return {task.id for task in read_taskset(ref.name, files).tasks}
    if task_folders(files):
        raise InvalidArgument(f"{ref} has a folder for each task.", f"Tasks are added to {LINES} alone; name another.")
    return set()


def _is_test(path: str) -> bool:
    *folders, name = path.casefold().split("/")
    named = any(word in name for word in _TEST_WORDS) or name.startswith(_CONFIGURATION)
    return named or bool(_TEST_FOLDERS & set(folders))


def _command_files(library: Library, task: SessionTask) -> tuple[dict[str, Any], dict[str, bytes]] | str:
    """Return the record and the files of a task that a command checks, or why it cannot be made."""
    start, end = (_redacted(library, files) for files in (task.start, task.end))
    changed = {path: data for path, data in end.items() if start.get(path) != data}
    try:
        good = {path: data.decode() for path, data in changed.items()}
    except UnicodeDecodeError:
        return "the work changed a file that is no text"
    tests = {path: data for path, data in end.items() if _is_test(path)}
    if len(tests) > _MAX_PLAIN:
        tests = {path: data for path, data in tests.items() if path in changed}
    files = {f"checks/{task.id}/{path}": data for path, data in tests.items()}
    argv = ["{python}", "{taskset}/" + CHECK_SCRIPT, task.id, "--", *task.argv]
    record: dict[str, Any] = {"scorer": {"type": "command", "args": {"argv": argv}}}
    record["scorer"]["args"]["good"] = [{"output": "", "files": good}]
    if len(start) > _MAX_PLAIN:
        files[f"work/{task.id}/{_ARCHIVE}"] = _zip(start)
        record["setup"] = [_UNPACK]
    else:
        files |= {f"work/{task.id}/{path}": data for path, data in start.items()}
    if start:
        record["files"] = f"work/{task.id}"
    return record, files


def _redacted(library: Library, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return files without those that hold secrets by their names, and without the secrets in the others."""
    found = {}
    for path, data in files.items():
        name = path.rpartition("/")[2].casefold()
        if name.startswith(_SECRET_FILES) or name.endswith(_SECRET_FILES):
            continue
        try:
            text = data.decode()
        except UnicodeDecodeError:
            found[path] = data
        else:
            clean = library.redacted(text)
            found[path] = data if clean == text else clean.encode()
    return found


def _zip(files: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(files):  # with one date for all: equal files are equal bytes
            archive.writestr(zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)), files[path], zipfile.ZIP_DEFLATED)
    return made.getvalue()


def _add(
    draft: SessionDraft, task: SessionTask, made: tuple[dict[str, Any], dict[str, bytes]] | str, learned: bool
) -> None:
    """Add a task to the draft, or count why not. learned: its session led to a proposal, so it is never a test."""
    if isinstance(made, str):
        draft.left_out[made] += 1
        return
    record, files = made
    scripts = {ENVIRONMENT_FILE: _ABOUT.format(name=draft.ref.name).encode()}
    if task.kind is CheckKind.EXIT_CODE:
        scripts[CHECK_SCRIPT] = Path(__file__).with_name("session_check.txt").read_bytes()
    split = {"split": str(Split.TRAIN)} if learned else {}
    tags = [str(task.kind), *(["accepted"] if task.accepted else [])]
    about = {"id": task.id, "prompt": task.prompt, "category": _category(task)}
    origin = {"tags": tags, "group": _source(task)[:200], "source": _source(task)}
    line = json.dumps({**about, **record, **split, **origin}, ensure_ascii=False)
    lines = draft.files.get(LINES, b"")
    lines += b"\n" if lines and not lines.endswith(b"\n") else b""
    now = {**scripts, **draft.files, **files, LINES: lines + line.encode() + b"\n"}
    if len(now) > MAX_FILES or sum(map(len, now.values())) > MAX_RESOURCE:
        draft.left_out["the task set is full"] += 1
        return
    try:
        read_taskset(draft.ref.name, now)
    except InvalidTaskSet as error:
        draft.left_out[f"it is no task: {error.problems[0][:120]}"] += 1
        return
    draft.files = now
    check = " ".join(task.argv) if task.argv else f"a judge, by the correction: {task.correction[:200]}"
    shown = (task.id, task.session, task.prompt[:400], check, len(task.start), task.accepted)
    draft.found.append(FoundSessionTask(*shown, split=split.get("split", "auto")))


def _category(task: SessionTask) -> str:
    return slugify(Path(task.project or "").name)[:60] or "other"


def _source(task: SessionTask) -> str:
    return SESSION_SOURCE + "-".join(task.session.split())


def _add_judged(draft: SessionDraft, tasks: Sequence[SessionTask], learned: frozenset[str]) -> None:
    for task in tasks:
        args = {"rubric": RUBRIC, "good": [task.good], "bad": [task.bad]}
        record = {"expected": task.correction, "scorer": {"type": "judge", "args": args}}
        _add(draft, task, (record, {}), task.session in learned)


async def try_checks(draft: SessionDraft, scoring: TaskSetScorer) -> None:
    """Run the check of each new task on the files before and after the work; leave out what does not tell them apart.

    A person has to have approved the commands. Judges are not asked: a run calibrates them before it spends anything.
    """
    taskset = draft.taskset
    new, places = {one.id for one in draft.found}, asyncio.Semaphore(MAX_CONCURRENT)
    own = [task for task in taskset.tasks if task.id in new and task.scorer.type == "command"]
    scoring = replace(scoring, files=scorer_files(taskset))
    found = await asyncio.gather(*(_try_check(taskset, task, scoring, places) for task in own))
    refused = {task.id: why for task, why in zip(own, found, strict=True) if why}
    _drop(draft, frozenset(refused))
    draft.left_out.update(refused.values())
    tried = {task.id for task in own}
    draft.found = [replace(one, tried="fails before, passes after") if one.id in tried else one for one in draft.found]


async def _try_check(taskset: TaskSet, task: Task, scoring: TaskSetScorer, places: asyncio.Semaphore) -> str:
    """Return why a check is worth nothing here, '' when it fails before the work and passes after it, twice."""
    after = given_answer(sample_list(task.scorer.args["good"])[0], good=True)
    before = KnownAnswer("", {}, good=False)
    async with places:
        try:
            values = [(await score_known(taskset, task, one, scoring)).value for one in (before, after, after)]
        except (ScorerError, WorkspaceError):
            return "its check cannot be run here"
    return "" if values == [0.0, 1.0, 1.0] else "its check does not tell the files before and after the work apart"


def _drop(draft: SessionDraft, ids: frozenset[str]) -> None:
    starts = tuple(f"{folder}/{id_}/" for id_ in ids for folder in ("work", "checks"))
    lines = split_lines(draft.files.get(LINES, b"").decode("utf-8-sig"))
    kept = [line for line in lines if line.strip() and json.loads(line)["id"] not in ids]
    draft.files = {path: data for path, data in draft.files.items() if not starts or not path.startswith(starts)}
    draft.files[LINES] = "".join(f"{line}\n" for line in kept).encode()
    draft.found = [one for one in draft.found if one.id not in ids]


def propose_session_tasks(library: Library, caller: Caller, draft: SessionDraft) -> SessionTaskSet:
    """Propose the task set, which waits in the inbox whatever the policy; nothing is proposed without a task."""
    identity = None
    if draft.found:
        reason = f"{len(draft.found)} tasks from {draft.sessions} sessions"
        files = {path: File(data) for path, data in draft.files.items()}
        identity = proposal_inbox.propose(library, caller, draft.ref, draft.base, files, reason)
    left_out = dict(draft.left_out.most_common())
    return SessionTaskSet(str(draft.ref), draft.sessions, draft.found, left_out, identity)


class LearnedFrom(EvolvableError):
    """A task would choose or test what was learned from its own session."""


def refuse_learned_sessions(library: Library, taskset: TaskSet, refs: Sequence[Ref]) -> None:
    """Raise LearnedFrom where a task of val or test is from a session that led to a proposal for these resources."""
    own = [task for task in taskset.tasks if task.split is not Split.TRAIN and task.source.startswith(SESSION_SOURCE)]
    if not own:
        return
    learned = {"-".join(one.split()) for one in sessions_behind_proposals(library, refs)}
    found = [task for task in own if task.source.removeprefix(SESSION_SOURCE) in learned]
    if found:
        named = ", ".join(task.id for task in found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
        raise LearnedFrom(
            f"{named} {'is' if len(found) == 1 else 'are'} in val or test and from sessions that led to proposals for"
            f" {', '.join(map(str, refs))}: what was learned from a session is not tested on it.",
            f'Write "split": "train" on {"it" if len(found) == 1 else "them"}.',
        )

"""Answer the hooks of clients, from the running server or, without one, from the command.

UserPromptSubmit gets the one or two skills that fit the prompt, usually none; a small file for each skill records the
offer, so that no process repeats it. PostToolUse notes which skill the client opened with its own tools, and imports
what its agent wrote into a watched folder as the agent's change. A payload is untrusted: a field that is no text is
empty.
"""

import json
import logging
import os
import re
import shlex
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evolvable_server.app import ListedFolders, make_caller, scopes_seen
from evolvable_server.auto_switch import read_switch
from evolvable_server.client_process import client_connection
from evolvable_server.config import Config, read_config
from evolvable_server.hooks.named_sessions import name_session
from evolvable_server.hooks.payload_forms import OPENCODE, context_answer
from evolvable_server.hooks.waiting_events import USED_TOOL, HookEvent, keep_event, waiting_events
from evolvable_server.person_config import registered_homes
from evolvable_store import Head, Identity, Principal, enqueue, file_name, format_time, read_regular, write_private
from evolvable_store.errors import EvolvableError, LibraryReadOnly, TryAgain
from evolvable_store.resource import Ref
from evolvable_store.storage import Binding, WatchedFolder
from evolvable_store.workingcopy import record_maker
from evolvable_tools import (
    AgentLocator,
    AuthorKind,
    Caller,
    Library,
    SkillLocator,
    agent_of_copy,
    author_words,
    split_marks,
)
from evolvable_tools.outcomes import COMMAND_TOOLS, read_files, simple_commands
from evolvable_tools.retrieval import FITS, SearchDependencies, Verdict
from evolvable_tools.sessions import SKILL_TOOL, SUBAGENT_TOOLS
from evolvable_tools.verbs import FoundSkills, find_skill, note_load, record_impressions

if TYPE_CHECKING:
    from evolvable_store.search import Match

MAX_TEXT = 200_000
"""Characters of one field that are looked at."""


_NAMES = tuple(field.name for field in fields(HookEvent))


def parse_event(payload: Mapping[str, Any]) -> HookEvent:
    """Return the event in a payload, whose tool's input may stand in `tool_input` or beside the rest."""
    given = payload.get("tool_input")
    said = {**(given if isinstance(given, Mapping) else {}), **payload}
    texts = {name: _text(said.get(name)) for name in _NAMES}
    texts["event"] = _text(payload.get("hook_event_name"))
    return HookEvent(**texts)


def _text(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        value = shlex.join(value)  # a command as a list of words
    # A client leaves a placeholder as it stands when it has nothing to put there.
    return value[:MAX_TEXT] if isinstance(value, str) and not value.startswith("${") else ""


DAYS = 7.0
"""Days after its last offer for which a session is remembered."""

NEWS = 0
"""In place of a skill, in the offers of a session: the line of automatic reviews. No resource has this number."""

SESSIONS, SKILLS = 200, 50
"""Sessions that are remembered, and skills that are offered to one session."""


class OfferLog:
    """What a library's sessions were offered. Being offered is no use."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "hooks" / "offered"

    def claim(self, session: str, resource: int, search_id: str) -> bool:
        """Return whether this skill may be offered to this session: True once, to one process.

        False too where nothing can be remembered, or the session was offered enough.
        """
        place = self._place(session)
        try:
            if not place.is_dir():
                self._clean_up()
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
            if sum(1 for _ in os.scandir(place)) >= SKILLS:
                return False
            with open(place / str(resource), "x", encoding="utf-8") as file, _unless_written(place / str(resource)):
                file.write(json.dumps({"search_id": search_id}))
                file.flush()
            return True
        except OSError:
            return False

    def begin_prompt(self, session: str, prompt_id: str) -> bool:
        """Return whether this prompt of a session is new: Qwen Code reports one again with each request for it.

        False too where that cannot be remembered, so that nothing is said twice.
        """
        place = self._place(session)
        try:
            if not place.is_dir():
                self._clean_up()
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
            last = place / "prompt"
            if last.is_file() and read_regular(last).decode("utf-8", "replace") == prompt_id:
                return False
            write_private(last, prompt_id)
            return True
        except (OSError, ValueError):
            return False

    def search_of(self, session: str, resource: int) -> str | None:
        """Return the search after which this skill was offered to this session, None when it was not."""
        try:
            said = json.loads(read_regular(self._place(session) / str(resource)))
        except (OSError, ValueError):
            return None
        search = said.get("search_id") if isinstance(said, dict) else None
        return search if isinstance(search, str) else None

    def _place(self, session: str) -> Path:
        return self._folder / file_name(session)

    def _clean_up(self) -> None:
        ages: dict[Path, float] = {}
        with suppress(FileNotFoundError):
            for entry in os.scandir(self._folder):
                with suppress(FileNotFoundError):
                    ages[Path(entry.path)] = entry.stat().st_mtime
        newest = sorted(ages, key=ages.__getitem__, reverse=True)
        since = time.time() - DAYS * 86_400
        for place in newest:
            if ages[place] < since or place in newest[SESSIONS - 1 :]:
                shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _unless_written(place: Path) -> Iterator[None]:
    """Remove a file that the body could not write whole: on a full disk, the skill was not offered."""
    try:
        yield
    except OSError:
        with suppress(OSError):
            place.unlink()
        raise


LIMIT = 600
"""Characters that a prompt gets at most."""

MOST = 2
"""Skills that are offered at once."""

MAX_TASK = 4_000
"""Characters of a prompt that are searched by; what is longer is mostly pasted."""


def suggest_skills(library: Library, caller: Caller, prompt: str, offered: OfferLog, means: SearchDependencies) -> str:
    """Return what a model shall be told of the skills that fit, in LIMIT characters at most; '' when none does.

    With a sure verdict that is the skill to use, else those that fit in a library of any size.
    Neither one that its session was offered before nor one that it has loaded is named. A caller without a session is
    told nothing, as nothing could be remembered.
    """
    task = prompt.strip()
    if caller.session is None or not task or task.startswith("/"):  # a command of the client
        return ""
    # A client shows what a hook offers beside every prompt: only what fits in a large library too.
    alone = replace(means, thinker=None, client_thinks=False, fits=FITS)
    found = find_skill(library, caller, task[:MAX_TASK], means=alone)
    fitting = found.matches[:1] if found.verdict is Verdict.SURE else found.fitting[:MOST]
    fresh = [match for match in fitting if _claimed(library, caller, match, found, offered)]
    return _said(fresh, found.search_id) if fresh else ""


def _claimed(library: Library, caller: Caller, match: "Match", found: FoundSkills, offered: OfferLog) -> bool:
    head = library.store.head_or_none(Ref.parse(match.ref))
    if head is None or caller.session is None or library.evidence.used_in(caller.session, [head.id]):
        return False
    if not offered.claim(caller.session, head.id, found.search_id):
        return False
    record_impressions(library, caller, found.search_id, [(head.id, match.version)])
    return True


def _said(matches: "list[Match]", search_id: str) -> str:
    before = "From the user's Evolvable library, for this task:\n"
    after = f"\nIf it fits, open it with load_skill (search_id {search_id}) before you start."
    notices = [f"; {author_words(one.author, one.by)}" if one.author != AuthorKind.YOU else "" for one in matches]
    names = [
        f"- {match.ref} ({match.confidence:.0%} sure{notice})" for match, notice in zip(matches, notices, strict=True)
    ]
    room = (LIMIT - len(before) - len(after) - sum(len(name) + 3 for name in names)) // len(matches)
    lines = [f"{name}: {_short(match.description, room)}" for name, match in zip(names, matches, strict=True)]
    return f"{before}{chr(10).join(lines)}{after}"[:LIMIT]


def _short(text: str, room: int) -> str:
    """Return a description as one line of so many characters at most, without what steers a terminal.

    Nor does it keep what begins and ends a tag: clients put what a hook says between tags of their own, and the
    author of a description must not end them and go on in the client's name. A description between marks keeps them.
    """
    begin, inner, end = split_marks(text)
    if begin:
        return f"{begin}{_short(inner, max(0, room - len(begin) - len(end)))}{end}"
    line = " ".join("".join(c if c.isprintable() and c not in "<>" else " " for c in text).split())
    return line if len(line) <= room else line[: max(0, room - 1)].rstrip() + "…"


MAX_LOADED_PATHS = 20
"""Files of one command that are looked up."""


def record_loads(library: Library, caller: Caller, event: HookEvent, offered: OfferLog) -> list[str]:
    """Note each skill that this use of a tool opened, once in a session; return their directories.

    A directory that no folder of the library holds is not ours, and nothing is noted of it. The start of an agent is
    noted as well; it has no directory here.
    """
    noted: list[str] = []
    if event.tool_name in SUBAGENT_TOOLS:
        _record_start(library, caller, event, event.subagent_type)
        return noted
    for binding in _opened(library, event):
        if binding.version is None or caller.session is None:
            continue
        _check_writable(library)
        search = offered.search_of(caller.session, binding.resource)
        if note_load(library, caller, binding.resource, binding.version, search_id=search):
            noted.append(binding.directory)
        if event.tool_name == SKILL_TOOL:
            _record_start(library, caller, event, agent_of_copy(library, binding))
    return noted


def _record_start(library: Library, caller: Caller, event: HookEvent, name: str) -> None:
    """Note the start of an agent of the library. name: by which the client started it, '' for none."""
    agent = AgentLocator(library, event.cwd).by_name(name) if name else None
    if agent is not None:
        _check_writable(library)
        note_load(library, caller, agent.id, agent.latest)


def _check_writable(library: Library) -> None:
    if library.store.read_only:
        raise LibraryReadOnly(f"{library.store.home} cannot be written.", "The hook's event waits until it can.")


def _opened(library: Library, event: HookEvent) -> list[Binding]:
    places = SkillLocator(library, event.cwd, Path.home())
    if event.tool_name in (SKILL_TOOL, "skill"):
        binding = places.by_name(event.skill)
        if binding is None and event.tool_name == "skill":
            binding = places.by_own_name(event.skill)
        return [binding] if binding is not None else []
    if event.tool_name in ("Read", "read_file", "view", "read"):
        paths = [event.file_path]
    elif event.tool_name in COMMAND_TOOLS:
        paths = read_files(simple_commands(event.command))
    else:
        return []
    documents = [path for path in paths if path.casefold().endswith("skill.md")]
    found = filter(None, map(places.by_path, documents[:MAX_LOADED_PATHS]))
    return [binding for binding, inside in found if inside.casefold() == "skill.md"]


TOOLS = (
    *("Write", "Edit", "MultiEdit", "NotebookEdit", "apply_patch"),
    *("write_file", "edit", "notebook_edit"),
    *("Create", "ApplyPatch", "create", "write"),
)
"""The tools of the clients that write a file."""

MAX_WRITTEN_PATHS = 50
"""Files of one patch that are looked at."""

LATE_SECONDS = 120.0
"""How long before the hook's word the server may have imported the file itself."""

_PATCHED = re.compile(r"^\*\*\* (?:Add File|Update File|Move to): (.+?)\s*$", re.MULTILINE)


def record_writes(library: Library, event: HookEvent, at: str | None = None) -> list[str]:
    """Import what this use of a tool wrote on behalf of the agent; return the directories it wrote in.

    at: when that was, by default now. What was saved since then is not imported: it may be somebody else's.
    """
    if event.tool_name not in TOOLS:
        return []
    paths = [event.file_path] if event.file_path else _PATCHED.findall(event.command)[:MAX_WRITTEN_PATHS]
    if at is not None:
        paths = [path for path in paths if _is_older(os.path.join(event.cwd, path), datetime.fromisoformat(at))]
    identity = Identity(Principal.AGENT, f"hook:{event.client[:40] or 'client'}")
    noted = []
    for folder in library.folders():
        inside = list(_inside(folder, paths, event.cwd))
        directories = library.working_copies.copy(folder).directories_at(inside) if inside else set()
        if directories:
            _check_writable(library)
            sync = library.working_copies.sync_as(folder, directories, identity)
            done = {taken.directory for taken in sync.taken} | {held.directory for held in sync.held}
            _attribute(library, folder, directories - done, identity, at or library.store.now())
            _note_own(library, folder, directories, event.session_id)
        noted += sorted(directories)
    return noted


def _inside(folder: WatchedFolder, paths: Iterable[str], cwd: str) -> Iterable[str]:
    for path in paths:
        if path and "\0" not in path and len(path) <= 4096 and (os.path.isabs(path) or cwd):
            real = Path(os.path.realpath(os.path.join(cwd, path)))
            if real != folder.path and real.is_relative_to(folder.path):
                yield real.relative_to(folder.path).as_posix()


def _is_older(path: str, at: datetime) -> bool:
    with suppress(OSError, ValueError):
        return os.stat(path).st_mtime <= at.timestamp() + 1  # the time is in whole seconds
    return False


def _attribute(library: Library, folder: WatchedFolder, directories: set[str], identity: Identity, at: str) -> None:
    """Say of versions that a server imported a moment before this time that the agent made them."""
    bindings = library.working_copies.bindings.of_directories(folder, directories)
    heads = library.store.backend.heads_by_id({binding.resource for binding in bindings.values()})
    for binding in bindings.values():
        head = heads.get(binding.resource)
        if head is None or head.version is None or not _is_fresh(library, head, at):
            continue
        record_maker(library.store, folder, binding.directory, head, identity, gate=library.gate, via="hook")


def _note_own(library: Library, folder: WatchedFolder, directories: set[str], session: str) -> None:
    """Keep that a session wrote these directories: it reads its own new text without marks."""
    if not session:
        return
    bindings = library.working_copies.bindings.of_directories(folder, directories).values()
    for authors in library.store.backend.attestations.newest_authors([one.resource for one in bindings]).values():
        library.note_made(session, authors.made.operation)


def _is_fresh(library: Library, head: Head, at: str) -> bool:
    made = library.store.operation(library.store.version(head).operation)
    if made.principal is not Principal.UNKNOWN or made.intent.via != "file":
        return False
    age = datetime.fromisoformat(at) - datetime.fromisoformat(made.at)
    return abs(age.total_seconds()) <= LATE_SECONDS


EMPTY_ANSWER = "{}"
"""The answer of a hook that has nothing to say, in both clients."""

log = logging.getLogger(__name__)


class HookDispatcher:
    """The hooks over one library."""

    def __init__(self, config: Config, library: Library, caller: Caller) -> None:
        self._config, self._library, self._caller = config, library, caller
        self._offered = OfferLog(config.home)

    def answer(self, payload: Mapping[str, Any]) -> str:
        """Return the JSON text that a client reads as the hook's output. Raise nothing: work goes on without it."""
        if not self._config.hooks:
            return EMPTY_ANSWER
        event = parse_event(payload)
        try:
            return self._answered(event)
        except TryAgain as error:
            log.warning("A hook waits: %s", error.text)
            keep_event(self._config.home, event, self._library.store.now())
            return EMPTY_ANSWER
        except EvolvableError as error:
            log.warning("A hook did nothing: %s", error.text)
            return EMPTY_ANSWER
        except Exception:
            log.exception("a hook failed")
            return EMPTY_ANSWER

    def _answered(self, event: HookEvent) -> str:
        caller = self._who(event)
        self._library.note_session(caller)
        if event.event == "UserPromptSubmit":
            if event.prompt_id and caller.session and not self._offered.begin_prompt(caller.session, event.prompt_id):
                return EMPTY_ANSWER
            text = suggest_skills(self._library, caller, event.prompt, self._offered, self._library.means)
            news = self._news(caller, event)
            told = f"\n{news}\nreview_inbox decides on lessons; ask the user first." if news else ""
            whole = (text + told).strip()
            return context_answer(event.client, event.event, whole, news) if whole else EMPTY_ANSWER
        if event.event == USED_TOOL:
            record_loads(self._library, caller, event, self._offered)
            record_writes(self._library, event)
            self._record_waiting()  # last: a prompt is not kept waiting, and this event shows that the library records
        elif event.event in ("Stop", "SessionEnd") and event.transcript_path and self._config.review != "off":
            enqueue(str(self._config.home), asdict(event))
        return EMPTY_ANSWER

    def _news(self, caller: Caller, event: HookEvent) -> str:
        """Return what automatic reviews have to tell the person, once in a session; '' where they are off."""
        if caller.session is None or not read_switch(self._config.home).covers(event.cwd):
            return ""
        from evolvable_server.auto_queue import review_news  # few switched automatic reviews on

        news = review_news(self._config, self._library)
        return news if news and self._offered.claim(caller.session, NEWS, "") else ""

    def _record_waiting(self) -> None:
        """Record the uses of tools that the library refused at first; what it refuses again waits on."""
        for waiting in waiting_events(self._config.home):
            event = parse_event({**waiting.payload, "hook_event_name": USED_TOOL})
            try:
                who = replace(self._who(event), connection=None)  # that client may be another one
                record_loads(self._library, who, event, self._offered)
                record_writes(self._library, event, waiting.at)
            except TryAgain as error:
                log.debug("a hook waits on: %s", error)
                return
            except Exception:
                log.exception("a hook that waited failed")
            waiting.remove()

    def _who(self, event: HookEvent) -> Caller:
        """Return the caller in the session and in the project that the event names."""
        caller = replace(self._caller, session=event.session_id[:200] or None, project=event.cwd or None)
        if not event.cwd:
            return caller
        return replace(caller, scopes=scopes_seen(self._config, self._library, Path(event.cwd)))


def answer_without_server(payload: Mapping[str, Any]) -> str:
    """Return what the client shall read, '' for nothing. Raise as Library.open: a library is not made here."""
    config = read_config()
    # Words alone: a person waits, and an embedder would have to be found first.
    means = SearchDependencies()
    listed = ListedFolders(config.home)
    try:
        with Library.open(config.home, registered=registered_homes, means=means, trusted_folders=listed) as library:
            who = make_caller(config, library, Identity(Principal.AGENT, "hook"))
            one = replace(who, session=None, connection=client_connection())
            if payload.get("client") == OPENCODE and payload.get("hook_event_name") == "UserPromptSubmit":
                name_session(config.home, one.connection, _text(payload.get("session_id")))
            answer = HookDispatcher(config, library, one).answer(payload)
    except TryAgain:  # it could not even be opened
        if config.hooks:
            keep_event(config.home, parse_event(payload), format_time(datetime.now(UTC)))
        raise
    return "" if answer == EMPTY_ANSWER else answer

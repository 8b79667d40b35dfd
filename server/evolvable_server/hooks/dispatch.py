"""Answer the hooks of clients, from the running server or, without one, from the command.

UserPromptSubmit gets what `skill_offers` finds for the prompt. PostToolUse notes which skill the
client opened with its own tools, and imports what its agent wrote into a watched folder as the
agent's change. A payload is untrusted: a field that is no text is empty.
"""

import logging
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evolvable_server.app import ListedFolders, make_caller, scopes_seen
from evolvable_server.auto_switch import read_switch
from evolvable_server.client_process import client_connection
from evolvable_server.config import Config, read_config
from evolvable_server.hooks.named_sessions import name_session
from evolvable_server.hooks.payload_forms import OPENCODE, context_answer
from evolvable_server.hooks.skill_offers import NEWS, OfferLog, suggest_skills
from evolvable_server.hooks.waiting_events import USED_TOOL, HookEvent, keep_event, waiting_events
from evolvable_server.person_config import registered_homes
from evolvable_store import Head, Identity, Principal, enqueue, format_time
from evolvable_store.errors import EvolvableError, LibraryReadOnly, TryAgain
from evolvable_store.storage import Binding, WatchedFolder
from evolvable_store.workingcopy import record_maker
from evolvable_tools import AgentLocator, Caller, Library, SkillLocator, agent_of_copy
from evolvable_tools.outcomes import COMMAND_TOOLS, read_files, simple_commands
from evolvable_tools.retrieval import SearchDependencies
from evolvable_tools.sessions import SKILL_TOOL, SUBAGENT_TOOLS
from evolvable_tools.verbs import note_load

MAX_TEXT = 200_000
"""Characters of one field that are looked at."""

_NAMES = tuple(field.name for field in fields(HookEvent))


def parse_event(payload: Mapping[str, Any]) -> HookEvent:
    """Return the event in a payload; the input of its tool may stand in `tool_input` or beside the
    other fields.
    """
    tool_input = payload.get("tool_input")
    # Fields of the payload count before an argument of the tool that has the same name.
    values = {**(tool_input if isinstance(tool_input, Mapping) else {}), **payload}
    texts = {name: _to_text(values.get(name)) for name in _NAMES}
    texts["event"] = _to_text(payload.get("hook_event_name"))
    return HookEvent(**texts)


def _to_text(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        value = shlex.join(value)  # a command as a list of words
    # A client leaves a placeholder as it stands when it has nothing to put there.
    return value[:MAX_TEXT] if isinstance(value, str) and not value.startswith("${") else ""


MAX_LOADED_PATHS = 20
"""Files of one command that are looked up."""


def record_loads(
    library: Library, caller: Caller, event: HookEvent, offered: OfferLog
) -> list[str]:
    """Note each skill that this use of a tool opened, once in a session; return their directories.

    A directory that no folder of the library holds is not ours, and nothing is noted of it. The
    start of an agent is noted as well; it has no directory here.
    """
    noted: list[str] = []
    if event.tool_name in SUBAGENT_TOOLS:
        _record_start(library, caller, event, event.subagent_type)
        return noted
    for binding in _find_opened_bindings(library, event):
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
    """Note the start of an agent of the library.

    name: by which the client started it, '' for none.
    """
    agent = AgentLocator(library, event.cwd).by_name(name) if name else None
    if agent is not None:
        _check_writable(library)
        note_load(library, caller, agent.id, agent.latest)


def _check_writable(library: Library) -> None:
    if library.store.read_only:
        raise LibraryReadOnly(
            f"{library.store.home} cannot be written.", "The hook's event waits until it can."
        )


def _find_opened_bindings(library: Library, event: HookEvent) -> list[Binding]:
    places = SkillLocator(library, event.cwd, Path.home())
    if event.tool_name in (SKILL_TOOL, "skill"):
        binding = places.by_name(event.skill)
        # Other clients than Claude Code may take the name that the skill's head has.
        if binding is None and event.tool_name == "skill":
            binding = places.by_own_name(event.skill)
        return [binding] if binding is not None else []
    if event.tool_name in ("Read", "read_file", "view", "read"):
        paths = [event.file_path]
    elif event.tool_name in COMMAND_TOOLS:
        paths = read_files(simple_commands(event.command))
    else:
        return []
    # Only the main file opens a skill.
    documents = [path for path in paths if path.casefold().endswith("skill.md")]
    bound_files = filter(None, map(places.by_path, documents[:MAX_LOADED_PATHS]))
    return [binding for binding, inside in bound_files if inside.casefold() == "skill.md"]


TOOLS = (
    *("Write", "Edit", "MultiEdit", "NotebookEdit", "apply_patch"),
    *("write_file", "edit", "notebook_edit"),
    *("Create", "ApplyPatch", "create", "write"),
)
"""The tools of the clients that write a file."""

MAX_WRITTEN_PATHS = 50
"""Files of one patch that are looked at."""

# Longer than a client takes from a write to the hook that tells of it.
LATE_SECONDS = 120.0
"""How long before the hook's word the server may have imported the file itself."""

# The headers of a patch for Codex's apply_patch.
_PATCHED = re.compile(r"^\*\*\* (?:Add File|Update File|Move to): (.+?)\s*$", re.MULTILINE)


def record_writes(library: Library, event: HookEvent, at: str | None = None) -> list[str]:
    """Import the files that this use of a tool wrote for the agent; return their directories.

    at: when that was, by default now. A file that was saved since then is not imported: another
    author may have written it.
    """
    if event.tool_name not in TOOLS:
        return []
    paths = [event.file_path] if event.file_path else _PATCHED.findall(event.command)
    paths = paths[:MAX_WRITTEN_PATHS]
    if at is not None:
        moment = datetime.fromisoformat(at)
        paths = [path for path in paths if _is_older(os.path.join(event.cwd, path), moment)]
    identity = Identity(Principal.AGENT, f"hook:{event.client[:40] or 'client'}")
    noted = []
    for folder in library.folders():
        inside = list(_find_inside(folder, paths, event.cwd))
        directories = set[str]()
        if inside:
            directories = library.working_copies.copy(folder).directories_at(inside)
        if directories:
            _check_writable(library)
            sync = library.working_copies.sync_as(folder, directories, identity)
            done = {resource.directory for resource in sync.taken}
            done |= {waiting.directory for waiting in sync.held}
            _attribute_versions(
                library, folder, directories - done, identity, at or library.store.now()
            )
            _note_own(library, folder, directories, event.session_id)
        noted += sorted(directories)
    return noted


def _find_inside(folder: WatchedFolder, paths: Iterable[str], cwd: str) -> Iterable[str]:
    for path in paths:
        # Linux takes no path of more than 4,096 bytes.
        if path and "\0" not in path and len(path) <= 4096 and (os.path.isabs(path) or cwd):
            # With links followed, because watched folders are noted without links.
            real = Path(os.path.realpath(os.path.join(cwd, path)))
            if real != folder.path and real.is_relative_to(folder.path):
                yield real.relative_to(folder.path).as_posix()


def _is_older(path: str, at: datetime) -> bool:
    with suppress(OSError, ValueError):
        return os.stat(path).st_mtime <= at.timestamp() + 1  # the time is in whole seconds
    return False


def _attribute_versions(
    library: Library, folder: WatchedFolder, directories: set[str], identity: Identity, at: str
) -> None:
    """Record the agent as the maker of versions that a server imported shortly before this time."""
    bindings = library.working_copies.bindings.of_directories(folder, directories)
    heads = library.store.backend.heads_by_id({binding.resource for binding in bindings.values()})
    for binding in bindings.values():
        head = heads.get(binding.resource)
        if head is None or head.version is None or not _is_fresh(library, head, at):
            continue
        record_maker(
            library.store, folder, binding.directory, head, identity, gate=library.gate, via="hook"
        )


def _note_own(library: Library, folder: WatchedFolder, directories: set[str], session: str) -> None:
    """Record that a session wrote these directories: it reads its own new text without marks."""
    if not session:
        return
    bindings = library.working_copies.bindings.of_directories(folder, directories).values()
    resources = [binding.resource for binding in bindings]
    for authors in library.store.backend.authorship.newest_authors(resources).values():
        library.note_made(session, authors.maker.operation)


def _is_fresh(library: Library, head: Head, at: str) -> bool:
    operation = library.store.operation(library.store.version(head).operation)
    # Only a version that names nobody: one that a person's command imported stays theirs.
    if operation.principal is not Principal.UNKNOWN or operation.intent.via != "file":
        return False
    age = datetime.fromisoformat(at) - datetime.fromisoformat(operation.at)
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
        """Return the JSON text that a client reads as the hook's output.

        Raise nothing: work goes on without it.
        """
        if not self._config.hooks:
            return EMPTY_ANSWER
        event = parse_event(payload)
        try:
            return self._answer_event(event)
        # The library is busy or cannot be written: the event is kept and recorded later.
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

    def _answer_event(self, event: HookEvent) -> str:
        caller = self._find_caller(event)
        self._library.note_session(caller)
        if event.event == "UserPromptSubmit":
            return self._answer_prompt(caller, event)
        if event.event == USED_TOOL:
            record_loads(self._library, caller, event, self._offered)
            record_writes(self._library, event)
            # Last: a prompt is not kept waiting, and this event shows that the library records.
            self._record_waiting()
        is_end = event.event in ("Stop", "SessionEnd")
        if is_end and event.transcript_path and self._config.review != "off":
            enqueue(str(self._config.home), asdict(event))
        return EMPTY_ANSWER

    def _answer_prompt(self, caller: Caller, event: HookEvent) -> str:
        """Return the skills that fit a prompt, and the news of automatic reviews."""
        if self._is_repeated(caller.session, event.prompt_id):
            return EMPTY_ANSWER
        text = suggest_skills(
            self._library, caller, event.prompt, self._offered, self._library.dependencies
        )
        news = self._read_news(caller, event)
        if news:
            text += f"\n{news}\nreview_inbox decides on lessons; ask the user first."
        text = text.strip()
        return context_answer(event.client, event.event, text, news) if text else EMPTY_ANSWER

    def _is_repeated(self, session: str | None, prompt_id: str) -> bool:
        # Qwen Code reports a prompt again with each request for it.
        if not session or not prompt_id:
            return False
        return not self._offered.begin_prompt(session, prompt_id)

    def _read_news(self, caller: Caller, event: HookEvent) -> str:
        """Return the news of automatic reviews, once in a session; '' where they are off."""
        if caller.session is None or not read_switch(self._config.home).covers(event.cwd):
            return ""
        from evolvable_server.auto_queue import review_news  # few switched automatic reviews on

        news = review_news(self._config, self._library)
        return news if news and self._offered.claim(caller.session, NEWS, "") else ""

    def _record_waiting(self) -> None:
        """Record the uses of tools that the library refused at first.

        Those that it refuses again go on waiting.
        """
        for waiting in waiting_events(self._config.home):
            event = parse_event({**waiting.payload, "hook_event_name": USED_TOOL})
            try:
                # That client may be another one.
                caller = replace(self._find_caller(event), connection=None)
                record_loads(self._library, caller, event, self._offered)
                record_writes(self._library, event, waiting.at)
            # The library still refuses, and would refuse the others.
            except TryAgain as error:
                log.debug("a hook waits on: %s", error)
                return
            except Exception:
                log.exception("a hook that waited failed")
            # After a failure too: an event that always fails must not come back without an end.
            waiting.remove()

    def _find_caller(self, event: HookEvent) -> Caller:
        """Return the caller in the session and in the project that the event names."""
        caller = replace(
            self._caller, session=event.session_id[:200] or None, project=event.cwd or None
        )
        if not event.cwd:
            return caller
        return replace(caller, scopes=scopes_seen(self._config, self._library, Path(event.cwd)))


def _start_reviews(config: Config, payload: Mapping[str, Any]) -> None:
    """Start the reviews that are due at a prompt in a project with automatic reviews.

    Some clients report no end of a session, and the next session may be too short for its server to
    start them.
    """
    if payload.get("hook_event_name") != "UserPromptSubmit":
        return
    if read_switch(config.home).covers(_to_text(payload.get("cwd"))):
        from evolvable_server.auto_queue import start_if_due  # few switched automatic reviews on

        with suppress(OSError):
            start_if_due(config)


def answer_without_server(payload: Mapping[str, Any]) -> str:
    """Return the answer for the client, '' for none.

    Raise as Library.open: a library is not made here.
    """
    config = read_config()
    # Words alone: a person waits, and an embedder would have to be found first.
    dependencies = SearchDependencies()
    listed_folders = ListedFolders(config.home)
    try:
        with Library.open(
            config.home,
            registered=registered_homes,
            dependencies=dependencies,
            trusted_folders=listed_folders,
        ) as library:
            caller = make_caller(config, library, Identity(Principal.AGENT, "hook"))
            client_caller = replace(caller, session=None, connection=client_connection())
            _start_reviews(config, payload)
            is_prompt = payload.get("hook_event_name") == "UserPromptSubmit"
            if is_prompt and payload.get("client") == OPENCODE:
                session = _to_text(payload.get("session_id"))
                name_session(config.home, client_caller.connection, session)
            answer = HookDispatcher(config, library, client_caller).answer(payload)
    except TryAgain:  # it could not even be opened
        if config.hooks:
            keep_event(config.home, parse_event(payload), format_time(datetime.now(UTC)))
        raise
    return "" if answer == EMPTY_ANSWER else answer

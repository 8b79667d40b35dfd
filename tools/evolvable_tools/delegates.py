"""Delegates: the agent that a version of a skill names, whether that is in force, and whom a client
starts for it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evolvable_store import (
    MAX_FILE,
    MAX_FRONTMATTER,
    Delegate,
    Document,
    Head,
    forked_agent,
    main_path,
    parse_document,
    read_regular,
    summarize,
)
from evolvable_store.errors import EvolvableError, InvalidRef
from evolvable_store.resource import Kind, Ref
from evolvable_store.storage import Binding
from evolvable_tools.authority import field_author
from evolvable_tools.authors import FileAuthor, version_authorship
from evolvable_tools.caller import JudgedLibrary

PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""A name of an agent that is safe in an instruction and in a head: nothing in it needs quotes."""

MAX_AGENTS = 5
"""Agents that a skill may name for its work."""


@dataclass(frozen=True, slots=True)
class NamedDelegate:
    """A delegate whose refs can be read.

    agent: of kind agent. others: agents that can be given the work as well.
    """

    agent: Ref
    terms: Delegate
    others: tuple[Ref, ...] = ()

    @property
    def agents(self) -> tuple[Ref, ...]:
        """All that it names."""
        return (self.agent, *self.others)


def parse_delegate(terms: Delegate | None) -> NamedDelegate | None:
    """Return the delegate with its refs; None without one, and where a ref names no agent."""
    if terms is None:
        return None
    # A person writes the refs, so a wrong one is no error here; `delegate_warnings` reports it.
    try:
        agents = [
            Ref.parse(text.strip(), Kind.AGENT) for text in terms.agent.split(",")[:MAX_AGENTS]
        ]
    except InvalidRef:
        return None
    # A ref that is named twice counts once; the first one is the preferred agent.
    first, *others = dict.fromkeys(agents)
    if any(agent.kind is not Kind.AGENT for agent in agents):
        return None
    return NamedDelegate(first, terms, tuple(others))


def delegate_of(library: JudgedLibrary, head: Head, version: int) -> NamedDelegate | None:
    """Return the delegate that a version of a skill names; None for another kind, and where its
    file cannot be read.
    """
    if head.kind is not Kind.SKILL:
        return None
    document = main_document(library, head, version)
    return parse_delegate(summarize(document).delegate) if document is not None else None


def delegate_in(text: str | None) -> NamedDelegate | None:
    """Return the delegate that the text of a SKILL.md names. Most name none, and are not parsed."""
    # Twice the limit of a head: the limit is in bytes, and a search of the whole file would find
    # the word in prose.
    if not text or "delegate" not in text[: 2 * MAX_FRONTMATTER]:
        return None
    return parse_delegate(summarize(parse_document(text.encode())).delegate)


def delegate_in_force(library: JudgedLibrary, skill: Head, version: int) -> bool:
    """Return whether the delegate that a version of a skill names may be given work."""
    return delegate_author(library, skill, version) is None


def delegate_author(library: JudgedLibrary, skill: Head, version: int) -> FileAuthor | None:
    """Return who changed the delegate that a version of a skill names, None where it is
    in force.
    """
    return field_author(library, skill, version, _read_delegate)


def _read_delegate(document: Document) -> Delegate | None:
    return summarize(document).delegate


def agent_to_start(library: JudgedLibrary, skill: Head, scopes: Sequence[str], folder: Path) -> str:
    """Return the name of the agent that Claude Code's Skill tool is to start for a skill, '' for
    none.

    That is the delegate in force of its newest version, where it lies beside the skills in the
    wanted version. The tool starts it every time and without the conversation. So a delegate for
    long tasks is not started this way, nor one that needs the earlier messages, nor one of several.
    folder: of the skills.
    """
    delegate = delegate_of(library, skill, skill.latest)
    if delegate is None or not _suits_tool(delegate):
        return ""
    agent, why = visible_agent(library, scopes, delegate.agent)
    if agent is None or why or not delegate_in_force(library, skill, skill.latest):
        return ""
    document = main_document(library, agent, delegate.agent.version or agent.latest)
    name = summarize(document).name if document is not None else ""
    if not PLAIN_NAME.fullmatch(name) or version_authorship(library, agent, agent.latest).main.why:
        return ""
    versions = _find_versions_beside(library, agent, folder)
    return name if versions and delegate.agent.version in (None, *versions) else ""


def _suits_tool(delegate: NamedDelegate) -> bool:
    """Return whether the Skill tool starts an agent as this delegate wants: always, for the task
    alone.
    """
    terms = delegate.terms
    return not delegate.others and terms.when == "always" and terms.input == "task"


def agent_of_copy(library: JudgedLibrary, binding: Binding) -> str:
    """Return the agent that Claude Code's Skill tool starts for the copy of a skill that lies
    there, '' for none.
    """
    folders = library.store.backend.bindings.folders()
    folder = next((candidate for candidate in folders if candidate.id == binding.folder), None)
    if folder is None:
        return ""
    try:
        main = read_regular(folder.path / binding.directory / "SKILL.md", MAX_FILE)
    except OSError:
        return ""
    return forked_agent(main)


def _find_versions_beside(library: JudgedLibrary, agent: Head, folder: Path) -> set[int]:
    """Return the versions of an agent that lie in the folder of agents beside a folder
    of skills.
    """
    bindings, beside = library.store.backend.bindings, folder.parent / "agents"
    agent_folders = [
        watched_folder
        for watched_folder in bindings.folders()
        if watched_folder.kind is Kind.AGENT and watched_folder.path == beside
    ]
    agent_bindings = (
        binding
        for place in agent_folders
        for binding in bindings.of_folder(place).values()
        if binding.resource == agent.id
    )
    return {binding.version for binding in agent_bindings if binding.version is not None}


def visible_agent(
    library: JudgedLibrary, scopes: Sequence[str], ref: Ref
) -> tuple[Head | None, str]:
    """Return the agent of a ref, and why a caller that sees these scopes cannot have it, '' where
    it can.
    """
    if ref.scope is not None and ref.scope not in scopes:
        return None, f"it is in the scope {ref.scope}, which is not seen here"
    head = living(library, ref.at(None), scopes)
    if head is None:
        return None, f"there is no {ref.at(None)}"
    if ref.version is not None and not 1 <= ref.version <= head.latest:
        return None, f"{head.ref} has no version {ref.version}"
    return head, ""


def living(library: JudgedLibrary, ref: Ref, scopes: Sequence[str]) -> Head | None:
    """Return the first resource of a name in these scopes, None where there is none or it was
    removed.
    """
    head = library.store.head_or_none(ref, scopes)
    return head if head is not None and head.version is not None else None


def main_document(library: JudgedLibrary, head: Head, version: int) -> Document | None:
    """Return the main file of a version, None where it cannot be read."""
    try:
        path = main_path(head.kind, head.name, library.store.manifest(head, version))
        return parse_document(library.store.file(head, path, version).data) if path else None
    except EvolvableError:
        return None

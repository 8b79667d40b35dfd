"""Delegation: the agent that a skill names for its work, whether it can be given the work, and what
an agent needs.

A skill delegates nothing if nobody whom the user trusts answers for it: its author would speak in
the server's words. An agent for which nobody answers is never started; its text is shown between
marks.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from evolvable_store import (
    DELEGATE_WORDS,
    Delegate,
    Document,
    Files,
    Head,
    parse_document,
    summarize,
)
from evolvable_store.errors import EvolvableError, InvalidRef, quote_text
from evolvable_store.resource import USER_SCOPE, Kind, Ref, check_name, main_file
from evolvable_tools.authority import in_force, out_of_force, short_ref
from evolvable_tools.authors import authorships, version_authorship
from evolvable_tools.caller import Caller
from evolvable_tools.client_locators import AgentLocator
from evolvable_tools.delegates import (
    PLAIN_NAME,
    NamedDelegate,
    delegate_author,
    delegate_in_force,
    delegate_of,
    living,
    main_document,
    parse_delegate,
    visible_agent,
)
from evolvable_tools.executor_choice import choose_delegate
from evolvable_tools.library import Library
from evolvable_tools.untrusted_text import enclose

MAX_SKILLS = 50
"""Skills of one agent's `skills` that are looked at."""


@dataclass(frozen=True, slots=True)
class DelegateStatus:
    """The agent that a skill names. version: that would do the work, None where there is none.

    available: whether it can be given the work. why: what prevents that, '' for nothing.
    """

    ref: str
    version: int | None
    available: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class Delegation:
    """A delegate that can be given the work of a skill. text: of its AGENT.md below the head.

    notice: why the agent's text stands between marks, '' where it does not. subagent: the name by
    which Claude Code starts it where the caller works. It is '' where this version is not checked
    out there, or nobody whom the user trusts answers for it.
    """

    agent: Head
    version: int
    text: str
    terms: Delegate
    notice: str = ""
    subagent: str = ""

    @property
    def ref(self) -> str:
        return f"{self.agent.ref}@{self.version}"

    @property
    def marked_text(self) -> str:
        """Its text for an agent: between marks where nobody whom the user trusts answers for it."""
        return (
            enclose(self.text, f"AGENT.md of {self.ref}", self.notice) if self.notice else self.text
        )


def delegate_status(
    library: Library,
    scopes: Sequence[str],
    delegate: NamedDelegate,
    skill: Head,
    version: int,
    task_type: str = "",
) -> DelegateStatus:
    """Return which agent a version of a skill names, for a caller that sees these scopes.

    task_type: of the work, by which one of several agents is chosen; '' where it is not known.
    """
    delegate = choose_delegate(library, scopes, delegate, skill, task_type)
    agent, why = visible_agent(library, scopes, delegate.agent)
    if agent is None:
        return DelegateStatus(str(delegate.agent), None, available=False, why=why)
    number = delegate.agent.version or agent.latest
    if (author := delegate_author(library, skill, version)) is not None:
        why = out_of_force(short_ref(skill), "delegate", author)
    return DelegateStatus(str(agent.ref), number, available=not why, why=why)


def find_delegation(
    library: Library, caller: Caller, head: Head, version: int, task_type: str = ""
) -> Delegation | None:
    """Return the delegation of a version of a skill that the user trusts; None where its agent
    cannot be given it.

    task_type: as for `delegate_status`.
    """
    named = delegate_of(library, head, version)
    if named is None:
        return None
    delegate = choose_delegate(library, caller.scopes, named, head, task_type)
    agent, why = visible_agent(library, caller.scopes, delegate.agent)
    if agent is None or why or not delegate_in_force(library, head, version):
        return None
    number = delegate.agent.version or agent.latest
    document = main_document(library, agent, number)
    if document is None:
        return None
    notice = version_authorship(library, agent, number, caller).main.why
    name = summarize(document).name
    # Claude Code starts agents from files, so the wanted version has to lie where the caller works.
    started = None
    if caller.project and not notice and PLAIN_NAME.fullmatch(name):
        started = AgentLocator(library, caller.project).by_name(name)
    is_checked_out = started is not None and (started.id, started.latest) == (agent.id, number)
    subagent = name if is_checked_out else ""
    return Delegation(agent, number, document.body.strip(), delegate.terms, notice, subagent)


def delegate_warnings(library: Library, ref: Ref, files: Files) -> list[str]:
    """Return what is wrong with whom a skill delegates to, or with the skills that an agent names:
    never an error.
    """
    main = files.get(main_file(ref.kind, ref.name))
    if main is None or ref.kind not in (Kind.SKILL, Kind.AGENT):
        return []
    document, scope = parse_document(main.data), ref.scope or USER_SCOPE
    if ref.kind is Kind.AGENT:
        missing = missing_skills(library, library.scopes_from(scope), document.fields)
        return [f"its skill {name} is not in the library" for name in missing]
    terms = summarize(document).delegate
    if terms is None:
        return []
    delegate = parse_delegate(terms)
    if delegate is None:
        return [f"its delegate {quote_text(terms.agent)} names no agent: write it as agent:NAME"]
    whys = {
        agent: visible_agent(library, library.scopes_from(scope), agent)[1]
        for agent in delegate.agents
    }
    missing = [f"its delegate {agent} does nothing: {why}" for agent, why in whys.items() if why]
    return [*missing, *_find_unknown_words(document)]


def missing_parts(library: Library) -> Iterator[tuple[Ref, list[str]]]:
    """Yield each skill whose delegate, and each agent of whose skills some, cannot be used, with
    every reason.
    """
    for kind in (Kind.SKILL, Kind.AGENT):
        for head in library.store.heads(kind):
            main = main_file(head.kind, head.name)
            try:
                files = {main: library.store.file(head, main)}
                warnings = delegate_warnings(library, head.ref.within(head.scope), files)
            except EvolvableError:
                continue
            if warnings:
                yield head.ref, warnings


def needed_by(library: Library, chosen: Iterable[Head]) -> tuple[list[Head], list[str]]:
    """Return resources with their parts of the same scope, and what of these is missing, in words.

    Parts are the delegates of skills, the skills of agents, the parts of those, and so on. Parts
    that nobody whom the user trusts answers for are not followed, and no such agent is added.
    """
    wanted: dict[int, Head] = {}
    missing: list[str] = []
    waiting = list(chosen)
    while waiting:
        head = waiting.pop(0)
        if head.id in wanted:
            continue
        wanted[head.id] = head
        document = main_document(library, head, head.latest)
        if document is None:
            continue
        # Parts that are out of force are another author's, who must not decide what is written into
        # a folder.
        if not in_force(library, head, head.latest, partial(_find_named_parts, head)):
            continue
        for ref in _find_named_parts(head, document):
            part = living(library, ref, (head.scope,))
            if part is None:
                missing.append(
                    f"{head.ref} names {ref}, which the scope {head.scope} does not have"
                )
                continue
            authorship = authorships(library, [part.id])[part.id]
            if not authorship.stands and authorship.kind != "you":
                missing.append(
                    f"{head.ref} names {part.ref}, which nobody whom you trust answers for: it is "
                    "not written"
                )
            else:
                waiting.append(part)
    return list(wanted.values()), missing


def _find_named_parts(head: Head, document: Document) -> list[Ref]:
    if head.kind is Kind.AGENT:
        return [Ref(Kind.SKILL, name) for name in agent_skills(document.fields)]
    delegate = parse_delegate(summarize(document).delegate) if head.kind is Kind.SKILL else None
    return [agent.at(None) for agent in delegate.agents] if delegate is not None else []


def find_missing_checkouts(library: Library) -> Iterator[tuple[Ref, list[str]]]:
    """Yield each skill in a folder of Claude Code whose delegate is in no folder of Claude Code's
    agents.
    """
    folders, bindings = library.working_copies.folders(), library.working_copies.bindings
    checked_out: dict[Kind, set[int]] = {Kind.SKILL: set(), Kind.AGENT: set()}
    for folder in folders:
        if folder.kind in checked_out and folder.path.parent.name == ".claude":
            resources = (
                binding.resource
                for binding in bindings.of_folder(folder).values()
                if binding.version is not None
            )
            checked_out[folder.kind].update(resources)
    for head in library.store.backend.heads_by_id(checked_out[Kind.SKILL]).values():
        delegate = delegate_of(library, head, head.latest)
        scopes = library.scopes_from(head.scope)
        refs = delegate.agents if delegate is not None else ()
        agents = [visible_agent(library, scopes, ref)[0] for ref in refs]
        warnings = [
            f"its delegate {agent.ref} is not checked out for Claude Code:"
            " `evolvable folders checkout claude-code` does it"
            for agent in agents
            if agent is not None and agent.id not in checked_out[Kind.AGENT]
        ]
        if warnings:
            yield head.ref, warnings


def missing_skills(
    library: Library, scopes: Sequence[str], fields: Mapping[str, object]
) -> list[str]:
    """Return the names of those skills of an agent that are not in these scopes."""
    return [
        name
        for name in agent_skills(fields)
        if living(library, Ref(Kind.SKILL, name), scopes) is None
    ]


def agent_skills(fields: Mapping[str, object]) -> list[str]:
    """Return the skills that an agent is started with, as its `skills` names them.

    Those of plugins are left out.
    """
    value = fields.get("skills")
    # A head may have a list, or one text with commas.
    texts: object = value.split(",") if isinstance(value, str) else value
    items = texts if isinstance(texts, list) else []
    names = [text.strip() for text in items if isinstance(text, str)]
    return [name for name in dict.fromkeys(names) if _is_name(name)][:MAX_SKILLS]


def _is_name(text: str) -> bool:
    try:
        return check_name(Kind.SKILL, text) == text
    except InvalidRef:
        return False


def _find_unknown_words(document: Document) -> list[str]:
    """Return what is said of a block whose words are none of the known ones."""
    metadata = document.fields.get("metadata")
    block = (metadata if isinstance(metadata, dict) else {}).get(
        "delegate", document.fields.get("delegate")
    )
    return [
        f"its delegate's {key} is not {' or '.join(words)}, and counts as {words[0]}"
        for key, words in DELEGATE_WORDS.items()
        if isinstance(block, dict) and block.get(key, words[0]) not in words
    ]


def start_text(delegation: Delegation, skill: str) -> str:
    """Return how Claude Code is told to have a skill's work done by its agent.

    skill: its ref with the version.
    """
    terms, name = delegation.terms, delegation.subagent
    inputs = "the task, the paths of the files that it needs"
    inputs += ", what was said so far that bears on it" if terms.input == "history" else ""
    back = "the paths of the files that it wrote"
    if terms.returns == "summary":
        back = "a summary of what it did"
    opening = f"Run this in the sub-agent `{name}`"
    if terms.when == "long":
        opening = f"For a long task, run this in the sub-agent `{name}`"
    return (
        f"{opening} by the Agent tool (subagent_type: {name}); do not carry it out yourself, unless"
        f" you are that sub-agent. Give it: {inputs}, and the words"
        f' "work by {skill}, which load_skill opens".'
        f" Have it return {back}."
    )


def inline_text(delegation: Delegation) -> str:
    """Return how a client without sub-agents of ours is told to work as the agent itself."""
    opening = "Work as this agent"
    if delegation.terms.when == "long":
        opening = "For a long task, work as this agent"
    return f"{opening} ({delegation.ref}):\n\n{delegation.marked_text}"

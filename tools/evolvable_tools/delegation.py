"""Delegation: the agent that a skill names for its work, and whether that agent can be given the work."""

from dataclasses import dataclass

from evolvable_store.errors import EvolvableError, InvalidRef
from evolvable_store.frontmatter import Delegate, parse_document, summarize
from evolvable_store.operation import Head
from evolvable_store.resource import Kind, Ref, main_file
from evolvable_tools.library import Library


@dataclass(frozen=True, slots=True)
class NamedDelegate:
    """A delegate whose ref can be read. agent: of kind agent."""

    agent: Ref
    terms: Delegate


def parse_delegate(terms: Delegate | None) -> NamedDelegate | None:
    """Return the delegate with its ref; None without one, and where the ref names no agent."""
    if terms is None:
        return None
    try:
        agent = Ref.parse(terms.agent, Kind.AGENT)
    except InvalidRef:
        return None
    return NamedDelegate(agent, terms) if agent.kind is Kind.AGENT else None


def delegate_of(library: Library, head: Head, version: int) -> NamedDelegate | None:
    """Return the delegate that a version of a skill names; None for another kind, and where its file cannot be read."""
    if head.kind is not Kind.SKILL:
        return None
    try:
        file = library.store.file(head, main_file(head.kind, head.name), version)
    except EvolvableError:
        return None
    return parse_delegate(summarize(parse_document(file.data)).delegate)

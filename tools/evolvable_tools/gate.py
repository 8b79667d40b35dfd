"""Which contents of watched folders are held: what a repository or an agent wrote and a person is to see first."""

import json
from collections.abc import Mapping

from evolvable_store.operation import Actor, Principal
from evolvable_store.resource import Kind
from evolvable_store.storage.attestations import Attestations, list_authors
from evolvable_store.store import Store
from evolvable_store.workingcopy.incoming import HoldDecision, IncomingDirectory
from evolvable_tools.policies import Policy
from evolvable_tools.scan.door import contents, kept
from evolvable_tools.scan.findings import Finding, Scan, Severity

MAX_SAID = 3
"""Findings that the reason of a held content names."""


class Gate:
    """The gate of one library."""

    def __init__(self, store: Store, policies: Mapping[Kind, Policy]) -> None:
        self._store, self._policies = store, policies

    def __call__(self, arrival: IncomingDirectory) -> HoldDecision | None:
        """Return why a content is held, None where it is served at once."""
        from evolvable_tools.scan.scanning import scan  # its patterns take a while to compile

        found = scan(contents(arrival.before) or None, contents(arrival.files), arrival.ref.kind)
        if arrival.identity.principal is Principal.AGENT:
            return self._of_agent(arrival, found)
        return self._of_repository(arrival, found)

    def _of_repository(self, arrival: IncomingDirectory, found: Scan) -> HoldDecision | None:
        if self._is_known(arrival):
            return None
        asked = [finding for finding in found.findings if finding.severity is not Severity.LOW]
        if asked:
            return HoldDecision(f"held: a repository brought it, and the scan found: {_said(asked)}", kept(found))
        if self._has_trusted_head(arrival):
            return HoldDecision("held: a repository brought a change of a resource that you trust", kept(found))
        return None

    def _of_agent(self, arrival: IncomingDirectory, found: Scan) -> HoldDecision | None:
        asked = [finding for finding in found.findings if finding.severity is not Severity.LOW]
        if asked:
            return HoldDecision(f"held: an agent wrote the file, and the scan found: {_said(asked)}", kept(found))
        if arrival.ref.kind is Kind.MEMORY and self._policies.get(Kind.MEMORY, Policy.ASK) is not Policy.AUTO:
            return HoldDecision("held: an agent wrote the file, and memories wait for a person", kept(found))
        return None

    def _has_trusted_head(self, arrival: IncomingDirectory) -> bool:
        head = arrival.head
        if head is None or head.ref != arrival.ref or head.version is None:
            return False
        made = list_authors(self._store.backend, [head.id]).get(head.id, [])
        if any((one.principal or _implied(one.actor)) is Principal.PERSON for one in made):
            return True
        return any(one.tree == head.tree for one in Attestations(self._store.backend).of([head.id]))

    def _is_known(self, arrival: IncomingDirectory) -> bool:
        """Return whether a person vouches for this very content already."""
        head = arrival.head
        if head is None or head.ref != arrival.ref:
            return False
        from evolvable_store.objects import make_manifest

        tree = make_manifest(arrival.files).tree
        return any(one.tree == tree for one in Attestations(self._store.backend).of([head.id]))


def _implied(actor: Actor) -> Principal:
    return Principal.PERSON if actor is Actor.HUMAN else Principal.AGENT


def _said(findings: list[Finding]) -> str:
    rules = dict.fromkeys(f"{finding.why} ({finding.path})" for finding in findings)
    more = f", and {len(rules) - MAX_SAID} more" if len(rules) > MAX_SAID else ""
    return json.dumps("; ".join(list(rules)[:MAX_SAID]) + more, ensure_ascii=False)[1:-1]

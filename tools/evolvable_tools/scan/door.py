"""The door that every write by anything but a person goes through."""

import json
from collections.abc import Mapping
from dataclasses import asdict

from evolvable_store.errors import Unsafe
from evolvable_store.objects import Files
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_tools.scan.findings import Capability, CapabilityDiff, Finding, Scan, Severity

NOTHING = Scan((), CapabilityDiff())


def looked_at(ref: Ref, before: Files, after: Files, actor: Actor) -> Scan:
    """Returns what a change by `actor` brings. A removal (no files) brings nothing.

    Raises Unsafe for what is refused, unless a person makes the change.
    """
    if not after:
        return NOTHING
    from evolvable_tools.scan.scanning import scan  # its patterns take a while to compile; no server waits for them

    found = scan(contents(before) or None, contents(after), ref.kind)
    if found.blocks and actor is not Actor.HUMAN:
        raise Unsafe(str(ref), [str(one) for one in found.findings if one.severity is Severity.HIGH])
    return found


def contents(files: Files) -> Mapping[str, bytes]:
    """Returns the bytes of each file."""
    return {path: file.data for path, file in files.items()}


def told(found: Scan) -> list[str]:
    """Returns a line for each finding that is more than shown."""
    return [f"scan: {one}" for one in found.findings if one.severity is not Severity.LOW]


def kept(found: Scan) -> str | None:
    """Returns a scan as it is stored with a proposal, None when there is nothing to say."""
    if found == NOTHING:
        return None
    return json.dumps(asdict(found))


def stored(text: str | None) -> Scan:
    """Returns the scan that `kept` wrote."""
    if text is None:
        return NOTHING
    fields = json.loads(text)
    findings = (Finding(**{**one, "severity": Severity(one["severity"])}) for one in fields["findings"])
    added, removed = (tuple(Capability(**one) for one in fields["capabilities"][way]) for way in ("added", "removed"))
    return Scan(tuple(findings), CapabilityDiff(added, removed))

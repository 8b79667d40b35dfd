"""Approvals: which changes go live at once, and which wait for a person.

It decides by kind, by the effect of a change, and by the author of the work that it replaces.
`ContentGate` decides the same for contents of watched folders.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from enum import StrEnum

from evolvable_store import (
    Actor,
    Files,
    Head,
    Operation,
    Principal,
    Store,
    make_manifest,
    read_pull,
)
from evolvable_store.errors import InvalidArgument, Refused, Unsafe
from evolvable_store.resource import Kind, Ref
from evolvable_store.workingcopy import HoldDecision, IncomingDirectory
from evolvable_tools.caller import ApprovalLevel, Caller, JudgedLibrary
from evolvable_tools.name_check import NameIndex
from evolvable_tools.scan import (
    Capability,
    CapabilityDiff,
    Finding,
    FindingSeverity,
    Scan,
    order_findings,
)
from evolvable_tools.untrusted_text import quoted_excerpt

MAX_REMOVED = 5
"""Resources of its own making that an agent may take away in one session before the rest waits.

A person takes back as many in one step without the passphrase of a lock.
"""

SEARCHED = 10_000
"""Operations of a session that are looked at."""

SOUL = "SOUL"
"""The memory that is a person's alone."""


class ApprovalPolicy(StrEnum):
    """How proposals of one kind are treated."""

    ASK = "ask"
    """They wait for a person."""

    AUTO = "auto"
    """They are made at once, unless the scan asks for a person. Of memory only."""

    OFF = "off"
    """There are none."""


def parse_policies(text: str) -> dict[Kind, ApprovalPolicy]:
    """Return the policies that a setting says, such as `memory=auto,agent=off`.

    Raises InvalidArgument.
    """
    policies: dict[Kind, ApprovalPolicy] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        try:
            kind, policy = Kind(name.strip()), ApprovalPolicy(value.strip())
        except ValueError:
            hint = (
                f"Write KIND=POLICY: one of {', '.join(Kind)}, and one of "
                f"{', '.join(ApprovalPolicy)}."
            )
            raise InvalidArgument(f"{part[:40]!r} is no policy.", hint) from None
        if policy is ApprovalPolicy.AUTO and kind is not Kind.MEMORY:
            raise InvalidArgument(
                f"{kind}s are not changed without asking.", "auto is for memory alone."
            )
        policies[kind] = policy
    return policies


def stricter_policies(
    floor: Mapping[Kind, ApprovalPolicy], requested: Mapping[Kind, ApprovalPolicy]
) -> dict[Kind, ApprovalPolicy]:
    """Return of each kind the stricter of two policies.

    Where the floor says nothing, a person is asked.
    """
    # From the least strict policy to the strictest.
    order = (ApprovalPolicy.AUTO, ApprovalPolicy.ASK, ApprovalPolicy.OFF)
    pairs = {
        kind: (floor.get(kind, ApprovalPolicy.ASK), requested.get(kind))
        for kind in dict.fromkeys([*floor, *requested])
    }
    return {kind: max(low, high or low, key=order.index) for kind, (low, high) in pairs.items()}


def needs_person(policies: Mapping[Kind, ApprovalPolicy], ref: Ref, actor: Actor) -> bool:
    """Return whether a change of this resource by `actor` is only proposed, because it is a memory.

    Raises Refused for SOUL, and where changes of memories by callers other than a person are off.
    """
    if ref.kind is not Kind.MEMORY or actor is Actor.HUMAN:
        return False
    if ref.name == SOUL:
        raise Refused(
            f"{ref} is written by a person alone.",
            "Tell the user what you would change there, and go on without it.",
        )
    policy = policies.get(Kind.MEMORY, ApprovalPolicy.ASK)
    if policy is ApprovalPolicy.OFF:
        raise Refused(
            "Memories are changed by a person alone here (policy memory=off).", "Go on without it."
        )
    return policy is ApprovalPolicy.ASK


def change_waits(library: JudgedLibrary, caller: Caller, head: Head | None) -> bool:
    """Return whether a change of this resource by the caller waits, whatever it holds.

    head: None for a new one.
    """
    if caller.actor is not Actor.AGENT or library.level is ApprovalLevel.OFF:
        return False
    return library.level is ApprovalLevel.ALL or (
        head is not None and head.version is not None and head.frozen
    )


def frozen_section_waits(
    library: JudgedLibrary, caller: Caller, before: Files, after: Files
) -> bool:
    """Return whether the caller's change waits because it touches a section that is marked as
    frozen.
    """
    # Level `off` holds back nothing by its subject; findings of the scan still hold a change.
    if caller.actor is not Actor.AGENT or library.level is ApprovalLevel.OFF:
        return False
    return touches_frozen_section(before, after)


def tainted_change_waits(
    library: JudgedLibrary, caller: Caller, before: Files, after: Files, found: Scan
) -> bool:
    """Return whether an agent's change waits because its session was served the text of a stranger.

    It goes live where the scan finds nothing above low, and where it adds no host, command or file.
    """
    if caller.actor is not Actor.AGENT or not library.is_tainted(caller):
        return False
    if found.asks or found.capabilities.added or any(path not in before for path in after):
        return True
    return not _find_hosts(after) <= _find_hosts(before)


# Any scheme counts: a client may open addresses of its own ones. Each run of the characters of a
# scheme is tried once, from its beginning: tried from every letter, a long line without an address
# takes time with the square of its length.
_HOST = re.compile(
    rb"(?<![a-z0-9+.-])[0-9+.-]*+[a-z][a-z0-9+.-]*+://([^/\s\"'`<>()\[\]]+)", re.IGNORECASE
)


def _find_hosts(files: Files) -> set[bytes]:
    """Return the hosts of the addresses in these files."""
    return {host.lower() for file in files.values() for host in _HOST.findall(file.data)}


# Between the two stands white space and, where the comment lies in a quotation over several lines,
# the marks of that.
_MAY_BE_FROZEN = re.compile(rb"<!--[^<]*frozen")


def touches_frozen_section(before: Files, after: Files) -> bool:
    """Return whether a change touches a section that is marked as frozen."""
    changed = (
        file.data
        for path, file in before.items()
        if path.endswith(".md") and after.get(path) != file
    )
    # The pattern over bytes costs far less than parsing each changed document.
    if not any(map(_MAY_BE_FROZEN.search, changed)):
        return False
    # Late: 20 ms, and few files have the mark.
    from evolvable_tools.markdown_sections import changed_frozen_sections

    return bool(changed_frozen_sections(before, after))


def edit_waits(
    library: JudgedLibrary,
    caller: Caller,
    head: Head | None,
    before: Files,
    after: Files,
    found: Scan,
) -> bool:
    """Return whether an edit is a person's to decide, whatever it says: by its subject, its place,
    or what was read.
    """
    return (
        change_waits(library, caller, head)
        or frozen_section_waits(library, caller, before, after)
        or tainted_change_waits(library, caller, before, after, found)
    )


def removal_waits(library: JudgedLibrary, caller: Caller, head: Head) -> bool:
    """Return whether the caller's removal of this resource waits."""
    if caller.actor is not Actor.AGENT or library.level is ApprovalLevel.OFF:
        return False
    if change_waits(library, caller, head):
        return True
    # All who ever made a version: a resource is the agent's own only if nobody else worked on it.
    made_by = {change.operation for change in library.store.backend.changes_to(head.id, 0)}
    if not is_own(caller, map(library.store.operation, made_by)):
        return True
    return _takes_too_many(library, caller, {head.ref})


def undo_waits(
    library: JudgedLibrary, caller: Caller, undid: Iterable[int], refs: Iterable[Ref]
) -> bool:
    """Return whether taking these operations back waits.

    refs: the resources that it would change.
    """
    if caller.actor is not Actor.AGENT or library.level is ApprovalLevel.OFF:
        return False
    if library.level is ApprovalLevel.ALL:
        return True
    if not is_own(caller, map(library.store.operation, undid)):
        return True
    return _takes_too_many(library, caller, set(refs))


def is_own(caller: Caller, operations: Iterable[Operation]) -> bool:
    """Return whether the caller made all of these: an agent in the session that it calls in, a
    script by its token.
    """
    identity, session = caller.identity, caller.session
    is_script = identity.principal is Principal.SCRIPT
    # An agent without a session cannot be distinguished from another one, so nothing is its own.
    if not is_script and (identity.principal is not Principal.AGENT or session is None):
        return False
    return all(
        (operation.principal, operation.intent.via) == (identity.principal, identity.via)
        and (is_script or operation.session == session)
        for operation in operations
    )


def _takes_too_many(library: JudgedLibrary, caller: Caller, refs: set[Ref]) -> bool:
    """Return whether the session would have taken away or back more resources than an agent may."""
    own_operations = [
        operation
        for operation in library.store.operations(SEARCHED, caller.session)
        if is_own(caller, [operation])
    ]
    undoing = [operation.id for operation in own_operations if operation.intent.undoes]
    changes = library.store.backend.changes_of([operation.id for operation in own_operations])
    gone = {change.ref for change in changes if change.after is None or change.operation in undoing}
    return len(gone | refs) > MAX_REMOVED


NOTHING = Scan((), CapabilityDiff())


def check_change(ref: Ref, before: Files, after: Files, actor: Actor) -> Scan:
    """Return what a change by `actor` brings. A removal (no files) brings nothing.

    Raises Unsafe for what is refused, unless a person makes the change.
    """
    if not after:
        return NOTHING
    found = _scan_change(before, after, ref)
    if found.blocks and actor is not Actor.HUMAN:
        high = [item for item in found.findings if item.severity is FindingSeverity.HIGH]
        raise Unsafe(str(ref), list(map(str, high)))
    return found


def check_arrival(files: Files, kind: Kind) -> Scan:
    """Return what the scan finds in a resource that is not in the library yet."""
    # The scan needs the kind alone.
    return _scan_change({}, files, Ref(kind, "name"))


MOST_CACHED = 1_000
"""New contents whose findings a process keeps: `init` shows what it found, and imports after the
answer.
"""

_cached_scans: dict[tuple[Kind, str], Scan] = {}


def _scan_change(before: Files, after: Files, ref: Ref) -> Scan:
    from evolvable_tools.scan import scan  # late: 200 ms, most of them to compile patterns

    if before:
        return scan(file_bytes(before), file_bytes(after), ref.kind)
    # Equal files have an equal tree, whatever the resource is called.
    key = (ref.kind, make_manifest(after).tree)
    if key not in _cached_scans:
        # Emptied as a whole: no order of use is kept.
        if len(_cached_scans) >= MOST_CACHED:
            _cached_scans.clear()
        _cached_scans[key] = scan(None, file_bytes(after), ref.kind)
    return _cached_scans[key]


def add_left_out(found: Scan, files: Files, left_out: Iterable[str]) -> Scan:
    """Return what a scan found, and which texts name files that belong to no version.

    left_out: their paths.
    """
    from evolvable_tools.scan import find_left_out  # late, as the scanner

    left_out_findings = find_left_out(file_bytes(files), left_out)
    return replace(found, findings=order_findings([*found.findings, *left_out_findings]))


def file_bytes(files: Files) -> Mapping[str, bytes]:
    """Return the bytes of each file."""
    return {path: file.data for path, file in files.items()}


def finding_messages(found: Scan, *, quoted: bool = False) -> list[str]:
    """Return a line for each finding that is more than shown.

    quoted: for an agent, with marked excerpts.
    """
    findings = [
        finding for finding in found.findings if finding.severity is not FindingSeverity.LOW
    ]
    if quoted:
        findings = list(map(_quote_excerpt, findings))
    return [f"scan: {finding}" for finding in findings]


def _quote_excerpt(finding: Finding) -> Finding:
    """Return a finding whose excerpt, where it has one, stands between marks."""
    if not finding.excerpt:
        return finding
    return replace(finding, excerpt=quoted_excerpt(finding.excerpt))


def dump_scan(found: Scan) -> str | None:
    """Return a scan as it is stored with a proposal, None when there is nothing to say."""
    return None if found == NOTHING else json.dumps(asdict(found))


def load_scan(text: str | None) -> Scan:
    """Return the scan that `dump_scan` wrote."""
    if text is None:
        return NOTHING
    fields = json.loads(text)
    findings = (
        Finding(**{**row, "severity": FindingSeverity(row["severity"])})
        for row in fields["findings"]
    )
    added, removed = (
        tuple(Capability(**row) for row in fields["capabilities"][way])
        for way in ("added", "removed")
    )
    return Scan(tuple(findings), CapabilityDiff(added, removed))


MAX_QUOTED = 3
"""Findings that the reason of a held content names."""


UNSEEN_FOLDER = "init --yes"
"""The `via` of an approval of a folder that was given before its content was shown."""

_BROUGHT_BY = {
    Principal.AGENT: "an agent wrote the file",
    Principal.IMPORT: "nobody said yes to its folder",
    Principal.PERSON: "it came with its folder",
    Principal.UNKNOWN: "nobody knows who wrote it",
}


STEALS = frozenset(
    (
        "command.steal",
        "command.steal-environment",
        "command.decode-and-run",
        "command.reverse-shell",
        "command.messenger",
        "instruction.leak-image",
        "program.sends-files",
        "wording.steal",
        "wording.conceal",
        "hidden.comment",
        "hidden.zero-width",
        "hidden.direction",
        "hidden.spaces",
    )
)
"""Rules on what steals, sends away or conceals.

A save in the person's own folder that adds such a finding is held.
"""


def is_dangerous(finding: Finding) -> bool:
    """Return whether a finding needs an approval of its own in what a person imports or saves.

    A secret needs none: it is imported, and the person is warned of it until it is dealt with.
    """
    return finding.severity is FindingSeverity.HIGH and not finding.rule.startswith("secret.")


def _decide_save(found: Scan) -> HoldDecision | None:
    """Return why a save in a folder of the person's own is held, None if it is served at once."""
    holding = [
        finding for finding in found.findings if finding.rule in STEALS or is_dangerous(finding)
    ]
    if not holding:
        return None
    return HoldDecision(
        f"held: a file was saved in your folder, and the scan found: {_quote_reasons(holding)}",
        dump_scan(found),
    )


class ContentGate:
    """The gate of one library."""

    def __init__(self, store: Store, policies: Mapping[Kind, ApprovalPolicy]) -> None:
        self._store, self._policies, self._names = store, policies, NameIndex(store)

    def __call__(self, arrival: IncomingDirectory) -> HoldDecision | None:
        """Return why a content is held, None where it is served at once."""
        found = _scan_change(arrival.before, arrival.files, arrival.ref)
        # Nobody else claims the file: the person saved it in a folder of their own.
        if arrival.identity.principal is Principal.UNKNOWN and not arrival.unclaimed_elsewhere:
            return _decide_save(found)
        if not arrival.before:
            found = self._names.add_to(found, arrival.ref)
        if arrival.left_out and arrival.identity.principal is not Principal.AGENT:
            found = add_left_out(found, arrival.files, arrival.left_out)
        holding = [
            finding for finding in found.findings if finding.severity is not FindingSeverity.LOW
        ]
        why = ""
        by_agent = arrival.identity.principal is Principal.AGENT
        is_followed_pull = read_pull(arrival.identity) is not None
        if not by_agent and not arrival.before and not is_followed_pull:
            # A repository's new resource grants nothing before a person trusts it, whatever its
            # head names.
            holding = [finding for finding in holding if not finding.rule.startswith("front.")]
        # A person vouched for this very content before; an agent's file waits all the same.
        if not by_agent and self._is_vouched_for(arrival):
            return None
        if arrival.identity.principal is Principal.PERSON:
            # A secret is imported with a warning (`is_dangerous`).
            holding = [finding for finding in holding if not finding.rule.startswith("secret.")]
            # A yes to a whole folder is none to what is dangerous in it.
            if arrival.identity.via != UNSEEN_FOLDER:
                holding = list(filter(is_dangerous, holding))
        if holding:
            bringer = _BROUGHT_BY.get(arrival.identity.principal, "a repository brought it")
            bringer = "a plugin brought it" if arrival.folder.is_plugins else bringer
            why = f"{bringer}, and the scan found: {_quote_reasons(holding)}"
        elif by_agent and arrival.ref.kind is Kind.MEMORY and not self._memories_are_auto:
            why = "an agent wrote the file, and memories wait for a person"
        elif by_agent and touches_frozen_section(arrival.before, arrival.files):
            why = "an agent wrote the file, and it changes a frozen section"
        elif not is_followed_pull and self._changes_trusted(arrival):
            why = "a repository brought a change of a resource that you trust"
        return HoldDecision(f"held: {why}", dump_scan(found)) if why else None

    def _changes_trusted(self, arrival: IncomingDirectory) -> bool:
        """Return whether a repository changes a resource that the person trusts."""
        is_repository = arrival.identity.principal is Principal.REPOSITORY
        return is_repository and self._has_trusted_head(arrival)

    @property
    def _memories_are_auto(self) -> bool:
        return self._policies.get(Kind.MEMORY) is ApprovalPolicy.AUTO

    def _has_trusted_head(self, arrival: IncomingDirectory) -> bool:
        head = arrival.head
        if head is None or head.ref != arrival.ref or head.version is None:
            return False
        authors = self._store.backend.authorship.list_authors([head.id]).get(head.id, [])
        # A save on disk counts as the person's own.
        own = (Principal.PERSON, Principal.UNKNOWN)
        if any(author.principal in own for author in authors):
            return True
        return any(
            attestation.tree == head.tree
            for attestation in self._store.backend.authorship.attestations_of([head.id])
        )

    def _is_vouched_for(self, arrival: IncomingDirectory) -> bool:
        """Return whether a person vouches for this very content already."""
        head = arrival.head
        if head is None or head.ref != arrival.ref:
            return False
        tree = make_manifest(arrival.files).tree
        return any(
            attestation.tree == tree
            for attestation in self._store.backend.authorship.attestations_of([head.id])
        )


def _quote_reasons(findings: list[Finding]) -> str:
    # A finding about the whole resource names no file.
    reasons = dict.fromkeys(
        f"{finding.why} ({finding.path})" if finding.path else finding.why for finding in findings
    )
    more = f", and {len(reasons) - MAX_QUOTED} more" if len(reasons) > MAX_QUOTED else ""
    return json.dumps("; ".join(list(reasons)[:MAX_QUOTED]) + more, ensure_ascii=False)[1:-1]

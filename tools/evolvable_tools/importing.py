"""The verbs that take resources in from elsewhere, each after a scan that may have a person look at it first."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evolvable_store import bundle
from evolvable_store.bundle.import_ import ImportReport
from evolvable_store.errors import InvalidResource, Refused, Unsafe
from evolvable_store.objects import Files, make_manifest
from evolvable_store.operation import Actor, Principal
from evolvable_store.resource import Ref
from evolvable_tools import inbox
from evolvable_tools.library import Caller, Library
from evolvable_tools.scan.door import looked_at, told
from evolvable_tools.scan.findings import Finding, Scan, Severity


@dataclass(frozen=True, slots=True)
class TakenIn:
    """What became of an import. proposals: proposal_id -> ref, what waits for a person. warnings: what a scan found."""

    imported: ImportReport
    proposals: dict[int, Ref] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Coming:
    """One resource that an import would bring.

    base: the version here that it would replace, 0 for a new resource. size: bytes of all files. findings: of the scan,
    the worst first. capabilities: what it gains the means to do.
    """

    ref: str
    base: int
    files: int
    size: int
    findings: list[Finding]
    capabilities: list[str]

    @property
    def asks(self) -> bool:
        """Whether the scan found something that a person is asked about."""
        return any(finding.severity is not Severity.LOW for finding in self.findings)


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's yes to an import. shown: the base and the tree of each resource that was shown; None: not asked."""

    shown: Mapping[Ref, tuple[int, str]] | None = None


@dataclass(frozen=True)
class Preview:
    """What an import would do. coming: what a person is asked about, with findings first. refused: as in Imported."""

    coming: list[Coming]
    refused: tuple[tuple[str, tuple[str, ...]], ...]
    answer: Answer
    """The answer of a person who says yes to exactly this."""


@dataclass(slots=True)
class _Looking:
    """A look at each resource.

    accepted: a person answers for all of it, so nothing is kept out. waits: nobody but a person brought it, so all of
    it waits for one. answer: of a person who was asked; only findings of high severity keep something out.
    """

    library: Library
    accepted: bool
    waits: bool = False
    answer: Answer | None = None
    seen: dict[Ref, tuple[int, Files, Scan]] = field(default_factory=dict)

    def hold(self, ref: Ref, base: int, files: Files) -> bool:
        """Returns whether a resource is taken in at once. Raises InvalidResource for what is refused."""
        found = self._found(ref, base, files)
        self.seen[ref] = (base, files, found)
        if self.answer is not None:
            self._check_shown(ref, base, files)
            return True
        return not self.waits and (self.accepted or not found.asks)

    def refuse(self, ref: Ref, base: int, files: Files) -> bool:
        """Returns True. Raises InvalidResource for what is refused, and for what a person is to see first."""
        if not self.hold(ref, base, files):
            look = "look at it, then pass --accept to answer for all that this archive holds"
            raise InvalidResource(str(ref), [*told(self.seen[ref][2]), look])
        return True

    def _check_shown(self, ref: Ref, base: int, files: Files) -> None:
        shown = self.answer.shown if self.answer is not None else None
        if shown is not None and shown.get(ref) != (base, make_manifest(files).tree):
            raise InvalidResource(str(ref), ["it changed after it was shown; import it again"])

    def _found(self, ref: Ref, base: int, files: Files) -> Scan:
        head = self.library.store.head_or_none(ref) if base else None
        before = self.library.store.files(head, base) if head else {}
        try:
            return looked_at(ref, before, files, Actor.HUMAN if self.accepted else Actor.IMPORT)
        except Unsafe as error:
            raise InvalidResource(str(ref), [f"scan: {finding}" for finding in error.findings]) from error


def preview(library: Library, source: Path, form: str, **options: Any) -> Preview:
    """Return what an import of `source` would do, after a scan; nothing changes.

    form: json, zip or folders. options, errors: as in the function of evolvable_store.bundle for that form.
    """
    looking = _Looking(library, accepted=False, waits=True)

    def look(ref: Ref, base: int, files: Files) -> bool:
        looking.hold(ref, base, files)
        return form == "json"

    if form == "json":
        would = bundle.import_json(library.store, source, look=look, dry_run=True)
        refs = (*would.added, *would.updated)
    else:
        read = bundle.import_zip if form == "zip" else bundle.import_folders
        would = read(library.store, source, look=look, **options)
        refs = would.held
    coming = sorted((_coming(looking, ref) for ref in refs), key=lambda one: (not one.asks, not one.findings, one.ref))
    shown = {ref: (base, make_manifest(files).tree) for ref, (base, files, _) in looking.seen.items()}
    return Preview(coming, would.refused, Answer(shown))


def _coming(looking: _Looking, ref: Ref) -> Coming:
    if ref not in looking.seen:
        return Coming(str(ref), 0, 0, 0, [], [])  # a history that goes on without a new content
    base, files, found = looking.seen[ref]
    means = [str(one) for one in found.capabilities.added]
    size = sum(len(file.data) for file in files.values())
    return Coming(str(ref), base, len(files), size, list(found.findings), means)


def import_folders(
    library: Library,
    caller: Caller,
    source: Path,
    *,
    accepted: bool = False,
    answer: Answer | None = None,
    **options: Any,
) -> TakenIn:
    """Takes in the folders in `source`; options and errors as in evolvable_store.bundle.folders.import_folders.

    What a scan refuses is refused with the reasons, what a person is to see first becomes a proposal. accepted: the
    caller answers for all of it; findings are only told. answer: of a person who was asked; findings of high severity
    are refused, and so is what changed since it was shown. Where it is not a person who imports, all of it waits in the
    inbox, as proposals of one session that are decided together. Raises Refused when another than a person accepts or
    answers.
    """
    return _held(
        library,
        caller,
        (accepted, answer),
        lambda look: bundle.import_folders(library.store, source, look=look, **options),
    )


def import_zip(
    library: Library,
    caller: Caller,
    source: Path,
    *,
    accepted: bool = False,
    answer: Answer | None = None,
    **options: Any,
) -> TakenIn:
    """Takes in a zip; options and errors as in evolvable_store.bundle.folders.import_zip, the rest as import_folders."""
    return _held(
        library,
        caller,
        (accepted, answer),
        lambda look: bundle.import_zip(library.store, source, look=look, **options),
    )


def import_json(
    library: Library,
    source: Path,
    *,
    accepted: bool = False,
    answer: Answer | None = None,
    caller: Caller | None = None,
) -> TakenIn:
    """Takes in an archive with its histories; errors as in evolvable_store.bundle.import_.import_json.

    A history cannot be proposed: what a person is to see first is refused with the reasons, unless accepted or
    answered (as in import_folders), and so is the whole archive where it is not a person who imports it.
    """
    if caller is not None and not _is_person(caller):
        raise Refused(
            "An archive with histories is imported by a person alone.",
            "Tell the user which archive you would import, and go on without it.",
        )
    looking = _Looking(library, accepted, answer=answer)
    imported = bundle.import_json(library.store, source, look=looking.refuse)
    return TakenIn(imported, {}, _told(looking, imported))


def _held(
    library: Library,
    caller: Caller,
    said: tuple[bool, Answer | None],
    take: Callable[[bundle.ImportCheck], ImportReport],
) -> TakenIn:
    accepted, answer = said
    if (accepted or answer is not None) and not _is_person(caller):
        raise Refused("A person alone answers for an import.", "Import it without that; it waits for the user.")
    looking = _Looking(library, accepted, not _is_person(caller), answer)
    imported = take(looking.hold)
    together = caller.session if _is_person(caller) else f"import-{os.urandom(4).hex()}"
    who = Caller(Actor.IMPORT, together, caller.scopes)
    proposals = {}
    for ref in imported.held:
        base, files, found = looking.seen[ref]
        why = (
            "imported; a scan found what a person is to see"
            if found.asks
            else "imported without a person at a terminal"
        )
        identity = inbox.propose(library, who, ref, base, files, why, found)
        proposals[identity] = ref
    return TakenIn(imported, proposals, _told(looking, imported))


def _is_person(caller: Caller) -> bool:
    return caller.identity.principal in (Principal.PERSON, Principal.SCRIPT)


def _told(looking: _Looking, imported: ImportReport) -> list[str]:
    taken = (*imported.added, *imported.updated)
    return [f"{ref}: {text}" for ref in taken if ref in looking.seen for text in told(looking.seen[ref][2])]

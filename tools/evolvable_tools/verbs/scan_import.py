"""The verbs that scan resources and files, import them after a scan, and have a person trust what
they hold.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evolvable_store import Actor, File, Files, Head, Manifest, bundle, make_manifest, read_regular
from evolvable_store.bundle import ImportReport
from evolvable_store.errors import InvalidArgument, InvalidResource, NotFound, Refused, Unsafe
from evolvable_store.resource import MEMORY_NAMES, Kind, Ref, main_file
from evolvable_tools.approvals import add_left_out, check_change, file_bytes, finding_messages
from evolvable_tools.authors import Authorship, authorships, version_base
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.scan import Finding, FindingSeverity, Scan, scan
from evolvable_tools.verbs import proposal_inbox
from evolvable_tools.verbs.unseen_changes import check_is_person, check_may_vouch, vouch_for
from evolvable_tools.verbs.versions import diff


@dataclass(frozen=True, slots=True)
class Scanned:
    """What a scan found in one resource as it is.

    what: its ref or its path. verdict: refused, waits or passes, which is what would become of it
    if anybody but a person brought it. capabilities: what it has the means to do. problems: why an
    import of the folder refuses it, apart from the findings.
    """

    what: str
    verdict: str
    findings: list[Finding]
    capabilities: list[str]
    problems: list[str] = field(default_factory=list)


def scan_resources(
    library: Library,
    caller: Caller,
    refs: Iterable[Ref] = (),
    progress: Callable[[int, int], None] | None = None,
) -> list[Scanned]:
    """Return what is found in these resources, by default in all that the caller sees.

    progress: called with the resources scanned, and all. Raises NoSuchResource, NoSuchVersion.
    """
    store = library.store
    heads = [(store.head(ref, caller.scopes), ref.version) for ref in refs]
    if not heads:
        heads = [(head, None) for head in store.heads() if head.scope in caller.scopes]
    scanned = []
    for number, (head, version) in enumerate(heads):
        if progress is not None:
            progress(number, len(heads))
        scanned.append(
            _scan_files(str(head.ref.at(version)), store.files(head, version), head.kind)
        )
    return scanned


def scan_path(path: Path, progress: Callable[[int, int], None] | None = None) -> list[Scanned]:
    """Return what is found in a file, in a folder that is a resource, or in each that lies in a
    folder.

    progress: called with the resources of the folder scanned, and all. Raises InvalidArgument when
    there is nothing to scan.
    """
    if path.is_file():
        if path.name in _MAINS:
            return [_scan_folder(str(path), path.parent, path.name)]
        files = {path.name: File(read_regular(path))}
        return [_scan_files(str(path), files, Kind.SKILL)]
    if not path.is_dir():
        raise InvalidArgument(
            f"{path} is not there.", "Name a folder, a file, or a ref such as skill:pdf."
        )
    places = [
        place for place in (path, *sorted(path.iterdir())) if place.is_dir() and _find_main(place)
    ]
    if not places:
        mains = ", ".join(sorted(main_file(kind, "") for kind in Kind))
        raise InvalidArgument(
            f"{path} holds no resource.", f"A resource is a folder with one of {mains}."
        )
    scanned = []
    for number, place in enumerate(places):
        if progress is not None:
            progress(number, len(places))
        scanned.append(_scan_folder(str(place), place, _find_main(place)))
    return scanned


def _scan_folder(what: str, place: Path, main: str) -> Scanned:
    """Return what is found in a folder that is a resource, and what an import would say
    against it.
    """
    kind = _MAINS[main]
    # As an import reads it: by its own name, also where the person wrote `.` or a path that ends
    # with `..`. abspath and not resolve: a link keeps the name that the person gave it.
    candidate = bundle.folder_candidate(Path(os.path.abspath(place)))
    if kind is Kind.MEMORY:
        candidate = replace(candidate, name=main.removesuffix(".md"))
    return _scan_files(what, candidate.files, kind, candidate.stops(kind), candidate.left_out)


def _scan_files(
    what: str,
    files: Files,
    kind: Kind,
    problems: Sequence[str] = (),
    left_out: tuple[str, ...] = (),
) -> Scanned:
    found = add_left_out(scan(None, file_bytes(files), kind), files, left_out)
    verdict = "refused" if found.blocks or problems else "waits" if found.asks else "passes"
    return Scanned(
        what, verdict, list(found.findings), _list_gained_capabilities(found), list(problems)
    )


def _list_gained_capabilities(found: Scan) -> list[str]:
    return [str(capability) for capability in found.capabilities.added]


def _find_main(folder: Path) -> str:
    return next((name for name in _MAINS if (folder / name).is_file()), "")


_MAINS = {
    **{main_file(kind, ""): kind for kind in Kind},
    **{main_file(Kind.MEMORY, name): Kind.MEMORY for name in MEMORY_NAMES},
}


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """What became of an import.

    proposals: proposal_id -> ref, what waits for a person. warnings: what a scan found.
    """

    imported: ImportReport
    proposals: dict[int, Ref] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Coming:
    """One resource that an import would bring.

    base: the version here that it would replace, 0 for a new resource. size: bytes of all files.
    findings: of the scan, the worst first. capabilities: what it gains the means to do.
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
        return any(finding.severity is not FindingSeverity.LOW for finding in self.findings)


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's approval of an import.

    shown_trees: the base and the tree of each resource that was shown; None: not asked. scans: what
    the scan found in each, by its ref, base and tree.
    """

    shown_trees: Mapping[Ref, tuple[int, str]] | None = None
    scans: "Mapping[_ScanKey, Scan]" = field(default_factory=dict)


_ScanKey = tuple[Ref, int, str, tuple[str, ...]]


@dataclass(frozen=True)
class Preview:
    """What an import would do.

    coming: what a person is asked about, with findings first. refused: as in ImportReport.
    """

    coming: list[Coming]
    refused: list[tuple[str, tuple[str, ...]]]
    answer: Answer
    """The answer of a person who says yes to exactly this."""


@dataclass(slots=True)
class _ImportCheck:
    """Checks each resource of an import by a scan.

    accepted: a person answers for all of it, so nothing is kept out. waits: it was not a person who
    brought it, so all of it waits for one. answer: of a person who was asked; only findings of high
    severity keep something out.
    """

    library: Library
    accepted: bool
    waits: bool = False
    answer: Answer | None = None
    checked: dict[Ref, tuple[int, Files, Scan]] = field(default_factory=dict)
    scans: dict[_ScanKey, Scan] = field(default_factory=dict)

    def decide(self, ref: Ref, base: int, files: Files, left_out: tuple[str, ...]) -> bool:
        """Return whether a resource is imported at once.

        Raises InvalidResource for one that is refused.
        """
        # A scan takes most of the time of an import: what was scanned for the question, or before a
        # writer came between, is not scanned again.
        key = ref, base, make_manifest(files).tree, left_out
        earlier_scans = self.answer.scans if self.answer is not None else {}
        found = self.scans.get(key) or earlier_scans.get(key)
        if found is None:
            found = self._scan_change(ref, base, files, left_out)
        self.scans[key] = found
        self.checked[ref] = (base, files, found)
        if self.answer is not None:
            self._check_shown(ref, base, files)
            return True
        return not self.waits and (self.accepted or not found.asks)

    def require(self, ref: Ref, base: int, files: Files, left_out: tuple[str, ...]) -> bool:
        """Return True.

        Raises InvalidResource for what is refused, and for what a person is to see first.
        """
        if not self.decide(ref, base, files, left_out):
            look = "look at it, then pass --accept to answer for all that this archive holds"
            raise InvalidResource(str(ref), [*finding_messages(self.checked[ref][2]), look])
        return True

    def _check_shown(self, ref: Ref, base: int, files: Files) -> None:
        shown_trees = self.answer.shown_trees if self.answer is not None else None
        if shown_trees is not None and shown_trees.get(ref) != (base, make_manifest(files).tree):
            raise InvalidResource(str(ref), ["it changed after it was shown; import it again"])

    def _scan_change(self, ref: Ref, base: int, files: Files, left_out: tuple[str, ...]) -> Scan:
        head = self.library.store.head_or_none(ref) if base else None
        before = self.library.store.files(head, base) if head else {}
        try:
            found = check_change(ref, before, files, Actor.HUMAN if self.accepted else Actor.IMPORT)
        except Unsafe as error:
            raise InvalidResource(
                str(ref), [f"scan: {finding}" for finding in error.findings]
            ) from error
        found = found if before else self.library.names.add_to(found, ref)
        found = add_left_out(found, files, left_out) if left_out else found
        if found.blocks and not self.accepted:
            raise InvalidResource(str(ref), finding_messages(found))
        return found


_READERS: Mapping[str, Callable[..., ImportReport]] = {
    "zip": bundle.import_zip,
    "folders": bundle.import_folders,
}


def preview(library: Library, source: Path, form: str, **options: Any) -> Preview:
    """Return what an import of `source` would do, after a scan.

    Nothing changes. form: json, zip or folders. options and what is raised: as in the function of
    evolvable_store.bundle for that form.
    """
    import_check = _ImportCheck(library, accepted=False, waits=True)

    def look(ref: Ref, base: int, files: Files, left_out: tuple[str, ...]) -> bool:
        import_check.decide(ref, base, files, left_out)
        return form == "json"

    if form == "json":
        would = bundle.import_json(library.store, source, check=look, dry_run=True, **options)
        refs = would.added + would.updated
    else:
        would = _READERS[form](library.store, source, check=look, **options)
        refs = would.held
    coming = sorted(
        (_describe_coming(import_check, ref) for ref in refs),
        key=lambda item: (not item.asks, not item.findings, item.ref),
    )
    shown_trees = {
        ref: (base, make_manifest(files).tree)
        for ref, (base, files, _) in import_check.checked.items()
    }
    return Preview(coming, would.refused, Answer(shown_trees, import_check.scans))


def _describe_coming(import_check: _ImportCheck, ref: Ref) -> Coming:
    if ref not in import_check.checked:
        return Coming(str(ref), 0, 0, 0, [], [])  # a history that goes on without a new content
    base, files, found = import_check.checked[ref]
    size = sum(len(file.data) for file in files.values())
    return Coming(
        str(ref), base, len(files), size, list(found.findings), _list_gained_capabilities(found)
    )


def import_archive(
    library: Library,
    caller: Caller,
    source: Path,
    form: str,
    *,
    accepted: bool = False,
    answer: Answer | None = None,
    **options: Any,
) -> ImportSummary:
    """Import folders, a zip, or a JSON archive with its histories.

    form, options: as in `preview`, which also says what is raised. What a scan refuses is refused
    with the reasons, what a person is to see first becomes a proposal. accepted: the caller answers
    for all of it. Findings are only told. answer: of a person who was asked. Findings of high
    severity are refused, and so is what changed since it was shown. Where it is not a person who
    imports, all of it waits in the inbox, as proposals of one session that are decided together. A
    history cannot be proposed, so what a person is to see first is refused with the reasons. A JSON
    archive is refused whole where it is not a person who imports it. Raises Refused when another
    than a person accepts or answers.
    """
    if form == "json" and not caller.decides:
        hint = "Tell the user which archive you would import, and go on without it."
        raise Refused("An archive with histories is imported by a person alone.", hint)
    if (accepted or answer is not None) and not caller.decides:
        raise Refused(
            "A person alone answers for an import.",
            "Import it without that; it waits for the user.",
        )
    import_check = _ImportCheck(library, accepted, not caller.decides, answer)
    if form == "json":
        imported = bundle.import_json(library.store, source, check=import_check.require, **options)
        return ImportSummary(imported, {}, _format_findings(import_check, imported))
    imported = _READERS[form](library.store, source, check=import_check.decide, **options)
    together = caller.session if caller.decides else f"import-{os.urandom(4).hex()}"
    importer = Caller(Actor.IMPORT, together, caller.scopes)
    proposals = {}
    for ref in imported.held:
        base, files, found = import_check.checked[ref]
        reason = "imported without a person at a terminal"
        if found.asks:
            reason = "imported; a scan found what a person is to see"
        proposal = proposal_inbox.propose(library, importer, ref, base, files, reason, found)
        proposals[proposal] = ref
    return ImportSummary(imported, proposals, _format_findings(import_check, imported))


def _format_findings(import_check: _ImportCheck, imported: ImportReport) -> list[str]:
    refs = (*imported.added, *imported.updated)
    return [
        f"{ref}: {text}"
        for ref in refs
        if ref in import_check.checked
        for text in finding_messages(import_check.checked[ref][2])
    ]


@dataclass(frozen=True, slots=True)
class TrustOffer:
    """One resource that a person is asked to trust.

    author: whose it is, `held` for a held change. proposal: of a held change, None for what is
    served already. findings: of the scan, the worst first. diff: of a held change, merged with what
    was learned, against what is served, else against what the person stood for. head: the version
    that a held change was compared with.
    """

    ref: str
    resource: int
    tree: str
    author: str
    findings: list[Finding]
    capabilities: list[str]
    proposal: int | None = None
    diff: str = ""
    head: int | None = None

    @property
    def high(self) -> bool:
        """Whether the scan found something of high severity."""
        return any(finding.severity is FindingSeverity.HIGH for finding in self.findings)


@dataclass(frozen=True)
class TrustQuestion:
    """What a person is asked: the resources that nobody vouches for yet, the most dangerous first.

    folder: the folder that it is about as an absolute path, '' for one resource.
    """

    what: str
    offered: list[TrustOffer]
    trusted: list[str] = field(default_factory=list)
    folder: str = ""


@dataclass(frozen=True)
class TrustDecision:
    """What a decision did: the refs trusted now, or no longer, and the operation that published
    what waited.
    """

    what: str
    refs: list[str]
    operation: int | None = None
    warnings: list[str] = field(default_factory=list)


def ask_trust(
    library: Library, caller: Caller, *, folder: Path | None = None, ref: Ref | None = None
) -> TrustQuestion:
    """Return what a person is asked about a folder, or about one resource.

    Raises NotFound, Refused.
    """
    check_is_person(caller)
    if ref is not None:
        heads = [library.store.head(ref.at(None), caller.scopes)]
        what = str(heads[0].ref)
    elif folder is not None:
        heads, what = _find_heads_below(library, folder), str(folder)
    else:
        raise InvalidArgument("Nothing was named.", "Name a folder or a resource.")
    authors = authorships(library, [head.id for head in heads], caller)
    doubtful = [
        head
        for head in heads
        if not authors[head.id].stands and (ref or not _is_own_save(authors[head.id]))
    ]
    offered = [
        _make_offer(library, head, authors[head.id], whole=ref is not None) for head in doubtful
    ]
    held_proposals = _find_held_below(library, folder) if folder is not None else []
    offered += [_offer_proposal(library, proposal) for proposal in held_proposals]
    offered.sort(key=lambda offer: (not offer.high, not offer.findings, offer.ref))
    trusted = [str(head.ref) for head in heads if head not in doubtful]
    return TrustQuestion(
        what, offered, trusted, str(folder.resolve()) if folder is not None else ""
    )


def _is_own_save(authorship: Authorship) -> bool:
    """Return whether the person's own saves are all that came since the person stood for it."""
    return not (authorship.why or authorship.changes or authorship.pulled)


def trust(library: Library, caller: Caller, question: TrustQuestion) -> TrustDecision:
    """Record that a person vouches for what the question showed, and publish the changes that it
    showed.

    Folders get the powers that this puts in force. Only the contents that were shown: what changed
    meanwhile stays as it is. Raises Refused, and as `approve_together`.
    """
    check_may_vouch(library, caller)
    refs, operation, warnings = [], None, list[str]()
    proposals = [offer.proposal for offer in question.offered if offer.proposal is not None]
    if proposals:
        seen = {
            offer.proposal: offer.head for offer in question.offered if offer.proposal is not None
        }
        decided = proposal_inbox.approve_together(
            library, caller, proposals, f"trusted {question.what}", seen=seen
        )
        operation = decided[0].operation
        refs += [decision.ref for decision in decided]
        warnings += [text for decision in decided for text in decision.warnings]
    # Vouched for by tree: a content that changed after the question is not trusted.
    served = [offer for offer in question.offered if offer.proposal is None]
    warnings += vouch_for(
        library,
        caller,
        [(offer.ref, offer.resource, offer.tree) for offer in served],
        question.folder,
    )
    return TrustDecision(
        question.what, sorted({*refs, *(offer.ref for offer in served)}), operation, warnings
    )


def withdraw_trust(
    library: Library, caller: Caller, *, folder: Path | None = None, ref: Ref | None = None
) -> TrustDecision:
    """Record that a person no longer vouches for what a folder or a resource holds.

    Raises NotFound, Refused.
    """
    check_is_person(caller)
    if ref:
        heads = [library.store.head(ref.at(None), caller.scopes)]
    else:
        heads = _find_heads_below(library, folder or Path())
    backend = library.store.backend
    attested = backend.authorship.attestations_of([head.id for head in heads], unlisted=True)
    attested_ids = {attestation.resource for attestation in attested}
    withdrawn = [head for head in heads if head.id in attested_ids]
    contents_of = [(attestation.resource, attestation.tree) for attestation in attested]
    backend.attestations.withdraw(contents_of, library.store.now(), caller.identity)
    library.record(caller, "withdraw trust", *(str(head.ref) for head in withdrawn))
    return TrustDecision(str(ref or folder), sorted(str(head.ref) for head in withdrawn))


def _find_heads_below(library: Library, folder: Path) -> list[Head]:
    """Return the heads that the watched folders in, at or around a folder hold there.

    None of a folder that is gone.
    """
    place, copies, ids = folder.resolve(), library.working_copies, set[int]()
    near = [
        watched
        for watched in copies.folders()
        if watched.path.is_relative_to(place) or place.is_relative_to(watched.path)
    ]
    if not near and folder.is_dir():
        raise NotFound(
            f"No watched folder lies in {place}.",
            "`evolvable folders` shows those that are watched.",
        )
    for watched in near:
        for directory, binding in copies.bindings.of_folder(watched).items():
            if (watched.path / directory).is_relative_to(place) and binding.version is not None:
                ids.add(binding.resource)
    heads = library.store.backend.heads_by_id(ids).values()
    return sorted(
        (head for head in heads if head.version is not None), key=lambda head: str(head.ref)
    )


def _find_held_below(library: Library, folder: Path) -> Sequence[int]:
    place = folder.resolve()
    paths = {watched.id: watched.path for watched in library.working_copies.folders()}
    held_entries = [
        entry
        for entry in library.store.backend.held_directories.all()
        if entry.state == "open" and entry.folder in paths
    ]
    return [
        entry.proposal
        for entry in held_entries
        if (paths[entry.folder] / entry.directory).is_relative_to(place)
    ]


def _make_offer(library: Library, head: Head, authorship: Authorship, *, whole: bool) -> TrustOffer:
    """Return what is shown of a resource.

    whole: its text too, where no person stood for any version of it.
    """
    base, after = version_base(library, head, head.latest), library.store.files(head)
    before = library.store.files(head, base) if base is not None else {}
    found = scan(file_bytes(before) or None, file_bytes(after), head.kind)
    changes = ""
    if base is not None or whole:
        base_manifest = library.store.manifest(head, base) if base is not None else Manifest({})
        changes = diff(
            library, base_manifest, library.store.manifest(head), (str(base or 0), str(head.latest))
        )
    about = (str(head.ref), head.id, head.tree, authorship.kind)
    return TrustOffer(*about, list(found.findings), _list_gained_capabilities(found), diff=changes)


def _offer_proposal(library: Library, proposal: int) -> TrustOffer:
    described = proposal_inbox.show_proposal(library, proposal)
    waiting = library.store.backend.proposals.get(proposal)
    about = (described.ref, 0, waiting.manifest.tree, "held")
    changes = (described.diff or "") if described.head else ""
    return TrustOffer(
        *about, described.findings, described.gains, proposal, changes, described.head
    )

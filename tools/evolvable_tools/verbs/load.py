"""The verbs around using a resource: load it, read it, and report its outcome."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from evolvable_store import Actor, Head, Principal
from evolvable_store.errors import InvalidArgument, LibraryTooNew
from evolvable_store.resource import Kind, Ref, main_file
from evolvable_store.storage import (
    Grade,
    Outcome,
    ReportedOutcome,
    SuccessCounts,
    Tally,
    Usage,
    Use,
)
from evolvable_tools.authors import AuthorKind, Authorship, provenance_line, version_authorship
from evolvable_tools.caller import Caller
from evolvable_tools.delegates import delegate_in
from evolvable_tools.delegation import DelegateStatus, Delegation, delegate_status, find_delegation
from evolvable_tools.file_edits import decode_text
from evolvable_tools.library import Library
from evolvable_tools.metrics import earned_maturity
from evolvable_tools.secret_leaks import check_served, is_env_file
from evolvable_tools.verbs.skill_folder import SkillFolder, place_text

_Word = TypeVar("_Word", Outcome, Usage)

MAX_TEXT = 150_000
"""Characters of a document in one result for an agent."""

MAX_TASK_TYPE = 80
"""Characters of a task type."""

OUTCOMES = {outcome.value: outcome for outcome in Outcome} | {
    "success": Outcome.SUCCEEDED,
    "failure": Outcome.FAILED,
}
"""The words for an outcome: the five that are listed, and two others that agents write."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A document of one version. `text` is None for a file that is not text. `files`: path ->
    bytes, all of them.

    author, by: whose the version is, as in Match. notice: why the text reaches an agent
    between marks, '' where it does not. provenance: the line that says what the reader's agent
    changed, '' for nothing. reported, verified: how many uses of the resource ended in a way that
    counts, as their sessions say or as is verified. delegate: the agent that a skill names for its
    work, None for most. folder: where a loaded skill lies, None where that is not known; its text
    names that folder where it names a variable for it.
    """

    ref: str
    version: int
    path: str
    text: str | None
    size: int
    files: dict[str, int]
    use_id: str | None = None
    author: str = ""
    by: str = ""
    notice: str = ""
    provenance: str = ""
    reported: int = 0
    verified: int = 0
    delegate: DelegateStatus | None = None
    folder: SkillFolder | None = None

    @property
    def marked(self) -> bool:
        """Whether its text reaches an agent between marks."""
        return bool(self.notice)


@dataclass(frozen=True)
class EvidenceSummary:
    """What is known of a resource's usefulness.

    loaded: loadings that this library noted. succeeded to unknown: outcomes that count, one for
    each session and version. success: the share of successes among the rated ones of these.
    maturity: by verified uses; reported ones make it Growing at most. reported, verified: rated
    uses by grade, verified ones once for each connection. not_counted: outcomes that are kept as
    history. counted: whether the outcome that was just reported counts. note: why not, '' when it
    does.
    """

    ref: str
    maturity: str
    loaded: int
    succeeded: int
    failed: int
    partial: int
    abandoned: int
    unknown: int
    success: float | None
    reported: int = 0
    verified: int = 0
    not_counted: int = 0
    counted: bool = True
    note: str = ""

    @property
    def rated(self) -> int:
        """The uses of which `success` is the share."""
        return self.succeeded + self.failed + self.partial


def load_skill(
    library: Library,
    caller: Caller,
    ref: Ref,
    *,
    version: int | None = None,
    path: str | None = None,
    search_id: str | None = None,
    task_type: str | None = None,
) -> Loaded:
    """Return a document to work by, and record the use. Raises NoSuchResource, NoSuchVersion,
    NoSuchFile.

    task_type: of the work, by which one of several agents that the skill names is chosen.
    """
    identity = f"use-{os.urandom(6).hex()}"
    kind = _check_length("task_type", task_type, MAX_TASK_TYPE) or ""
    if search_id is not None and len(search_id) > 80:
        raise InvalidArgument(
            "That is no search_id.", "Pass the one that find_skill returned, or none."
        )
    loaded, head = _read_document(library, caller, ref, version, path, identity)
    main = main_file(head.kind, head.name)
    is_main = head.kind is Kind.SKILL and loaded.path.casefold() == main.casefold()
    delegate = delegate_in(loaded.text) if is_main else None
    if delegate is not None:
        status = delegate_status(library, caller.scopes, delegate, head, loaded.version, kind)
        loaded = replace(loaded, delegate=status)
    prose = loaded.text if loaded.path.casefold().endswith(".md") else None
    text, folder = place_text(library, caller, head, loaded.version, prose, loaded.files)
    loaded = replace(loaded, text=loaded.text if prose is None else text, folder=folder)
    use = _make_use(library, caller, identity, head.id, loaded.version, search_id)
    # The text is served even where the use cannot be recorded, and then has no use_id: nobody can
    # report on a use that is not there.
    return replace(loaded, use_id=identity if _record_use(library, use) else None)


def load_delegate(
    library: Library, caller: Caller, loaded: Loaded, task_type: str | None = None
) -> Delegation | None:
    """Return the agent that can be given the work of a loaded skill; None where there is none.

    task_type: as given to `load_skill`.
    """
    if loaded.delegate is None or not loaded.delegate.available:
        return None
    ref = Ref.parse(loaded.ref)
    head = library.store.head_or_none(ref, caller.scopes) or library.store.head(ref)
    return find_delegation(library, caller, head, loaded.version, task_type or "")


def use_delegate(library: Library, caller: Caller, found: Delegation) -> None:
    """Record that the text of a delegate reached a model by this caller."""
    _record_use(
        library,
        _make_use(
            library, caller, f"use-{os.urandom(6).hex()}", found.agent.id, found.version, None
        ),
    )


def _record_use(library: Library, use: Use) -> bool:
    """Record a use if this program may write the library, and return whether it did."""
    if library.store.read_only:
        return False
    try:
        library.evidence.add_use(use)
    except LibraryTooNew:
        return False
    return True


def note_load(
    library: Library, caller: Caller, resource: int, version: int, *, search_id: str | None = None
) -> bool:
    """Record that a session loaded a version without `load_skill`, such as by its client's own
    skill tool.

    Once for each session and resource, however it was loaded. Return whether it was recorded. A
    caller without a session, and a library that cannot be written, record nothing.
    """
    session = caller.session
    if session is None or library.store.read_only or library.evidence.used_in(session, [resource]):
        return False
    identity = f"use-{os.urandom(6).hex()}"
    return library.evidence.add_first_use(
        _make_use(library, caller, identity, resource, version, search_id)
    )


def _make_use(
    library: Library,
    caller: Caller,
    identity: str,
    resource: int,
    version: int,
    search_id: str | None,
) -> Use:
    by = (caller.session, caller.identity.principal, caller.connection)
    return Use(identity, library.store.now(), resource, version, search_id, *by)


def get_resource(
    library: Library,
    caller: Caller,
    ref: Ref,
    *,
    version: int | None = None,
    path: str | None = None,
) -> Loaded:
    """Return a document without recording a use. Raises as `load_skill`."""
    return _read_document(library, caller, ref, version, path)[0]


def _read_document(
    library: Library,
    caller: Caller,
    ref: Ref,
    version: int | None,
    path: str | None,
    use: str | None = None,
) -> tuple[Loaded, Head]:
    """Return a document and the head of its resource.

    use: of a use, which may be served a version on trial.
    """
    store = library.store
    number = version if version is not None else ref.version
    if number is not None and number < 1:
        raise InvalidArgument(f"{number} is not a version.", "Versions are numbered 1, 2, 3, ...")
    # Every version can be read permanently, also of a resource that was removed.
    head = store.head_or_none(ref, caller.scopes) if number else None
    head = head or store.head(ref, caller.scopes)
    if number is None and use is not None and library.trials is not None:
        # Only a use without a named version may get the version on trial.
        number = library.trials.version(library, caller, head, use)
    manifest = store.manifest(head, number)
    path = path or _find_main(head, manifest.keys())
    file = store.file(head, path, number)
    # Checked before the text leaves the store: an environment file may hold secrets.
    if is_env_file(path):
        check_served(library, caller, head.ref, number or head.latest, path, manifest[path].sha256)
    sizes = {name: manifest[name].size for name in sorted(manifest)}
    version = number or head.latest
    proof = store.backend.evidence.count_successes([head.id]).get(head.id, SuccessCounts())
    authorship = version_authorship(library, head, version, caller)
    author = authorship.of(path)
    is_strangers = bool(author.why) and author.kind is not AuthorKind.AGENT
    if is_strangers and caller.actor is Actor.AGENT:
        library.note_stranger(caller)
    loaded = Loaded(
        *(str(head.ref), version, path, decode_text(file.data), len(file.data), sizes),
        author=authorship.kind,
        by=authorship.by,
        notice=author.why if caller.actor is not Actor.HUMAN else "",
        provenance=_format_provenance(library, head, version, authorship),
        reported=proof.reported,
        verified=proof.verified,
    )
    if len(loaded.text or "") <= MAX_TEXT:
        # Only a text that reached the agent whole counts as known to it.
        library.served_texts.note(caller.reader, loaded.ref, path, version)
    return loaded, head


ENOUGH_USES = 30
"""Uses of what an agent changed after which only history, status and the inbox say so.

Fewer hide a recent change too soon. More repeat the same line for long.
"""


def is_settled(library: Library, head: Head, authorship: Authorship) -> bool:
    """Return whether what an agent changed was used so often that the loaded text no longer says
    so.
    """
    if not authorship.changes:
        return False
    return library.evidence.count_uses(head.id, authorship.changes[0].part.version) >= ENOUGH_USES


def _format_provenance(library: Library, head: Head, version: int, authorship: Authorship) -> str:
    """Return the line of provenance of a version, '' where there is none to say."""
    if not authorship.changes and not authorship.pulled:
        return ""
    changed = authorship.changes[0].part.version if authorship.changes else version
    if library.evidence.count_uses(head.id, changed) >= ENOUGH_USES:
        return ""
    return provenance_line(f"{head.ref}@{version}", authorship, library.store.now())


def _find_main(head: Head, paths: Iterable[str]) -> str:
    main = main_file(head.kind, head.name)
    matches = [path for path in paths if path.casefold() == main.casefold()]
    return main if main in matches or not matches else matches[0]


def report_outcome(
    library: Library,
    caller: Caller,
    *,
    outcome: str,
    use_id: str | None = None,
    ref: Ref | None = None,
    usage: str | None = None,
    task_type: str | None = None,
    evidence: str | None = None,
) -> EvidenceSummary:
    """Record the outcome of a use, its texts without secrets, and return the resource's summary.

    It counts if the server served that version to this principal in this session. Otherwise it is
    kept as history, and the summary says so. What a person says, at a terminal or to the page,
    counts and is verified. Raises NoSuchUse, NoSuchResource, InvalidArgument.
    """
    store, use = library.store, None
    if use_id is not None and ref is None:
        use = library.evidence.use(use_id)
        head = store.backend.heads_by_id([use.resource])[use.resource]
        version = use.version
    elif ref is not None and use_id is None:
        head = store.head(ref, caller.scopes)
        trial = None
        if library.trials is not None:
            trial = library.trials.known_version(library, caller, head)
        version = ref.version or trial or head.latest
        store.version(head, version)
    else:
        raise InvalidArgument(
            "Name either the use_id or the ref.", "load_skill returned the use_id."
        )
    grade, voter = _grade_outcome(library, caller, head.id, version, use)
    reported = ReportedOutcome(
        store.now(),
        head.id,
        version,
        _parse_word(Outcome, "outcome", OUTCOMES.get(outcome, outcome)),
        use_id,
        _parse_word(Usage, "usage", usage) if usage is not None else None,
        _redact_short(library, "task_type", task_type, MAX_TASK_TYPE),
        _redact_short(library, "evidence", evidence, 2000),
        *(caller.session, caller.identity.principal, grade, voter),
    )
    library.evidence.add_outcome(reported)
    proof = store.backend.evidence.count_successes([head.id]).get(head.id)
    summary = summarise(str(head.ref), library.evidence.tally(head.id), proof)
    if grade is not Grade.HISTORY:
        return summary
    return replace(
        summary,
        counted=False,
        note=f"kept, not counted: this session did not load {head.ref}@{version}",
    )


def _grade_outcome(
    library: Library, caller: Caller, resource: int, version: int, use: Use | None
) -> tuple[Grade, str | None]:
    """Return how far an outcome counts, and whose one vote it is."""
    principal = caller.identity.principal
    if caller.principal is Principal.PERSON:  # known to be one, not only implied by the actor
        own = use and (use.session or use.id)
        return Grade.VERIFIED, own or f"{principal}/{caller.session or ''}"
    if use is not None:
        # None: uses of versions before these columns name nobody.
        same_session = use.session in (None, caller.session)
        same_connection = use.connection is not None and use.connection == caller.connection
        served = use.principal in (None, principal) and (same_session or same_connection)
        voter = use.session or caller.session
    else:
        served = library.evidence.was_served(
            resource, version, principal, caller.session, caller.connection
        )
        voter = caller.session
    return (Grade.REPORTED, voter or f"{principal}/") if served else (Grade.HISTORY, None)


def _parse_word(kind: type[_Word], what: str, text: str) -> _Word:
    try:
        return kind(text)
    except ValueError:
        raise InvalidArgument(
            f"{ascii(text[:80])} is no {what}.", f"It is one of {', '.join(kind)}."
        ) from None


def _redact_short(library: Library, what: str, text: str | None, limit: int) -> str | None:
    checked = _check_length(what, text, limit)
    return library.redact(checked) if checked is not None else None


def _check_length(what: str, text: str | None, limit: int) -> str | None:
    if text is not None and len(text) > limit:
        raise InvalidArgument(f"{what} has {len(text)} characters.", f"The limit is {limit}.")
    return text


def summarise(ref: str, tally: Tally, proof: SuccessCounts | None) -> EvidenceSummary:
    """Return the summary of a tally. `success` is None until an outcome was reported."""
    ended = tally.succeeded + tally.failed + tally.partial
    return EvidenceSummary(
        *(ref, proven_maturity(proof), tally.loaded),
        *(tally.succeeded, tally.failed, tally.partial, tally.abandoned, tally.unknown),
        success=tally.succeeded / ended if ended else None,
        reported=proof.reported if proof else 0,
        verified=proof.verified if proof else 0,
        not_counted=tally.not_counted,
    )


def proven_maturity(proof: SuccessCounts | None) -> str:
    """Return the maturity of a resource by its proof: the independent attempts in which it was
    used.
    """
    proof = proof or SuccessCounts()
    return earned_maturity(proof.verified_successes, proof.verified, proof.ends)

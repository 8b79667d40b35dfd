"""Authors: whose the bytes of a resource are, file by file, against the newest version that a
person stood for.

Three questions follow from it, each with an answer of its own: whether a text reaches an agent
between marks, whether what it names is in force (`evolvable_tools/authority.py`), and which line
says who changed what.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from evolvable_store import (
    QUICKSTART,
    Actor,
    FilePart,
    Head,
    Operation,
    Principal,
    implied_principal,
)
from evolvable_store.resource import Kind, main_file
from evolvable_store.storage import Attestation, VersionAuthor, VersionAuthors, is_followed
from evolvable_tools.caller import Caller, JudgedLibrary


class AuthorKind(StrEnum):
    """The author of some bytes, as a reader sees them.

    Of several for one resource the last in this order counts.
    """

    YOU = "you"
    """The reader's own: a person stood for them, or saved them in a folder of theirs."""

    AGENT = "agent"
    """The reader's agent changed them, through the server or by its file tool."""

    MEMBER = "member"
    """Another person of a shared library, or that person's agent."""

    IMPORT = "import"
    """An archive, a plugin or another library brought them."""

    REPOSITORY = "repository"
    """A repository brought them."""


_ORDER = list(AuthorKind)

_STRANGERS = (AuthorKind.REPOSITORY, AuthorKind.IMPORT, AuthorKind.MEMBER)

BY_PROGRAM = "Evolvable"

_WHY = {
    AuthorKind.AGENT: "written by an agent; no person has looked at it yet",
    AuthorKind.MEMBER: "written by the agent of another member, and not approved",
    AuthorKind.IMPORT: "imported from elsewhere",
    AuthorKind.REPOSITORY: "brought by a repository that no person has trusted",
}
"""What a mark says about the text behind it."""


@dataclass(frozen=True, slots=True)
class FileAuthor:
    """The author of a file.

    by: a name, '' if the kind says all. why: why its text reaches an agent between marks.
    """

    kind: AuthorKind
    by: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class AgentChange:
    """A change that the reader's agent made in one file since the base, and that is still there."""

    path: str
    part: FilePart
    version_author: VersionAuthor
    by: str


@dataclass(frozen=True, slots=True)
class Authorship:
    """The author of a version of a resource.

    kind, by: of the file whose author is furthest from the reader. main: of the main file. files:
    of each file that differs from the rest. changes: of the reader's agent, the newest first.
    is_new: an agent made it, and no person looked at it. stands: a person stands for the whole of
    it. approved: somebody else wrote what the person stands for. pulled: the commit of the last
    pull that brought bytes of it to a folder whose pulls the person follows, else ''.
    """

    kind: AuthorKind
    by: str = ""
    main: FileAuthor = field(default_factory=lambda: FileAuthor(AuthorKind.YOU))
    files: Mapping[str, FileAuthor] = field(default_factory=dict)
    rest: FileAuthor = field(default_factory=lambda: FileAuthor(AuthorKind.YOU))
    changes: tuple[AgentChange, ...] = ()
    is_new: bool = False
    stands: bool = False
    approved: bool = False
    pulled: str = ""

    @property
    def is_marked(self) -> bool:
        """Whether its main file and its description reach an agent between marks."""
        return bool(self.main.why)

    @property
    def is_strangers(self) -> bool:
        """Whether its main file is a stranger's, which no person said yes to."""
        return self.is_marked and self.main.kind in _STRANGERS

    @property
    def why(self) -> str:
        """Why the text of one of its files reaches an agent between marks, '' for none."""
        return next(
            (author.why for author in (self.main, *self.files.values(), self.rest) if author.why),
            "",
        )

    def of(self, path: str) -> FileAuthor:
        """Return the author of a file."""
        return self.files.get(path, self.rest)


NOBODYS = Authorship(
    AuthorKind.IMPORT, main=FileAuthor(AuthorKind.IMPORT, why=_WHY[AuthorKind.IMPORT])
)
"""The authorship of a resource that is not found: its text, if any, stands between marks."""


def authorships(
    library: JudgedLibrary, resources: Iterable[int], reader: Caller | None = None
) -> dict[int, Authorship]:
    """Return the authorship of the newest version of each resource.

    reader: None for a session without changes.
    """
    newest_authors = library.store.backend.authorship.newest_authors(resources)
    return _judge_authors(library, newest_authors.values(), reader)


def version_authorship(
    library: JudgedLibrary, head: Head, number: int, reader: Caller | None = None
) -> Authorship:
    """Return the authorship of a version of a resource."""
    version_authors = library.store.backend.authorship.version_authors(head.id, number)
    if version_authors is None:
        return NOBODYS
    return _judge_authors(library, [version_authors], reader)[head.id]


def version_base(library: JudgedLibrary, head: Head, number: int) -> int | None:
    """Return the version that a person stands for and that this version is compared with, None
    without one.
    """
    version_authors = library.store.backend.authorship.version_authors(head.id, number)
    if version_authors is None:
        return None
    trees = {decision.tree for decision in vouchers(library, [head.id])}
    if library.lock is not None:
        version_authors = _Judge(library, None).discount_unsigned(version_authors)
    if version_authors.is_decided(trees):
        return number
    base = version_authors.standing_base(trees)
    return base.version if base is not None else None


def version_maker(library: JudgedLibrary, head: Head, number: int) -> FileAuthor | None:
    """Return who made a version, None where there is none."""
    version_authors = library.store.backend.authorship.version_authors(head.id, number)
    if version_authors is None:
        return None
    judge = _Judge(library, None)
    return judge.maker(
        judge.discount_unsigned(version_authors) if library.lock is not None else version_authors
    )


_YOURS = Authorship(AuthorKind.YOU, stands=True)
_YOURS_APPROVED = replace(_YOURS, approved=True)


def _judge_authors(
    library: JudgedLibrary, authors_of_versions: Iterable[VersionAuthors], reader: Caller | None
) -> dict[int, Authorship]:
    judged, doubtful = dict[int, Authorship](), list[VersionAuthors]()
    subject = subject_of(reader.via) if reader is not None else ""
    for version_authors in authors_of_versions:
        # Most versions: the person of this account made them, so no decision on them has to be
        # read.
        plain = (
            version_authors.provenance.base == version_authors.maker.version
            and version_authors.maker.is_person
            and library.lock is None
        )
        if plain and subject_of(version_authors.maker.via) == subject:
            judged[version_authors.resource] = (
                _YOURS_APPROVED if version_authors.maker.proposed else _YOURS
            )
        else:
            doubtful.append(version_authors)
    if not doubtful:
        return judged
    trees: dict[int, set[str]] = {}
    for decision in vouchers(library, [version_authors.resource for version_authors in doubtful]):
        trees.setdefault(decision.resource, set()).add(decision.tree)
    judge = _Judge(library, reader)
    for version_authors in doubtful:
        judged[version_authors.resource] = judge.authorship(
            version_authors, trees.get(version_authors.resource, set())
        )
    return judged


def vouchers(library: JudgedLibrary, resources: Iterable[int]) -> list[Attestation]:
    """Return the decisions of a person to trust contents.

    Where approvals are locked, the signed ones.
    """
    attestations = library.store.backend.authorship.attestations_of(resources)
    if library.lock is None:
        return attestations
    return [attestation for attestation in attestations if library.lock.has_signed(attestation)]


class _Judge:
    """Judges the authors of versions for one reader."""

    def __init__(self, library: JudgedLibrary, reader: Caller | None) -> None:
        self._library, self._reader = library, reader
        self._subject = subject_of(reader.via) if reader is not None else ""

    def authorship(self, version_authors: VersionAuthors, trees: set[str]) -> Authorship:
        """Return the authorship of a version. trees: the contents that a person trusts."""
        if self._library.lock is not None:
            version_authors = self.discount_unsigned(version_authors)
        if version_authors.is_decided(trees):
            maker = self._make_file_author(version_authors.maker)
            is_strangers = bool(maker.why) and version_authors.maker.is_stranger
            author = FileAuthor(maker.kind if is_strangers else AuthorKind.YOU)
            return Authorship(author.kind, main=author, rest=author, stands=True, approved=True)
        base_author = self._find_base_author(version_authors, trees)
        rest = self._find_furthest_author(version_authors, "", trees, base_author)
        files = {
            path: self._find_furthest_author(version_authors, path, trees, base_author)
            for path in version_authors.provenance.files
        }
        main = main_file(Kind(version_authors.kind), version_authors.name)
        name = next((path for path in files if path.casefold() == main.casefold()), main)
        furthest = max((*files.values(), rest), key=_measure_distance)
        main_author = files.get(name, rest)
        is_agents = main_author.kind is AuthorKind.AGENT
        base = version_authors.base
        stands = not files and version_authors.standing_base(trees) is not None
        return Authorship(
            furthest.kind,
            furthest.by,
            main=main_author,
            files=files,
            rest=rest,
            changes=tuple(self._find_changes(version_authors, files)),
            is_new=is_agents and self._is_new(version_authors, name),
            stands=stands,
            approved=stands and base is not None and (base.proposed or not base.is_person),
            pulled=self._find_pull_commit(version_authors),
        )

    def _find_pull_commit(self, version_authors: VersionAuthors) -> str:
        """Return the commit of the newest pull that the provenance names and that the person
        follows.
        """
        authors = sorted(version_authors.others.items(), reverse=True)
        # What was there at the base is the person's own, no matter who brought it.
        pulls = (
            author.pull
            for number, author in authors
            if number != version_authors.provenance.base and self._is_followed(author)
        )
        return next((clean_name(pull.commit) for pull in pulls if pull is not None), "")

    def _is_followed(self, author: VersionAuthor) -> bool:
        """Return whether a pull that the person follows brought a version.

        Under a lock nothing is followed.
        """
        if self._library.lock is not None or author.principal is not Principal.REPOSITORY:
            return False
        return is_followed(author, self._library.store.backend.trusted_folders())

    def maker(self, version_authors: VersionAuthors) -> FileAuthor:
        return self._make_file_author(version_authors.maker)

    def _find_base_author(self, version_authors: VersionAuthors, trees: set[str]) -> FileAuthor:
        """Return the author of the files that nobody changed since the base."""
        base = version_authors.standing_base(trees)
        if base is None:
            return FileAuthor(AuthorKind.YOU)
        author = self._make_file_author(base)
        # A person stands for the base, so it is unmarked, and what an agent wrote counts as theirs.
        if author.kind is AuthorKind.AGENT:
            return FileAuthor(AuthorKind.YOU)
        return replace(author, why="")

    def discount_unsigned(self, version_authors: VersionAuthors) -> VersionAuthors:
        """Return the authors of a version where only signed decisions count.

        Unsigned ones count as an agent's.
        """
        lock, backend = self._library.lock, self._library.store.backend
        assert lock is not None
        signed = lock.vouched_operations(
            backend,
            {author.operation for author in version_authors.others.values() if author.is_person},
        )
        base = version_authors.base
        # The base itself is unsigned: the newest one that is signed takes its place.
        if base is not None and base.is_person and base.operation not in signed:
            signed_authors = backend.authorship.version_authors(
                version_authors.resource,
                version_authors.maker.version,
                lambda author: (
                    author.operation in lock.vouched_operations(backend, [author.operation])
                ),
            )
            version_authors = signed_authors or version_authors
            signed = lock.vouched_operations(
                backend,
                {
                    author.operation
                    for author in version_authors.others.values()
                    if author.is_person
                },
            )
        others = {
            number: self._discount_author(author, signed)
            for number, author in version_authors.others.items()
        }
        return replace(
            version_authors,
            maker=self._discount_author(version_authors.maker, signed),
            others=others,
        )

    def _discount_author(self, author: VersionAuthor, signed: set[int]) -> VersionAuthor:
        is_unsigned = author.is_person and author.operation not in signed
        if is_unsigned or author.principal is Principal.UNKNOWN:
            return replace(author, principal=Principal.AGENT, actor=Actor.AGENT, via="file")
        return author

    def _find_furthest_author(
        self, version_authors: VersionAuthors, path: str, trees: set[str], base_author: FileAuthor
    ) -> FileAuthor:
        """Return the author of a file: of several the one furthest from the reader.

        path: '' for the other files.
        """
        authors = version_authors.authors_of(path, trees)
        judged = [
            self._make_file_author(
                author, new=self._is_new_by_other_session(author, version_authors, path)
            )
            for author in authors
        ]
        return max(judged, key=_measure_distance, default=base_author)

    def _is_new_by_other_session(
        self, author: VersionAuthor, version_authors: VersionAuthors, path: str
    ) -> bool:
        """Return whether a file is an agent's own, which no person looked at and which another
        session made.
        """
        return author.is_agent and not self._is_own(author) and self._is_new(version_authors, path)

    def _is_new(self, version_authors: VersionAuthors, path: str) -> bool:
        """Return whether an agent made a file that is not in the base."""
        parts = version_authors.provenance.files.get(path, ())
        first = version_authors.others.get(parts[0].version) if parts else None
        if first is None or not first.is_agent or parts[0].lines is not None:
            return False  # where lines were compared, there was a file before
        base = version_authors.provenance.base
        manifest = (
            self._library.store.backend.manifest(version_authors.resource, base) if base else None
        )
        return manifest is None or path not in manifest

    def _is_own(self, author: VersionAuthor) -> bool:
        """Return whether the session of the reader made a version."""
        return self._reader is not None and self._library.is_own(
            self._reader, author.operation, author.session
        )

    def _make_file_author(self, version_author: VersionAuthor, *, new: bool = False) -> FileAuthor:
        kind, by = author_kind(
            version_author.principal, version_author.via, version_author.actor, self._subject
        )
        # Whose text is marked: a stranger's until a person follows or trusts it, an agent's while
        # it is new (or always, under a lock), and that of another member's agent.
        if kind is AuthorKind.AGENT:
            is_marked = new or self._library.marks_agents
        elif kind is AuthorKind.MEMBER:
            is_marked = version_author.principal is Principal.AGENT
        elif kind is AuthorKind.YOU or by == BY_PROGRAM:
            is_marked = False
        else:
            is_marked = not self._is_followed(version_author)
        return FileAuthor(kind, by, _WHY[kind] if is_marked else "")

    def _find_changes(
        self, version_authors: VersionAuthors, files: Mapping[str, FileAuthor]
    ) -> list[AgentChange]:
        changes = []
        for path, author in files.items():
            if author.why and author.kind is not AuthorKind.AGENT:
                continue
            for part in version_authors.provenance.files[path]:
                version_author = version_authors.others.get(part.version)
                if version_author is None or not part.is_there:
                    continue
                part_author = self._make_file_author(version_author)
                if part_author.kind is AuthorKind.AGENT:
                    changes.append(AgentChange(path, part, version_author, part_author.by))
        return sorted(changes, key=lambda change: -change.part.version)


def _measure_distance(author: FileAuthor) -> tuple[bool, int]:
    # A marked text is further from the reader than any other.
    return bool(author.why), _ORDER.index(author.kind)


def subject_of(via: str) -> str:
    """Return the subject that signed in or has a token, '' for the account whose
    library this is.
    """
    return via if via.startswith(("token:", "oidc:")) else ""


def author_kind(
    principal: Principal, via: str, actor: Actor, subject: str = ""
) -> tuple[AuthorKind, str]:
    """Return the author of a change for a reader, and by what name.

    subject: of the reader, see `subject_of`.
    """
    if principal is Principal.REPOSITORY:
        return AuthorKind.REPOSITORY, ""
    if principal is Principal.IMPORT:
        is_quickstart = via == QUICKSTART.via
        return AuthorKind.IMPORT, BY_PROGRAM if is_quickstart else clean_name(via.partition(":")[2])
    # A file on disk, which any program of this account can write; it counts as the person's own.
    if principal is Principal.UNKNOWN:
        return AuthorKind.YOU, "file"
    is_own = subject_of(via) == subject
    is_deciding_script = principal is Principal.SCRIPT and actor is Actor.HUMAN
    if principal is Principal.PERSON or is_deciding_script:
        return (AuthorKind.YOU, "") if is_own else (AuthorKind.MEMBER, _find_name(via) or "owner")
    by = _find_name(via) or (str(actor) if actor is not Actor.AGENT else "")
    return (AuthorKind.AGENT if is_own else AuthorKind.MEMBER), by


def operation_author(operation: Operation, reader: Caller | None = None) -> tuple[AuthorKind, str]:
    """Return the author of an operation for a reader, and by what name."""
    principal = operation.principal or implied_principal(operation.actor)
    subject = subject_of(reader.via) if reader is not None else ""
    return author_kind(principal, operation.intent.via, operation.actor, subject)


def author_words(kind: str, by: str) -> str:
    """Return an author as a table names it: `you (file)`, `agent (Codex)`, `repository`."""
    return f"{kind} ({by})" if by else kind


_CLIENTS = {
    "claude-code": "Claude Code",
    "codex": "Codex",
    "codex-mcp-client": "Codex",
    "cursor": "Cursor",
}


def _find_name(via: str) -> str:
    name = via.partition(":")[2].removeprefix("oauth:")
    return clean_name(_CLIENTS.get(name, name))


MAX_NAME = 40
"""Characters of a name in a line."""

_NO_NAME = re.compile(r"[^\w .@-]+|_")


def clean_name(text: str) -> str:
    """Return a name as a line shows it: letters, digits, spaces, and the characters `.@-`."""
    # Cut first, because a client chooses its name.
    return " ".join(_NO_NAME.sub(" ", text[: 4 * MAX_NAME]).split())[:MAX_NAME].rstrip()


MAX_LINE = 200
"""Bytes of the line of provenance."""

_MAX_RANGES = 3


def provenance_line(ref: str, authorship: Authorship, now: str) -> str:
    """Return the line that says what the reader's agent changed and how to take it back, '' for
    nothing.

    Of what a pull brought to a folder whose pulls the person follows it names the commit. ref: with
    the version. now: the time, as the store has it.
    """
    pulled = f"last pull, commit {authorship.pulled}" if authorship.pulled else ""
    if not authorship.changes:
        line = f"{ref}: {pulled}" if pulled else ""
        # Parts are left out from the least important until the line fits: an agent pays for each
        # byte.
        return line if len(line.encode()) <= MAX_LINE else pulled
    newest = authorship.changes[0]
    agent_words = f"your agent ({newest.by})" if newest.by else "your agent"
    count = len({change.part.version for change in authorship.changes})
    more = f"; {count} changes in all" if count > 1 else ""
    age, operation = age_of(newest.version_author.at, now), newest.version_author.operation
    after = f", {age}, not yet looked at{more}; take back: undo {operation}"
    what = _describe_part(newest)
    line = f"{ref}: {agent_words} {what}{after}"
    if pulled and len(f"{line}; {pulled}".encode()) <= MAX_LINE:
        return f"{line}; {pulled}"
    if len(line.encode()) > MAX_LINE:
        line = f"{ref}: {agent_words} changed it{after}"
    return line if len(line.encode()) <= MAX_LINE else f"your agent changed it{after}"


def _describe_part(change: AgentChange) -> str:
    path, part = change.path, change.part
    place = "" if "/" not in path and path.endswith(".md") else f" of {path}"
    if part.lines is None:
        return f"wrote {path}"
    if not part.lines:
        return f"removed {_count_lines(part.removed)}{place}"
    return f"changed {_format_ranges(part.lines)}{place}"


def _count_lines(lines: int) -> str:
    return "1 line" if lines == 1 else f"{lines:,} lines"


def _format_ranges(lines: Iterable[int]) -> str:
    """Return lines in words: `line 9`, `lines 9 and 11`, `lines 3-5, 9 and 12, and more`."""
    spans = list[tuple[int, int]]()
    for line in lines:
        if spans and spans[-1][1] == line - 1:
            spans[-1] = spans[-1][0], line
        else:
            spans.append((line, line))
    words = [str(first) if first == last else f"{first}-{last}" for first, last in spans]
    if words == [str(spans[0][0])]:
        return f"line {words[0]}"
    if len(words) > _MAX_RANGES:
        return f"lines {', '.join(words[:_MAX_RANGES])} and more"
    return f"lines {' and '.join(filter(None, (', '.join(words[:-1]), words[-1])))}"


def age_of(at: str, now: str) -> str:
    """Return how long ago something was, in words."""
    seconds = (datetime.fromisoformat(now) - datetime.fromisoformat(at)).total_seconds()
    for size, name in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        count = int(seconds // size)
        if count:
            return f"{count:,} {name}{'s' if count > 1 else ''} ago"
    return "just now"


def reason_notice(operation: Operation) -> str:
    """Return what a mark says of the reason and the evidence of an operation, '' for a person's.

    The content of a version may be a person's while its reason is an agent's, as after an agent's
    restore.
    """
    kind, by = operation_author(operation)
    return "" if kind is AuthorKind.YOU or by == BY_PROGRAM else _WHY[kind]

"""The verb that shows a resource's versions, and the difference between two of them."""

from collections.abc import Iterator
from dataclasses import dataclass

from evolvable_store.errors import InvalidArgument
from evolvable_store.objects import File, Manifest, TreeEntry
from evolvable_store.operation import Actor, Head
from evolvable_store.resource import Ref
from evolvable_tools.foreign_text import AnswerMarks
from evolvable_tools.leaks import is_env_file, is_released
from evolvable_tools.library import Caller, Library
from evolvable_tools.trust import UNMARKED_SAID, operation_said, version_said

MAX_LIMIT = 100

MAX_DIFF = 40_000
"""Characters of a diff; clients cut longer results in the middle."""

MAX_DIFF_FILE = 512 * 1024
"""Bytes of a file that is still compared line by line."""


@dataclass(frozen=True, slots=True)
class PastVersion:
    """One version: when, by whom, why, in which operation, and the files it changed against the one before.

    evidence: what its operation states about itself, such as a conflict with the version before. principal, via: who
    answers for it, and how that is known; '' in versions before 0.2.
    """

    version: int
    at: str
    actor: str
    reason: str
    operation: int
    session: str | None
    files: list[str]
    evidence: list[str]
    principal: str = ""
    via: str = ""


@dataclass(frozen=True)
class History:
    """Versions, newest first. `head` is None when the resource is removed; `diff` is a unified diff or None.

    notice: what the marks around reasons and evidence mean, '' where there are none.
    """

    ref: str
    head: int | None
    versions: list[PastVersion]
    diff: str | None = None
    notice: str = ""


def history(
    library: Library,
    caller: Caller,
    ref: Ref,
    *,
    from_version: int | None = None,
    to_version: int | None = None,
    limit: int = 20,
) -> History:
    """Returns up to `limit` versions and, when a version is named, the diff from one to the other.

    from_version alone compares with the newest, to_version alone with the one before it. Works for removed
    resources too. What nobody the user trusts wrote reaches an agent between marks. Raises NoSuchResource,
    NoSuchVersion, InvalidArgument.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidArgument(f"limit is {limit}.", f"It may be 1 to {MAX_LIMIT}.")
    store = library.store
    head = store.head_or_none(ref, caller.scopes) or store.head(ref, caller.scopes)
    pasts, marks = store.history(head, limit), AnswerMarks(caller.actor is not Actor.HUMAN)
    rows = []
    for past in pasts:
        number = past.version.number
        parent = store.manifest(head, number - 1) if number > 1 else Manifest({})
        changed = changed_files(parent, store.manifest(head, number))
        made = past.operation
        reason, evidence = made.reason, list(made.intent.evidence)
        if marks.on and operation_said(library, made):
            reason, evidence = marks.line(reason), [marks.line(text) for text in evidence]
        who = (made.principal or "", "" if made.arrived else made.intent.via)
        rows.append(PastVersion(number, made.at, made.actor, reason, made.id, made.session, changed, evidence, *who))
    text = None
    if from_version is not None or to_version is not None:
        new = to_version or head.latest
        old = from_version if from_version is not None else new - 1
        before = store.manifest(head, old) if old > 0 else Manifest({})
        text = diff(library, before, store.manifest(head, new), (str(old), str(new)))
        if marks.on and (said := _said(library, head, old, new)):
            text = marks.block(text, f"diff of {head.ref} from {old} to {new}", said)
    return History(str(head.ref), head.version, rows, text, marks.notice)


def _said(library: Library, head: Head, *numbers: int) -> str:
    """Return what a reader is told of the first of these versions that is not trusted, '' when all are."""
    said = (version_said(library, head, number) for number in reversed(numbers) if number > 0)
    return next((text for text in said if text not in UNMARKED_SAID), "")


def changed_files(before: Manifest, after: Manifest) -> list[str]:
    """Returns the paths that differ, sorted."""
    return sorted(path for path in {*before, *after} if before.get(path) != after.get(path))


def diff(library: Library, before: Manifest, after: Manifest, names: tuple[str, str]) -> str:
    """Returns the unified diff between two manifests, cut at MAX_DIFF characters; `names` mark the two sides."""
    parts: list[str] = []
    length = 0
    for path in changed_files(before, after):
        for line in _diff_file(library, path, before.get(path), after.get(path), names):
            length += len(line)
            if length > MAX_DIFF:
                return "".join(parts) + "... cut here; compare fewer versions, or read the files with get_resource.\n"
            parts.append(line)
    return "".join(parts)


def _diff_file(
    library: Library, path: str, before: TreeEntry | None, after: TreeEntry | None, names: tuple[str, str]
) -> Iterator[str]:
    old, new = _lines(library, before), _lines(library, after)
    if is_env_file(path) and not all(is_released(library, entry.sha256) for entry in (before, after) if entry):
        old = new = None
    was = f"{path}@{names[0]}" if before else "/dev/null"
    now = f"{path}@{names[1]}" if after else "/dev/null"
    if old is None or new is None:
        sizes = f"{before.size if before else 0} to {after.size if after else 0} bytes"
        yield f"--- {was}\n+++ {now}\n(not text, too long to compare, or an environment file: {sizes})\n"
        return
    if before and after and before.mode != after.mode:
        yield f"mode of {path}: {before.mode:o} to {after.mode:o}\n"
    import difflib  # late: a server answers before anybody compares

    for line in difflib.unified_diff(old, new, was, now):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _lines(library: Library, entry: TreeEntry | None) -> list[str] | None:
    if entry is None:
        return []
    if entry.size > MAX_DIFF_FILE:
        return None
    return text_lines(File(library.store.blob(entry.sha256)))


def text_lines(file: File) -> list[str] | None:
    """Returns the lines with their ends (only `\\n` ends one), or None when it is not text."""
    if b"\0" in file.data:
        return None
    try:
        text = file.data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return [line + "\n" for line in text.split("\n")[:-1]] + (
        [text.rpartition("\n")[2]] if not text.endswith("\n") else []
    )

"""What hosts see of the library: which version of each skill, what they are told of it, and when
that changes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evolvable_store import (
    MAX_DESCRIPTION,
    Change,
    Manifest,
    Severity,
    Store,
    is_person_only,
    parse_document,
)
from evolvable_store.errors import NoSuchVersion
from evolvable_store.resource import USER_SCOPE, Kind, Ref, main_file
from evolvable_store.storage import ChannelEntry

MAX_SHOWN_FILES, MAX_SHOWN_BYTES = 512, 16 * 2**20
"""What every host must take of one skill: SEP-2640, Limits."""

MAIN = main_file(Kind.SKILL, "")

_MOVES = 500  # read at once
_REMEMBERED = 4096


@dataclass(frozen=True)
class SkillEntry:
    """One version of a skill as a host is told of it.

    `frontmatter`: every field of its SKILL.md. `left_out`: why it cannot be offered, () when it
    can; its files can be read all the same.
    """

    ref: Ref
    version: int
    frontmatter: Mapping[str, object]
    files: Manifest
    left_out: tuple[str, ...]

    @property
    def is_listed(self) -> bool:
        """Whether it is in a list of skills.

        What only a person calls is in none, and is there by its name.
        """
        return not self.left_out and not is_person_only(self.frontmatter)


@dataclass(frozen=True, slots=True)
class _Head:
    """The fields of a SKILL.md, and what is wrong with its frontmatter."""

    fields: Mapping[str, object]
    wrong: tuple[str, ...]


class HostCatalog:
    """The skills that hosts see, as one moment found them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._skills = [
            entry
            for entry in store.backend.channel.list_entries()
            if entry.visible_version is not None
        ]
        self._named: dict[str, dict[str, ChannelEntry]] = {}
        for entry in self._skills:
            self._named.setdefault(entry.ref.scope or USER_SCOPE, {})[entry.ref.name] = entry

    def skills(self, scopes: Sequence[str] | None = None) -> list[ChannelEntry]:
        """Return them by name and scope.

        scopes: only what is seen from there, nearest first; of two with one name the nearer. None:
        all there are.
        """
        if scopes is None:
            return self._skills
        nearest: dict[str, ChannelEntry] = {}
        # With one scope there are no two skills of one name, so the query is spared.
        last = self._store.backend.authorship.untrusted_resources() if len(scopes) > 1 else set()
        for is_last in (True, False):  # what nobody trusts hides no other skill of its name
            for scope in reversed(scopes):
                nearest |= {
                    entry.ref.name: entry
                    for entry in self._skills
                    if entry.ref.scope == scope and (entry.resource in last) is is_last
                }
        return [nearest[name] for name in sorted(nearest)]

    def entry(self, skill: ChannelEntry, version: int | None = None) -> SkillEntry:
        """Return what hosts are told of a skill, in the version they see unless one is named.

        Raises NoSuchVersion, LibraryCorrupt.
        """
        ref, number = skill.ref, version or skill.visible_version or 0
        files = self._store.backend.manifest(skill.resource, number)
        if files is None:
            raise NoSuchVersion(
                f"{ref} has no version {number}.", "resource_history shows those there are."
            )
        head = _read_head(self._store, files[MAIN].sha256) if MAIN in files else None
        reasons = (*_left_out(ref.name, files, head), *self._find_address_conflict(skill, files))
        return SkillEntry(ref, number, head.fields if head else {}, files, reasons)

    def _find_address_conflict(self, skill: ChannelEntry, files: Manifest) -> tuple[str, ...]:
        """Return a reason when one of its addresses is another skill's; see `is_users`."""
        name, scope = skill.ref.name, skill.ref.scope or USER_SCOPE
        if scope != USER_SCOPE:
            other = self._named.get(USER_SCOPE, {}).get(scope)
            if other is not None and is_users(self._store, other.resource, skill.resource, name):
                return (f"its address is taken by a directory of {other.ref}",)
            return ()
        for path in sorted(files):
            directory, slash, _ = path.partition("/")
            other = self._named.get(name, {}).get(directory) if slash else None
            if other is None:
                continue
            if not is_users(self._store, skill.resource, other.resource, directory):
                return (f"the address of its file {path} is taken by a skill of project {name}",)
        return ()


def is_users(store: Store, user: int, project: int, name: str) -> bool:
    """Return whether skill://acme/NAME/ is a directory of the user's skill acme, and not project
    acme's skill NAME.

    Both can be there. The one that hosts saw first keeps the address, so that nothing that is made
    later changes what they get from it. user, project: the two resources.
    """
    theirs = _find_first_move(store, project, "")
    own = _find_first_move(store, user, f"{name}/")
    return own is not None and (theirs is None or own < theirs)


def _find_first_move(store: Store, resource: int, directory: str) -> int | None:
    """Return the move since which the channel has shown files in this directory of a skill, None
    when it does not.
    """
    first = None
    for move, version in store.backend.channel.history(resource):
        files = store.backend.manifest(resource, version) if version else None
        if not any(path.startswith(directory) for path in files or ()):
            break
        first = move
    return first


def _left_out(name: str, files: Manifest, head: _Head | None) -> list[str]:
    """Return every reason why hosts cannot be offered the skill: the Agent Skills specification and
    the limits.
    """
    reasons = []
    if len(files) > MAX_SHOWN_FILES:
        reasons.append(f"it has {len(files):,} files, hosts take {MAX_SHOWN_FILES}")
    if files.size > MAX_SHOWN_BYTES:
        reasons.append(
            f"its files have {files.size:,} bytes together, hosts take {MAX_SHOWN_BYTES:,}"
        )
    if head is None:
        return [*reasons, f"it has no {MAIN}"]
    reasons += head.wrong
    name_field, description = head.fields.get("name"), head.fields.get("description")
    if name_field != name:
        reasons.append(
            f"its frontmatter gives the name {ascii(name_field)[:80]}, it is called {name}"
        )
    if not isinstance(description, str) or not description.strip():
        reasons.append("it has no description")
    elif len(description) > MAX_DESCRIPTION:
        reasons.append(
            f"its description has {len(description):,} characters, the limit is {MAX_DESCRIPTION:,}"
        )
    return reasons


_heads: dict[str, _Head] = {}  # by the blob's hash, so nothing in it grows old


def _read_head(store: Store, sha256: str) -> _Head:
    head = _heads.get(sha256)
    if head is None:
        data = store.blob(sha256)
        document = parse_document(data)
        wrong = [
            defect.text for defect in document.defects if defect.severity is not Severity.WARNING
        ]
        if document.fields and not data.startswith(b"---"):
            wrong.append("it does not begin with its frontmatter")
        # Cleared whole: an entry costs one read of a blob, so keeping the newest is not worth the
        # code.
        if len(_heads) >= _REMEMBERED:
            _heads.clear()
        head = _heads[sha256] = _Head(document.fields, tuple(wrong))
    return head


def changes_seen(store: Store, changes: Sequence[Change]) -> list[Change]:
    """Return what hosts see of these changes of the library, before any move of the channel that
    came with them.

    Of a skill only that it vanished, or is back at the version that they saw before. Of other kinds
    every change.
    """
    visible, held_skills = [], _find_held_skills(store, changes)
    for change in changes:
        if change.kind is not Kind.SKILL:
            visible.append(change)
        elif (change.before is None) is not (change.after is None):
            entry = held_skills.get(change.ref)
            if entry and entry.version is not None and entry.operation < change.operation:
                went = change.after is None
                before, after = (entry.version, None) if went else (None, entry.version)
                visible.append(
                    _make_change(change.operation, change.ref, before, after, change.sequence)
                )
    return visible


def _find_held_skills(store: Store, changes: Sequence[Change]) -> dict[Ref, ChannelEntry]:
    """Return where the channel holds the skills that came or went with these changes."""
    if all((change.before is None) is (change.after is None) for change in changes):
        return {}
    heads = store.backend.changed_heads(changes[0].sequence - 1, changes[-1].sequence)
    return {
        entry.ref: entry
        for entry in store.backend.channel.of_resources(head.id for head in heads).values()
    }


def moves_seen(store: Store, move: int) -> tuple[list[Change], int]:
    """Return what hosts saw change by some moves of the channel after this one, and the number of
    the last of them.
    """
    placements = store.backend.channel.placements_after(move, _MOVES)
    visible = [
        _make_change(placement.operation, placement.ref, placement.before, placement.after)
        for placement in placements
    ]
    return visible, max((placement.move for placement in placements), default=move)


def _make_change(
    operation: int, ref: Ref, before: int | None, after: int | None, sequence: int = 0
) -> Change:
    return Change(sequence, operation, ref.kind, ref.scope or USER_SCOPE, ref.name, before, after)

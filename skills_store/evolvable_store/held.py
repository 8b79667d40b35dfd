"""What lies in a watched folder and is not served: contents that wait as proposals while the files stay as they are."""

from collections.abc import Sequence
from dataclasses import dataclass

from evolvable_store.bindings import Folder
from evolvable_store.operation import Actor, Identity
from evolvable_store.proposals import APPROVED, EXPIRED, OPEN, Adding, Draft
from evolvable_store.resource import Kind, Ref
from evolvable_store.sqlite import SqliteBackend


@dataclass(frozen=True, slots=True)
class Held:
    """A directory whose content is held. tree: of that content. proposal, state: what waits, and whether it still does.

    resource: by its ref.
    """

    folder: int
    directory: str
    tree: str
    proposal: int
    state: str
    resource: str = ""

    @property
    def approved(self) -> bool:
        """Whether a person approved it since."""
        return self.state == APPROVED


class HeldFiles:
    """The held directories of one library."""

    def __init__(self, backend: SqliteBackend) -> None:
        self._backend = backend

    def of_folder(self, folder: Folder) -> dict[str, Held]:
        """Return what is held in a folder, by directory."""
        return {held.directory: held for held in self.all() if held.folder == folder.id}

    def all(self) -> list[Held]:
        """Return everything that is held."""
        with self._backend.reading() as db:
            rows = db.execute(_HELD).fetchall()
        return [Held(row[0], row[1], row[2], row[3], row[4], str(Ref(Kind(row[5]), row[6], row[7]))) for row in rows]

    def hold(self, folder: Folder, directory: str, tree: str, draft: Draft, at: str, identity: Identity) -> int:
        """Hold the content of a directory as a proposal, instead of what was held there; return the proposal's id."""
        adding = Adding(at, Actor.AGENT if identity.principal == "agent" else Actor.IMPORT, _session(folder), [draft])
        with self._backend.writing() as db:
            db.execute(_CLOSE, (EXPIRED, "the files on disk changed", folder.id, directory, OPEN))
            (proposal,) = adding.into(db)
            who = (identity.principal, identity.via, proposal)
            db.execute("UPDATE proposal SET principal = ?, via = ? WHERE id = ?", who)
            row = (folder.id, directory, tree, proposal, at)
            db.execute("INSERT OR REPLACE INTO held VALUES (?, ?, ?, ?, ?)", row)
        return proposal

    def release(self, folder: Folder, directories: Sequence[str]) -> None:
        """Hold these directories no longer: their files changed, or are what the library has."""
        with self._backend.writing() as db:
            for directory in directories:
                db.execute(_CLOSE, (EXPIRED, "the files on disk changed", folder.id, directory, OPEN))
                db.execute("DELETE FROM held WHERE folder = ? AND directory = ?", (folder.id, directory))


def _session(folder: Folder) -> str:
    return f"folder-{folder.id}"


_HELD = """SELECT h.folder, h.directory, h.tree, h.proposal, p.state, p.kind, p.name, p.scope
    FROM held h JOIN proposal p ON p.id = h.proposal ORDER BY h.folder, h.directory"""
_CLOSE = """UPDATE proposal SET state = ?, decision = ? WHERE id = (
    SELECT proposal FROM held WHERE folder = ? AND directory = ?) AND state = ?"""

"""Checks the history of one resource from an archive: every hash, every step, every file."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from evolvable_store.archive.history_staging import StagedChange, Staging, Verdict
from evolvable_store.frontmatter import is_frozen
from evolvable_store.objects import EXECUTABLE, MAX_RESOURCE, PLAIN, File, Manifest, chain_hash
from evolvable_store.operation import Actor, Intent
from evolvable_store.problems import main_path, problems, refused
from evolvable_store.resource import Ref


def check_history(staging: Staging, ref: Ref) -> tuple[str, ...]:
    """Returns what is wrong with the first unsound change of a resource, () when its history is sound.

    What was found is noted with every change. Files pass the lenient door: what a person's own folder may hold, a
    library may move with all its versions; what is hostile or unreadable comes in nowhere.
    """
    check = _Check(staging, ref)
    for change in staging.changes(ref):
        found = tuple(check.step(change))
        if found:
            return found
    return ()


@dataclass
class _Check:
    """The state of the resource after the changes seen so far."""

    staging: Staging
    ref: Ref
    version: int | None = None
    latest: int = 0
    tree: str = ""
    hash: str = ""
    frozen: bool = False
    files: dict[str, File] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def step(self, change: StagedChange) -> Iterator[str]:
        """Yields what is wrong with the change; after a sound one, the state is the one behind it."""
        intent = self.staging.intent(change.operation)
        if intent is None:
            yield f"its operation {change.operation} is missing"
        elif self.frozen and intent.actor is not Actor.HUMAN:
            yield f"{intent.actor} changed it while it was frozen"
        elif change.manifest is not None:
            yield from self._new_version(change, change.manifest, intent)
        elif self.latest == 0 or change.after == self.version or change.after not in (None, self.latest):
            yield f"after version {self.latest} it points at version {change.after}"
        else:
            self.version = change.after
            self.staging.judge(change, Verdict(self.latest, self.hash, self.frozen))

    def _new_version(self, change: StagedChange, manifest: Manifest, intent: Intent) -> Iterator[str]:
        number = self.latest + 1
        chained = chain_hash(self.hash, number, manifest.tree, intent.digest)
        if change.after != number:
            yield f"after version {self.latest} comes version {change.after}"
        elif change.hash != chained:
            yield f"version {number} does not match its hash"
        elif manifest.tree == self.tree:
            yield f"version {number} has the content of version {self.latest}"
        else:
            found = [f"version {number}: {problem}" for problem in self._content(manifest)]
            yield from found
            if not found:
                self._advance(change, manifest, number)

    def _content(self, manifest: Manifest) -> Iterator[str]:
        """Yields what is wrong with the files of a version; reads them only when they are all there."""
        found = False
        for path, entry in manifest.items():
            if self.staging.size(entry.sha256) != entry.size:
                yield f"{path} is missing or does not match its hash"
                found = True
            elif entry.mode not in (PLAIN, EXECUTABLE):
                yield f"{path} has the mode {entry.mode:o}"
                found = True
        if manifest.size > MAX_RESOURCE:
            yield f"its files have {manifest.size:,} bytes together, the limit is {MAX_RESOURCE:,}"
        elif not found:
            self.files = self._read(manifest)
            yield from map(str, refused(problems(self.ref.kind, self.ref.name, self.files), strict=False))

    def _read(self, manifest: Manifest) -> dict[str, File]:
        # Most files of a version are those of its parent.
        known = {sha256: self.files[path].data for path, sha256 in self.names.items()}
        return {
            path: File(known[e.sha256] if e.sha256 in known else self.staging.blob(e.sha256), e.mode)
            for path, e in manifest.items()
        }

    def _advance(self, change: StagedChange, manifest: Manifest, number: int) -> None:
        main = self.files.get(main_path(self.ref.kind, self.ref.name, self.files))
        self.version = self.latest = number
        self.tree, self.hash = manifest.tree, change.hash
        self.frozen = main is not None and is_frozen(main.data)
        fresh = {entry.sha256 for entry in manifest.values()}.difference(self.names.values())
        self.staging.judge(change, Verdict(number, change.hash, self.frozen, tuple(sorted(fresh))))
        self.names = {path: entry.sha256 for path, entry in manifest.items()}

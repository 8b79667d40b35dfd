"""What this process served to each client: the base of a whole file that the client sends back."""

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

MAX_RESOURCES = 2_000
"""Resources of clients that are remembered. The one that was used longest ago goes first."""

MAX_BYTES = 32 * 1024 * 1024
"""Bytes of all texts that are remembered because no version holds them."""


@dataclass(frozen=True, slots=True)
class ServedFile:
    """A file as a client has it: as a version holds it, or `data` where a client's text was merged
    into that version.

    data: None where the version holds the client's text.
    """

    version: int
    data: bytes | None = None


class ServedTexts:
    """The files that clients have of resources.

    Safe from any thread. A client is named as `Caller.reader` says.
    """

    def __init__(self) -> None:
        self._files: OrderedDict[tuple[str, str], dict[str, ServedFile]] = OrderedDict()
        self._bytes = 0
        # Guards both: calls of one client may run in several threads.
        self._lock = threading.Lock()

    def note(self, reader: str | None, ref: str, path: str, version: int) -> None:
        """Keep that a client has a file of a version, and knows which files the version has."""
        if reader is not None:
            self._keep((reader, ref), {"": ServedFile(version), path: ServedFile(version)})

    def note_change(
        self, reader: str | None, ref: str, before: int, after: int, files: Mapping[str, ServedFile]
    ) -> None:
        """Keep that a client changed a resource from the version `before` to `after`, and has these
        files since.

        What it had of the version before is the same in the one after, as the client changed
        nothing else.
        """
        if reader is None:
            return
        # Files of another version than `before` keep theirs: the client has not seen the change of
        # these.
        served_files = self.files_of(reader, ref)
        moved = {
            path: ServedFile(after)
            for path, file in served_files.items()
            if file == ServedFile(before)
        }
        created = {"": ServedFile(after)} if not before else {}
        self._keep((reader, ref), {**moved, **created, **files})

    def forget(self, reader: str | None, ref: str, paths: Collection[str]) -> None:
        """Forget files of a resource whose text at the client is that of no version."""
        if reader is not None:
            with self._lock:
                served_files = self._files.get((reader, ref), {})
                self._bytes -= _measure_size(served_files)
                for path in paths:
                    served_files.pop(path, None)
                self._bytes += _measure_size(served_files)

    def files_of(self, reader: str | None, ref: str) -> dict[str, ServedFile]:
        """Return the files that a client has of a resource, by path.

        At '' the version whose list of files it has.
        """
        if reader is None:
            return {}
        with self._lock:
            return dict(self._files.get((reader, ref), {}))

    def _keep(self, key: tuple[str, str], files: Mapping[str, ServedFile]) -> None:
        with self._lock:
            served_files = self._files.setdefault(key, {})
            self._bytes -= _measure_size(served_files)
            served_files.update(files)
            self._bytes += _measure_size(served_files)
            self._files.move_to_end(key)
            while len(self._files) > MAX_RESOURCES or self._bytes > MAX_BYTES:
                _, gone = self._files.popitem(last=False)
                self._bytes -= _measure_size(gone)


def _measure_size(files: Mapping[str, ServedFile]) -> int:
    return sum(len(file.data or b"") for file in files.values())

"""What all exports share: which resources they are about, and a file that appears whole or not at all."""

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from evolvable_store.errors import InvalidArgument, LibraryError
from evolvable_store.operation import Head
from evolvable_store.resource import USER_SCOPE, Kind, Ref
from evolvable_store.staging import sync_folder

if TYPE_CHECKING:
    from evolvable_store.store import Store

Stream = IO[bytes]


@contextlib.contextmanager
def written_whole(target: Path | Stream) -> Iterator[Stream]:
    """Yields a stream to write to; a file replaces what was at the path when all is written and on the disk.

    Raises LibraryError when the file cannot be written.
    """
    if not isinstance(target, Path):
        yield target
        return
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
        draft = Path(name)
        try:
            with open(handle, "w+b") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(draft, target)
        finally:
            draft.unlink(missing_ok=True)
        sync_folder(target.parent)
    except OSError as error:
        raise LibraryError(f"{target} cannot be written: {error.strerror or error}.", "Name another file.") from error


def chosen_heads(store: "Store", refs: Iterable[Ref] | None) -> list[Head]:
    """Returns the living heads that `refs` name, by default all skills of the user's scope, ordered by name.

    Raises NoSuchResource, and InvalidArgument when two would get one folder.
    """
    if refs is None:
        return store.heads(Kind.SKILL, USER_SCOPE)
    heads = {head.id: head for head in map(store.head, refs)}
    by_name: dict[str, Head] = {}
    for head in heads.values():
        twin = by_name.setdefault(head.name.casefold(), head)
        if twin is not head:
            raise InvalidArgument(f"{twin.ref} and {head.ref} would share one folder.", "Export them one by one.")
    return [by_name[name] for name in sorted(by_name)]

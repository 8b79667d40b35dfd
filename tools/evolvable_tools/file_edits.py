"""Edits of a resource's files: the one language of the verbs, of reviews and of evolutions."""

from collections.abc import Mapping
from dataclasses import dataclass

from evolvable_store.errors import EditConflict, InvalidArgument, NoSuchFile
from evolvable_store.objects import File
from evolvable_store.paths import check_path


@dataclass(frozen=True, slots=True)
class TextEdit:
    """Replace `old`, which must be in the file exactly once, by `new`."""

    path: str
    old: str
    new: str


def encode_text(path: str, text: str) -> bytes:
    """Return the text as UTF-8. Raises InvalidArgument."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidArgument(f"The text for {path} is not valid Unicode.", "It has a lone surrogate.") from None


def apply_files(files: dict[str, File], given: Mapping[str, str | bytes | None]) -> None:
    """Write whole files; None deletes one. Raises NoSuchFile, InvalidArgument, InvalidPath."""
    for path, content in given.items():
        check_path(path)
        if content is None:
            if files.pop(path, None) is None:
                raise NoSuchFile(f"There is no file {path} to delete.", f"The files: {', '.join(sorted(files))}.")
            continue
        data = content if isinstance(content, bytes) else encode_text(path, content)
        old = files.get(path)
        files[path] = File(data, old.mode) if old else File(data)


def append_line(files: Mapping[str, File], path: str, line: str) -> dict[str, File]:
    """Return the files with a line more at the end of one, unless the line is in it."""
    text = files[path].data.decode("utf-8", "replace") if path in files else ""
    if line in text.split("\n"):
        return dict(files)
    start = f"{text.rstrip(chr(10))}\n" if text.strip() else ""
    return {**files, path: File(f"{start}{line}\n".encode())}


def apply_edit(files: dict[str, File], edit: TextEdit, owner: object) -> None:
    """Make one edit. Raises as `edit_text`."""
    data = edit_text({path: file.data for path, file in files.items()}, edit, owner)
    files[edit.path] = File(data, files[edit.path].mode)


def edit_text(files: Mapping[str, bytes], edit: TextEdit, owner: object) -> bytes:
    """Return the edited file of an edit.

    owner: the resource, for messages. Raises NoSuchFile, InvalidPath, InvalidArgument, and EditConflict unless the old
    text is in the file exactly once.
    """
    data = files.get(check_path(edit.path))
    if data is None:
        raise NoSuchFile(f"{owner} has no file {edit.path}.", f"Its files: {', '.join(sorted(files))}.")
    old, new = encode_text(edit.path, edit.old), encode_text(edit.path, edit.new)
    count = data.count(old) if old else 0
    crlf = b"\r\n" in data
    if count == 0 and old and crlf:  # clients write \n, whatever the file has
        old, new = _with_crlf(old), _with_crlf(new)
        count = data.count(old)
    if count != 1:
        found = "is not there" if count == 0 else f"is there {count} times"
        ends = " Its lines end with CRLF; the search tried \\n and CRLF." if crlf else ""
        raise EditConflict(
            f"The old text {found} in {edit.path} of {owner}.{ends}",
            "Give a piece of the head's text that stands there exactly once; get_resource shows it.",
        )
    return data.replace(old, new)


def _with_crlf(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")

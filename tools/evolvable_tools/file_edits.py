"""Edits of a resource's files: the one language of the verbs, of reviews and of evolutions."""

from collections.abc import Mapping
from dataclasses import dataclass

from evolvable_store import File, Files, check_path
from evolvable_store.errors import EditConflict, InvalidArgument, NoSuchFile
from evolvable_store.resource import Ref, main_file


@dataclass(frozen=True, slots=True)
class TextEdit:
    """Replace `old`, which must be in the file exactly once, by `new`."""

    path: str
    old: str
    new: str


def changed_files(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """Return the paths that differ between two manifests, or between two sets of files, sorted."""
    return sorted(path for path in {*before, *after} if before.get(path) != after.get(path))


def frontmatter_bytes(ref: Ref, files: Files) -> bytes:
    """Return the beginning of the main file, up to where its frontmatter ends."""
    main = files.get(main_file(ref.kind, ref.name))
    return main.data.partition(b"\n---")[0] if main else b""


def encode_text(path: str, text: str) -> bytes:
    """Return the text as UTF-8. Raises InvalidArgument."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidArgument(
            f"The text for {path} is not valid Unicode.", "It has a lone surrogate."
        ) from None


def decode_text(data: bytes) -> str | None:
    """Return the text of a file, or None when it is not text: it has a NUL, or is not UTF-8."""
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def check_text(path: str, data: bytes, owner: object = "") -> str:
    """Return the text of a file that is to be edited. Raises InvalidArgument for one that is not
    text.

    owner: the resource, for the message.
    """
    text = decode_text(data)
    if text is None:
        # UTF-8 written into another encoding leaves a file that no program can read.
        owner_words = f" of {owner}" if owner else ""
        raise InvalidArgument(
            f"{path}{owner_words} is not text in UTF-8.", "Give the whole file instead."
        )
    return text


def apply_files(files: dict[str, File], contents: Mapping[str, str | bytes | None]) -> None:
    """Write whole files; None deletes one. Raises NoSuchFile, InvalidArgument, InvalidPath."""
    for path, content in contents.items():
        check_path(path)
        if content is None:
            if files.pop(path, None) is None:
                raise NoSuchFile(
                    f"There is no file {path} to delete.", f"The files: {', '.join(sorted(files))}."
                )
            continue
        data = content if isinstance(content, bytes) else encode_text(path, content)
        old = files.get(path)
        files[path] = File(data, old.mode) if old else File(data)


def append_line(files: Mapping[str, File], path: str, line: str) -> dict[str, File]:
    """Return the files with a line more at the end of one, unless the line is in it.

    Raises InvalidArgument.
    """
    text = check_text(path, files[path].data) if path in files else ""
    if line in text.split("\n"):
        return dict(files)
    start = f"{text.rstrip(chr(10))}\n" if text.strip() else ""
    return {**files, path: File(f"{start}{line}\n".encode())}


def apply_edit(files: dict[str, File], edit: TextEdit, owner: object) -> None:
    """Make one edit. Raises as `edit_text`."""
    data = edit_text({path: file.data for path, file in files.items()}, edit, owner)
    files[edit.path] = File(data, files[edit.path].mode)


def edit_text(files: Mapping[str, bytes], edit: TextEdit, owner: object) -> bytes:
    """Return the edited file of an edit. What it adds has the line ends that the file has at that
    place.

    owner: the resource, for messages. Raises NoSuchFile, InvalidPath, InvalidArgument, also for a
    file that is not text, and EditConflict unless the old text is in the file exactly once.
    """
    data = files.get(check_path(edit.path))
    if data is None:
        raise NoSuchFile(
            f"{owner} has no file {edit.path}.", f"Its files: {', '.join(sorted(files))}."
        )
    check_text(edit.path, data, owner)
    old = encode_text(edit.path, edit.old)
    new = encode_text(edit.path, edit.new)
    # An empty old text would be found everywhere.
    count = data.count(old) if old else 0
    crlf = b"\r\n" in data
    if count == 0 and old and crlf:  # clients write \n, whatever the file has
        old = _with_crlf(old)
        count = data.count(old)
    if count != 1:
        state = "is not there" if count == 0 else f"is there {count} times"
        ends = " Its lines end with CRLF; the search tried \\n and CRLF." if crlf else ""
        raise EditConflict(
            f"The old text {state} in {edit.path} of {owner}.{ends}",
            "Give a piece of the head's text that is in the file exactly once; "
            "get_resource shows it.",
        )
    return _replace_once(data, old, new)


def _replace_once(data: bytes, old: bytes, new: bytes) -> bytes:
    """Return the data with its one `old` replaced.

    Where the line of it ends with CRLF, those of `new` do too.
    """
    at = data.index(old)
    # A CR alone would stay behind, or become two.
    if old.startswith(b"\n") and data[:at].endswith(b"\r"):
        at, old = at - 1, b"\r" + old
    end = data.find(b"\n", at)
    if end < 0:  # the last line has no end: it goes by the one before
        end = data.rfind(b"\n")
    is_crlf = data[: max(end, 0)].endswith(b"\r")
    return data.replace(old, _with_crlf(new) if is_crlf else new)


def _with_crlf(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")

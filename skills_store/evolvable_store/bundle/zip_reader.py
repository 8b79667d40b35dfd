"""Read a zip that may be hostile: where a byte could have two meanings, the zip is refused.

zipfile reads the directory, this module all else. Nothing is ever extracted to a disk.
"""

import contextlib
import re
import stat
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO

from evolvable_store.errors import InvalidArchive, TooLarge, quote_text
from evolvable_store.objects import EXECUTABLE, PLAIN
from evolvable_store.regular_files import regular_file

# An archive is read from the disk, not into memory; this bounds the time.
MAX_ARCHIVE = 512 * 2**20
"""Bytes of the zip."""

# A GiB holds 64 resources of the largest size.
MAX_TOTAL = 2**30
"""Bytes of all its files, unpacked."""

# Each entry costs a header and a row in memory, whatever its size.
MAX_ENTRIES = 50_000
"""Files and folders of a zip."""

MAX_RATIO, RATIO_FROM = 100, 16 * 2**20
"""Unpacked bytes per byte of the zip, where it unpacks to more than RATIO_FROM.

Text stays below 20.
"""

# The end of the central directory, and the header of an entry, as in PKWARE's APPNOTE 4.3.
_END = struct.Struct("<4s4H2LH")
_LOCAL = struct.Struct("<4s5H3L2H")
# The longest comment of a zip: the end is looked for in so many bytes at its tail.
_COMMENT = 2**16
# General purpose bits 0, 6 and 13: encrypted, strongly encrypted, and a masked directory.
_ENCRYPTED = 0x1 | 0x40 | 0x2000
# Bit 11: the name is UTF-8; without it, code page 437.
_UTF8 = 0x800
# The attribute of Windows for links and junctions.
_REPARSE_POINT = 0x400
# On Windows C:x is a path on another drive.
_DRIVE = re.compile(r"[A-Za-z]:")
_BROKEN = (
    zipfile.BadZipFile,
    NotImplementedError,
    ValueError,
    EOFError,
    OverflowError,
    struct.error,
    zlib.error,
)
# First bytes of gzip, bzip2, xz, zstd, 7z and RAR, and the mark of tar at its place.
_OTHERS = {
    0: (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf", b"Rar!"),
    257: (b"ustar",),
}


@dataclass(frozen=True, slots=True)
class ZipMember:
    """One file of a zip: its path with `/`, in Unicode normal form C, its size unpacked and its
    mode.
    """

    path: str
    size: int
    mode: int
    crc: int
    deflated: bool
    start: int
    end: int


class ZipArchive:
    """The files of an open zip, path -> member, and their bytes."""

    def __init__(self, stream: IO[bytes], members: dict[str, ZipMember]) -> None:
        self._stream, self.members = stream, members

    def read(self, path: str) -> bytes:
        """Return the bytes of a file.

        Raises InvalidArchive unless size and checksum match the directory.
        """
        member = self.members[path]
        self._stream.seek(member.start)
        data = self._stream.read(member.end - member.start)
        try:
            if member.deflated:
                data = _inflate(data, member.size)
        except zlib.error as error:
            raise unsafe_zip(f"{quote_text(path)} is damaged") from error
        if len(data) != member.size or zlib.crc32(data) != member.crc:
            raise unsafe_zip(f"{quote_text(path)} is not what the directory says")
        return data


@contextlib.contextmanager
def open_zip(source: Path | IO[bytes]) -> Iterator[ZipArchive]:
    """Yield a zip after a check of every entry.

    Raises InvalidArchive or TooLarge for a zip that is not plain.
    """
    with contextlib.ExitStack() as files:
        try:
            if isinstance(source, Path):
                source = files.enter_context(open(source, "rb", opener=regular_file))
            members = _read_members(source)
        except OSError as error:
            why = error.strerror or error
            raise InvalidArchive(
                f"The archive cannot be read: {why}.", "Name another file."
            ) from error
        yield ZipArchive(source, members)


def unsafe_zip(why: str) -> InvalidArchive:
    """Return the error for an archive that is not taken, for this reason."""
    return InvalidArchive(
        f"The archive is refused: {why}.", "Nothing was imported; pack the folders again as a zip."
    )


def _read_members(stream: IO[bytes]) -> dict[str, ZipMember]:
    directory, entries, size = _find_directory(stream)
    try:
        with zipfile.ZipFile(stream) as archive:
            infos = archive.infolist()
        if len(infos) != entries:
            raise unsafe_zip("it has other entries than its end says")
        for info in infos:
            _check_entry(info, _clean_name(info.orig_filename))
        members = [_read_member(stream, info) for info in infos]
    except _BROKEN as error:
        raise unsafe_zip(f"it is damaged ({error})") from error
    # Every check runs before a byte is unpacked.
    _check_places(infos, members, directory)
    _check_names(members)
    _check_total(sum(info.file_size for info in infos), size)
    return {
        member.path: member for member in members if member.path and not member.path.endswith("/")
    }


def _find_directory(stream: IO[bytes]) -> tuple[int, int, int]:
    """Return where the directory starts, how many entries it has, and how many bytes the zip has.

    The end that says so must be the only one that any program could take for it.
    """
    size = stream.seek(0, 2)
    if size > MAX_ARCHIVE:
        raise TooLarge(
            f"The archive has {size:,} bytes.",
            f"The limit is {MAX_ARCHIVE:,}.",
        )
    stream.seek(0)
    head = stream.read(512)
    if any(head.startswith(mark, at) for at, marks in _OTHERS.items() for mark in marks):
        raise InvalidArchive(
            "This archive is not a zip.", "Only zip archives are imported; pack the folders as one."
        )
    start = max(0, size - _END.size - _COMMENT)
    stream.seek(start)
    tail = stream.read()
    at = tail.rfind(b"PK\5\6")
    if at < 0 or len(tail) < at + _END.size:
        raise unsafe_zip("it is no zip, or cut off")
    _, disk, first_disk, here, entries, length, directory, comment = _END.unpack_from(tail, at)
    # Anything before, between or behind could be a second zip for another program.
    end = start + at
    has_more = end + _END.size + comment != size or directory + length != end
    if has_more or disk or first_disk:
        raise unsafe_zip("it has several parts, or something before or behind it")
    # The header of one entry in the directory has 46 bytes at least.
    if here != entries or length < 46 * entries:
        raise unsafe_zip("its directory is damaged")
    if entries > MAX_ENTRIES or length > 1024 * MAX_ENTRIES:
        raise TooLarge(
            f"The archive has {entries:,} entries or more.", f"The limit is {MAX_ENTRIES:,}."
        )
    # The locator of zip64 has 20 bytes and stands right before the end; its sizes would need checks
    # of their own.
    if tail[max(0, at - 20) : at].startswith(b"PK\6\7"):
        raise unsafe_zip("it uses the format for huge archives (zip64)")
    return directory, entries, size


def _clean_name(name: str) -> str:
    """Return the name of an entry with `/` and without `./` before it.

    It is '' for the folder that was packed. Older versions of PowerShell write backslashes, and
    `zip -r NAME ./FOLDER` and tools like it write `./`. A name that mixes both separators stays as
    it is.
    """
    name = name.replace("\\", "/") if "/" not in name else name
    while name.startswith("./"):
        name = name[2:]
    return name


def _check_entry(info: zipfile.ZipInfo, name: str) -> None:
    """Raise InvalidArchive unless an entry is a plain file or folder under a plain relative name.

    name: as `_clean_name` gives it.
    """
    # The upper half holds the mode of Unix; 0 where the program that packed wrote none.
    kind = stat.S_IFMT(info.external_attr >> 16)
    quoted_name = quote_text(info.orig_filename, 100)
    if not name and info.orig_filename and not info.file_size and kind in (0, stat.S_IFDIR):
        return
    parts = name.removesuffix("/").split("/")
    if not name or any(unicodedata.category(character) == "Cc" for character in name):
        raise unsafe_zip(f"the name {quoted_name} is empty or has control characters")
    if "\\" in name or _DRIVE.match(name) or {"", ".", ".."}.intersection(parts):
        raise unsafe_zip(f"the name {quoted_name} leads out of the archive")
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR) or info.external_attr & _REPARSE_POINT:
        raise unsafe_zip(f"{quoted_name} is a link or a device")
    if info.flag_bits & _ENCRYPTED:
        raise unsafe_zip(f"{quoted_name} is encrypted")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise unsafe_zip(f"{quoted_name} is packed in a way that few programs read")
    if info.file_size if name.endswith("/") else kind == stat.S_IFDIR:
        raise unsafe_zip(f"{quoted_name} is a folder and a file")


def _read_member(stream: IO[bytes], info: zipfile.ZipInfo) -> ZipMember:
    """Return an entry with the place of its bytes.

    Raise InvalidArchive where its own header says something else than the directory.
    """
    raw = info.orig_filename.encode("utf-8" if info.flag_bits & _UTF8 else "cp437")
    stream.seek(info.header_offset)
    # A reader that trusts the local header and one that trusts the directory must see the same
    # file.
    mark, _, flags, method, *_, name_length, extra_length = _LOCAL.unpack(stream.read(_LOCAL.size))
    is_same_name = mark == b"PK\3\4" and stream.read(name_length) == raw
    if not is_same_name or method != info.compress_type or flags & _ENCRYPTED:
        raise unsafe_zip(f"{quote_text(info.orig_filename, 100)} is described in two ways")
    start = info.header_offset + _LOCAL.size + name_length + extra_length
    path = info.orig_filename
    with contextlib.suppress(UnicodeDecodeError):
        # Some programs write UTF-8 without the flag.
        path = raw.decode("utf-8")
    path = unicodedata.normalize("NFC", _clean_name(path))
    mode = EXECUTABLE if info.external_attr >> 16 & 0o111 else PLAIN
    deflated = info.compress_type == zipfile.ZIP_DEFLATED
    return ZipMember(
        path, info.file_size, mode, info.CRC, deflated, start, start + info.compress_size
    )


def _check_places(
    infos: Sequence[zipfile.ZipInfo], members: Sequence[ZipMember], directory: int
) -> None:
    """Raise InvalidArchive when two entries share bytes.

    Archives that unpack to many times their size are made so.
    """
    places = sorted(
        (info.header_offset, member.end) for info, member in zip(infos, members, strict=True)
    )
    for (_, end), (start, _) in pairwise([*places, (directory, directory)]):
        if end > start:
            raise unsafe_zip("its entries overlap")


def _check_names(members: Sequence[ZipMember]) -> None:
    """Raise InvalidArchive when two entries cannot lie side by side in every file system."""
    files: set[str] = set()
    folders: set[str] = set()
    for member in (member for member in members if member.path):
        # Folded: on Windows and macOS such entries would overwrite each other.
        path = member.path.casefold()
        parts = path.removesuffix("/").split("/")
        folders.update("/".join(parts[:depth]) for depth in range(1, len(parts)))
        if path.endswith("/"):
            folders.add(path.removesuffix("/"))
        elif path in files:
            raise unsafe_zip(
                f"it has {quote_text(member.path, 100)} twice, or in upper and lower case"
            )
        else:
            files.add(path)
    both = files & folders
    if both:
        raise unsafe_zip(f"{quote_text(min(both), 100)} is a folder and a file")


def _check_total(total: int, size: int) -> None:
    if total > MAX_TOTAL:
        raise TooLarge(
            f"The archive unpacks to {total:,} bytes.",
            f"The limit is {MAX_TOTAL:,}.",
        )
    # Below 16 MiB even a bomb does no harm, and small files of blanks pack very well.
    if total > RATIO_FROM and total > MAX_RATIO * size:
        raise TooLarge(
            f"The archive unpacks to {total // size:,} times its size.",
            f"The limit is {MAX_RATIO} times.",
        )


def _inflate(data: bytes, size: int) -> bytes:
    """Return the bytes of a deflate stream, at most one more than `size`."""
    # Without the header of zlib, as zip stores it; max_length keeps a lying size from filling the
    # memory.
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    unpacked = stream.decompress(data, size + 1)
    if len(unpacked) == size and (not stream.eof or stream.unused_data):
        raise zlib.error("it does not end where it should")
    return unpacked

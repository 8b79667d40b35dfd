"""Find copies of a secret in other forms for a purge, and replace those outside of archives.

A text is found as it is, in the notation of JSON, in base64, hex and UTF-16, and inside gzip and
zip. Archives stay as they are: one that is packed again would have other sizes and signatures than
those that name it.
"""

import base64
import binascii
import gzip
import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence

MIN_ENCODED = 8
"""Bytes of the shortest text that is searched in base64 and hex.

A shorter one would match by chance.
"""

# Bounds the memory that a bomb takes; bytes behind the limit are not searched.
MAX_UNPACKED = 64 * 2**20
"""Bytes that are read of one packed file, and of all entries of one archive."""

# Each level multiplies the work by the number of entries.
MAX_DEPTH = 3
"""Archives inside archives that are opened."""

# An entry of a zip is encrypted, damaged, or packed in a way that zipfile does not know.
_UNREADABLE = (
    *(OSError, EOFError, ValueError, RuntimeError, NotImplementedError),
    *(zipfile.BadZipFile, zlib.error),
)
_UTF16 = ("utf-16-le", "utf-16-be")
# Encoders break base64 and hex into lines, of 76 characters in mails.
_BREAKS = b" \t\r\n"
_RUN = re.compile(rb"[A-Za-z0-9+/_-]{8,}={0,2}")


def holds_text(data: bytes, texts: Iterable[bytes], depth: int = MAX_DEPTH) -> bool:
    """Return whether bytes hold one of these texts in any form, or an archive that does."""
    search_texts = tuple(texts)
    if not search_texts:
        return False
    # Once for all texts: a blob may have megabytes.
    joined = data.translate(None, _BREAKS)
    for text in search_texts:
        if any(spelling in data for spelling in (*_list_notations(text), *_encode_wide(text))):
            return True
        if any(spelling in joined for spelling in _list_base64_spellings(text)):
            return True
        if len(text) >= MIN_ENCODED and _encode_hex(text) in joined.lower():
            return True
    return depth > 0 and any(
        holds_text(part, search_texts, depth - 1) for part in unpack_archive(data)
    )


def unpack_archive(data: bytes) -> Iterator[bytes]:
    """Yield the content of a gzip file, or of the entries of a zip, at most MAX_UNPACKED bytes.

    Nothing for other bytes.
    """
    # By its first bytes, not by a name: a secret's file may have any.
    if data.startswith(b"\x1f\x8b"):
        yield _gunzip(data)
    elif zipfile.is_zipfile(io.BytesIO(data)):
        yield from _read_entries(data)


def _gunzip(data: bytes) -> bytes:
    """Return the content of a gzip file, up to its first damage."""
    read = bytearray()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            while len(read) < MAX_UNPACKED and (piece := stream.read1(2**20)):
                read += piece
    except (OSError, EOFError, zlib.error):
        pass
    return bytes(read)


def _read_entries(data: bytes) -> Iterator[bytes]:
    left = MAX_UNPACKED
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            # A comment and the names of entries are stored unpacked, and can hold the secret as
            # well.
            yield archive.comment
            for member in archive.infolist():
                yield member.filename.encode("utf-8", "replace")
                try:
                    with archive.open(member) as stream:
                        part = stream.read(left)
                except _UNREADABLE:
                    continue
                left -= len(part)
                yield part
                if left <= 0:
                    return
    except (OSError, ValueError, zipfile.BadZipFile):
        return


def without_texts(data: bytes, texts: Sequence[bytes], mark: bytes) -> bytes:
    """Return bytes with the texts replaced by a mark in the same form; an archive unchanged.

    Texts that could not be replaced are still found by `holds_text`.
    """
    # Replacing bytes inside an archive would only break it.
    if next(unpack_archive(data), None) is not None:
        return data
    plain_mark = mark.decode("utf-8", "replace")
    # The longest first: a text that is part of another would otherwise leave the rest of that one
    # behind.
    for text in sorted(texts, key=len, reverse=True):
        data = data.replace(text, mark)
        for notation in _list_notations(text):
            data = data.replace(notation, json.dumps(plain_mark)[1:-1].encode())
        for wide, encoding in zip(_encode_wide(text), _UTF16, strict=True):
            data = data.replace(wide, plain_mark.encode(encoding))
        if len(text) >= MIN_ENCODED:
            hexadecimal = re.compile(re.escape(_encode_hex(text)), re.IGNORECASE)
            data = hexadecimal.sub(mark.hex().encode(), data)
            data = _replace_encoded(data, text, mark)
    return data


def _replace_encoded(data: bytes, text: bytes, mark: bytes) -> bytes:
    """Replace a text in the runs of base64 that hold it; a run that is no whole base64 stays."""
    spellings = _list_base64_spellings(text)

    def replace_in(run: re.Match[bytes]) -> bytes:
        encoded = run.group()
        if not any(spelling in encoded for spelling in spellings):
            return encoded
        # The URL-safe alphabet, if the run has one of its two letters.
        altchars = b"-_" if b"-" in encoded or b"_" in encoded else b"+/"
        letters = encoded.rstrip(b"=")
        padded = letters + b"=" * (-len(letters) % 4)
        try:
            plain = base64.b64decode(padded, altchars, validate=True)
        except binascii.Error:
            return encoded
        reencoded = base64.b64encode(plain.replace(text, mark), altchars)
        # The letters can stand for other bytes too, as four letters hold three bytes.
        return reencoded if text in plain else encoded

    return _RUN.sub(replace_in, data) if any(spelling in data for spelling in spellings) else data


def _list_notations(text: bytes) -> list[bytes]:
    """Return a text as it is and as JSON writes it, with and without escapes of other letters."""
    string = text.decode("utf-8", "replace")
    escaped = json.dumps(string)[1:-1].encode()
    unescaped = json.dumps(string, ensure_ascii=False)[1:-1].encode()
    return list({text, escaped, unescaped})


def _encode_wide(text: bytes) -> list[bytes]:
    """Return a text in UTF-16, in both orders of bytes."""
    return [text.decode("utf-8", "replace").encode(encoding) for encoding in _UTF16]


def _encode_hex(text: bytes) -> bytes:
    return text.hex().encode()


def _list_base64_spellings(text: bytes) -> list[bytes]:
    """Return base64 substrings, one of which is in any encoding of bytes with this text."""
    if len(text) < MIN_ENCODED:
        return []
    spellings = set()
    # Base64 packs three bytes into four letters, so a text has three spellings by where it begins.
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + text)
        # Letters at the ends also hold bits of the bytes before and after.
        middle = encoded[(before * 8 + 5) // 6 : len(encoded) - 4]
        spellings |= {middle, middle.translate(bytes.maketrans(b"+/", b"-_"))}
    return sorted(spellings)

"""What a file is, where its content cannot be read: programs, archives, long encoded texts."""

import base64
import binascii
import re
from collections.abc import Iterator

from evolvable_tools.scan.findings import Finding, Severity
from evolvable_tools.scan.views import View, written_out

_PROGRAMS = (
    b"\x7fELF",
    b"MZ",
    b"\xfe\xed\xfa\xce",
    b"\xfe\xed\xfa\xcf",
    b"\xce\xfa\xed\xfe",
    b"\xcf\xfa\xed\xfe",
    b"\xca\xfe\xba\xbe",
    b"\0asm",
    b"dex\n",
)
_PROGRAM_NAMES = (
    ".pyc",
    ".pyo",
    ".so",
    ".dll",
    ".dylib",
    ".exe",
    ".jar",
    ".class",
    ".node",
    ".wasm",
    ".msi",
    ".scr",
    ".lnk",
    ".app",
)
_ARCHIVES = (b"PK\x03\x04", b"\x1f\x8b", b"7z\xbc\xaf\x27\x1c", b"Rar!", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
_DOCUMENTS = (
    ".docx",
    ".xlsx",
    ".pptx",
    ".dotx",
    ".xltx",
    ".potx",
    ".odt",
    ".ods",
    ".odp",
    ".epub",
    ".svgz",
    ".sketch",
    ".ipynb",
    ".xmind",
    ".vsdx",
)
_MEDIA = (
    b"\x89PNG",
    b"\xff\xd8\xff",
    b"GIF8",
    b"RIFF",
    b"%PDF",
    b"\0\0\1\0",
    b"wOFF",
    b"wOF2",
    b"\0\1\0\0",
    b"OTTO",
    b"ID3",
    b"OggS",
    b"fLaC",
    b"\0\0\0",
    b"SQLite format 3",
    b"II*\0",
    b"MM\0*",
    b"PAR1",
    b"\x93NUMPY",
    b"BM",
    b"true",
    b"ttcf",
)
_TEXTS = (
    ".md",
    ".txt",
    ".py",
    ".sh",
    ".js",
    ".ts",
    ".json",
    ".yaml",
    ".yml",
    ".toml",
    ".html",
    ".css",
    ".rb",
    ".go",
    ".rs",
)

_BLOB = re.compile(r"(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/]{64,}={0,2}")
_HEX = re.compile(r"(?:\\x[0-9a-fA-F]{2}){40}")
_ORDERS = re.compile(
    rb"curl |wget |/bin/(?:ba)?sh|powershell|invoke-|import os|subprocess|socket\.|eval\(|exec\("
    rb"|ignore (?:all )?previous|https?://\S{4,100}[\"' ]?\s?\|",
    re.IGNORECASE,
)

_READABLE = "Keep it as text that a person can read, or leave it out."


def shape_of_bytes(path: str, data: bytes) -> Iterator[Finding]:
    """Yields what is to say of a file that is not text."""
    name = path.lower()
    if is_program(path, data):
        return  # told as a capability
    if data.startswith(_ARCHIVES):
        if not name.endswith(_DOCUMENTS):
            why = "it is an archive, and nobody looked into it"
            yield Finding("shape.archive", Severity.MEDIUM, path, 0, "", why, "Keep its files in the resource instead.")
    elif name.endswith(_TEXTS):
        why = "it is named like a text and is none, so nobody looked into it"
        yield Finding("shape.not-text", Severity.MEDIUM, path, 0, "", why, "Save it as UTF-8.")
    elif not data.startswith(_MEDIA) and data:
        why = "nobody knows what kind of file it is"
        yield Finding("shape.unknown", Severity.LOW, path, 0, "", why, _READABLE)


def is_program(path: str, data: bytes) -> bool:
    """Returns whether a file is a compiled program, by its beginning or its name."""
    if data.startswith(b"MZ") and b"\0" not in data[:64]:
        return False
    return data.startswith(_PROGRAMS) or (path.lower().endswith(_PROGRAM_NAMES) and b"\0" in data[:4096])


def shape_of_text(view: View) -> Iterator[Finding]:
    """Yields encoded texts in a file that hold orders."""
    if match := _HEX.search(view.text):
        why = "it holds a long text in escapes that nobody can read"
        severity = Severity.MEDIUM if view.is_code else Severity.LOW
        line = view.line(match.start())
        yield Finding(
            "shape.escapes", severity, view.path, line, view.excerpt(match.start(), match.end()), why, _READABLE
        )
    for match in _BLOB.finditer(view.text):
        decoded = _decoded(match[0])
        if found := _ORDERS.search(decoded):
            start = max(0, found.start() - 20)
            shown = written_out(decoded[start : start + 80].decode("utf-8", "replace"))
            why = "an encoded text in it holds orders"
            severity = Severity.HIGH if view.is_code else Severity.MEDIUM
            yield Finding("shape.encoded", severity, view.path, view.line(match.start()), shown, why, _READABLE)


def _decoded(text: str) -> bytes:
    """Returns the bytes that a text stands for when they are readable, else b''."""
    try:
        data = base64.b64decode(text[: len(text) // 4 * 4].encode("ascii"), validate=True)
    except (binascii.Error, ValueError):
        return b""
    start = data[:64]
    readable = sum(32 <= byte < 127 or byte in (9, 10, 13) for byte in start)
    return data if readable > 0.95 * len(start) else b""

"""A block of ours in a file that is somebody else's: put in, replaced and taken out, and not a byte beside it touched.

It stands at the beginning of the file, where no line end of the person's has to be added to set it apart.
"""

from dataclasses import dataclass

BEGIN = b"<!-- evolvable memory: begin"
END = b"<!-- evolvable memory: end -->"
_BOM = b"\xef\xbb\xbf"
_WIDE = (b"\xff\xfe", b"\xfe\xff")


class BrokenBlock(ValueError):
    """The marks do not belong together. line: counted from 1."""

    def __init__(self, what: str, line: int) -> None:
        super().__init__(what)
        self.line = line


@dataclass(frozen=True, slots=True)
class Divided:
    """A file: what stands before the block, the block with its line ends, None without one, and what stands behind."""

    before: bytes
    block: bytes | None
    after: bytes


def divided(data: bytes) -> Divided:
    """Returns the parts of a file. Raises BrokenBlock when it has half a block or two, or is no text of bytes."""
    if data.startswith(_WIDE):
        raise BrokenBlock("it is UTF-16, and not UTF-8", 1)
    at, begun, ended = 0, list[tuple[int, int]](), list[tuple[int, int]]()
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        said = line.removeprefix(_BOM) if number == 1 else line
        if said.startswith(BEGIN):
            begun.append((at + len(line) - len(said), number))
        elif said.strip() == END:
            ended.append((at + len(line), number))
        at += len(line)
    if not begun and not ended:
        return Divided(data, None, b"")
    if len(begun) != 1 or len(ended) != 1 or ended[0][0] <= begun[0][0]:
        odd = (begun[1:] or ended[1:] or begun or ended)[0]
        raise BrokenBlock("the marks of Evolvable's block do not belong together", odd[1])
    start, end = begun[0][0], ended[0][0]
    return Divided(data[:start], data[start:end], data[end:])


def with_block(data: bytes, text: str) -> bytes:
    """Returns the file with the block that says `text`. Raises BrokenBlock."""
    parts = divided(data)
    block = made(text, b"\r\n" if b"\r\n" in parts.before + parts.after else b"\n")
    if parts.block is not None:
        return parts.before + block + parts.after
    mark = _BOM if data.startswith(_BOM) else b""
    return mark + block + data.removeprefix(_BOM)


def without_block(data: bytes) -> bytes:
    """Returns the file as it is without the block. Raises BrokenBlock."""
    parts = divided(data)
    return parts.before + parts.after


def made(text: str, end: bytes) -> bytes:
    """Returns the block that says `text`, its lines ended so."""
    said = text.replace("\r\n", "\n").replace("\r", "\n").strip("\n")
    lines = said.replace("<!-- evolvable memory", "<!- evolvable memory").encode("utf-8", "replace").split(b"\n")
    return end.join([BEGIN + b"; written by Evolvable, what is changed in here is lost -->", *lines, END, b""])

"""How a blob's bytes are stored: as a zlib stream, which any zlib can read, or as the tombstone of purged bytes."""

import base64
import json
import zlib
from dataclasses import asdict, dataclass

try:
    # ISA-L writes the same format three times faster than zlib at its fastest, an eighth larger. Packing is the
    # largest part of an update that is not the commit itself.
    from isal.isal_zlib import compress

    FASTEST = 0
except ImportError:  # no wheel for this platform
    from zlib import compress

    FASTEST = 1  # 0 would not compress at all


def pack(data: bytes) -> tuple[bytes, str]:
    """Returns the stored form of a blob and its codec: 'zlib' or, where that gains nothing, 'raw'."""
    packed = compress(data, FASTEST)
    return (packed, "zlib") if len(packed) < len(data) else (data, "raw")


def unpack(packed: bytes, codec: str) -> bytes:
    """Returns the bytes that `pack` took, of a tombstone what stands for them. Raises zlib.error for damage."""
    if codec in TOMBSTONES:
        return unpack_tombstone(packed).content
    return zlib.decompress(packed) if codec == "zlib" else packed


PURGED, ABSENT = "purged", "absent"
TOMBSTONES = (PURGED, ABSENT)
"""Codecs of a blob without its bytes: PURGED here, for good; ABSENT was purged in the library of an archive."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What stands for purged bytes. `content` is what is read instead of them; `kind` is what was purged."""

    at: str
    actor: str
    reason: str
    kind: str
    content: bytes


def pack_tombstone(stone: Tombstone) -> bytes:
    """Returns the stored form of a tombstone."""
    fields = asdict(stone) | {"content": base64.b64encode(stone.content).decode("ascii")}
    return zlib.compress(json.dumps(fields).encode("ascii"))


def unpack_tombstone(packed: bytes) -> Tombstone:
    """Returns the tombstone that was packed. Raises zlib.error for a damaged one."""
    try:
        fields = json.loads(zlib.decompress(packed))
        content = base64.b64decode(fields["content"], validate=True)
        return Tombstone(str(fields["at"]), str(fields["actor"]), str(fields["reason"]), str(fields["kind"]), content)
    except (ValueError, TypeError, KeyError) as error:
        raise zlib.error(f"it is no tombstone: {error}") from error

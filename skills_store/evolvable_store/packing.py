"""How a blob's bytes are stored: as a zlib stream, which any zlib can read."""

import zlib

try:
    # ISA-L writes the same format six times faster; with it, packing no longer shows in the time of a commit.
    from isal.isal_zlib import compress
except ImportError:  # no wheel for this platform
    from zlib import compress


def pack(data: bytes) -> tuple[bytes, str]:
    """Returns the stored form of a blob and its codec: 'zlib' or, where that gains nothing, 'raw'."""
    packed = compress(data, 1)
    return (packed, "zlib") if len(packed) < len(data) else (data, "raw")


def unpack(packed: bytes, codec: str) -> bytes:
    """Returns the bytes that `pack` took. Raises zlib.error for damaged ones."""
    return zlib.decompress(packed) if codec == "zlib" else packed

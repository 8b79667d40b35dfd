"""How a blob's bytes are stored: as a zlib stream, which any zlib can read."""

import zlib

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
    """Returns the bytes that `pack` took. Raises zlib.error for damaged ones."""
    return zlib.decompress(packed) if codec == "zlib" else packed

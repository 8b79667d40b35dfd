"""Tell whether a folder is on a disk that several machines may share.

SQLite's locks and its write-ahead log fail there. A file system in user space (FUSE) does not tell
what is behind it, so it counts as shared unless it is a known local one.
"""

import os
import re
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING or sys.platform != "linux":
    import ctypes

_NFS_AND_SMB = ("nfs", "nfs3", "nfs4", "cifs", "smb2", "smb3", "smbfs")
_OTHER_NETWORKS = ("ncpfs", "afs", "afpfs", "ceph", "coda", "webdav", "ftp")
_HOSTS = ("9p", "virtiofs", "vboxsf", "prl_fs", "vmhgfs")
_CLUSTERS = ("beegfs", "gfs", "gfs2", "glusterfs", "gpfs", "lustre", "ocfs2", "orangefs", "pvfs2")
_NETWORK = frozenset((*_NFS_AND_SMB, *_OTHER_NETWORKS, *_HOSTS, *_CLUSTERS))
"""File systems of networks, of a virtual machine's host, and of clusters."""

_LOCAL_FUSE = frozenset(
    ("fuseblk", "fuse.fuse-overlayfs", "fuse.gocryptfs", "fuse.encfs", "fuse.cryfs")
)
"""A disk of this machine, the layers of a container, and encrypted folders."""

_FUSE = ("fuse", "macfuse", "osxfuse")

_MNT_LOCAL = 0x1000
"""The flag of macOS for a disk of this machine."""

_FLAGS_AT, _KIND_AT, _KIND_BYTES, _STATFS_BYTES = 64, 72, 16, 4096
"""Offsets of the flags and of the kind in macOS's structure, and sizes in bytes: of the kind, and
of a buffer that is large enough.
"""

# Blanks and the like in a mount's path are written as \040.
_ESCAPE = re.compile(rb"\\([0-7]{3})")

_LOCAL_DRIVES = (2, 3, 5, 6)
"""Values of `GetDriveTypeW`: removable, fixed, optical, memory.

The others are network drives, unknown ones, and none.
"""


def on_network(folder: Path, system: str = sys.platform) -> bool:
    """Return whether the folder lies on a disk that several machines may share, as far as the
    system tells.

    system: as sys.platform names it. Linux, macOS and Windows tell; elsewhere no disk counts as
    shared.
    """
    # A link can lead from a local folder to a share.
    place = folder.resolve()
    try:
        if system == "linux":
            return is_shared_kind(mount_kind(Path("/proc/self/mounts").read_bytes(), str(place)))
        if system == "darwin":
            return is_shared_mount(
                *_statfs(
                    next(ancestor for ancestor in (place, *place.parents) if ancestor.exists())
                )
            )
        if system == "win32":
            return is_shared_drive(place.anchor, _drive_kind(place.anchor))
    except OSError:
        pass
    return False


def is_shared_kind(kind: str) -> bool:
    """Return whether a file system of this kind may be shared.

    kind: as the system names it, '' for unknown.
    """
    return kind in _NETWORK or (kind.startswith(_FUSE) and kind not in _LOCAL_FUSE)


def is_shared_mount(kind: str, flags: int) -> bool:
    """Return whether a file system of macOS may be shared, by the kind and the flags that `statfs`
    gives.
    """
    return is_shared_kind(kind) or not flags & _MNT_LOCAL


def is_shared_drive(anchor: str, kind: int) -> bool:
    r"""Return whether a drive of Windows may be shared.

    anchor: its root, such as `C:\` or `\\server\share\`. kind: what `GetDriveTypeW` gives.
    """
    # Without the prefix of long paths.
    plain = anchor.removeprefix("\\\\?\\")
    return plain.startswith(("\\\\", "UNC\\")) or kind not in _LOCAL_DRIVES


def mount_kind(mounts: bytes, place: str) -> str:
    """Return the kind of the file system at an absolute path, '' where no mount holds it.

    mounts: as /proc/self/mounts has them; of two at one path the last hides the others.
    """
    here, best, kind = os.fsencode(place), b"", b""
    for line in mounts.split(b"\n"):
        words = line.split(b" ")
        if len(words) > 2:
            mount = _ESCAPE.sub(lambda code: bytes((int(code[1], 8) & 0xFF,)), words[1])
            inside = here == mount or here.startswith(mount.rstrip(b"/") + b"/")
            # The longest path is the innermost mount; at equal length the later one hides the
            # earlier.
            if inside and len(mount) >= len(best):
                best, kind = mount, words[2]
    return kind.decode(errors="replace")


def parse_statfs(data: bytes) -> tuple[str, int]:
    """Return the kind and the flags in the structure that `statfs` of macOS fills."""
    # struct statfs of macOS with 64-bit inodes: f_flags at 64, f_fstypename at 72.
    (flags,) = struct.unpack_from("=I", data, _FLAGS_AT)
    kind = data[_KIND_AT : _KIND_AT + _KIND_BYTES].partition(b"\0")[0]
    return kind.decode(errors="replace"), flags


def _statfs(place: Path) -> tuple[str, int]:
    library = ctypes.CDLL(None, use_errno=True)
    # On Intel the plain name is that of an older structure.
    call = getattr(library, "statfs$INODE64", None) or library.statfs
    buffer = ctypes.create_string_buffer(_STATFS_BYTES)
    if call(bytes(place), buffer) != 0:
        raise OSError(ctypes.get_errno(), "statfs failed", str(place))
    return parse_statfs(buffer.raw)


def _drive_kind(anchor: str) -> int:
    return int(ctypes.windll.kernel32.GetDriveTypeW(anchor))  # type: ignore[attr-defined]

"""Which disks may be shared by several machines: no write-ahead log lies there."""

import struct
import sys
from pathlib import Path

import pytest

from evolvable_store.storage.network_disk import (
    is_shared_drive,
    is_shared_kind,
    is_shared_mount,
    mount_kind,
    on_network,
    parse_statfs,
)

MOUNTS = rb"""/dev/sda1 / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
/dev/sdb1 /home/ada ext4 rw 0 0
host /mnt/two\040words fuse.sshfs rw 0 0
back\134slash /mnt/back\134slash fuse.rclone rw 0 0
systemd-1 /auto autofs rw 0 0
server:/auto /auto nfs rw 0 0
"""


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("/etc", "ext4"),
        ("/home/grace/.evolvable", "nfs4"),
        ("/home/ada", "ext4"),
        ("/home/adam", "nfs4"),
        ("/mnt/two words/library", "fuse.sshfs"),
        ("/mnt/back\\slash", "fuse.rclone"),
        ("/auto/x", "nfs"),
    ],
)
def test_the_mount_that_holds_a_folder_says_its_kind(place: str, kind: str) -> None:
    assert mount_kind(MOUNTS, place) == kind


def test_a_mount_whose_name_is_no_utf_8_is_found() -> None:
    name = "/mnt/caf\udce9"
    assert (
        mount_kind(b"/dev/sda1 / ext4 rw 0 0\nx /mnt/caf\xe9 cifs rw 0 0\n", f"{name}/library")
        == "cifs"
    )


def test_without_a_mount_the_kind_is_unknown() -> None:
    assert mount_kind(b"", "/home") == "" and not is_shared_kind("")


@pytest.mark.parametrize(
    "kind", ["ext4", "btrfs", "apfs", "overlay", "tmpfs", "fuseblk", "fuse.gocryptfs"]
)
def test_disks_of_this_machine_keep_the_log(kind: str) -> None:
    assert not is_shared_kind(kind)


@pytest.mark.parametrize(
    "kind",
    [
        *(
            "nfs",
            "nfs4",
            "cifs",
            "smb3",
            "smbfs",
            "9p",
            "ceph",
            "afpfs",
            "webdav",
            "lustre",
            "virtiofs",
        ),
        *("fuse", "fuse.sshfs", "fuse.rclone", "fuse.nobody-knows", "macfuse", "osxfuse", "fusefs"),
    ],
)
def test_networks_and_unknown_file_systems_in_user_space_have_no_log(kind: str) -> None:
    assert is_shared_kind(kind)


@pytest.mark.parametrize(
    ("kind", "flags", "shared"),
    [
        ("apfs", 0x1000, False),
        ("smbfs", 0, True),
        ("apfs", 0, True),
        ("macfuse", 0x1000, True),
        ("new", 0, True),
    ],
)
def test_macos_says_the_kind_and_whether_the_disk_is_its_own(
    kind: str, flags: int, shared: bool
) -> None:
    """The bytes are laid out as the structure of <sys/mount.h> with inodes of 64 bits."""
    data = struct.pack(
        "=IiQQQQQiiIIII16s", 4096, 1 << 20, 9, 9, 9, 9, 9, 1, 2, 501, 26, flags, 3, kind.encode()
    )

    assert parse_statfs(data.ljust(2168, b"x")) == (kind, flags)
    assert is_shared_mount(kind, flags) is shared


@pytest.mark.parametrize(
    ("anchor", "kind", "shared"),
    [
        ("C:\\", 3, False),
        ("E:\\", 2, False),
        ("\\\\?\\C:\\", 3, False),
        ("Z:\\", 4, True),
        ("Q:\\", 0, True),
        ("\\\\server\\share\\", 1, True),
        ("\\\\?\\UNC\\server\\share\\", 3, True),
        ("\\\\wsl$\\Debian\\", 3, True),
    ],
)
def test_windows_says_the_kind_of_a_drive_and_a_share_has_none(
    anchor: str, kind: int, shared: bool
) -> None:
    assert is_shared_drive(anchor, kind) is shared


def test_the_disk_of_this_test_is_no_networks(tmp_path: Path) -> None:
    assert not on_network(tmp_path) and not on_network(tmp_path / "not/there/yet")


@pytest.mark.skipif(sys.platform == "win32", reason="the folders of Windows have other roots")
def test_a_system_that_does_not_tell_has_no_network_disk(tmp_path: Path) -> None:
    assert not on_network(tmp_path, "freebsd15")

"""The marks by which members of a shared library recognise a project on another machine.

They are hashes, so no path leaves a machine.
"""

import hashlib
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from evolvable_store.paths import work_tree
from evolvable_store.workingcopy.git_history import first_commit
from evolvable_store.workingcopy.git_objects import GitDamaged, read_bounded

_LIMIT = 2**20
"""Bytes of a repository's configuration that are read."""

_HOST = re.compile(r"(?:[^@/:]+@)?([A-Za-z0-9][A-Za-z0-9.-]+):(?!//)(.+)")
"""The short form of an address over ssh: git@host:owner/name.git."""


def shared_marks(place: Path) -> frozenset[str]:
    """Return the marks of a project, none for a folder outside of git.

    One is of the address of the remote origin, one of the first commit, each with the path of the
    project in the work tree.
    """
    root = work_tree(place)
    if root is None:
        return frozenset()
    inside = place.relative_to(root).as_posix()
    # Two marks: a fork has another address, a clone over another protocol the same.
    mark_values = {"remote": plain_address(_read_origin(root)), "commit": first_commit(place)}
    return frozenset(
        _hash_parts(kind, value, inside) for kind, value in mark_values.items() if value
    )


def plain_address(address: str) -> str:
    """Return host and path of a remote's address, '' for one on this machine."""
    short = _HOST.fullmatch(address)
    if short is not None:
        host, path = short[1], short[2]
    else:
        try:
            parts = urlsplit(address)
            host, path = parts.hostname or "", parts.path
        except ValueError:
            return ""
        if parts.scheme not in ("https", "http", "ssh", "git"):
            return ""
    path = path.strip("/").removesuffix(".git")
    # Without user and protocol, so that ssh and https clones have one mark.
    return f"{host.lower()}/{path}" if host and path else ""


def _hash_parts(*parts: str) -> str:
    # 128 bits; NUL separates the parts, as none of them can contain one.
    data = "\0".join(parts).encode("utf-8", "surrogateescape")
    return hashlib.sha256(data).hexdigest()[:32]


def _read_origin(root: Path) -> str:
    """Return the address of the remote origin in the repository's configuration, '' without one."""
    try:
        text = os.fsdecode(read_bounded(root / ".git/config", _LIMIT) or b"")
    except GitDamaged:
        return ""
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line
        key, equals, value = line.partition("=")
        if section == '[remote "origin"]' and equals and key.strip().lower() == "url":
            return value.strip().strip('"')
    return ""

"""Read files of settings, each whole and only where no other account can write it."""

import os
import stat
from pathlib import Path

from evolvable_store import regular_file
from evolvable_store.errors import InvalidArgument, Refused

# A file of settings has a few thousand.
MAX_BYTES = 1_000_000
"""Bytes of a file of settings that are read."""

PRIVATE = 0o600
"""The mode of files in the configuration's directory."""

CORRECT = "Correct the file; no default replaces it."
"""The hint for a file that is not valid."""


def read_config_text(path: Path) -> str | None:
    """Return the text of a file of settings, None when there is none.

    Raise Refused, InvalidArgument.
    """
    try:
        with open(path, "rb", opener=regular_file) as stream:
            # Of the open file: the path could be exchanged between the check and the reading.
            status = os.fstat(stream.fileno())
            check_owner(path, status)
            if status.st_size > MAX_BYTES:
                raise InvalidArgument(
                    f"{path} has {status.st_size:,} bytes; the limit is {MAX_BYTES:,}."
                )
            # One byte more than the limit, because the file may grow while it is read.
            return stream.read(MAX_BYTES + 1).decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError:
        raise InvalidArgument(f"{path} is not UTF-8 text.", CORRECT) from None
    except OSError as error:
        hint = "Give its owner the right to read it; no default replaces it."
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}.", hint) from None


def check_owner(path: Path, status: os.stat_result) -> None:
    """Check that only this account (or root) can write a file. Raise Refused."""
    if os.name != "posix":
        return
    if status.st_uid not in (os.geteuid(), 0):
        raise Refused(
            f"{path} belongs to user {status.st_uid}, not to this account.",
            "Remove it, or take it over.",
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Refused(f"{path} can be written by other accounts.", f"Run: chmod 600 {path}")

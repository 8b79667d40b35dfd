"""Write the person's configuration: one change at a time, whole or not at all, comments kept, signed when locked."""

import contextlib
import os
import secrets
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evolvable_server.person import PRIVATE, check_owner, config_path, read_person_config, signed_settings
from evolvable_store.errors import InvalidArgument, LibraryBusy, Refused
from evolvable_store.operation import Signer

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

_LOCK_SECONDS = 10.0


def edit_config(change: "Callable[[TOMLDocument], None]", signer: Signer | None = None) -> Path:
    """Change the person's configuration and return its path.

    change: edits the parsed document in place. signer: signs the settings, where approvals are locked; its `unlock`
    is called here. Raise Refused when the account has no home directory or the settings need a signature,
    InvalidArgument when the file is not valid TOML.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    path = config_path()
    if path is None:
        raise Refused("This account has no home directory, so it has no configuration.", "Use an account that has one.")
    with _locked(path):
        text = _text(path)
        try:
            document = tomlkit.parse(text)
        except TOMLKitError as error:
            raise InvalidArgument(f"{path} is not valid: {error}.", "Correct the file first.") from None
        before = read_person_config()
        change(document)
        if before.unsigned and "approvals" in document:
            raise Refused(
                f"{path} was changed without the person's signature.",
                "Look at it; `evolvable approvals unlock` and `lock` sign what it says now.",
            )
        approvals: Any = document.get("approvals")
        if approvals and approvals.get("public_key"):
            if signer is None:
                raise Refused("The settings need the person's signature: approvals are locked.", "Nothing was changed.")
            signer.unlock()
            settings = tomllib.loads(tomlkit.dumps(document))
            approvals["signature"] = signer.sign(signed_settings(settings)).hex()
        _write(path, tomlkit.dumps(document))
    return path


def _text(path: Path) -> str:
    try:
        with open(path, encoding="utf-8") as stream:
            check_owner(path, os.fstat(stream.fileno()))
            return stream.read()
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        raise InvalidArgument(f"{path} is not UTF-8 text.", "Correct the file first.") from None


def _write(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
    try:
        with open(fd, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with FileLock(path.with_name(".config.lock"), timeout=_LOCK_SECONDS, mode=PRIVATE):
            yield
    except Timeout:
        raise LibraryBusy(f"Another command is changing {path}.", "Try again.") from None

"""Run the installed git on a bare repository of ours, so that no repository decides
what else runs.

Nothing is ever checked out. Hooks, filters, file system monitors, submodules and replaced objects
are off, the variables of git are taken out of the environment, and git may speak only the protocol
of the address it is given.
"""

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from evolvable_store.errors import InvalidArgument, RemoteFailed

# A bound for the disk: a hostile remote may send a pack without an end.
MAX_RECEIVED = 2 * 2**30
"""Bytes of one file that a fetch may write."""

MAX_ADDRESS = 2_000  # characters

# Long enough for a large mirror; a bound all the same.
PATIENCE = 600.0
"""Seconds of a command on our own repository, and of a process that answers questions about it."""

TRANSFER = 3_600.0
"""Seconds of a fetch, a push or an export; a connection that stands still ends after a minute."""

_BUFFER = 256 * 1024
"""Bytes that are written to a command at once, and read from it: every write may cost a change of
process.
"""

_BRANCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)*")
# No host may begin with a dash, which ssh would read as an option.
_SCP = re.compile(
    r"(?:[A-Za-z0-9._][A-Za-z0-9._-]*@)?(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\]):[^:].*"
)
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_SCHEMES = ("file", "ssh", "https", "http")

# Everything by which a repository or a configuration can name a program that git runs.
_OFF = (
    *(f"core.hooksPath={os.devnull}", "core.fsmonitor=false", f"core.attributesFile={os.devnull}"),
    "core.useReplaceRefs=false",
    "core.alternateRefsCommand=true",
    "submodule.recurse=false",
    "gc.auto=0",
    "fetch.recurseSubmodules=false",
    "push.recurseSubmodules=no",
    "push.gpgSign=false",
    "push.followTags=false",
    "maintenance.auto=false",
    "fetch.writeCommitGraph=false",
    "transfer.bundleURI=false",
    "http.followRedirects=false",
    "http.lowSpeedLimit=1000",
    "http.lowSpeedTime=60",
    "transfer.credentialsInUrl=die",
    "log.showSignature=false",
)
# A small transfer becomes one pack as well, and what a remote confirms is on our disk. Level 1
# takes an eighth less processor time in fast-import than the usual one, and one twentieth more
# space.
_KEPT = (
    "fetch.unpackLimit=1",
    "fastimport.unpackLimit=1",
    "core.fsync=all",
    "pack.threads=2",
    "core.compression=1",
    "gpg.minTrustLevel=marginal",
)
# What a repository on this machine may not have us run when we push into it.
_THEIRS = ("receive.autogc=false", "receive.denyCurrentBranch=refuse", "gc.auto=0")

# In front of what the person's configuration of ssh says, so that these hold. A host's key is never
# accepted unseen.
_SSH_OPTIONS = (
    "StrictHostKeyChecking=yes",
    "UpdateHostKeys=no",
    "VerifyHostKeyDNS=no",
    "PermitLocalCommand=no",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "GSSAPIDelegateCredentials=no",
)
_SSH = re.compile(r"\s*((?:[\w.:/\\~-]*[/\\])?ssh(?:\.exe)?)(\s.*)?", re.DOTALL)

FETCHED = "refs/evolvable/fetched"
"""Our name of the commit at which the remote's branch was fetched."""

NO_ID = ""
"""The id of an object that is not there."""


def check_address(address: str) -> str:
    """Return an address that git may be given: `https`, `ssh`, `host:path` or a folder on this
    machine.

    A folder becomes an absolute path. Raises InvalidArgument with what is wrong.
    """
    if (
        not address
        or len(address) > MAX_ADDRESS
        or any(ord(char) < 32 or ord(char) == 127 for char in address)
    ):
        raise InvalidArgument(
            "The address is empty, too long or has control characters.", _ADDRESSES
        )
    # `ext::COMMAND` is an address that git executes.
    if address.startswith("-") or "::" in address.partition("/")[0]:
        raise InvalidArgument(
            f"{ascii(address[:80])} is an option or a helper program, not an address.", _ADDRESSES
        )
    if os.path.isdir(address):
        return str(Path(address).resolve())
    scheme, separator, _ = address.partition("://")
    if separator:
        return _check_url(scheme, address)
    if _SCP.fullmatch(address) and not os.path.isabs(address):
        return address
    raise InvalidArgument(f"{ascii(address[:80])} is no folder and no address.", _ADDRESSES)


_ADDRESSES = "Name a folder, host:path, or an address with https:// or ssh://."


def _check_url(scheme: str, address: str) -> str:
    try:
        parts = urlsplit(address)
        host, password = parts.hostname or "", parts.password
    except ValueError:
        raise InvalidArgument(
            f"{ascii(address[:80])} is not a valid address.", _ADDRESSES
        ) from None
    # Plain http beyond this machine could be changed on the way.
    if scheme not in _SCHEMES or (scheme == "http" and host not in _LOOPBACK):
        raise InvalidArgument(
            f"{ascii(scheme[:20])} is not a protocol that is used for {ascii(host)}.", _ADDRESSES
        )
    if password is not None or (scheme == "https" and parts.username):
        raise InvalidArgument(
            "The address holds a name or a password.", "Use git's credential helper for those."
        )
    if host.startswith("-") or (scheme != "file" and not host):
        raise InvalidArgument(f"{ascii(address[:80])} has no host.", _ADDRESSES)
    return address


def check_branch(branch: str) -> str:
    """Return the name of a branch that git may be given. Raises InvalidArgument."""
    if (
        _BRANCH.fullmatch(branch)
        and len(branch) <= 200
        and not re.search(r"\.\.|\.lock(/|$)|\.(/|$)", branch)
    ):
        return branch
    raise InvalidArgument(
        f"{ascii(branch[:80])} is not a branch.", "Use letters, digits, dots, dashes and slashes."
    )


def is_local(address: str) -> bool:
    """Return whether an address is a folder on this machine."""
    return os.path.isabs(address) or address.startswith("file://")


def _protocol(address: str) -> str:
    scheme, separator, _ = address.partition("://")
    return scheme if separator else "file" if os.path.isabs(address) else "ssh"


@cache
def git_program() -> str:
    """Return the path of the installed git. Raises RemoteFailed when there is none."""
    found = shutil.which("git")
    if found is None:
        raise RemoteFailed("git is not installed.", "Install git 2.30 or newer; remotes use it.")
    return found


def _environment(protocol: str, ssh: str = "") -> dict[str, str]:
    # GIT_DIR, GIT_CONFIG_COUNT and the like would point git elsewhere.
    variables = {
        name: value for name, value in os.environ.items() if not name.upper().startswith("GIT_")
    }
    variables |= {"GIT_SSH_COMMAND": ssh} if ssh else {}
    return variables | {
        "GIT_ALLOW_PROTOCOL": protocol,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "LC_ALL": "C",
    }


class BareRepository:
    """A bare repository of ours."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self, branch: str) -> None:
        """Make the repository where there is none yet."""
        if (self.folder / "HEAD").exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._run(
            [
                "init",
                "--quiet",
                "--bare",
                "--template=",
                f"--initial-branch={branch}",
                "--",
                str(self.folder),
            ]
        )

    def command(self, words: Sequence[str]) -> list[str]:
        """Return the argument list of a git command on this repository."""
        options = [word for setting in (*_OFF, *_KEPT) for word in ("-c", setting)]
        return [git_program(), *options, "--no-pager", f"--git-dir={self.folder}", *words]

    def run(self, *words: str) -> str:
        """Return what a command prints. Raises RemoteFailed."""
        return self._run(words)

    def id_of(self, name: str) -> str:
        """Return the id of the commit that a reference or a longer expression names, '' when there
        is none.
        """
        return self._id_or_none(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"
        )

    def tree_of(self, commit: str, folder: str) -> str:
        """Return the id of the tree of a folder in a commit, '' when it has none there."""
        fields = self.run("ls-tree", "-d", commit, "--", folder).split()
        return fields[2] if fields[1:2] == ["tree"] else NO_ID

    def _id_or_none(self, *words: str) -> str:
        """Return the id that a command prints first, '' where it says that there is none.

        Raises where git died.
        """
        done = self._finish(words, "", PATIENCE)
        if done.returncode not in (0, 1):
            raise _command_failure(words[0], done.stderr)
        return (
            done.stdout.decode("ascii", "replace").split("\n")[0].strip()
            if done.returncode == 0
            else NO_ID
        )

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Return whether a commit is another one or one of its ancestors."""
        done = self._finish(["merge-base", "--is-ancestor", older, newer], "", PATIENCE)
        if done.returncode not in (0, 1):
            raise _command_failure("merge-base", done.stderr)
        return done.returncode == 0

    def common_ancestor(self, left: str, right: str) -> str:
        """Return the newest commit that two lead back to, '' where their histories have none in
        common.
        """
        return self._id_or_none("merge-base", left, right)

    def fetch(self, address: str, branch: str) -> str:
        """Fetch the branch, and return the commit it stands at; '' when the remote has no such
        branch.

        Raises RemoteFailed.
        """
        limits = [
            "--no-tags",
            "--no-recurse-submodules",
            "--quiet",
            "--no-write-fetch-head",
            "--no-auto-maintenance",
        ]
        theirs = ["--upload-pack=" + _local_program("upload-pack")] if is_local(address) else []
        words = self.command(
            ["fetch", *limits, *theirs, "--", address, f"+refs/heads/{branch}:{FETCHED}"]
        )
        done = self._finish(words, _protocol(address), TRANSFER, whole=True, limited=True)
        # Language C is set, so the message is git's English one.
        if done.returncode != 0 and b"couldn't find remote ref" in done.stderr:
            return NO_ID
        if done.returncode != 0:
            raise _command_failure("fetch", done.stderr)
        return self.id_of(FETCHED)

    def push(self, address: str, branch: str, commit: str) -> None:
        """Move the branch of the remote forwards to a commit; its history is never replaced.

        Raises RemoteFailed.
        """
        theirs = ["--receive-pack=" + _local_program("receive-pack")] if is_local(address) else []
        words = self.command(
            [
                "push",
                "--quiet",
                "--no-verify",
                *theirs,
                "--",
                address,
                f"{commit}:refs/heads/{branch}",
            ]
        )
        done = self._finish(words, _protocol(address), TRANSFER, whole=True)
        if done.returncode != 0:
            raise _command_failure("push", done.stderr)

    def is_signed(self, commit: str) -> bool:
        """Return whether the person's git verifies the signature of a commit, by a key that it
        trusts.
        """
        return self._finish(["verify-commit", commit], "", PATIENCE).returncode == 0

    def sign(self, parent: str, reason: str) -> str:
        """Make a commit of the same tree on `parent`, signed as the person's git is configured.

        Raises RemoteFailed.
        """
        identity = self.run("commit-tree", "-S", "-p", parent, "-m", reason, f"{parent}^{{tree}}")
        return identity.strip()

    @contextlib.contextmanager
    def process(
        self, *words: str, seconds: float = PATIENCE
    ) -> "Iterator[subprocess.Popen[bytes]]":
        """Yield a running command with pipes; it is ended at the end of the context, and killed
        after `seconds`.

        Raises RemoteFailed, with this reason, where the block fails because it was killed.
        """
        pipe, late = subprocess.PIPE, threading.Event()
        with subprocess.Popen(
            self.command(words),
            _BUFFER,
            stdin=pipe,
            stdout=pipe,
            stderr=subprocess.DEVNULL,
            env=_environment("file"),
        ) as process:

            def stop() -> None:
                late.set()
                process.kill()

            # A read from the pipe has no timeout of its own; killing the process ends it.
            limit = threading.Timer(seconds, stop)
            limit.daemon = True
            limit.start()
            try:
                yield process
            except RemoteFailed:
                if late.is_set():
                    raise _too_slow(seconds) from None
                raise
            finally:
                for end in (process.stdin, process.stdout):
                    if end is not None:
                        with contextlib.suppress(OSError):
                            end.close()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                limit.cancel()

    def _ssh_command(self) -> str:
        """Return the command that reaches a host: the person's own `core.sshCommand`, or ssh, with
        our options.
        """
        done = self._finish(["config", "--get", "core.sshCommand"], "", PATIENCE)
        configured = done.stdout.decode("utf-8", "surrogateescape").rstrip("\n") or "ssh"
        match = _SSH.fullmatch(configured)
        if match is None:
            return configured  # another program, whose options we do not know
        return " ".join((match[1], *(f"-o {option}" for option in _SSH_OPTIONS))) + (match[2] or "")

    def _run(self, words: Sequence[str]) -> str:
        done = self._finish(words, "", PATIENCE)
        if done.returncode != 0:
            raise _command_failure(words[0], done.stderr)
        return done.stdout.decode("utf-8", "surrogateescape")

    def _finish(
        self,
        words: Sequence[str],
        protocol: str,
        seconds: float,
        *,
        whole: bool = False,
        limited: bool = False,
    ) -> "subprocess.CompletedProcess[bytes]":
        argv = list(words) if whole else self.command(words)
        ssh = self._ssh_command() if protocol == "ssh" else ""
        if limited and os.name == "posix":
            # `ulimit` counts blocks of 512 bytes. git ends when a pack grows beyond it.
            argv = ["/bin/sh", "-c", 'ulimit -f "$0" && exec "$@"', str(MAX_RECEIVED // 512), *argv]
        try:
            return subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=seconds,
                env=_environment(protocol, ssh),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise _too_slow(seconds) from None
        except OSError as error:
            raise RemoteFailed(
                f"git cannot be started: {error.strerror}.", "Install git 2.30 or newer."
            ) from error


def _local_program(name: str) -> str:
    """Return the shell words that serve a repository on this machine without its hooks and
    programs.
    """
    options = [word for setting in (*_OFF, *_THEIRS) for word in ("-c", setting)]
    return shlex.join([git_program(), *options, name])


def _too_slow(seconds: float) -> RemoteFailed:
    return RemoteFailed(
        f"git did not end within {seconds:,.0f} seconds.", "Try again; nothing was lost."
    )


def _command_failure(what: str, stderr: bytes) -> RemoteFailed:
    lines = stderr[-4_000:].decode("utf-8", "replace").splitlines()
    messages = [line.strip() for line in lines if line.strip() and not line.startswith("hint:")]
    text = "; ".join(messages[:3])[:400]
    printable = "".join(char if char.isprintable() else "?" for char in text)
    hint = "Check the address and your access to it."
    if b"host key" in stderr.lower():
        hint = (
            "Ask the owner of the host for its key, and add it to your known_hosts: no key is "
            "accepted unseen."
        )
    return RemoteFailed(f"git {what} failed: {printable or 'without a message'}.", hint)

"""Run the installed git on our own bare repository, so that no repository has it run programs.

Nothing is ever checked out. Hooks, filters, file system monitors, submodules and replaced objects
are off. The variables of git are removed from the environment, and git may use only the protocol of
the address that it is given.
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

PATIENCE = 600.0
"""Seconds that a command on our own repository may take, and a process that reads its objects."""

TRANSFER = 3_600.0
"""Seconds that a fetch, a push or an export may take. Over HTTP a stalled one ends in a minute."""

_BUFFER = 256 * 1024
"""Bytes of the buffers of a command's pipes: each write may cost a context switch."""

_BRANCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)*")
# No host may begin with a dash, which ssh would read as an option.
_SCP = re.compile(
    r"(?:[A-Za-z0-9._][A-Za-z0-9._-]*@)?(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\]):[^:].*"
)
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_SCHEMES = ("file", "ssh", "https", "http")

# Everything by which a repository or a configuration can name a program that git runs, or a second
# source that it reads.
_OFF = (
    f"core.hooksPath={os.devnull}",
    "core.fsmonitor=false",
    f"core.attributesFile={os.devnull}",
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
# How our own repository is written: each transfer as one pack, and synced to the disk before it is
# confirmed. Compression level 1 takes an eighth less processor time in fast-import than the default
# level, and one twentieth more space.
_WRITING = (
    "fetch.unpackLimit=1",
    "fastimport.unpackLimit=1",
    "core.fsync=all",
    "pack.threads=2",
    "core.compression=1",
    "gpg.minTrustLevel=marginal",
)
# Further options for the process that serves a repository on this machine, which is not ours.
_SERVING = ("receive.autogc=false", "receive.denyCurrentBranch=refuse", "gc.auto=0")

# On the command line, so that they take precedence over the person's configuration of ssh. An
# unknown key of a host is never accepted.
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
"""The id that stands for an object which does not exist."""


def check_address(address: str) -> str:
    """Return an address that git may be given: `https`, `ssh`, `host:path` or a folder on this
    machine.

    A folder becomes an absolute path. Raises InvalidArgument with what is wrong.
    """
    has_controls = any(ord(char) < 32 or ord(char) == 127 for char in address)
    if not address or len(address) > MAX_ADDRESS or has_controls:
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
    # git refuses these in the name of a reference.
    is_refused = re.search(r"\.\.|\.lock(/|$)|\.(/|$)", branch)
    if _BRANCH.fullmatch(branch) and len(branch) <= 200 and not is_refused:
        return branch
    raise InvalidArgument(
        f"{ascii(branch[:80])} is not a branch.", "Use letters, digits, dots, dashes and slashes."
    )


def is_local(address: str) -> bool:
    """Return whether an address is a folder on this machine."""
    return os.path.isabs(address) or address.startswith("file://")


def _protocol_of(address: str) -> str:
    scheme, separator, _ = address.partition("://")
    if separator:
        return scheme
    return "file" if os.path.isabs(address) else "ssh"


@cache
def git_program() -> str:
    """Return the path of the installed git. Raises RemoteFailed when there is none."""
    program = shutil.which("git")
    if program is None:
        raise RemoteFailed("git is not installed.", "Install git 2.30 or newer; remotes use it.")
    return program


def _make_environment(protocol: str, ssh: str = "") -> dict[str, str]:
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
        # No template: one of the person's configuration could hold hooks.
        options = ["--quiet", "--bare", "--template=", f"--initial-branch={branch}"]
        self._run(["init", *options, "--", str(self.folder)])

    def command(self, words: Sequence[str]) -> list[str]:
        """Return the argument list of a git command on this repository."""
        options = [word for setting in (*_OFF, *_WRITING) for word in ("-c", setting)]
        return [git_program(), *options, "--no-pager", f"--git-dir={self.folder}", *words]

    def run(self, *words: str) -> str:
        """Return what a command prints. Raises RemoteFailed."""
        return self._run(words)

    def id_of(self, name: str) -> str:
        """Return the id of the commit that a reference or a longer expression names, '' when there
        is none.
        """
        return self._read_id(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"
        )

    def tree_of(self, commit: str, folder: str) -> str:
        """Return the id of the tree of a folder in a commit, '' when it has none there."""
        fields = self.run("ls-tree", "-d", commit, "--", folder).split()
        return fields[2] if fields[1:2] == ["tree"] else NO_ID

    def _read_id(self, *words: str) -> str:
        """Return the id that a command prints first, '' where it exits with 1: there is none.

        Raises RemoteFailed for any other exit code.
        """
        done = self._finish(words, "", PATIENCE)
        if done.returncode not in (0, 1):
            raise _command_failure(words[0], done.stderr)
        if done.returncode == 1:
            return NO_ID
        return done.stdout.decode("ascii", "replace").split("\n")[0].strip()

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Return whether a commit is another one or one of its ancestors."""
        done = self._finish(["merge-base", "--is-ancestor", older, newer], "", PATIENCE)
        if done.returncode not in (0, 1):
            raise _command_failure("merge-base", done.stderr)
        return done.returncode == 0

    def common_ancestor(self, left: str, right: str) -> str:
        """Return the newest common ancestor of two commits, '' where they have none."""
        return self._read_id("merge-base", left, right)

    def fetch(self, address: str, branch: str) -> str:
        """Fetch the branch, and return the commit it stands at; '' when the remote has no such
        branch.

        Raises RemoteFailed.
        """
        options = ["--quiet", "--no-tags", "--no-recurse-submodules"]
        options += ["--no-write-fetch-head", "--no-auto-maintenance"]
        if is_local(address):
            options.append("--upload-pack=" + _local_program("upload-pack"))
        refspec = f"+refs/heads/{branch}:{FETCHED}"
        words = self.command(["fetch", *options, "--", address, refspec])
        done = self._finish(words, _protocol_of(address), TRANSFER, whole=True, limited=True)
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
        options = ["--quiet", "--no-verify"]
        if is_local(address):
            options.append("--receive-pack=" + _local_program("receive-pack"))
        words = self.command(["push", *options, "--", address, f"{commit}:refs/heads/{branch}"])
        done = self._finish(words, _protocol_of(address), TRANSFER, whole=True)
        if done.returncode != 0:
            raise _command_failure("push", done.stderr)

    def is_signed(self, commit: str) -> bool:
        """Return whether git verifies the signature of a commit by a key that the person trusts."""
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
        """Yield a running command with pipes to it; the end of the context ends it.

        After `seconds` it is killed. Where the block then fails with RemoteFailed, raise one that
        names the time as the reason.
        """
        pipe, was_killed = subprocess.PIPE, threading.Event()
        with subprocess.Popen(
            self.command(words),
            _BUFFER,
            stdin=pipe,
            stdout=pipe,
            stderr=subprocess.DEVNULL,
            env=_make_environment("file"),
        ) as process:

            def kill() -> None:
                was_killed.set()
                process.kill()

            # A read from the pipe has no timeout of its own; killing the process ends it.
            limit = threading.Timer(seconds, kill)
            limit.daemon = True
            limit.start()
            try:
                yield process
            except RemoteFailed:
                if was_killed.is_set():
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
        """Return the person's `core.sshCommand`, or ssh, with our options."""
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
        """Run a command and return its result. Raises RemoteFailed.

        whole: `words` are the whole argument list. limited: bound the size of its files.
        """
        argv = list(words) if whole else self.command(words)
        ssh = self._ssh_command() if protocol == "ssh" else ""
        if limited and os.name == "posix":
            # `ulimit -f` counts blocks of 512 bytes; git fails when a pack grows beyond it.
            argv = ["/bin/sh", "-c", 'ulimit -f "$0" && exec "$@"', str(MAX_RECEIVED // 512), *argv]
        try:
            return subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=seconds,
                env=_make_environment(protocol, ssh),
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
    options = [word for setting in (*_OFF, *_SERVING) for word in ("-c", setting)]
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

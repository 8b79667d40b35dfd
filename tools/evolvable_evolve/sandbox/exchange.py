"""The exchange with a sandbox: the relay to one model host, which holds the key, and the files that
a command left.
"""

import asyncio
import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

from evolvable_store.errors import EvolvableError
from evolvable_tools.llm import SIGN_IN_HEADERS, RequestRules, async_http_client, http_errors

if TYPE_CHECKING:
    import httpx2

# Clients send long sign-in tokens and paths.
MOST_HEAD = 64 * 1024
"""Bytes of the head of a request."""

# A request holds the whole conversation, with images, and the relay has it in memory.
MOST_BODY = 256 * 2**20
"""Bytes of the body of a request."""

# Hop-by-hop headers of RFC 9110, and those that frame the body, which the client writes itself.
_DROPPED = frozenset(
    ("host", "connection", "proxy-connection", "proxy-authorization", "upgrade", "keep-alive", "te")
    + ("content-length", "transfer-encoding", "expect")
)
"""Headers of a request that are for the relay alone."""

_ENDS_HERE = frozenset((b"connection", b"keep-alive", b"transfer-encoding", b"upgrade"))
"""Headers of an answer that are for the relay alone."""


class RelayRefusal(Exception):
    """A request that the relay does not pass on; the text is its status line."""


@dataclass(frozen=True)
class ModelAccess:
    """The requests that a command inside may send to a model.

    address: of the model. paths: those that may be requested, below the address. headers: set in
    every request, whatever the command sent; the key is one of them. proxy: to other machines.
    """

    address: str
    paths: frozenset[str]
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    proxy: str | None = field(default=None, repr=False)


@asynccontextmanager
async def relay(model: ModelAccess) -> AsyncIterator[Path]:
    """Yield the path of the socket at which the model answers, while the block runs.

    Raises SandboxOutputError for an address or a proxy that is no URL.
    """
    tasks: set[asyncio.Task[None]] = set()
    async with _make_client(model) as client:
        # A short path: that of a socket may have no more than about 100 bytes.
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="evolvable-"))

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            try:
                await _answer(model, client, reader, writer)
            finally:
                tasks.discard(task)

        try:
            server = await asyncio.start_unix_server(serve, folder / "model.sock", limit=MOST_HEAD)
            # The folder is of mode 0700 already; this holds where the umask gave the socket more.
            os.chmod(folder / "model.sock", 0o600)
            try:
                yield folder / "model.sock"
            finally:
                server.close()
                # A command that ended may leave requests under way, which would spend tokens for
                # nobody.
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def _make_client(model: ModelAccess) -> "httpx2.AsyncClient":
    """Return the client that asks the model.

    An answer may take as long as the command itself may run.
    """
    rules = RequestRules(
        model.address, model.headers, model.proxy, max_bytes=MOST_BODY, passes=True
    )
    try:
        return async_http_client(rules)
    except ValueError as error:
        text = f"The model cannot be reached: {error}."
        raise SandboxOutputError(text, "Correct `[models]`.") from None


async def _answer(
    model: ModelAccess,
    client: "httpx2.AsyncClient",
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    try:
        request = await _read_request(model, client, reader, writer)
        answer = await client.send(request, stream=True)
        try:
            await _pass_on(answer, writer)
        finally:
            await answer.aclose()
    except RelayRefusal as refusal:
        writer.write(_make_refusal(str(refusal)))
    except _relay_errors():
        writer.write(_make_refusal("502 Bad Gateway"))
    finally:
        # The connection closes after each answer: with one request a connection a request cannot be
        # taken for a part of another.
        with contextlib.suppress(OSError, RuntimeError):
            writer.close()


def _make_refusal(status: str) -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode()


def _relay_errors() -> tuple[type[Exception], ...]:
    read_errors = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError)
    return (*read_errors, *http_errors())


async def _pass_on(answer: "httpx2.Response", writer: asyncio.StreamWriter) -> None:
    """Write an answer as it comes. One that breaks off has no last chunk here either."""
    has_no_body = answer.request.method == "HEAD" or answer.status_code in (204, 304)
    chunked = not has_no_body and "content-length" not in answer.headers
    header_lines = [
        b"%b: %b" % pair for pair in answer.headers.raw if pair[0].lower() not in _ENDS_HERE
    ]
    header_lines.append(b"connection: close")
    if chunked:
        header_lines.append(b"transfer-encoding: chunked")
    status = f"HTTP/1.1 {answer.status_code} {answer.reason_phrase}".encode("ascii")
    writer.write(b"\r\n".join([status, *header_lines, b"", b""]))
    try:
        async for part in answer.aiter_raw():
            writer.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
            await writer.drain()
    except http_errors():
        return
    writer.write(b"0\r\n\r\n" if chunked else b"")
    await writer.drain()


async def _read_request(
    model: ModelAccess,
    client: "httpx2.AsyncClient",
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> "httpx2.Request":
    """Return a request of the command as it goes on, without the headers that it may not set.

    Raises RelayRefusal for a method or a path that may not be requested.
    """
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
    method, _, rest = lines[0].partition(" ")
    target = rest.rpartition(" ")[0]
    path = target.partition("?")[0]
    base = urlsplit(model.address)
    paths = {base.path.rstrip("/") + suffix for suffix in model.paths}
    if method not in ("GET", "POST", "HEAD") or path not in paths:
        raise RelayRefusal("403 Forbidden")
    parts = [line.partition(":") for line in lines[1:]]
    pairs = [(name.strip().lower(), value.strip()) for name, _, value in parts]
    headers = dict(pairs)
    if headers.get("upgrade", "").lower() == "websocket":
        # On this status alone Codex asks by HTTP at once.
        raise RelayRefusal("426 Upgrade Required")
    dropped = _DROPPED | {name.lower() for name in model.headers}
    # With a key of ours in the headers the command signs in with none of its own.
    if model.headers:
        dropped |= SIGN_IN_HEADERS
    passed_on = [(name, value) for name, value in pairs if name not in dropped]
    body = await _read_body(reader, writer, headers)
    # A password in the address would be sent in place of a sign-in of the command's own.
    url = f"{base.scheme}://{base.netloc.rpartition('@')[2]}{target}"
    return client.build_request(method, url, headers=passed_on, content=body)


async def _read_body(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, headers: Mapping[str, str]
) -> bytes:
    # curl waits a second for this before it sends a large body.
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await writer.drain()
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return await _read_chunks(reader)
    length = int(headers.get("content-length", "0"))
    if not 0 <= length <= MOST_BODY:
        raise RelayRefusal("413 Content Too Large")
    return await reader.readexactly(length)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while True:
        size = int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16)
        if size == 0:
            while await reader.readuntil(b"\r\n") != b"\r\n":
                pass
            return bytes(body)
        if size < 0 or len(body) + size > MOST_BODY:
            raise RelayRefusal("413 Content Too Large")
        body += await reader.readexactly(size)
        await reader.readexactly(2)


# Files without content have no size, and each takes an inode.
MOST_ENTRIES = 100_000
"""Files, folders and links of a workspace that is brought back."""

_LINE = 64 * 1024
"""Bytes of a line of the archive."""

_PATHS = {"f": 1, "d": 1, "l": 2, "e": 0}
"""The number of paths in a line by its kind: file, folder, link (its place and its target), end."""

_CHUNK = 1 << 20
"""Bytes that are copied at a time."""


class SandboxOutputError(EvolvableError):
    """A sandbox could not be set up, or what came out of it cannot be used."""


def bring_back(back: Path, workspace: Path, size: int) -> None:
    """Replace what the workspace holds by what the command left there.

    back: the archive that `inside.py` wrote. Nothing is written outside of `workspace`. Links are
    made and never followed. At most `size` bytes are written. Raises SandboxOutputError.
    """
    for entry in os.scandir(workspace):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)
    try:
        with back.open("rb") as file:
            _unpack(file, workspace, size)
    except (OSError, ValueError, KeyError) as error:
        raise SandboxOutputError(
            f"The workspace that the command left cannot be read: {error}."
        ) from None


def _unpack(file: IO[bytes], workspace: Path, size: int) -> None:
    # Only folders that this archive made may hold an entry, so that no path leads through a link,
    # which could point out of the workspace.
    folders = {""}
    modes: list[tuple[str, int]] = []
    for _ in range(MOST_ENTRIES + 1):
        kind, mode, count, *paths = _parse_line(file.readline(_LINE))
        if kind == "e":
            break
        path = _check_path(paths[0], folders)
        target = os.path.join(workspace, path)
        if kind == "l":
            os.symlink(paths[1], target)
        elif kind == "d":
            # With all rights for the owner until it is filled.
            os.mkdir(target, stat.S_IRWXU)
            folders.add(path)
            modes.append((target, mode))
        else:
            # Counted before a byte is written; `inside.py` runs in the sandbox, and its numbers are
            # not believed.
            size -= count
            if count < 0 or size < 0:
                raise ValueError("it is larger than the sandbox allows")
            _write_file(file, target, count, mode)
    else:
        raise ValueError("it holds too many files")
    # At the end, because a folder that may not be written to could not be filled.
    for target, mode in modes:
        os.chmod(target, mode & 0o777)


def _parse_line(line: bytes) -> "tuple[Any, ...]":
    """Return the fields of one line: a letter, two numbers, and the paths of its kind.

    Raises ValueError, KeyError for a line that is none.
    """
    kind, mode, count, *paths = line.decode("ascii").rstrip("\n").split(" ")
    if len(paths) != _PATHS[kind]:
        raise ValueError("a line has too few or too many fields")
    return kind, int(mode), int(count), *(os.fsdecode(bytes.fromhex(path)) for path in paths)


def _check_path(path: str, folders: set[str]) -> str:
    """Return a path of the archive. Raises ValueError where no folder of the archive holds it."""
    above, slash, name = path.rpartition("/")
    if (slash and not above) or name in ("", ".", "..") or "\0" in name or above not in folders:
        raise ValueError(f"it has the path {ascii(path[:80])}")
    return path


def _write_file(file: IO[bytes], target: str, left: int, mode: int) -> None:
    # O_EXCL: a second entry of one name fails, also where the first is a link.
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as copy:
        while left:
            part = file.read(min(_CHUNK, left))
            if not part:
                raise ValueError("it ends in the middle of a file")
            copy.write(part)
            left -= len(part)
        os.fchmod(copy.fileno(), mode & 0o777)

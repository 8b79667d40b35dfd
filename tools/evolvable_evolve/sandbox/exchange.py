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

# Bytes of the head of a request; clients send long sign-in tokens and paths.
MOST_HEAD = 64 * 1024
# A request holds the whole conversation, with images; it is in memory here.
MOST_BODY = 256 * 2**20

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
    """What a command inside may ask of a model. address: of the model. paths: what may be asked
    for, below it.

    headers: set in every request, whatever the command sent; the key is one of them. proxy: to
    other machines.
    """

    address: str
    paths: frozenset[str]
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    proxy: str | None = field(default=None, repr=False)


@asynccontextmanager
async def relay(model: ModelAccess) -> AsyncIterator[Path]:
    """Yield the socket at which the model answers, while the block runs.

    Raises SandboxOutputError for an address or a proxy that is none.
    """
    tasks: set[asyncio.Task[None]] = set()
    async with _client(model) as client:
        # A short path: a socket's may have no more than about 100 bytes.
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


def _client(model: ModelAccess) -> "httpx2.AsyncClient":
    """Return the client that asks the model.

    How long an answer may take is the limit of the command itself.
    """
    try:
        return async_http_client(
            RequestRules(
                model.address, model.headers, model.proxy, max_bytes=MOST_BODY, passes=True
            )
        )
    except ValueError as error:
        raise SandboxOutputError(
            f"The model cannot be reached: {error}.", "Correct `[models]`."
        ) from None


async def _answer(
    model: ModelAccess,
    client: "httpx2.AsyncClient",
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    try:
        request = await _request(model, client, reader, writer)
        answer = await client.send(request, stream=True)
        try:
            await _pass_on(answer, writer)
        finally:
            await answer.aclose()
    # The connection closes after each answer: one request a connection keeps the framing simple and
    # safe.
    except RelayRefusal as refusal:
        writer.write(
            f"HTTP/1.1 {refusal}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode()
        )
    except _relay_errors():
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
    finally:
        with contextlib.suppress(OSError, RuntimeError):
            writer.close()


def _relay_errors() -> tuple[type[Exception], ...]:
    return (
        OSError,
        asyncio.IncompleteReadError,
        asyncio.LimitOverrunError,
        ValueError,
        *http_errors(),
    )


async def _pass_on(answer: "httpx2.Response", writer: asyncio.StreamWriter) -> None:
    """Write an answer as it comes. One that breaks off has no end here either."""
    whole = (
        answer.request.method == "HEAD"
        or answer.status_code in (204, 304)
        or "content-length" in answer.headers
    )
    header_lines = [
        b"%b: %b" % pair for pair in answer.headers.raw if pair[0].lower() not in _ENDS_HERE
    ]
    header_lines += [b"connection: close", *([] if whole else [b"transfer-encoding: chunked"])]
    status = f"HTTP/1.1 {answer.status_code} {answer.reason_phrase}".encode("ascii")
    writer.write(b"\r\n".join([status, *header_lines, b"", b""]))
    try:
        async for part in answer.aiter_raw():
            writer.write(part if whole else b"%x\r\n%b\r\n" % (len(part), part))
            await writer.drain()
    except http_errors():
        return
    writer.write(b"" if whole else b"0\r\n\r\n")
    await writer.drain()


async def _request(
    model: ModelAccess,
    client: "httpx2.AsyncClient",
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> "httpx2.Request":
    """Return a request of the command as it goes on, without what it may not say."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
    method, _, rest = lines[0].partition(" ")
    target = rest.rpartition(" ")[0]
    path = target.partition("?")[0]
    base = urlsplit(model.address)
    if method not in ("GET", "POST", "HEAD") or path not in {
        base.path.rstrip("/") + suffix for suffix in model.paths
    }:
        raise RelayRefusal("403 Forbidden")
    pairs = [
        (name.strip().lower(), value.strip())
        for name, _, value in (line.partition(":") for line in lines[1:])
    ]
    headers = dict(pairs)
    if headers.get("upgrade", "").lower() == "websocket":
        # On this status alone Codex asks by HTTP at once.
        raise RelayRefusal("426 Upgrade Required")
    own_headers = {name.lower() for name in model.headers} | (
        SIGN_IN_HEADERS if model.headers else frozenset()
    )
    passed_on = [(name, value) for name, value in pairs if name not in _DROPPED | own_headers]
    body = await _body(reader, writer, headers)
    # A password in the address would be sent in place of a sign-in of the command's own.
    url = f"{base.scheme}://{base.netloc.rpartition('@')[2]}{target}"
    return client.build_request(method, url, headers=passed_on, content=body)


async def _body(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, headers: Mapping[str, str]
) -> bytes:
    # curl waits a second for this before it sends a large body.
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await writer.drain()
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return await _chunks(reader)
    length = int(headers.get("content-length", "0"))
    if not 0 <= length <= MOST_BODY:
        raise RelayRefusal("413 Content Too Large")
    return await reader.readexactly(length)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
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


# Of files without content the size says nothing, and each takes an inode.
MOST_ENTRIES = 100_000
_LINE = 64 * 1024
# How many paths a line has by its kind: file, folder, link (its place and its target), end.
_PATHS = {"f": 1, "d": 1, "l": 2, "e": 0}
_CHUNK = 1 << 20


class SandboxOutputError(EvolvableError):
    """A sandbox could not be set up, or what came out of it cannot be used."""


def bring_back(back: Path, workspace: Path, size: int) -> None:
    """Replace what the workspace holds by what the command left there. Raises SandboxTrouble.

    Nothing is written outside of `workspace`, links are made and never followed, and at most `size`
    bytes are written.
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
    # Only folders that this archive made: so no path leads through a link, which could point out of
    # the workspace.
    folders = {""}
    modes: list[tuple[str, int]] = []
    for _ in range(MOST_ENTRIES + 1):
        kind, mode, count, *paths = _fields(file.readline(_LINE))
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
    for target, mode in modes:  # a folder that may not be written to was filled first
        os.chmod(target, mode & 0o777)


def _fields(line: bytes) -> "tuple[Any, ...]":
    """Return the fields of one line: a letter, two numbers, and as many paths as the letter asks
    for.
    """
    kind, mode, count, *paths = line.decode("ascii").rstrip("\n").split(" ")
    if len(paths) != _PATHS[kind]:
        raise ValueError("a line has too few or too many fields")
    return kind, int(mode), int(count), *(os.fsdecode(bytes.fromhex(path)) for path in paths)


def _check_path(path: str, folders: set[str]) -> str:
    above, slash, name = path.rpartition("/")
    if (slash and not above) or name in ("", ".", "..") or "\0" in name or above not in folders:
        raise ValueError(f"it has the path {ascii(path[:80])}")
    return path


def _write_file(file: IO[bytes], target: str, left: int, mode: int) -> None:
    # O_EXCL: a second entry of one name fails, also where the first is a link.
    with open(
        os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600),
        "wb",
    ) as other:
        while left:
            part = file.read(min(_CHUNK, left))
            if not part:
                raise ValueError("it ends in the middle of a file")
            other.write(part)
            left -= len(part)
        os.fchmod(other.fileno(), mode & 0o777)

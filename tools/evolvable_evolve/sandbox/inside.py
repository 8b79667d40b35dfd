"""The first process inside a sandbox; a script of its own, which imports nothing of ours.

It fills the writable folders, and starts the command under resource limits and a system-call
filter. It passes requests to the model on to the socket of the relay outside, and at the end writes
the workspace to one file. Its arguments are those that `mechanisms` makes, then the command. It
does without json, which takes longer to import than the rest.
"""

import _signal as signal  # type: ignore[import-not-found]  # signal itself takes long to import
import os
import resource
import sys
import time

ROOT = "/run/evolvable"
SOCKET = ROOT + "/model.sock"
MOST_ENTRIES = 100_000
CANNOT_START = 127
NOT_SET_UP = 125
LIMIT = 122
"""The exit code of this process where the command reached a limit of the sandbox."""

_CHUNK = 1 << 20
_LIMITS = {
    "file": resource.RLIMIT_FSIZE,
    "memory": resource.RLIMIT_DATA,
    "processes": getattr(resource, "RLIMIT_NPROC", None),
    "files": resource.RLIMIT_NOFILE,
    "cpu": resource.RLIMIT_CPU,
}


def main() -> int:
    how, command = instructions(sys.argv[1:])
    try:
        for folder, seed in how["seeds"].items():
            copy(seed, folder)
        os.chdir(how["work"])
        os.environ["PWD"] = how["work"]
        listener = listen(how["model"]) if how["model"] else None
    except OSError as error:
        return report(NOT_SET_UP, f"the sandbox could not be set up: {error}")
    child = os.fork()
    if child == 0:
        start(command, how["limits"])
    if listener is not None:
        import threading  # start time: only where a model is asked

        threading.Thread(target=accept, args=(listener,), daemon=True).start()
    status = wait_for(child, how["seconds"])
    if how["back"]:
        try:
            with open(how["back"], "wb") as file:
                pack(how["work"], file)
        except OSError as error:
            return report(NOT_SET_UP, f"the workspace could not be read at the end: {error}")
    if why := used_up(how, status):
        return report(LIMIT, why)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def instructions(words: list[str]) -> "tuple[dict, list[str]]":  # type: ignore[type-arg]
    """Return the instructions that `mechanisms` wrote as arguments, and the command."""
    work, back, seconds, model, limits, count = words[:6]
    end = 6 + 2 * int(count)
    folders, seeds = words[6:end:2], words[7:end:2]
    parts = [limit.partition("=") for limit in limits.split(",")]
    how = {
        "work": work,
        "back": back,
        "seconds": float(seconds),
        "model": int(model),
        "limits": {name: int(value) for name, _, value in parts},
        "seeds": dict(zip(folders, seeds, strict=True)),
    }
    return how, words[end:]


def report(code: int, why: str) -> int:
    print(why, file=sys.stderr, flush=True)
    return code


def start(command: list[str], limits: dict[str, int]) -> None:
    """Replace this process by the command. Never returns."""
    try:
        for name, kind in _LIMITS.items():
            if kind is not None:
                lower(kind, limits[name])
        lower(resource.RLIMIT_CORE, 0)
        untraceable()
        os.execvp(command[0], command)
    except OSError as error:
        why = f"{command[0]} could not be started: {error.strerror or error}"
        os._exit(report(CANNOT_START, why))
    finally:
        os._exit(NOT_SET_UP)


def lower(kind: int, limit: int) -> None:
    hard = resource.getrlimit(kind)[1]
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(kind, (limit, limit))


def used_up(how: dict, status: int) -> str:  # type: ignore[type-arg]
    """Return which limit the command reached, '' for none."""
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        return f"it used more than {how['limits']['cpu']} s of processor time"
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXFSZ:
        return f"it wrote a file of more than {how['limits']['file']:,} bytes"
    for folder in (*how["seeds"], "/tmp"):
        if status != 0 and os.path.isdir(folder):
            space = os.statvfs(folder)
            if space.f_bavail == 0:
                return f"it filled the {space.f_blocks * space.f_frsize:,} bytes of {folder}"
    return ""


def wait_for(child: int, seconds: float) -> int:
    """Return the status with which the command ended.

    The process outside ends this one when the time is over. The alarm is for the case that it was
    killed.
    """
    signal.signal(signal.SIGALRM, lambda *_: os._exit(124))
    signal.alarm(int(seconds) + 30)
    while True:
        # Any child: as process 1 of a container this process also reaps what the command left.
        ended, status = os.waitpid(-1, 0)
        if ended == child:
            return status


def untraceable() -> None:
    """Refuse the system calls by which one process looks into or changes another, and those that
    change mounts.
    """
    import _ctypes  # ctypes itself takes long to import

    machine = os.uname().machine
    if sys.platform != "linux" or machine not in FORBIDDEN:
        return
    arch, numbers = FORBIDDEN[machine]
    # A program of classic BPF, as linux/filter.h has it: (operation, steps if true, steps if false,
    # value). It loads the architecture and the number of the call, and compares both.
    code = [(0x20, 0, 0, 4), (0x15, 0, len(numbers) + 1, arch), (0x20, 0, 0, 0)]
    if machine == "x86_64":  # the numbers of the other ABI, x32, would pass by
        code[1] = (0x15, 0, len(numbers) + 2, arch)
        code.append((0x35, len(numbers) + 1, 0, 0x40000000))
    refuse = len(numbers)
    code += [(0x15, refuse - at, 0, number) for at, number in enumerate(numbers)]
    # The two ends: allow the call, or refuse it with EPERM.
    code += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x00050001)]
    program = b"".join(
        op.to_bytes(2, sys.byteorder) + bytes((yes, no)) + value.to_bytes(4, sys.byteorder)
        for op, yes, no, value in code
    )

    class Byte(_ctypes._SimpleCData):  # type: ignore[type-arg]
        _type_ = "c"

    class Long(_ctypes._SimpleCData):  # type: ignore[type-arg]
        _type_ = "L"

    class Function(_ctypes.CFuncPtr):
        _flags_ = _ctypes.FUNCFLAG_CDECL
        _restype_ = Long

    def at(data: bytearray) -> int:
        return int(_ctypes.addressof((Byte * len(data)).from_buffer(data)))

    filter_program = bytearray(program)
    header = (len(code), at(filter_program))
    filter_header = bytearray(b"".join(number.to_bytes(8, sys.byteorder) for number in header))
    own = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]
    prctl = Function(_ctypes.dlsym(own, "prctl"))
    prctl(*map(Long, (38, 1, 0, 0, 0)))  # no new privileges, which a filter needs
    if prctl(*map(Long, (22, 2, at(filter_header), 0, 0))) != 0:
        raise OSError(1, "the system-call filter was refused")


FORBIDDEN = {
    # ptrace, process_vm_readv, process_vm_writev, kcmp, pidfd_getfd, process_madvise,
    # perf_event_open, bpf, userfaultfd, add_key, request_key, keyctl, mount, umount2, pivot_root,
    # open_tree, move_mount, fsopen, kexec_load
    "x86_64": (
        0xC000003E,
        (101, 310, 311, 312, 438, 440, 298, 321, 323, 248, 249, 250, 165, 166, 155, 428, 429, 430),
    ),
    "aarch64": (
        0xC00000B7,
        (117, 270, 271, 272, 438, 440, 241, 280, 282, 217, 218, 219, 40, 39, 41, 428, 429, 430),
    ),
}


def copy(source: str, target: str) -> None:
    """Copy what a folder holds into another, links as links.

    What is neither file, folder nor link is left out.
    """
    for entry in os.scandir(source):
        destination = os.path.join(target, entry.name)
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), destination)
        elif entry.is_dir():
            # A folder that another one is linked into is there already.
            os.makedirs(destination, exist_ok=True)
            copy(entry.path, destination)
            os.chmod(destination, entry.stat().st_mode & 0o777 | 0o700)
        elif entry.is_file():
            with open(entry.path, "rb") as file, open(destination, "wb") as other:
                while part := file.read(_CHUNK):
                    other.write(part)
            os.chmod(destination, entry.stat().st_mode & 0o777)


def pack(folder: str, file) -> None:  # type: ignore[no-untyped-def]
    """Write a folder to one file: for each entry a line, and after it the bytes of a file.

    A line has a letter, two numbers, and paths in hexadecimal digits. Folders that are linked into
    this one are on another device, and are left out.
    """
    count, device = 0, os.stat(folder).st_dev
    waiting = [""]
    while waiting:
        below = waiting.pop()
        place = os.path.join(folder, below)
        try:
            entries = sorted(os.scandir(place), key=lambda entry: entry.name)
        except PermissionError:
            os.chmod(place, 0o700)
            entries = sorted(os.scandir(place), key=lambda entry: entry.name)
        for entry in entries:
            count += 1
            if count > MOST_ENTRIES:
                raise OSError(f"it holds more than {MOST_ENTRIES:,} files")
            path = os.path.join(below, entry.name)
            if entry.is_symlink():
                line(file, "l", 0, 0, path, os.readlink(entry.path))
            elif entry.is_dir() and entry.stat().st_dev == device:
                line(file, "d", entry.stat().st_mode & 0o777, 0, path)
                waiting.append(path)
            elif entry.is_file():
                pack_file(entry, path, file)
    line(file, "e", 0, 0)


def pack_file(entry: "os.DirEntry[str]", path: str, file) -> None:  # type: ignore[no-untyped-def]
    state = entry.stat()
    if not os.access(entry.path, os.R_OK):
        os.chmod(entry.path, 0o600)
    with open(entry.path, "rb") as source:
        line(file, "f", state.st_mode & 0o777, state.st_size, path)
        # As many bytes as the line says, although something may still write to the file.
        left = state.st_size
        while left:
            part = source.read(min(_CHUNK, left)) or b"\0" * min(_CHUNK, left)
            file.write(part)
            left -= len(part)


def line(file, kind: str, mode: int, size: int, *paths: str) -> None:  # type: ignore[no-untyped-def]
    words = [kind, str(mode), str(size), *(os.fsencode(path).hex() for path in paths)]
    file.write(" ".join(words).encode() + b"\n")


def listen(port: int):  # type: ignore[no-untyped-def]
    import socket  # start time: only where a model is asked

    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(64)
    return listener


def accept(listener) -> None:  # type: ignore[no-untyped-def]
    import socket  # start time, as above
    import threading

    while True:
        try:
            near, _ = listener.accept()
        except OSError:
            time.sleep(0.05)
            continue
        far = socket.socket(socket.AF_UNIX)
        try:
            far.connect(SOCKET)
        except OSError:
            near.close()
            continue
        for source, target in ((near, far), (far, near)):
            threading.Thread(target=pump, args=(source, target), daemon=True).start()


def pump(source, target) -> None:  # type: ignore[no-untyped-def]
    import contextlib  # start time, as above
    import socket

    with contextlib.suppress(OSError):
        while part := source.recv(65_536):
            target.sendall(part)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    os._exit(main())

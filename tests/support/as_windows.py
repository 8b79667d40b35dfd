"""Run commands of the program with what Windows answers, on Linux: `as_windows.py COMMAND...
[--then COMMAND...]`.

The program is imported with `sys.platform` and `os.name` of Windows, without the modules and
functions that Windows lacks, and with stand-ins for the calls of Windows. Everything else, such as
paths and sockets, stays this system's.
"""

import asyncio
import ctypes
import fcntl
import importlib
import os
import pkgutil
import struct
import sys
import types
from collections.abc import Sequence

PACKAGES = (
    "evolvable_store",
    "evolvable_tools",
    "evolvable_evolve",
    "evolvable_server",
    "evolvable_teams",
    "evolvable_page",
)
MODULES = ("fcntl", "termios", "tty", "pty", "resource", "pwd", "grp")
FUNCTIONS = (
    *(
        "fork",
        "register_at_fork",
        "geteuid",
        "getuid",
        "getgid",
        "getegid",
        "setsid",
        "getpgid",
        "setpgid",
        "killpg",
    ),
    *("chown", "fchown", "fchmod", "nice", "uname", "pidfd_open", "eventfd", "mkfifo", "statvfs"),
    *("O_NOFOLLOW", "O_DIRECTORY", "O_NONBLOCK"),
)


def import_dependencies() -> None:
    """Import all that the program imports as this system's, and forget the program itself."""
    for name in PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not module.name.endswith("__main__"):
                try:
                    importlib.import_module(module.name)
                except ImportError:  # it belongs to an extra
                    continue
    for name in [name for name in sys.modules if name.split(".")[0] in PACKAGES]:
        del sys.modules[name]


def lock(descriptor: int, mode: int, size: int) -> None:
    """Lock bytes as msvcrt.locking does, over a lock of the open file.

    Raises OSError where another holds it.
    """
    at = os.lseek(descriptor, 0, os.SEEK_CUR)
    kind = fcntl.F_WRLCK if mode else fcntl.F_UNLCK
    fcntl.fcntl(
        descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqhh", kind, os.SEEK_SET, at, size, 0, 0)
    )


def tell_profile(
    window: None, folder: int, token: None, flags: int, buffer: "ctypes.Array[ctypes.c_wchar]"
) -> int:
    """Write the profile's folder into the buffer; return 0, for success."""
    buffer.value = os.environ["HOME"]
    return 0


def refuse_handler(*of_signal: object) -> None:
    """Take no handler of a signal, as the event loop of Windows."""
    raise NotImplementedError


def become_windows() -> None:
    """Replace what the program sees of the system."""
    system = types.ModuleType("os")
    vars(system).update({name: value for name, value in vars(os).items() if name not in FUNCTIONS})
    vars(system).update(name="nt", supports_dir_fd=set())
    calls = types.SimpleNamespace(
        kernel32=types.SimpleNamespace(GetDriveTypeW=lambda drive: 3),  # a fixed disk
        shell32=types.SimpleNamespace(SHGetFolderPathW=tell_profile),
    )
    setattr(ctypes, "windll", calls)  # noqa: B010
    for loop in (asyncio.SelectorEventLoop, asyncio.AbstractEventLoop):
        setattr(loop, "add_signal_handler", refuse_handler)  # noqa: B010
    locks = types.ModuleType("msvcrt")
    vars(locks).update(locking=lock, LK_UNLCK=0, LK_LOCK=1, LK_NBLCK=2)
    sys.modules.update({"os": system, "msvcrt": locks} | dict.fromkeys(MODULES))  # type: ignore[arg-type]
    sys.platform = "win32"


def run(arguments: Sequence[str]) -> int:
    """Run one command; return its exit code."""
    from evolvable_server.cli import main

    print("$", *arguments, file=sys.stderr)
    sys.argv = ["evolvable", *arguments]
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0


def main() -> None:
    """Run the commands of the command line one after the other; end with the highest of their
    codes.
    """
    commands: list[list[str]] = [[]]
    for word in sys.argv[1:]:
        if word == "--then":
            commands.append([])
        else:
            commands[-1].append(word)
    import_dependencies()
    become_windows()
    codes = [run(command) for command in commands]
    sys.exit(max(codes))


if __name__ == "__main__":
    main()

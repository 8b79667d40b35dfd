"""Notice that the files of this program were replaced while it runs, before it loads one of the new
ones.

A module of another version beside those in memory fails in any way, or works wrongly. So the
question is asked where modules are loaded, and nowhere else.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import invalidate_caches
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from evolvable_store.errors import RESTART, ProgramReplaced

VERSION_FILE = Path(__file__).with_name("__init__.py")
"""The file that says the version of the program."""


class ProgramFiles:
    """Refuses to load modules once the program's files are others.

    It stands first in `sys.meta_path`.
    """

    def __init__(self, version_file: Path = VERSION_FILE) -> None:
        """Remember the files as they are now.

        version_file: lies in a package, beside the installer's list of files.
        """
        self._version_file = version_file
        self._record = _installers_record(version_file)
        self._marks, self._contents = self._read_marks(), self._read_contents()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return None, so that the module is looked for as ever.

        Raises ProgramReplaced, as `check`.
        """
        # Python's own modules are not replaced by an update of this program, and are loaded often.
        if fullname.partition(".")[0] not in sys.stdlib_module_names:
            # Modules of other packages count as well: an update may have replaced those that this
            # program needs.
            self.check()
        return None

    def check(self) -> None:
        """Raise ProgramReplaced when the program that is installed is another one than runs here.

        One that was installed again with equal files is the same.
        """
        marks = self._read_marks()
        # Two stat calls in the usual case; the contents are read only when a mark differs.
        if marks == self._marks:
            return
        if self._read_contents() != self._contents:
            raise ProgramReplaced(
                f"Evolvable was updated in {self._version_file.parents[1]} while this process "
                "runs the program of before, so it can load no more of its parts. The library is "
                "as it was.",
                RESTART,
            )
        self._marks = marks

    def _files(self) -> tuple[Path, ...]:
        return (self._version_file, self._record) if self._record else (self._version_file,)

    def _read_marks(self) -> list[tuple[int, ...]]:
        return [_mark(path) for path in self._files()]

    def _read_contents(self) -> list[bytes]:
        return [_content(path) for path in self._files()]


# An installer removes the modules first and writes its list of files last. Between both lie tenths
# of a second.
INSTALL_SECONDS = 2.0
"""How long a module that is missing may mean that an update is at work."""

_PAUSE = 0.05


class MissingModules:
    """Waits for an update that is at work where a module of this program is missing.

    It stands last in `sys.meta_path`, so it is asked about what no finder has.
    """

    def __init__(self, files: ProgramFiles) -> None:
        self._files = files

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where the module is once an installer has put it back, None where it does not.

        Raises ProgramReplaced, as `ProgramFiles.check`, once an update has got so far.
        """
        # A whole package may be left out of an installation; a part of one may not.
        if path is not None and fullname.startswith("evolvable_"):
            end = time.monotonic() + INSTALL_SECONDS
            while time.monotonic() < end:
                self._files.check()
                invalidate_caches()
                if (spec := PathFinder.find_spec(fullname, path)) is not None:
                    return spec
                time.sleep(_PAUSE)
        return None


def _installers_record(version_file: Path) -> Path | None:
    """Return the installer's list of the program's files and their hashes; None for a clone, which
    has none.
    """
    return next(iter(version_file.parents[1].glob("evolvable-*.dist-info/RECORD")), None)


def _mark(path: Path) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    # The inode too: an installer writes a new file, which can have the same size and time.
    return found.st_ino, found.st_size, found.st_mtime_ns


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


running: ProgramFiles | None = None
"""Of this process, once `guard_imports` was called."""


def guard_imports() -> None:
    """Refuse from now on to load parts of a program that replaced this one.

    A thread that meets it says a sentence.
    """
    # Once a process, and first in the path: a finder before it would load the new module.
    global running
    if running is None:
        running = ProgramFiles()
        sys.meta_path.insert(0, running)
        sys.meta_path.append(MissingModules(running))
        # A thread has nobody to catch its error; a traceback through mixed modules would only
        # mislead.
        threading.excepthook = partial(_report, threading.excepthook)


def _report(
    other: Callable[[threading.ExceptHookArgs], object], failure: threading.ExceptHookArgs
) -> None:
    if not isinstance(failure.exc_value, ProgramReplaced):
        other(failure)
    elif sys.stderr is not None:
        sys.stderr.write(f"evolvable: {failure.exc_value.text}\n")


def check_program() -> None:
    """Raise ProgramReplaced where a module is loaded that was found before, if the program's files
    are others now.
    """
    if running is not None:
        running.check()

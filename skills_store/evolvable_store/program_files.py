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
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType

from evolvable_store.errors import RESTART, ProgramReplaced

VERSION_FILE = Path(__file__).with_name("__init__.py")
"""The file that says the version of the program."""

COMPILED_PART = "evolvable_store.search._scoring"
"""The only module of the program that an installation may lack."""

INSTALL_SECONDS = 10.0
"""How long files that are missing may mean that an installer is at work.

It removes all files first and writes its list of them last. pip needs half a second on an idle
machine with two cores.
"""

_PAUSE = 0.05


class ProgramFiles:
    """Refuses to load modules once the program's files are others, and waits while an installer is
    at work.

    It stands first in `sys.meta_path`.
    """

    def __init__(self, version_file: Path = VERSION_FILE) -> None:
        """Remember the files as they are now.

        version_file: lies in a package, beside the installer's list of files.
        """
        self._version_file = version_file
        self._record = _installers_record(version_file)
        self._marks, self._contents = self._read_marks(), self._read_contents()
        # Until when files that are missing are waited for; None while all are there.
        self._wait_end: float | None = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a part of the program is; None for other modules, which are looked for as
        ever.

        Raises ProgramReplaced, as `check`.
        """
        package = fullname.partition(".")[0]
        # Python's own modules are not replaced by an update of this program, and are loaded often.
        if package in sys.stdlib_module_names:
            return None
        # Modules of other packages count as well: an update may have replaced those that this
        # program needs.
        self.check()
        # A whole package may be left out of an installation; a part of one may not.
        if path is None or not package.startswith("evolvable_") or fullname == COMPILED_PART:
            return None
        return self._find_part(fullname, path)

    def check(self) -> None:
        """Raise ProgramReplaced when the program that is installed is another one than runs here.

        One that was installed again with equal files is the same. Waits up to INSTALL_SECONDS while
        an installer is at work: an import that is refused halfway leaves a package of which a
        second import fails.
        """
        marks = self._read_marks()
        # Two stat calls in the usual case; the contents are read only when a mark differs.
        if marks == self._marks:
            return
        while () in marks and self.may_wait():
            time.sleep(_PAUSE)
            marks = self._read_marks()
        if () not in marks:
            self._wait_end = None
        if self._read_contents() != self._contents:
            raise ProgramReplaced(
                f"Evolvable was updated in {self._version_file.parents[1]} while this process "
                "runs the program of before, so it can load no more of its parts. The library is "
                "as it was.",
                RESTART,
            )
        self._marks = marks

    def may_wait(self) -> bool:
        """Tell whether an installer may be at work on files that are missing.

        The first call begins the time, which ends once all are there.
        """
        # A clone has no installer.
        if self._record is None:
            return False
        # Once for the process, not for each import: a program that was removed or damaged stays so.
        if self._wait_end is None:
            self._wait_end = time.monotonic() + INSTALL_SECONDS
        return time.monotonic() < self._wait_end

    def _find_part(self, fullname: str, path: Sequence[str]) -> ModuleSpec | None:
        while True:
            spec = PathFinder.find_spec(fullname, path)
            # A folder whose __init__.py is removed already counts as a package without origin.
            if spec is not None and spec.origin is not None:
                break
            if not self.may_wait():
                return None
            time.sleep(_PAUSE)
            self.check()
            invalidate_caches()
        if type(spec.loader) is SourceFileLoader:
            spec.loader = _PartLoader(spec.loader.name, spec.loader.path, self)
        return spec

    def _files(self) -> tuple[Path, ...]:
        return (self._version_file, self._record) if self._record else (self._version_file,)

    def _read_marks(self) -> list[tuple[int, ...]]:
        return [_mark(path) for path in self._files()]

    def _read_contents(self) -> list[bytes]:
        return [_content(path) for path in self._files()]


class _PartLoader(SourceFileLoader):
    """Loads a module again when a file that it reads was removed after it was found."""

    def __init__(self, name: str, path: str, files: ProgramFiles) -> None:
        super().__init__(name, path)
        self._files = files

    def exec_module(self, module: ModuleType) -> None:
        while True:
            try:
                return super().exec_module(module)
            except FileNotFoundError:
                if not self._files.may_wait():
                    raise
            time.sleep(_PAUSE)
            self._files.check()


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
    # An installer that does not rename its list into place has it empty for a moment.
    if not found.st_size:
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

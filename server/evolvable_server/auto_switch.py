"""The switch of automatic reviews: for which projects they are on, and the start of the process
that makes them.

The switch is a file in the library's folder, on this machine: a backup does not carry it. A client
waits for a hook, so this module imports little of the standard library.
"""

import json
import os
import sys
from collections.abc import Iterable, Mapping

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

if TYPE_CHECKING:
    from subprocess import Popen

SWITCH = "auto.json"
"""File in the folder `reviews` of the library: {"projects": [...], "skills": [...], "budget":
"..."}.
"""

BUDGET = "tokens=300000,money=2,price=5/25"
"""What automatic reviews may use in a day where the person named nothing else, in tokens and US
dollars.

The price is assumed for a model that has none, until Claude Code reports what a review did cost.
"""

# Room for several hundred folders.
_MAX = 65_536
"""Bytes of the switch that are read."""


class AutoSwitch:
    """Where automatic reviews are on.

    projects: folders, as real paths; a session in one of them, or below it, is reviewed when it has
    ended. skills: refs whose lessons are made without a question where the scan has none. budget:
    of a day, as EVOLVABLE_REVIEW_BUDGET says it.
    """

    __slots__ = ("projects", "skills", "budget")

    def __init__(
        self, projects: Iterable[str] = (), skills: Iterable[str] = (), budget: str = BUDGET
    ) -> None:
        self.projects, self.skills, self.budget = tuple(projects), tuple(skills), budget

    def covers(self, folder: str) -> bool:
        """Return whether the sessions of a folder are reviewed by themselves."""
        # `realpath` raises ValueError for a null byte, which the payload of a hook may hold.
        real = os.path.realpath(folder) if folder and "\0" not in folder else ""
        # The root folder ends with a separator already.
        return any(
            real == project or real.startswith(project.rstrip(os.sep) + os.sep)
            for project in self.projects
        )


def read_switch(home: "str | os.PathLike[str]") -> AutoSwitch:
    """Return the switch of the library in `home`; off where there is none, or it cannot be read."""
    place = os.path.join(home, "reviews", SWITCH)
    # Most homes have no switch. `lexists` spares them the import of what reads a file safely.
    if not os.path.lexists(place):
        return AutoSwitch()
    from evolvable_store import read_regular

    try:
        fields = json.loads(read_regular(place, _MAX))
    except (OSError, ValueError, RecursionError):
        return AutoSwitch()
    if not isinstance(fields, dict):
        return AutoSwitch()
    budget = fields.get("budget")
    return AutoSwitch(
        _keep_texts(fields.get("projects")),
        _keep_texts(fields.get("skills")),
        budget if isinstance(budget, str) else BUDGET,
    )


def _keep_texts(entries: object) -> list[str]:
    # A person may edit the file: entries that are no text are left out.
    if not isinstance(entries, list):
        return []
    return [entry for entry in entries if isinstance(entry, str)]


def write_switch(home: "str | os.PathLike[str]", switch: AutoSwitch) -> None:
    """Store the switch; one that is off everywhere leaves no file. Raise OSError."""
    from pathlib import Path

    from evolvable_store import write_private

    place = Path(home, "reviews", SWITCH)
    if not switch.projects and not switch.skills:
        place.unlink(missing_ok=True)
        return
    place.parent.mkdir(mode=0o700, exist_ok=True)
    fields = {"projects": switch.projects, "skills": switch.skills, "budget": switch.budget}
    write_private(place, json.dumps(fields, indent=2) + "\n")


def was_declined(home: "str | os.PathLike[str]", lesson: int) -> bool:
    """Return whether the person was asked about a lesson in a client, and did not agree."""
    return os.path.lexists(os.path.join(home, "reviews", "declined", str(lesson)))


def note_declined(home: "str | os.PathLike[str]", lessons: Iterable[int]) -> None:
    """Record that no client asks about these lessons again, and no hook names them.

    Raise OSError.
    """
    folder = os.path.join(home, "reviews", "declined")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    # An empty file for each lesson, so two processes can note theirs at once without a lock.
    for lesson in lessons:
        with open(os.path.join(folder, str(lesson)), "w", encoding="ascii"):
            pass


def start_if_on(home: "str | os.PathLike[str]", folder: object) -> bool:
    """Start the process that reviews ended sessions, where the switch is on for a folder.

    Return whether it started. folder: that of the session that ended; an unknown one counts as
    covered. Raise OSError.
    """
    switch = read_switch(home)
    if not switch.projects or (isinstance(folder, str) and folder and not switch.covers(folder)):
        return False
    start_worker(home, os.environ)
    return True


def start_worker(home: "str | os.PathLike[str]", environment: Mapping[str, str]) -> "Popen[bytes]":
    """Start the process that reviews what is due and then ends.

    It outlives its starter. Raise OSError.
    """
    import subprocess

    flags = 0
    # On POSIX, `start_new_session` and the worker's own niceness do this.
    if sys.platform == "win32":
        flags = subprocess.DETACHED_PROCESS | subprocess.BELOW_NORMAL_PRIORITY_CLASS
    nothing = subprocess.DEVNULL
    return subprocess.Popen(
        # -P: no module of the working folder is imported in place of ours.
        [sys.executable, "-P", "-m", "evolvable_server.auto_review"],
        stdin=nothing,
        stdout=nothing,
        stderr=nothing,
        cwd=home,  # not the project's folder: nothing there decides what runs
        env=dict(environment),
        start_new_session=True,
        creationflags=flags,
    )

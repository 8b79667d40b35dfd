"""How a command of the program ends."""

from enum import IntEnum


class ExitCode(IntEnum):
    """How a command ends; docs/cli.md has the same table.

    A hook always ends with DONE: a client takes another code of a hook for an order to stop.
    """

    DONE = 0
    """All that was asked for was done.

    A change that waits in the inbox counts as done, except where FOUND says so.
    """

    ERROR = 1
    """An error; or a resource with a secret was left out of `export`, `push`, `checkout` or
    `publish`, an entry of `rspl load-contract` drifted, or a model gave `model test` no answer.
    """

    USAGE = 2
    """The command line is wrong; click's own code for it."""

    NONE_FITS = 3
    """`find`: the library holds nothing for the task."""

    FOUND = 4
    """`scan`, `doctor`, `fsck`, `taskset check`, `audit --verify` or `diff` found something, or a
    part of an `import`, `pull`, `clone` or `undo` waits for a person or was refused. What else was
    asked for was done.
    """

    INTERRUPTED = 130
    """Ctrl-C, as a shell says it."""


def found_code(*found: object) -> ExitCode:
    """Return FOUND where any of these holds something, else DONE."""
    return ExitCode.FOUND if any(found) else ExitCode.DONE

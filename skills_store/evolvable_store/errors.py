"""Every error that a caller can get: what failed, on which object, and a hint at the next step.

EvolvableError
├── NotFound      NoSuchResource  NoSuchVersion  NoSuchFile  NoSuchOperation  NoSuchScope  NoSuchUse
├── Conflict      VersionConflict  AlreadyExists  EditConflict
├── Refused       Frozen  Unsafe
├── Invalid       InvalidRef  InvalidPath  InvalidResource  InvalidArgument  InvalidArchive
│                 TooLarge
├── TryAgain      LibraryBusy  LibraryReadOnly  LibraryFull  LibraryUnreachable
└── LibraryError  NoLibrary  LibraryBusy  LibraryCorrupt  LibraryTooNew  LibraryReadOnly
                  LibraryFull  UntrustedHome  LibraryUnreachable  RemoteFailed  ProgramReplaced
"""

import errno
import re
from collections.abc import Sequence

RESTART = (
    "Restart this window (the client or terminal whose server this is): it then runs the program "
    "that is installed now."
)
"""The hint where an older program still runs."""

# Hangul fillers, variation selectors and the like: str.isprintable() is true of them, so repr()
# leaves them in.
UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\uffa0\ufe00-\ufe0f\U000e0000-\U000e0fff]"
)
"""Letters and marks without a shape, which Python calls printable."""


def quote_text(text: str, most: int = 80) -> str:
    """Return a text in quotation marks for a message, cut to `most` characters.

    Letters of every script stay. Invisible characters, terminal controls and marks of writing
    direction are written as escapes.
    """
    literal = repr(text if len(text) <= most else f"{text[: most - 3]}...")
    return UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), literal)


class EvolvableError(Exception):
    """The base of all errors.

    str(error): the message. hint: a second sentence with the next step, or ''.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    @property
    def text(self) -> str:
        """Message and hint as one text, for a model or a terminal."""
        return f"{self} {self.hint}" if self.hint else str(self)


class NotFound(EvolvableError):
    """The thing named is not in the library."""


class NoSuchResource(NotFound):
    """No resource has this name, or it was removed."""


class NoSuchVersion(NotFound):
    """The resource exists, this version of it does not."""


class NoSuchFile(NotFound):
    """The version exists, this file is not in it."""


class NoSuchOperation(NotFound):
    """No operation has this id."""


class NoSuchScope(NotFound):
    """No folder or resource belongs to this scope."""


class NoSuchUse(NotFound):
    """No use has this id."""


class Conflict(EvolvableError):
    """Somebody else changed the thing first, or it is already there."""


class VersionConflict(Conflict):
    """A write expected another version than the head.

    expected: the version of the write. head: that of the library, 0 for none. overlap: a text for
    the hint about lines that both sides changed.
    """

    def __init__(self, ref: str, expected: int, head: int, overlap: str = "") -> None:
        # The hint has the whole procedure: a model may see nothing but this message.
        here = f"its head is version {head}" if head else "it does not exist (any more)"
        super().__init__(
            f"{ref} is not at version {expected}: {here}.",
            "Read the head, apply your change to it, and pass its version as "
            f"expected_version. {overlap}".rstrip(),
        )
        self.ref, self.expected, self.head, self.overlap = ref, expected, head, overlap


class AlreadyExists(Conflict):
    """A resource was to be created under a name that is taken."""


class EditConflict(Conflict):
    """An edit's old text is not in the file, or is there more than once."""


class Refused(EvolvableError):
    """The change is understood and not allowed."""


class Frozen(Refused):
    """The resource says `evolvable: "false"`; only a person may change it."""

    def __init__(self, ref: str, actor: str) -> None:
        super().__init__(
            f'{ref} is frozen (metadata evolvable: "false"); {actor} may not change it.',
            "Only a person can: by editing its file in a working copy, or with the "
            "evolvable command.",
        )
        self.ref, self.actor = ref, actor


class Unsafe(Refused):
    """A scan refused a change. `findings` lists every reason, worst first."""

    def __init__(self, ref: str, findings: Sequence[str]) -> None:
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        super().__init__(
            f"{ref} was not changed: {findings[0]}{more}.",
            "Leave that out and try again; a person can make the change with the "
            "evolvable command.",
        )
        self.ref, self.findings = ref, tuple(findings)


class Invalid(EvolvableError):
    """The input breaks a rule; nothing was changed."""


class InvalidRef(Invalid):
    """Text that is not a ref, or a name that no resource may have."""


class InvalidPath(Invalid):
    """Text that is not a relative path inside a resource."""


class InvalidArgument(Invalid):
    """An argument of a verb is out of its range."""


class InvalidArchive(Invalid):
    """An archive that is broken, hostile or not one of ours."""


class TooLarge(Invalid):
    """A file, a resource or an archive over its limit."""


class InvalidResource(Invalid):
    """The files do not make a resource. `problems` holds every reason, not only the first."""

    def __init__(self, ref: str, problems: Sequence[str]) -> None:
        joined = "; ".join(problems)
        super().__init__(f"{ref} is not valid: {joined}.", "Fix each of these and try again.")
        self.ref, self.problems = ref, tuple(problems)


class TryAgain(EvolvableError):
    """A state that passes by itself: busy, full, read only, unreachable.

    The same call may succeed later. The error says nothing about the object of the call: a
    background task keeps that object and tries again. It never notes it as done, refused or gone.
    """


_LASTS = frozenset(
    (
        # All others, such as ENOSPC, EACCES and EMFILE, can pass without a change to the path.
        *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY),
        *(errno.EINVAL, errno.ELOOP, errno.ENAMETOOLONG, errno.EFBIG, errno.ENXIO),
    )
)
"""Errors of the system about the path or the file itself: a second try has the same result."""


def may_pass(error: BaseException) -> bool:
    """Return whether the same call may succeed later: for TryAgain, and most errors of the system.

    An OSError counts unless it says that the path or the file is wrong. Examples that count: no
    space, no rights, read only, busy, too many open files, an error of the disk.
    """
    return isinstance(error, TryAgain) or (isinstance(error, OSError) and error.errno not in _LASTS)


class LibraryError(EvolvableError):
    """The library as a whole cannot do this now."""


class NoLibrary(LibraryError):
    """There is no library at this place."""


class LibraryBusy(LibraryError, TryAgain):
    """Other processes held the library for longer than a write waits."""


class LibraryCorrupt(LibraryError):
    """Stored bytes do not match their hash, or the file is not a library."""


class LibraryTooNew(LibraryError):
    """A newer program wrote this library; this one neither reads nor writes it."""


class ProgramReplaced(LibraryError):
    """The files of this program were replaced while it ran, so it can load no more of them."""


class LibraryReadOnly(LibraryError, TryAgain):
    """The library's file cannot be written."""


class LibraryFull(LibraryError, TryAgain):
    """The disk is full; nothing of the change was kept."""


class LibraryUnreachable(LibraryError, TryAgain):
    """The disk or the server of the library did not answer, or reported an error."""


class UntrustedHome(LibraryError):
    """Another account, or a repository, controls the folder of the library."""


class RemoteFailed(LibraryError):
    """git or a remote failed; the library is unchanged."""


class DamagedFile(Exception):
    """A file that can be rebuilt is damaged, or of another version, program or library.

    The error does not reach callers: the module of the file renames it and makes it again.
    """

"""What is hidden here besides what is built in: by the file redact.txt in the library's folder."""

import logging
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evolvable_tools.redaction.redactor import Redactor
    from evolvable_tools.redaction.secret_patterns import UserPatterns

FILE = "redact.txt"
MAX_BYTES = 1_000_000

log = logging.getLogger(__name__)


class Redaction:
    """The redactor of one library, with the patterns of its file as it is now. Safe from any thread.

    A file that cannot be read, and a line that cannot be used, are said in the log, and stop nothing.
    """

    def __init__(self, home: Path) -> None:
        self._path = home / FILE
        self._turn = threading.Lock()
        self._seen: object = None
        self._made: Redactor | None = None

    def redactor(self) -> "Redactor":
        """Returns the redactor; another one when the file was changed."""
        now = _signature(self._path)
        with self._turn:
            if self._made is None or now != self._seen:
                from evolvable_tools.redaction.redactor import Redactor  # late: it takes a while to compile

                own, problems = own_patterns(self._path.parent)
                for problem in problems:
                    log.warning("%s", problem)
                self._made, self._seen = Redactor(own), now
            return self._made


def own_patterns(home: Path) -> "tuple[UserPatterns, list[str]]":
    """Returns a person's own patterns, none without the file, and what is wrong, with file and line."""
    from evolvable_tools.redaction.secret_patterns import UserPatterns, read_patterns

    path = home / FILE
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
        text = data.decode("utf-8-sig")
    except FileNotFoundError:
        return UserPatterns(), []
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return UserPatterns(), [f"{path}, line {line}: it is not UTF-8; none of your patterns is used."]
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        return UserPatterns(), [f"{path} cannot be read: {why}; none of your patterns is used."]
    return read_patterns(text.splitlines(), str(path))


def _signature(path: Path) -> object:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino

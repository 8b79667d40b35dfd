"""Verify and export the audit log.

The chain shows a row that was changed, removed or moved. It does not show that rows at the end are
missing, or that all of it was written again: that takes a head (number and hash) that somebody
noted elsewhere.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from evolvable_store import regular_file
from evolvable_store.errors import AlreadyExists, InvalidArgument
from evolvable_store.storage import PAGE, AuditEntry
from evolvable_tools.library import Library

MAX_PROBLEMS = 20  # a broken chain has a problem at nearly every row

_HEAD = re.compile(r"([0-9]{1,15}):([0-9a-f]{64})")


@dataclass(slots=True)
class AuditReport:
    """What a verification found.

    head: `NUMBER:HASH` of the newest row, '' for none; keep it on another machine.
    """

    entries: int = 0
    head: str = ""
    problems: list[str] = field(default_factory=list)

    @property
    def intact(self) -> bool:
        """Whether nothing was found."""
        return not self.problems


def read_entries(library: Library) -> Iterator[AuditEntry]:
    """Yield the entries of the log, oldest first."""
    after = 0
    while page := library.store.backend.audit.entries(after, PAGE):
        yield from page
        after = page[-1].number


def verify_log(library: Library, noted_head: str = "") -> AuditReport:
    """Return what is wrong with the log of a library.

    noted_head: a head from before. Raise InvalidArgument.
    """
    report = verify_entries(read_entries(library), noted_head)
    for proposal, operation in library.store.backend.audit.unrecorded_approvals()[:MAX_PROBLEMS]:
        report.problems.append(
            f"operation {operation} approved proposal {proposal}, and no row says so"
        )
    return report


def verify_entries(entries: Iterable[AuditEntry], noted_head: str = "") -> AuditReport:
    """Return what is wrong with a chain of entries.

    Pure. Raise InvalidArgument for a head that is none.
    """
    match = _HEAD.fullmatch(noted_head) if noted_head else None
    if noted_head and match is None:
        raise InvalidArgument(
            f"{ascii(noted_head[:100])} is no head of the log.",
            "It is NUMBER:HASH, as --verify says it.",
        )
    report, number = AuditReport(), 0
    previous_hash, has_noted_row = "", False
    for entry in entries:
        number += 1
        if entry.number != number:
            _add_problem(
                report,
                f"row {number} is missing or out of order: row {entry.number} stands in its place",
            )
            # The count goes on from the row that is there, so that one gap is one problem.
            number = entry.number
        if entry.previous != previous_hash:
            _add_problem(report, f"row {entry.number} does not follow the row before it")
        if entry.hash != entry.expected_hash:
            _add_problem(report, f"row {entry.number} was changed")
        previous_hash = entry.hash
        report.entries += 1
        report.head = f"{entry.number}:{entry.hash}"
        has_noted_row = has_noted_row or (match is not None and noted_head == report.head)
    if match is not None and not has_noted_row:
        _add_problem(
            report, f"the row {match[1]} that was noted is not there, or is another one now"
        )
    return report


def _add_problem(report: AuditReport, text: str) -> None:
    # Later problems mostly follow from the first ones.
    if len(report.problems) < MAX_PROBLEMS:
        report.problems.append(text)


def export_log(library: Library, target: Path) -> int:
    """Write the log to a new file of mode 0600, a JSON object a line, and return the number of
    rows.

    Raise AlreadyExists for a file that is there.
    """
    try:
        # A new file of mode 0600, since the log names people and their reasons.
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise AlreadyExists(f"{target} exists already.", "Name a new file.") from None
    count = 0
    with open(descriptor, "w", encoding="utf-8") as file:
        for entry in read_entries(library):
            file.write(json.dumps(asdict(entry)) + "\n")
            count += 1
    return count


# Types of fields that are no texts.
_FORMS: dict[str, type | tuple[type, ...]] = {"number": int, "operation": (int, type(None))}


def read_export(source: Path) -> Iterator[AuditEntry]:
    """Yield the entries of an exported file. Raise InvalidArgument for what is none."""
    names = [column.name for column in fields(AuditEntry)]
    with open(source, encoding="utf-8", errors="replace", opener=regular_file) as file:
        for place, line in enumerate(file, 1):
            try:
                row: Any = json.loads(line)
                is_entry = isinstance(row, dict) and sorted(row) == sorted(names)
                is_entry = is_entry and all(
                    isinstance(row[name], _FORMS.get(name, str)) for name in names
                )
            except (ValueError, RecursionError):
                is_entry = False
            if not is_entry:
                raise InvalidArgument(
                    f"Line {place} of {source} is no row of an audit log.", "Export it again."
                )
            yield AuditEntry(**row)

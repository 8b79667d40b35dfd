"""Count the days on which a home is used, so that a wrong clock ages nothing.

An entry of the trash stays for so many days of use. A clock that jumps, in either direction and as
far as it likes, makes one more day at most.
"""

import contextlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from evolvable_store.regular_files import write_private

DAY_SECONDS = 86_400.0

USED_DAYS_FILE = "used-days.json"
"""File in the home with the count."""


def days_of_use(home: Path) -> int:
    """Return the number of days on which this home was used, as `count_day` counted them."""
    return _read(home).days


def count_day(home: Path, now: float) -> int:
    """Count a day once DAY_SECONDS passed since the last one; return the number of days.

    now: seconds of the clock. A clock that was set back begins a new day. Nothing is counted in a
    home that cannot be written.
    """
    record = _read(home)
    # Both bounds: without the lower one, a clock set back by a year would count nothing for a year.
    if record.last is None or not record.last <= now < record.last + DAY_SECONDS:
        has_passed = record.last is not None and now > record.last
        _write(home, replace(record, last=now, days=record.days + has_passed))
    return _read(home).days


def planned_day(home: Path) -> int | None:
    """Return the planned day of use, None without a plan."""
    return _read(home).planned


def plan_day(home: Path, day: int | None) -> None:
    """Store the day of use that something is planned for; None deletes the plan."""
    record = _read(home)
    if record.planned != day:
        _write(home, replace(record, planned=day))


@dataclass(frozen=True, slots=True)
class _Days:
    """The content of the file.

    last: when the last day began, in seconds. days: how many were counted. planned: the day of the
    plan.
    """

    last: float | None = None
    days: int = 0
    planned: int | None = None


def _read(home: Path) -> _Days:
    try:
        fields = json.loads((home / USED_DAYS_FILE).read_text(encoding="utf-8"))
        planned = fields.get("planned")
        day = None if planned is None else int(planned)
        return _Days(float(fields["last"]), int(fields["days"]), day)
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        # A damaged file starts from zero: entries of the trash stay longer, and nothing is deleted
        # early.
        return _Days()


def _write(home: Path, record: _Days) -> None:
    with contextlib.suppress(OSError):
        # Not durable: a lost count only makes the trash stay one day longer.
        write_private(home / USED_DAYS_FILE, json.dumps(asdict(record)), durable=False)

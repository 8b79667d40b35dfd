"""Count the days on which a home is used, so that a wrong clock ages nothing.

What is kept for some days is kept for so many days of use. A clock that jumps, in either direction and as far as it
likes, makes one more day at most.
"""

import contextlib
import json
from pathlib import Path

from evolvable_store.private_files import write_private

DAY_SECONDS = 86_400.0

_FILE = "used-days.json"


def used_days(home: Path) -> int:
    """Return on how many days this home was used so far, as `count_day` counted them."""
    return _read(home)[1]


def count_day(home: Path, now: float) -> int:
    """Count today, unless less than a day went by since the last one that was counted; return all of them.

    now: seconds of the clock. A clock that was set back begins its day anew. Nothing is counted in a home that cannot be
    written.
    """
    last, days = _read(home)
    if last is None or now < last or now >= last + DAY_SECONDS:
        days += last is not None and now > last
        with contextlib.suppress(OSError):
            write_private(home / _FILE, json.dumps({"last": now, "days": days}), durable=False)
    return days


def _read(home: Path) -> tuple[float | None, int]:
    try:
        found = json.loads((home / _FILE).read_text(encoding="utf-8"))
        return float(found["last"]), int(found["days"])
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return None, 0

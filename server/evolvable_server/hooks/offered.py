"""What was offered to a session, so that it is never offered twice: one small file for each skill, made by whoever
claims it first, in whichever process."""

import json
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

from evolvable_store.job_queue import file_name

DAYS = 7.0
"""Days after its last offer for which a session is remembered."""

SESSIONS, SKILLS = 200, 50
"""Sessions that are remembered, and skills that are offered to one session."""


class Offered:
    """What a library's sessions were offered. Being offered is no use."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "hooks" / "offered"

    def claim(self, session: str, resource: int, search_id: str) -> bool:
        """Returns whether this skill may be offered to this session: True once, to one process.

        False too where nothing can be remembered, or the session was offered enough.
        """
        place = self._place(session)
        try:
            if not place.is_dir():
                self._clean_up()
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
            if sum(1 for _ in os.scandir(place)) >= SKILLS:
                return False
            with open(place / str(resource), "x", encoding="utf-8") as file:
                file.write(json.dumps({"search_id": search_id}))
            return True
        except OSError:
            return False

    def search_of(self, session: str, resource: int) -> str | None:
        """Returns the search after which this skill was offered to this session, None when it was not."""
        try:
            said = json.loads((self._place(session) / str(resource)).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        search = said.get("search_id") if isinstance(said, dict) else None
        return search if isinstance(search, str) else None

    def _place(self, session: str) -> Path:
        return self._folder / file_name(session)

    def _clean_up(self) -> None:
        ages: dict[Path, float] = {}
        with suppress(FileNotFoundError):
            for entry in os.scandir(self._folder):
                with suppress(FileNotFoundError):
                    ages[Path(entry.path)] = entry.stat().st_mtime
        newest = sorted(ages, key=ages.__getitem__, reverse=True)
        since = time.time() - DAYS * 86_400
        for place in newest:
            if ages[place] < since or place in newest[SESSIONS - 1 :]:
                shutil.rmtree(place, ignore_errors=True)

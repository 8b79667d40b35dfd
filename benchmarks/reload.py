"""What a person saves in a folder is seen by every server at once, and nothing is missed."""

import contextlib
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from support import (
    SERVE,
    Row,
    Server,
    arguments,
    at_most,
    conclude,
    median,
    ms,
    none_of,
    percentile,
    progress,
    seed_folder,
    skill_text,
)

from evolvable_store.objects import make_manifest
from evolvable_store.store import Store
from evolvable_store.workingcopy.registry import WorkingCopies
from evolvable_store.workingcopy.tree_reader import read_folder

BETWEEN = (0.2, 0.6)
"""Seconds between two saves: longer than the events of one are gathered."""


class Bare:
    """watchfiles alone on a folder, with nothing behind it: the limit of what a save can be seen
    in.
    """

    def __init__(self, folder: Path) -> None:
        self._stop, self._seen = threading.Event(), threading.Condition()
        self._paths: dict[str, float] = {}
        self._thread = threading.Thread(target=self._follow, args=(folder,), daemon=True)
        self._thread.start()

    def _follow(self, folder: Path) -> None:
        from watchfiles import watch

        for batch in watch(folder, debounce=100, step=20, watch_filter=None, stop_event=self._stop):
            with self._seen:
                self._paths.update((path, time.perf_counter()) for _, path in batch)
                self._seen.notify_all()

    def wait(self, path: Path, since: float) -> float | None:
        """Return the seconds from `since` to the event of this path, None when none came within two
        seconds.
        """
        with self._seen:
            self._seen.wait_for(lambda: self._paths.get(str(path), 0) > since, timeout=2)
            at = self._paths.get(str(path), 0)
        return at - since if at > since else None

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=5)


def until(check: Callable[[], bool], seconds: float, pause: float = 0.002) -> bool:
    """Return whether the check came true in time."""
    deadline = time.perf_counter() + seconds
    while not check():
        if time.perf_counter() > deadline:
            return False
        time.sleep(pause)
    return True


def shows(server: Server, name: str, text: str) -> bool:
    return text.strip() in server.text("get_resource", ref=name)


def saves(server: Server, folder: Path, names: list[str], count: int) -> list[Row]:
    """Measure from the end of a save to the answer of the second server that shows its version."""
    rng, delays, alone, missed = random.Random(3), [], [], 0
    bare = Bare(folder)
    try:
        for number in range(count):
            time.sleep(rng.uniform(*BETWEEN))
            name = rng.choice(names)
            path, text = folder / name / "SKILL.md", skill_text(name, f"save {number}")
            path.write_text(text, encoding="utf-8")
            saved = time.perf_counter()
            if until(partial(shows, server, name, text), 5):
                delays.append(time.perf_counter() - saved)
            else:
                missed += 1
            event = bare.wait(path, saved)
            alone += [event] if event is not None else []
    finally:
        bare.stop()
    return [
        Row("save to event of watchfiles alone, p50", ms(median(alone))),
        Row(f"save to answer of the second server, p50 of {count}", ms(median(delays))),
        at_most("save to answer of the second server, p95", percentile(delays, 95), 0.200, ms),
        none_of("saves missed", missed),
    ]


def burst(server: Server, home: Path, folder: Path, names: list[str]) -> list[Row]:
    """Measure from the first of many saves to the second server listing a new version of every
    skill.
    """
    before, texts = listed(server), {name: skill_text(name, "burst") for name in names}
    started = time.perf_counter()
    for name, text in texts.items():
        (folder / name / "SKILL.md").write_text(text, encoding="utf-8")
    written = time.perf_counter() - started
    with Store.open(home) as store:
        until(lambda: all(head.version != before[head.name] for head in store.heads()), 20, 0.01)
    now = listed(server)
    took = time.perf_counter() - started
    missed = sum(now[name] != before[name] + 1 for name in names)
    return [
        Row(f"writing {len(names):,} files, one after the other", ms(written)),
        at_most("first save to all listed by the second server", took, 2.0, ms),
        none_of(f"of {len(names):,} saves missed", missed),
    ]


def listed(server: Server) -> dict[str, int]:
    """Return the version of every skill that the server lists, page by page."""
    found: dict[str, int] = {}
    cursor: str | None = None
    while True:
        page = server.call("list_resources", limit=200, **({"cursor": cursor} if cursor else {}))
        found.update(
            (entry["ref"].partition(":")[2], entry["version"]) for entry in page["resources"]
        )
        cursor = page["next_cursor"]
        if cursor is None:
            return found


def new_folders(server: Server, home: Path, folder: Path, count: int) -> list[Row]:
    """Measure from the first to the last of many new folders, each with three files, being in the
    library whole.
    """
    names = [f"new-{number}" for number in range(count)]
    places = [
        (name, path)
        for name in names
        for path in ("SKILL.md", "scripts/run.py", "references/more.md")
    ]
    texts = [skill_text(name, path, 2000) for name, path in places]
    started = time.perf_counter()
    for (name, path), text in zip(places, texts, strict=True):
        (folder / name / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / name / path).write_text(text, encoding="utf-8")
    written = time.perf_counter() - started
    trees = {name: make_manifest(read_folder(folder / name).files).tree for name in names}
    with Store.open(home) as store:

        def missing() -> set[str]:
            return {name for name in names if name not in heads() or heads()[name] != trees[name]}

        def heads() -> dict[str, str]:
            return {head.name: head.tree for head in store.heads() if head.name.startswith("new-")}

        until(lambda: heads() == trees, 20, 0.01)
        took = time.perf_counter() - started
        missed = len(missing() | (set(names) - set(listed(server))))
    return [
        Row(f"writing {count} new folders of three files", ms(written)),
        Row("first to all in the library, whole", ms(took)),
        none_of(f"of {count} new folders missed", missed),
    ]


@contextlib.contextmanager
def two_servers(home: Path) -> Iterator[Server]:
    """Yield the second of two servers over one library."""
    with Server(SERVE, home) as first, Server(SERVE, home) as second:
        first.request("tools/list")
        second.request("tools/list")
        time.sleep(2)  # both have taken their first look at every folder
        yield second


def main() -> None:
    options = arguments(__doc__, saves=50)
    with tempfile.TemporaryDirectory() as place:
        home, folder = Path(place) / "home", Path(place) / "skills"
        names = seed_folder(folder, 1000)
        with Store.open(home, create=True) as store:
            WorkingCopies(store).add(folder)
        with two_servers(home) as server:
            progress("saves, one by one")
            rows = saves(server, folder, names, options.saves or (15 if options.quick else 50))
            progress("a burst of saves")
            rows += burst(server, home, folder, names)
            progress("new folders")
            rows += new_folders(server, home, folder, 200)
        shutil.rmtree(folder)
    conclude("Saved in a folder of 1,000 skills, two servers following", rows)


if __name__ == "__main__":
    main()

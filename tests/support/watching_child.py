"""Follow a library's folders in a process of its own, under limits that its input changes.

Arguments: the library's home, the seconds between two scans. Each line of the input is START, or
NAME=NUMBER for a setting below /proc/sys/user; each is answered with a line. It ends with its
input.
"""

import sys
from pathlib import Path

from evolvable_server.watcher import Watcher
from evolvable_tools.library import Library


def change(line: str) -> None:
    name, _, value = line.strip().partition("=")
    if name == "START":
        watcher.start()
    else:
        Path("/proc/sys/user", name).write_text(value, encoding="ascii")


home, seconds = Path(sys.argv[1]), float(sys.argv[2])
with Library.open(home) as library:
    watcher = Watcher(library, lambda _: None, rescan_seconds=seconds)
    for line in sys.stdin:
        change(line)
        print("done", flush=True)
    watcher.stop()

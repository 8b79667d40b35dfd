"""What a child process does with the index of a library; run as a script: [--stdlib] [--nobody]
ROLE HOME ...

--stdlib: as if pysqlite3 were not installed. --nobody: as a user without rights, when started by
root.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

FLAGS = {argument for argument in sys.argv[1:] if argument.startswith("--")}
if "--stdlib" in FLAGS:
    sys.modules["pysqlite3"] = None  # type: ignore[assignment]

from evolvable_store.objects import File  # noqa: E402
from evolvable_store.operation import Actor  # noqa: E402
from evolvable_store.resource import Ref  # noqa: E402
from evolvable_store.search.index import Index  # noqa: E402
from evolvable_store.store import Store  # noqa: E402

if "--nobody" in FLAGS and os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)


def state(index: Index, query: str) -> dict[str, Any]:
    """Return what a search finds, how many entries there are, what is wrong, and where the file
    lies.
    """
    return {
        "found": [scored.entry.name for scored in index.search(query).scored],
        "entries": len(index.entries(limit=10_000)),
        "faults": [str(fault) for fault in index.find_faults()],
        "path": str(index.path),
    }


def search(home: Path, query: str, gate: str = "") -> None:
    """Open the index, with others at the same moment when there is a gate, and say what a search
    finds.
    """
    if gate:
        (Path(gate) / f"ready-{os.getpid()}").touch()
        deadline = time.monotonic() + 60
        while not (Path(gate) / "go").exists():
            assert time.monotonic() < deadline, "the gate stayed closed"
            time.sleep(0.0005)
    with Store.open(home, registered=lambda: [home]) as store, Index.open(store) as index:
        print(json.dumps(state(index, query)))


def put(home: Path, name: str, text: str) -> None:
    """Write one skill, as another program's window would."""
    with (
        Store.open(home, registered=lambda: [home]) as store,
        store.transaction(Actor.AGENT, "by another process") as tx,
    ):
        tx.put(Ref.parse(name), {"SKILL.md": File(text.encode())})


def change(home: Path) -> None:
    """Puts, changes and removes while keeping the index in step; says what is found at the end."""
    with Store.open(home, registered=lambda: [home]) as store, Index.open(store) as index:
        for number in range(10):
            with store.transaction(Actor.AGENT, "x") as tx:
                tx.put(
                    Ref.parse("moving"),
                    {"SKILL.md": File(f"quokka {number} number{number}".encode())},
                )
            assert [scored.entry.version for scored in index.search(f"number{number}").scored] == [
                number + 1
            ]
        with store.transaction(Actor.AGENT, "x") as tx:
            tx.remove(Ref.parse("moving"))
        print(json.dumps(state(index, "quokka")))


if __name__ == "__main__":
    role, home, *values = (argument for argument in sys.argv[1:] if argument not in FLAGS)
    {"search": search, "put": put, "change": change}[role](Path(home), *values)

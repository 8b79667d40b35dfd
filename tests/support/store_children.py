"""What a child process does with a library; run as a script: [--stdlib] [--unsafe] ROLE HOME ...

--stdlib: as if pysqlite3 were not installed. --unsafe: as if no SQLite here had the WAL-reset fix.
--nobody: as a user without rights, when started by root.
"""

import itertools
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FLAGS = {argument for argument in sys.argv[1:] if argument.startswith("--")}
if "--stdlib" in FLAGS:
    sys.modules["pysqlite3"] = None  # type: ignore[assignment]

from evolvable_store.errors import VersionConflict  # noqa: E402
from evolvable_store.objects import File  # noqa: E402
from evolvable_store.operation import Actor  # noqa: E402
from evolvable_store.resource import Ref  # noqa: E402
from evolvable_store.storage import connection, migrations  # noqa: E402
from evolvable_store.store import Store  # noqa: E402

if "--unsafe" in FLAGS:
    connection.SAFE_VERSION = (99, 0, 0)
if "--nobody" in FLAGS:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)


def say(value: object) -> None:
    print(json.dumps(value), flush=True)


def at_gate(folder: str) -> None:
    """Say that this process is ready, and wait until the gate opens."""
    (Path(folder) / f"ready-{os.getpid()}").touch()
    go = Path(folder) / "go"
    deadline = time.monotonic() + 60
    while not go.exists():
        if time.monotonic() > deadline:
            sys.exit("the gate stayed closed")
        time.sleep(0.0005)


def counts_of(data: bytes) -> dict[str, int]:
    return dict(json.loads(data))


def count_up(store: Store, ref: Ref, worker: str) -> dict[str, Any]:
    """Read the counts at the head, add one to this worker's, and write them if the head is still
    the same.
    """
    head = store.head(ref)
    counts = counts_of(store.file(head, "SKILL.md", head.version).data)
    counts[worker] = counts.get(worker, 0) + 1
    token = f"{worker} {counts[worker]}"
    started = time.perf_counter()
    done: dict[str, Any]
    try:
        with store.transaction(Actor.AGENT, token) as tx:
            tx.put(
                ref, {"SKILL.md": File(json.dumps(counts).encode())}, expected_version=head.version
            )
        done = {"token": token, "version": tx.written[0].version}
    except VersionConflict as conflict:
        done = {"conflict": [conflict.expected, conflict.head]}
    return {"name": ref.name, "waited": time.perf_counter() - started, **done}


def update(home: str, gate: str, worker: str, names: str, seconds: str, pause: str = "0") -> None:
    """Count up in random resources until the time is over; say everything that happened."""
    rng, happened = random.Random(worker), []
    refs = [Ref.parse(name) for name in names.split(",")]
    with Store.open(Path(home), registered=lambda: [Path(home)]) as store:
        at_gate(gate)
        deadline = time.monotonic() + float(seconds)
        while time.monotonic() < deadline:
            happened.append(count_up(store, rng.choice(refs), worker))
            if float(pause):
                time.sleep(rng.uniform(0, 2 * float(pause)))
        say({"worker": worker, "journal": store.backend.journal, "happened": happened})


def acknowledge(home: str, gate: str, worker: str) -> None:
    """Change three resources at once, a shared one, or remove and restore one; one line after each
    commit.
    """
    rng = random.Random(worker)
    with Store.open(Path(home), registered=lambda: [Path(home)]) as store:
        (Path(gate) / f"ready-{os.getpid()}").touch()
        for number in itertools.count(1):
            token = f"{worker} {number}"
            files = {
                "SKILL.md": File(token.encode() * rng.randint(1, 2000)),
                "more.md": File(token.encode()),
            }
            with store.transaction(Actor.AGENT, token) as tx:
                match rng.randrange(4):
                    case 0 | 1:
                        for part in ("one", "two", "three"):
                            tx.put(Ref.parse(f"{worker}-{part}"), files)
                    case 2:
                        tx.put(Ref.parse("shared"), files)
                    case 3:
                        tx.put(Ref.parse("comes-and-goes"), files)
                        tx.remove(Ref.parse("comes-and-goes"))
            print(token, flush=True)


def open_library(home: str, gate: str) -> None:
    """Open a library, or make it; say which schema it then has and what is in it."""
    at_gate(gate)
    with Store.open(Path(home), create=True) as store:
        with store.backend.reading() as db:
            version = migrations.schema_version(db, store.backend.path)
        say(
            {
                "schema": version,
                "journal": store.backend.journal,
                "heads": [str(head.ref) for head in store.heads()],
            }
        )


def die_in_migration(home: str) -> None:
    """Kill itself when all tables are made, at once or by the last step, before anything is
    committed.
    """
    last = {
        connection.read_script(name) for name in (f"{migrations.NAMES[-1]}.sql", migrations.WHOLE)
    }
    run_script = connection.run_script

    def deadly(db: Any, script: str) -> None:
        run_script(db, script)
        if script in last:
            os.kill(os.getpid(), signal.SIGKILL)

    connection.run_script = deadly
    Store.open(Path(home), create=True)


def read(home: str) -> None:
    """Read every file of every living resource; try one write; say what came of it."""
    with Store.open(Path(home), registered=lambda: [Path(home)]) as store:
        texts = {
            str(head.ref): {path: file.data.decode() for path, file in store.files(head).items()}
            for head in store.heads()
        }
        try:
            with store.transaction(Actor.AGENT, "try") as tx:
                tx.put(Ref.parse("tried"), {"SKILL.md": File(b"tried")})
            refused = ""
        except Exception as error:
            refused = type(error).__name__
        say({"read_only": store.read_only, "texts": texts, "refused": refused})


def fork(home: str) -> None:
    """Fork with the library open and used; the child writes on after the parent has closed it."""
    ref = Ref.parse("forked")

    def put(store: Store, number: int) -> None:
        with store.transaction(Actor.AGENT, "count") as tx:
            tx.put(ref, {"SKILL.md": File(b"%d" % number)})

    store = Store.open(Path(home), create=True)
    put(store, 1)
    closed, told = os.pipe()
    if os.fork():
        put(store, 2)
        store.close()
        os.write(told, b"x")
        _, status = os.wait()
        with Store.open(Path(home)) as again:
            say({"child": status, "head": again.head(ref).version})
    else:
        put(store, 3)
        os.read(closed, 1)
        for number in range(4, 11):
            put(store, number)
        os._exit(0)


def main() -> None:
    role, *arguments = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    roles: dict[str, Callable[..., None]] = {
        "update": update,
        "acknowledge": acknowledge,
        "open": open_library,
        "die-in-migration": die_in_migration,
        "read": read,
        "fork": fork,
    }
    roles[role](*arguments)


if __name__ == "__main__":
    main()

"""What the benchmarks share: a library of real-looking skills, fair timing, a server to talk to,
and a verdict.
"""

import argparse
import json
import os
import random
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Self

from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.store import Store

SIZE = 6 * 1024
"""Bytes of a skill: a little under the median of real ones."""

PATIENCE = 30.0
"""Seconds after which a server that does not answer is a failure."""


def _words(text: str) -> list[str]:
    return text.split()


_SUBJECTS = _words("""invoices contracts spreadsheets migrations dashboards changelogs schemas
    tickets logs backups
    screenshots transcripts pipelines fixtures endpoints queries archives manuals forecasts
    receipts""")
_VERBS = _words("""review summarise convert validate merge split compare translate redact index
    measure plan repair
    document deploy profile refactor schedule extract check""")
_WORDS = _words("""the a each every one before after only when until with without from into over
    under first last next
    file folder table column header value record field page section script command option error
    warning result
    output input test change version branch release report summary example template request answer
    user client
    server service library module function argument name path key list map number date text line
    word image
    read write open close keep move copy delete create update run start stop wait ask tell show find
    load save
    must should may never always often exactly roughly quickly slowly again already carefully
    together apart
    small large short long new old empty full missing broken valid invalid same other different
    safe""")


def skill_text(name: str, seed: object, size: int = SIZE) -> str:
    """Return a SKILL.md of about `size` bytes that reads, and compresses, like a real one; the seed
    decides all.
    """
    rng = random.Random(f"{name} {seed}")
    verb, subject = rng.choice(_VERBS), rng.choice(_SUBJECTS)
    description = (
        f"{verb.capitalize()} {subject} and {rng.choice(_SUBJECTS)}. Use it when "
        f"{_sentence(rng).lower()}"
    )
    parts = [
        f"---\nname: {name}\ndescription: {description}\n---\n\n# {verb.capitalize()} {subject}\n"
    ]
    length = len(parts[0])
    while length < size:
        part = rng.choice((_paragraph, _steps, _code))(rng)
        parts.append(part)
        length += len(part) + 1
    return "\n".join(parts)[:size].rstrip() + "\n"


def _sentence(rng: random.Random) -> str:
    return " ".join(rng.choices(_WORDS, k=rng.randint(6, 18))).capitalize() + "."


def _paragraph(rng: random.Random) -> str:
    return " ".join(_sentence(rng) for _ in range(rng.randint(2, 5))) + "\n"


def _steps(rng: random.Random) -> str:
    title = " ".join(rng.choices(_WORDS, k=3)).capitalize()
    return f"## {title}\n\n" + "".join(
        f"{n}. {_sentence(rng)}\n" for n in range(1, rng.randint(3, 7))
    )


def _code(rng: random.Random) -> str:
    names = rng.choices(_WORDS, k=4)
    return (
        f"```bash\npython scripts/{names[0]}.py --{names[1]} "
        f"{names[2]}-{rng.randint(1, 99)}.{names[3]}\n```\n"
    )


def name_of(number: int) -> str:
    """Return the name of a seeded skill."""
    rounds, verb = divmod(number, len(_VERBS))
    return f"{_VERBS[verb]}-{_SUBJECTS[rounds % len(_SUBJECTS)]}-{number}"


def seed(store: Store, count: int) -> list[Ref]:
    """Put so many skills into the library, as an import would, and return their refs."""
    refs = [Ref.parse(name_of(number)) for number in range(count)]
    with store.transaction(Actor.IMPORT, "seeded for a benchmark") as tx:
        for ref in refs:
            tx.put(ref, {"SKILL.md": File(skill_text(ref.name, 0).encode())})
    return refs


def seed_folder(folder: Path, count: int) -> list[str]:
    """Write so many skill folders and return their names."""
    names = [name_of(number) for number in range(count)]
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "SKILL.md").write_text(skill_text(name, 0), encoding="utf-8")
    return names


def percentile(values: Iterable[float], percent: float) -> float:
    """Return the smallest value that so many percent of the values do not exceed; 100 is the
    largest.
    """
    ordered = sorted(values)
    return ordered[max(0, min(len(ordered) - 1, round(len(ordered) * percent / 100 + 0.5) - 1))]


def median(values: Iterable[float]) -> float:
    return percentile(values, 50)


def timed(action: Callable[[], object]) -> float:
    """Return the seconds that the action takes."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def alternately(ways: Mapping[str, Callable[[int], object]], rounds: int) -> dict[str, list[float]]:
    """Run every way once in each round, in turned order, and return the seconds each took.

    What else the machine does falls on all ways alike, so that their ratio holds even when it is
    busy.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in list(ways)[:: 1 if number % 2 else -1]:
            started = time.perf_counter()
            ways[name](number)
            seconds[name].append(time.perf_counter() - started)
    return seconds


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a result. `met` is None where there is no target."""

    what: str
    figure: str
    target: str = ""
    met: bool | None = None


def ms(seconds: float) -> str:
    """Return a time in milliseconds, three figures."""
    value = seconds * 1000
    return (
        f"{value:.0f} ms"
        if value >= 100
        else f"{value:.1f} ms"
        if value >= 10
        else f"{value:.3f} ms"
    )


def at_most(what: str, value: float, limit: float, shown: Callable[[float], str]) -> Row:
    """Return the line for a value that may not exceed its limit."""
    return Row(what, shown(value), f"at most {shown(limit)}", value <= limit)


def at_least(what: str, value: float, limit: float, shown: Callable[[float], str]) -> Row:
    """Return the line for a value that may not fall below its limit."""
    return Row(what, shown(value), f"at least {shown(limit)}", value >= limit)


def none_of(what: str, count: int) -> Row:
    """Return the line for what may not happen even once."""
    return Row(what, f"{count:,}", "0", count == 0)


def ratio(value: float) -> str:
    return f"{value:.2f} x"


def conclude(title: str, rows: Iterable[Row]) -> NoReturn:
    """Print the table and end the program, with 1 when a target was missed."""
    rows = list(rows)
    if not rows:
        sys.exit(0)
    print(f"\n{title}")
    widths = [
        max(len(row[column]) for row in ((r.what, r.figure, r.target) for r in rows))
        for column in range(3)
    ]
    for row in rows:
        verdict = "" if row.met is None else "met" if row.met else "MISSED"
        line = (
            f"  {row.what:<{widths[0]}}  {row.figure:>{widths[1]}}  {row.target:<{widths[2]}} "
            f" {verdict}"
        )
        print(line.rstrip())
    sys.exit(any(row.met is False for row in rows))


def arguments(doc: str | None, **options: Any) -> argparse.Namespace:
    """Return the parsed command line: `--quick`, and each further option with its default, by name;
    False: a switch.
    """
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument(
        "--quick", action="store_true", help="smaller and shorter; for a look, not for the record"
    )
    for name, default in options.items():
        if default is False:
            parser.add_argument(f"--{name}", action="store_true")
            continue
        parser.add_argument(
            f"--{name}", type=type(default), default=None, help=f"default {default}"
        )
    return parser.parse_args()


def progress(text: str) -> None:
    """Say on stderr how far a long run is."""
    print(text, file=sys.stderr, flush=True)


SERVE = (sys.executable, "-m", "evolvable_server", "serve")
"""The command that a client starts."""


def environment(home: Path) -> dict[str, str]:
    """Return the environment of a server over the library in `home`, with nothing of the user's own
    in it.
    """
    kept = {
        name: os.environ[name]
        for name in ("PATH", "PYTHONPATH", "SYSTEMROOT")
        if name in os.environ
    }
    return kept | {"EVOLVABLE_HOME": str(home), "HOME": str(home.parent)}


class Server:
    """A server process and the pipe to it, spoken to as the oldest clients do: handshake, then one
    request a time.
    """

    def __init__(self, command: Sequence[str], home: Path) -> None:
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(home),
            cwd=home.parent,
            bufsize=0,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self._in, self._out = self.process.stdin, self.process.stdout
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._out, selectors.EVENT_READ)
        self._rest = b""
        self._id = 0
        about = {"name": "benchmark", "version": "1"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": about}
        self._greeting = self._send("initialize", hello)
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End stdin, as a client does that goes away, and wait for the end of the process."""
        self._in.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._out.close()

    def kill(self) -> list[str]:
        """End the process with SIGKILL; nothing that it said is waited for."""
        self.process.kill()
        self.process.wait()
        self._in.close()
        self._out.close()
        return []

    def request(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """Return the result of a request.

        Raises RuntimeError for an error, and when the server is gone or silent.
        """
        identity = self._send(method, params or {})
        while True:
            message = self._read()
            if message.get("id") == identity and "method" not in message:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]

    def call(self, tool: str, **values: Any) -> Any:
        """Return the structured content of a tool's result, or None when the tool says that it
        failed.
        """
        result = self.request("tools/call", {"name": tool, "arguments": values})
        return None if result.get("isError") else result.get("structuredContent")

    def text(self, tool: str, **values: Any) -> str:
        """Return the first text of a tool's result."""
        return str(
            self.request("tools/call", {"name": tool, "arguments": values})["content"][0]["text"]
        )

    def _send(self, method: str, params: dict[str, Any]) -> int:
        self._id += 1
        self._write({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        return self._id

    def _write(self, message: dict[str, Any]) -> None:
        self._in.write(json.dumps(message).encode() + b"\n")

    def _read(self) -> dict[str, Any]:
        while b"\n" not in self._rest:
            if not self._selector.select(PATIENCE):
                raise RuntimeError(f"the server said nothing for {PATIENCE:.0f} s")
            chunk = os.read(self._out.fileno(), 1 << 20)
            if not chunk:
                raise RuntimeError("the server ended")
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process in MB (Linux and psutil elsewhere)."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        import psutil

        return float(psutil.Process(pid).memory_info().rss) / 1e6
    return (
        next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS"))
        * 1024
        / 1e6
    )

"""Measure updates and an import as windows.py does, but with real skills and, for updates, through
the SDK's client.

CORPUS.jsonl[.gz] as for intake.py. An update stands beside a call of the bare server through the
same client, in turns: its time has a part that no server of this SDK can save, on the same
processors.
"""

import argparse
import contextlib
import subprocess
import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import anyio
from intake import read_corpus, rebuild
from mcp import Client, StdioServerParameters
from start import BARE
from support import (
    SERVE,
    Row,
    at_most,
    conclude,
    environment,
    median,
    ms,
    percentile,
    progress,
    ratio,
)
from windows import PAUSE, SETTLE, import_seconds, new_folder

SKILLS = (60, 300)
UPDATES = 40
IMPORTED = 10_000

Records = Sequence[dict[str, Any]]


def connection(command: Sequence[str], home: Path) -> Client:
    """Return a client of the SDK with a server that it starts."""
    return Client(
        StdioServerParameters(
            command=command[0], args=list(command[1:]), env=environment(home), cwd=home.parent
        )
    )


async def updates(top: Path, records: Records) -> list[Row]:
    """Measure updates of one server, each of another skill that gets a file, and calls of the bare
    server in turns.
    """
    place = new_folder(top)
    home, folder = place / "home", place / "skills"
    rebuild(records, folder)
    subprocess.run(
        [*SERVE[:-1], "init", str(folder)], env=environment(home), check=True, capture_output=True
    )
    took: list[float] = []
    bare: list[float] = []
    async with contextlib.AsyncExitStack() as stack:
        ours = await stack.enter_async_context(connection(SERVE, home))
        echo = await stack.enter_async_context(connection(BARE, home))
        names = await skill_names(ours)
        await anyio.sleep(SETTLE)
        for number in range(UPDATES):
            change = {"files": {f"notes/{number}.md": str(number)}, "reason": "window"}
            ref = names[number % len(names)]
            took.append(await seconds(ours, "update_resource", ref=ref, **change))
            await anyio.sleep(PAUSE)
            bare.append(await seconds(echo, "echo", text="x"))
            await anyio.sleep(PAUSE)
    label = f"1 server, {len(records)} real skills, the SDK's client"
    return [
        Row(f"{label}: a call of the bare server, p50", ms(median(bare))),
        at_most(f"{label}: update, p50", median(took), 0.008, ms),
        at_most(f"{label}: update, p95", percentile(took, 95), 0.020, ms),
        Row(f"{label}: update, p50 / call of the bare server", ratio(median(took) / median(bare))),
    ]


async def skill_names(client: Client) -> list[str]:
    """Return the refs of the skills of the library."""
    listed = await client.call_tool("list_resources", {"kind": "skill", "limit": 50})
    return [str(one["ref"]) for one in (listed.structured_content or {})["resources"]]


async def seconds(client: Client, tool: str, **values: Any) -> float:
    """Return how long a call takes. Raise RuntimeError when the tool reports an error."""
    begun = time.perf_counter()
    result = await client.call_tool(tool, values)
    took = time.perf_counter() - begun
    if result.is_error:
        raise RuntimeError(f"{tool}: {result.content}")
    return took


def imports(top: Path, records: Records) -> list[Row]:
    """Measure an import of the skills beside a server, three times."""
    took = [import_seconds(top, lambda folder: rebuild(records, folder)) for _ in range(3)]
    what = (
        f"{len(records):,} real skills imported beside a server until the last is found, p50 of 3"
    )
    return [at_most(what, median(took), 8.0, "{:.1f} s".format)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path, metavar="CORPUS.jsonl[.gz]")
    parser.add_argument("--quick", action="store_true", help="updates alone")
    options = parser.parse_args()
    records = list(islice(read_corpus(options.corpus), IMPORTED))
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for skills in SKILLS:
            progress(f"updates, {skills} skills")
            rows += anyio.run(updates, Path(folder), records[:skills])
        if not options.quick:
            progress(f"{len(records):,} skills imported")
            rows += imports(Path(folder), records)
    conclude("Real skills in a watched folder", rows)


if __name__ == "__main__":
    main()

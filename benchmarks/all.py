"""Runs every benchmark, one after the other, and says which targets were missed.

Rewrites nothing.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
ALL = (
    "start",
    "answer_sizes",
    "commit",
    "processes",
    "reload",
    "windows",
    "size",
    "kill",
    "takeover",
    "ledger",
    "sandbox",
)


def run(name: str, *words: str) -> bool:
    """Run one benchmark and return whether it met its targets."""
    started = time.monotonic()
    print(f"\n== {name}", flush=True)
    script = HERE / name if (HERE / name).is_dir() else HERE / f"{name}.py"
    code = subprocess.run([sys.executable, str(script), *words], check=False).returncode
    print(f"  ({time.monotonic() - started:.0f} s)", flush=True)
    return code == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="smaller and shorter; for a look, not for the record"
    )
    parser.add_argument(
        "--corpus", metavar="CORPUS.jsonl[.gz]", help="also run intake.py and real_windows.py on it"
    )
    parser.add_argument(
        "--queries", metavar="QUERIES.jsonl", help="with a corpus: also run lookup on these tasks"
    )
    options = parser.parse_args()
    quick = ("--quick",) if options.quick else ()
    met = {name: run(name, *quick) for name in ALL}
    if options.corpus:
        met |= {name: run(name, *quick, options.corpus) for name in ("intake", "real_windows")}
        if options.queries:
            met["lookup"] = run("lookup", *quick, options.corpus, options.queries)
    print(
        "\n" + "\n".join(f"{name:<12}  {'met' if good else 'MISSED'}" for name, good in met.items())
    )
    sys.exit(not all(met.values()))


if __name__ == "__main__":
    main()

"""How many lines of shell that run a check are taken as the check of a task, and how many that run
none.

    python benchmarks/check_commands.py [CHECKS.txt NO_CHECKS.txt]

The two lists of this folder are our own, one line of shell a line; `#` begins a remark. The rules
were mended by what they missed of these lists, so only a list that nobody had seen then says how
they do elsewhere: README.md has these figures.
"""

import argparse
from pathlib import Path

from support import Row, conclude

from evolvable_evolve.evolution.tasks.check_commands import read_check

HERE = Path(__file__).parent / "check_commands"
LEAST, PROJECT = 0.85, "/home/me/shop"


def lines(path: Path) -> list[str]:
    """Return the lines of a list without remarks."""
    return [
        line
        for line in path.read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]


def main() -> None:
    """Print what is missed and what is taken wrongly. Ends with 1 where an aim is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checks", type=Path, nargs="?", default=HERE / "checks.txt")
    parser.add_argument("no_checks", type=Path, nargs="?", default=HERE / "no_checks.txt")
    given = parser.parse_args()
    checks, others = lines(given.checks), lines(given.no_checks)
    missed = [line for line in checks if read_check(line, PROJECT) is None]
    wrong = [line for line in others if read_check(line, PROJECT) is not None]
    print(
        "\n".join([*(f"missed: {line}" for line in missed), *(f"taken: {line}" for line in wrong)])
    )
    taken = len(checks) - len(missed)
    share = f"{taken} of {len(checks)}"
    conclude(
        "Check commands",
        [
            Row(
                "checks that are taken",
                share,
                f"at least {LEAST:.0%}",
                taken >= LEAST * len(checks),
            ),
            Row("taken of what is no check", f"{len(wrong)} of {len(others)}", "none", not wrong),
        ],
    )


if __name__ == "__main__":
    main()

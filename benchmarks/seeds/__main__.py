"""Run the benchmarks of the papers' tables: `python benchmarks/seeds [NAME ...] [--quick]`."""

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Our neighbours, and scripted models.
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "tests" / "support")]

from seeds import autogenesis, evoagent, evoskill, optimizers, skillmas  # noqa: E402 - found by the line above

ALL = {
    "evoagent": evoagent.main,
    "evoskill": evoskill.main,
    "skillmas": skillmas.main,
    "autogenesis": autogenesis.main,
    "optimizers": optimizers.main,
}


def main() -> None:
    """Run what is named, by default all; exit with 1 where something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*ALL, []], help="which ones; default: all")
    parser.add_argument(
        "--quick", action="store_true", help="smaller; for a look, not for the record"
    )
    options = parser.parse_args()
    held = {name: ALL[name](quick=options.quick) for name in options.names or ALL}
    print(
        "\n"
        + "\n".join(
            f"{name:<12} {'holds' if good else 'DOES NOT HOLD'}" for name, good in held.items()
        )
    )
    sys.exit(not all(held.values()))


if __name__ == "__main__":
    main()

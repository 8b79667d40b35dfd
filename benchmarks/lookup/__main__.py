"""Runs the benchmark of lookup: `python benchmarks/lookup CORPUS QUERIES`."""

import sys
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).parents[1])
)  # so that this folder is a package, and its neighbours are modules

from lookup.run import main

if __name__ == "__main__":
    main()

"""Runs the benchmark of lookup: `python benchmarks/lookup CORPUS QUERIES`."""

import sys
from pathlib import Path

# So that this folder is a package, and its neighbours are modules.
sys.path.insert(0, str(Path(__file__).parents[1]))

from lookup.run import main

if __name__ == "__main__":
    main()

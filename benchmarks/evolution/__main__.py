"""Runs the benchmark of evolution: `python benchmarks/evolution`."""

import sys
from pathlib import Path

# So that this folder is a package, and its neighbours are modules.
sys.path.insert(0, str(Path(__file__).parents[1]))

from evolution.run import main

if __name__ == "__main__":
    main()

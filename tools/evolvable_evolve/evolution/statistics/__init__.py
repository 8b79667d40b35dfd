"""Statistics of paired trials: exact tests, intervals, what a design could detect, what a look costs. No numpy."""

"""What is computed from counts and outcomes: intervals, maturity, utility. Pure functions."""

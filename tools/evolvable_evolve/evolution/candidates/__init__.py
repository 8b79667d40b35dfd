"""What a candidate must pass before anything is spent on it: no model, no trial, only code."""

"""What of the four papers' tables holds without a model."""

"""The ledger of a run: its directory, its records and the state that they add up to."""

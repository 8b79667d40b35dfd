"""From what was done to what helped: uses and outcomes in finished sessions, and what they add up to."""

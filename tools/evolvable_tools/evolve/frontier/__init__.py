"""The frontier: the few best programs found, which of them is the next parent, and which tasks it runs."""

"""What a brain is asked in each role, in our own words, and what its answer means."""

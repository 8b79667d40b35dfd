"""The frontier: the few best programs found, which of them is the next parent, and which tasks it runs.

Gates: what a change has to show before it goes on, ours and those of others for comparison.
"""

"""Who supplies the thinking of a run: the calling agent, an API, a command, or a script.

What a brain is asked in each role, in our own words, and what its answer means.
"""

"""The annex of evolution: runs of evolution, rounds, agents that plan, the sandbox."""

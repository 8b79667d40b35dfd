"""What stands in the words that Evolvable itself gives to a model, so that they are known again."""

REVIEWING_MARK = "evolvable-thinking"
"""Stands in everything that we ask a model by a command of the user's: no transcript of it is ever reviewed."""

"""McNemar's exact test: are more tasks gained than lost, where each task passes or fails?"""

from math import comb


def one_sided(gained: int, lost: int) -> float:
    """Returns the chance of at least `gained` of the discordant pairs if either way were as likely; 1 without any.

    The smallest tallies at or under .05 are 5-0, 7-1, 9-2 and 10-3.
    """
    pairs = gained + lost
    ways, tail = comb(pairs, gained), 0
    for count in range(gained, pairs + 1):
        tail += ways
        ways = ways * (pairs - count) // (count + 1)
    return tail / (1 << pairs)


def two_sided(gained: int, lost: int) -> float:
    """Returns twice the smaller tail, at most 1."""
    return min(1.0, 2 * min(one_sided(gained, lost), one_sided(lost, gained)))

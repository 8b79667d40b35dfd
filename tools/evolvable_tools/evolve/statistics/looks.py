"""What a further look at the same sealed test costs: every look has a smaller alpha, and all of them stay under one."""

from math import pi

from evolvable_store.errors import InvalidArgument

ALPHA = 0.05


def alpha_of(look: int, alpha: float = ALPHA) -> float:
    """Returns the alpha of the `look`-th look (from 1): `alpha` times 6/(pi² look²), which sum to `alpha` at most."""
    if look < 1:
        raise InvalidArgument(f"Looks at a test are counted from 1, not from {look}.")
    return alpha * 6 / (pi * pi * look * look)

"""EvoAgent's four steps of maturity."""


def maturity(uses: int, success: float) -> str:
    """Returns the maturity of a resource with so many uses whose end is known, and this share of successes.

    Source: EvoAgent, maturity table: Proficient from 10 uses at .85, Mature from 4 at .70, Growing from 1.
    """
    if uses >= 10 and success >= 0.85:
        return "Proficient"
    if uses >= 4 and success >= 0.70:
        return "Mature"
    return "Growing" if uses >= 1 else "Budding"


def maturity_of(successes: int, ends: int) -> str:
    """Returns the maturity for so many successes among so many ends."""
    return maturity(ends, successes / ends if ends else 0.0)


def earned(verified_successes: int, verified: int, ends: int) -> str:
    """Return the maturity by the verified ends. Ends that were only reported make a resource Growing and no more."""
    level = maturity_of(verified_successes, verified)
    return level if verified or not ends else maturity_of(0, 1)

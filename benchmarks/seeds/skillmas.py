"""SkillMAS' rounds and its transplant, by the benchmarks that measure them.

    python benchmarks/seeds skillmas [--quick]

All figures are simulated. `benchmarks/transplant.py` and `benchmarks/round_simulation.py` have more
of both, with more seeds; here is what compares with the paper's tables 2 and 6. The paper's success
rates need a model.
"""

from collections import Counter
from statistics import fmean

from round_simulation import look_rates
from transplant import expansion, harmful_world, null_world, transplant


def transplants(seeds: int) -> dict[str, float]:
    """Return the mean true score of each arm: what evolved together, the seed, and either half
    alone.
    """
    found = [transplant(seed) for seed in range(seeds)]
    return {arm: fmean(one[arm] for one in found) for arm in found[0]}


def expansions(seeds: int) -> Counter[str]:
    """Return how often an expansion that harms was proposed, admitted and promoted, and a change
    where all is well.
    """
    found: Counter[str] = Counter()
    for seed in range(seeds):
        harmful = expansion(harmful_world(), seed)
        found["proposed"] += bool(harmful.proposed)
        found["admitted"] += bool(harmful.admitted)
        found["promoted"] += harmful.promoted
        found["changed where nothing is wrong"] += bool(expansion(null_world(), seed).actions)
    return found


def main(*, quick: bool = False) -> bool:
    """Print the tables, and return whether they hold what they must."""
    seeds = 4 if quick else 40
    means = transplants(seeds // 4 or 1)
    print(
        f"Transplant [simulated], {seeds // 4 or 1} runs: "
        + ", ".join(f"{arm} {one:.3f}" for arm, one in means.items())
    )
    found = expansions(seeds)
    print(f"Expansion that harms [simulated], {seeds} runs: {dict(found)}")
    trials = 300 if quick else 4_000
    rates = {gain: look_rates(0.5, gain, trials) for gain in (0.0, 0.25, -0.25)}
    print(
        f"Looks at trial versions [simulated], {trials:,} trials: effect, promoted, retired "
        "early, sessions of an arm"
    )
    for effect, (promoted, retired, used) in rates.items():
        print(f"  {effect:+.2f} {promoted / trials:.1%} {retired / trials:.1%} {used:.1f}")
    ordered = list(means.values()) == sorted(means.values(), reverse=True)
    return ordered and found["promoted"] <= 0.05 * seeds + 1 and rates[0.0][0] <= 0.05 * trials

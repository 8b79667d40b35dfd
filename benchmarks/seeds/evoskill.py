"""EvoSkill's tables in a simulated world: training shares, merged runs, and transfer to other
tasks.

    python benchmarks/seeds evoskill [--quick]

All figures are simulated: every proposal has an effect that is known, so the true gain of what a
run returns is too. The sizes are those of the paper's OfficeQA: of 246 tasks 17 for validation, and
12, 24 or 36 for training. What the paper's accuracies say of a model cannot be repeated without
one.
"""

from collections import Counter
from dataclasses import replace
from statistics import fmean

from baselines.simulated_world import Law, make_taskset
from evolution.product import DEFAULT, Design, ours, verdict_on
from evolution.scenarios import BASE, SCENARIOS, Place, Rules, place

from evolvable_evolve.evolution.executors.simulated import SimulatedExecutor

ALL_TASKS, VALIDATION = 246, 17
TRAINING = {"5 %": 12, "10 %": 24, "15 %": 36}
DESIGNS = {"greedy": DEFAULT, "evoskill": Design(optimizer="evoskill")}
PROPOSALS = 10
HAIR = 1e-9


def sizes(training: int) -> tuple[int, int, int]:
    """Return the sizes of the parts for one training share."""
    return training, VALIDATION, ALL_TASKS - training - VALIDATION


def gain(law: Law, rules: Rules) -> float:
    """Return the true gain of a program over the base."""
    return law.score(rules) - law.score(BASE)


def shares(seeds: int) -> list[tuple[str, str, float, int, int]]:
    """Return for each loop and share the mean true gain, and how many runs promoted, and promoted
    what harms.
    """
    found = []
    for name, design in DESIGNS.items():
        for share, training in TRAINING.items():
            places = [place(SCENARIOS[3], seed, sizes(training)) for seed in range(seeds)]
            gains = [gain(here.law, ours(here, PROPOSALS, design=design).rules) for here in places]
            found.append(
                (
                    name,
                    share,
                    fmean(gains),
                    sum(one != 0 for one in gains),
                    sum(one < -HAIR for one in gains),
                )
            )
    return found


def merged(seeds: int) -> tuple[dict[str, float], Counter[str], int]:
    """Return mean true gains of single runs and of what is merged, the verdicts on it, and wrong
    promotions.

    Two runs have five proposals each, no two the same, on the same tasks. The merged program is
    measured on tasks that no run opened.
    """
    gains: dict[str, list[float]] = {
        "better single run": [],
        "union": [],
        "union that was promoted, else single": [],
    }
    verdicts: Counter[str] = Counter()
    wrong = 0
    for seed in range(seeds):
        here = place(SCENARIOS[3], seed, sizes(TRAINING["15 %"]))
        parts = (here.law.effects[: PROPOSALS // 2], here.law.effects[PROPOSALS // 2 :])
        single = [
            ours(Place(Law(part), here.tasks, here.executor), len(part)).rules for part in parts
        ]
        best, union = max(single, key=lambda rules: gain(here.law, rules)), single[0] | single[1]
        verdict = "nothing to merge"
        if BASE not in single:
            verdict = verdict_on(_fresh(here.law, TRAINING["15 %"], seed), best, union)
        verdicts[verdict] += 1
        kept = union if verdict == "PROMOTE" else best
        wrong += verdict == "PROMOTE" and gain(here.law, union) <= gain(here.law, best) + HAIR
        for one, rules in zip(gains.values(), (best, union, kept), strict=True):
            one.append(gain(here.law, rules))
    return {name: fmean(its) for name, its in gains.items()}, verdicts, wrong


def transferred(seeds: int) -> tuple[dict[str, float], Counter[str], int]:
    """Return mean true gains at home and elsewhere of what a run promoted, the verdicts elsewhere,
    and wrong ones.

    Elsewhere every second rule has no effect, and the others have the one that they have at home.
    """
    home, away = [], []
    verdicts: Counter[str] = Counter()
    wrong = 0
    for seed in range(seeds):
        here = place(SCENARIOS[3], seed, sizes(TRAINING["10 %"]))
        rules = ours(here, PROPOSALS).rules
        if rules == BASE:
            continue
        other = Law(
            tuple(
                replace(e, fixes=e.fixes * (n % 2), breaks=e.breaks)
                for n, e in enumerate(here.law.effects)
            )
        )
        verdict = verdict_on(_fresh(other, TRAINING["10 %"], seed), BASE, rules)
        verdicts[verdict] += 1
        home.append(gain(here.law, rules))
        away.append(gain(other, rules))
        wrong += verdict == "PROMOTE" and away[-1] <= HAIR
    return {"at home": fmean(home or [0.0]), "elsewhere": fmean(away or [0.0])}, verdicts, wrong


def _fresh(law: Law, training: int, seed: int) -> Place:
    """Return a place with this law and tasks that no run has seen."""
    tasks = make_taskset(law, sizes(training), 50_000 + seed)
    return Place(law, tasks, SimulatedExecutor(tasks.tasks, seed))


def main(*, quick: bool = False) -> bool:
    """Print the tables, and return whether they hold what they must."""
    seeds = 4 if quick else 40
    print(
        f"Training shares [simulated], {seeds} seeds: mean true gain in points, promoted, of "
        "these harmful"
    )
    table = shares(seeds)
    for name, share, mean, promoted, harmful in table:
        print(f"  {name:<9} {share:<5} {100 * mean:+.2f}  {promoted} of {seeds}  {harmful}")
    means, verdicts, wrong = merged(seeds)
    print(
        "Merged runs [simulated]: "
        + ", ".join(f"{name} {100 * mean:+.2f}" for name, mean in means.items())
    )
    print(f"  verdicts: {dict(verdicts)}; promoted without a gain over the better run: {wrong}")
    moved, ruled, false = transferred(seeds)
    print(
        "Transfer [simulated]: "
        + ", ".join(f"{name} {100 * mean:+.2f}" for name, mean in moved.items())
    )
    print(f"  verdicts: {dict(ruled)}; promoted without a gain elsewhere: {false}")
    return wrong + false <= 0.05 * 2 * seeds + 1 and all(
        harmful <= 0.05 * seeds + 1 for *_, harmful in table
    )

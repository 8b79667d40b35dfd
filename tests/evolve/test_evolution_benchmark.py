"""The benchmark of evolution: loops of others with a test behind them, and what is judged by which
target.
"""

from concurrent.futures import ProcessPoolExecutor

import pytest
from evolution import others
from evolution.report import AloneLine, Line, judged
from evolution.scenarios import BASE, PROPOSALS, SCENARIOS, SIZES, Found, place
from evolution.worlds import HIDDEN, WORLDS, FramedTexts, unfriendly_place
from seed_pool import SeedPool

from evolvable_evolve.evolution.statistics.staged_test import alpha_of_look, staged_sign_flip
from evolvable_evolve.evolution.task import Split

FREQUENT = SCENARIOS[3]
TESTS = SIZES[2]


@pytest.fixture(scope="module")
def seeds():
    """For some seeds: what SkillOpt's search finds, what remains of it behind both tests, and the
    three bills.
    """
    found = []
    for seed in range(6):
        rows = []
        for loop in (
            others.skillopt_strict,
            others.own_test(others.skillopt_strict),
            others.tested(others.skillopt_strict),
        ):
            here = place(FREQUENT, seed)
            rows.append((loop(here, PROPOSALS), here))
        found.append(rows)
    return found


def test_the_test_of_others_keeps_the_higher_mean_and_takes_one_run_of_each_task_under_both_arms(
    seeds,
):
    for (found, search), (kept, here), _ in seeds:
        arms = [here.measure(rules, here.of(Split.TEST)) for rules in (BASE, found.rules)]
        before, after = (sum(scores.values()) for scores in arms)
        assert here.spent == search.spent + 2 * TESTS
        assert kept.rules == (found.rules if after > before else BASE)
    assert {kept.rules != BASE for _, (kept, _), _ in seeds} == {True}


def test_our_test_promotes_fewer_and_takes_no_more_than_the_stages_and_the_veto(seeds):
    promoted = [kept.rules != BASE for _, _, (kept, _) in seeds]
    assert 0 < sum(promoted) < len(seeds)
    for (_, search), _, (kept, here) in seeds:
        spent = here.spent - search.spent
        assert 2 * 2 * TESTS // 3 <= spent <= 2 * 3 * TESTS + 4 * SIZES[1]
        assert kept.claimed > 0 or kept.rules == BASE


def test_our_test_behind_another_search_asks_for_the_least_gain_of_graded_scores():
    graded = next(world for world in WORLDS if world.graded)
    for seed in (2, 12, 15):
        here = unfriendly_place(graded, seed, SIZES, PROPOSALS)
        rules = BASE | {here.law.effects[0].rule}
        arms = [here.measure(one, here.of(Split.TEST)) for one in (BASE, rules)]
        differences = [[arms[1][task] - arms[0][task]] for task in arms[0]]
        assert staged_sign_flip([differences], [TESTS], alpha_of_look(1)).rejects
        found = others.tested(lambda place, proposals, rules=rules: Found(rules, 0.02))(
            here, PROPOSALS
        )
        assert found.rules == BASE


def test_a_scenario_has_a_law_for_every_seed_and_no_rule_that_no_task_is_left_for():
    laws = {seed: SCENARIOS[1].law(seed, PROPOSALS) for seed in (1331, 1332)}
    assert sum(effect.breaks > 0 for effect in laws[1331].effects) < PROPOSALS
    assert [effect.breaks for effect in laws[1332].effects] == [*[0.05] * 9, 0.0]
    assert all(law.score(BASE) >= 0.0 for law in laws.values())


def _line(
    scenario: str,
    loop: str,
    *,
    false: int = 0,
    right: int = 0,
    possible: int = 0,
    trials: float = 700,
) -> Line:
    return Line(scenario, loop, SIZES, 400, false, 0, right, possible, 0.0, 0.0, 0.0, trials)


@pytest.mark.parametrize(
    ("line", "met"),
    [
        (_line("drift, nothing helps", "ours", false=12), [True]),
        (_line("drift, nothing helps", "ours", false=13), [False]),
        (_line("nothing helps", "ours", false=5), [False]),
        (_line("nothing helps", "ours", false=4), [True]),
        (_line("useful is frequent", "ours", right=280, possible=400), [True, True]),
        (_line("useful is frequent", "ours", right=279, possible=400), [True, False]),
        (_line("useful is frequent", "ours", right=300, possible=400, trials=801), [True, False]),
        (_line("useful is rare", "ours", right=10, possible=50), [True, None]),
        (_line("useful is rare", "ours", right=2, possible=50), [True, False]),
    ],
)
def test_a_loop_is_judged_by_the_upper_limit_of_its_false_promotions_and_by_its_power(line, met):
    assert [row.met for row in judged([], [line], False)] == met


def test_a_test_alone_is_judged_by_its_level_without_an_effect_and_by_its_power_at_its_gain():
    staged, narrow = "staged, runs 2, 2, 2", "narrower, 20 tasks, 5 runs"
    cases = [
        AloneLine(staged, "friendly", "+0", 2000, 80, 213),
        AloneLine(staged, "friendly", "+0", 2000, 95, 213),
        AloneLine(staged, "friendly", "+10", 2000, 1480, 325.4),
        AloneLine(staged, "friendly", "+10", 2000, 1480, 325.6),
        AloneLine(staged, "friendly", "+5", 2000, 100, 300),
        AloneLine(narrow, "slopes", "+15", 2000, 1559, 200),
    ]
    assert [row.met for row in judged(cases, [], False)] == [True, False, True, False, False]


def _square(seed: int) -> list[int]:
    return [seed, seed**2]


@pytest.mark.process
def test_a_benchmark_goes_on_with_the_seeds_that_it_kept_and_measures_a_torn_line_again(tmp_path):
    with ProcessPoolExecutor(1) as pool:
        first = SeedPool(pool, 1, tmp_path).run("squares", _square, 3)
        [file] = tmp_path.iterdir()
        lines = file.read_text(encoding="utf-8").splitlines()
        kept = [lines[0], "[0, [0, 700]]", lines[2], lines[3][:-3]]
        file.write_text("\n".join(kept), encoding="utf-8")
        again = SeedPool(pool, 1, tmp_path).run("squares", _square, 5)

    assert first == [[0, 0], [1, 1], [2, 4]]
    assert again == [[0, 700], [1, 1], [2, 4], [3, 9], [4, 16]], (
        "what is kept is not measured again"
    )
    assert SeedPool(pool, 1, tmp_path).run("squares", _square, 5) == again, (
        "nothing is left to measure"
    )


def test_texts_in_a_frame_are_tasks_of_their_own_and_what_happens_in_the_world_stays():
    framed = FramedTexts(SCENARIOS[3])
    bare, here = place(SCENARIOS[3], 3), framed.write_texts(place(SCENARIOS[3], 3), 3)
    tasks = here.tasks.tasks

    assert len({task.prompt for task in tasks}) == len(tasks) and len(
        {task.group for task in tasks}
    ) >= 0.8 * len(tasks)
    assert [here.measure(BASE, [task]) for task in tasks] == [
        bare.measure(BASE, [task]) for task in bare.tasks.tasks
    ]


def test_clusters_that_nobody_labels_share_tasks_and_draws_with_the_labelled_world():
    labelled, hidden = (
        next(world for world in worlds if world.name == name)
        for worlds, name in (
            (WORLDS, "clusters of 5, nothing helps"),
            (HIDDEN, "hidden clusters of 5, nothing helps"),
        )
    )
    places = [unfriendly_place(world, 4, SIZES, PROPOSALS) for world in (labelled, hidden)]
    groups = [[task.group for task in here.tasks.tasks] for here in places]

    assert places[0].measure(BASE, places[0].of(Split.TEST)) == places[1].measure(
        BASE, places[1].of(Split.TEST)
    )
    assert len(set(zip(*groups, strict=True))) == len(set(groups[0])) == len(set(groups[1])), (
        "the texts show them all"
    )

"""What others' gates, frontiers and statistics gave, recorded from their unmodified code: ours
gives the same.
"""

import json
import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from baselines import cap_evolve_gate, e_process, repeats, skillopt_gate
from baselines.evoskill_frontier import EvoSkillFrontier
from baselines.evoskill_loop import Agents, Proposed, Settings, run
from baselines.evoskill_split import stratified_split

from evolvable_evolve.evolution import search_operators
from evolvable_evolve.evolution.statistics import paired_tests
from evolvable_store.errors import InvalidArgument
from evolvable_tools import metrics

HERE = Path(__file__).parent / "vectors"
FRONTIER, GATES, MISC = (
    json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))
    for name in ("frontier_traces", "gate_vectors", "misc_vectors")
)


def close(expected: object) -> object:
    return pytest.approx(expected, abs=1e-12, rel=0)


def named(cases: Sequence[dict]) -> list:
    return [pytest.param(case, id=case["label"]) for case in cases]


@pytest.mark.parametrize("trace", named(FRONTIER["frontier"]))
def test_the_frontier_of_evoskill_admits_orders_and_selects_as_its_code_does(trace):
    frontier, kept, parents = EvoSkillFrontier(trace["capacity"]), [], {}
    for step in trace["steps"]:
        frontier, admitted = frontier.offer(step["name"], step["score"])
        parents[step["name"]] = step["parent"]
        kept += [step["name"]] if admitted else []
        assert admitted == step["admitted"]
        assert [list(entry) for entry in frontier.ranked] == step["frontier"]
        assert sorted(kept) == step["branches"]
        assert frontier.select("best", 0) == step["select"]["best"]
        for iteration, chosen in step["select"]["round_robin"].items():
            assert frontier.select("round_robin", int(iteration)) == chosen
    lineage = [frontier.ranked[0][0]]
    while parents[lineage[-1]] is not None:
        lineage.append(parents[lineage[-1]])
    assert lineage == trace["lineage_of_best"]


@pytest.mark.parametrize("case", named(FRONTIER["stratified_split"]))
def test_the_split_of_evoskill_is_the_same_to_the_order_of_its_examples(case):
    pools = {
        name: [f"{name}-{place}" for place in range(count)]
        for name, count in case["counts"].items()
    }
    ratios = case["train_ratio"], case["val_ratio"]
    if "error" in case:
        with pytest.raises(InvalidArgument) as refused:
            stratified_split(pools, *ratios)
        assert case["error"] == f"ValueError: {refused.value}"
        return
    train, val = stratified_split(pools, *ratios)
    assert (train, val) == (case["train_ids"], case["val_ids"])
    assert {name: len(ids) for name, ids in train.items()} == case["train_sizes"]
    assert {name: len(ids) for name, ids in val.items()} == case["val_sizes"]


def stub(label: str, validation: dict[str, int]) -> Agents[tuple[str, ...]]:
    """Agents as the traces were recorded with: a program is its skills, a run is .01, a proposal
    .02, a build .03.
    """

    def score(skills: tuple[str, ...], category: str, place: int) -> float:
        if label.startswith("fix"):
            return float(f"skill-{category}" in skills)
        if label.startswith("harmful"):
            return float(category == "a" and not skills)
        if label == "edit":
            return float(place % 2 == 0)
        return float(label == "all-pass-from-start")

    def propose(parent: tuple[str, ...], failed: Sequence[str], iteration: int):
        if label == "proposer-fails":
            return None, 0.02
        if label.startswith("harmful"):
            name, summary = f"bad-{iteration - 1}", f"SKILL:bad-{iteration - 1}"
        else:
            name = f"skill-{failed[0]}"
            summary = (
                f"SKILL:{name} for {failed[0]}" if label.startswith("fix") else f"SKILL:{name}"
            )
        return Proposed((*parent, name), summary, "j", name), 0.05

    def validate(skills: tuple[str, ...]) -> tuple[float, float]:
        scores = [
            score(skills, name, place)
            for name, count in validation.items()
            for place in range(count)
        ]
        return sum(scores) / len(scores), 0.01 * len(scores)

    return Agents(lambda *asked: (score(*asked), 0.01), propose, validate, sorted)


@pytest.mark.parametrize("trace", named(FRONTIER["loops"]))
def test_the_loop_of_evoskill_does_writes_and_pays_what_its_code_does(trace):
    config = trace["config"]
    settings = Settings(
        iterations=config["max_iterations"],
        frontier_size=config.get("frontier_size", 3),
        no_improvement_limit=config.get("no_improvement_limit", 5),
        selection=config.get("selection_strategy", "best"),
        categories=config.get("categories_per_batch", 3),
        per_category=config["samples_per_category"],
    )
    done = run((), stub(trace["label"], trace["validation"]), trace["categories"], settings)
    assert json.loads(json.dumps(done.events)) == trace["events"]
    assert done.history == trace["feedback_history"]
    assert sorted(done.programs) == trace["branches"]
    expected = trace["result"]
    assert [list(entry) for entry in done.frontier.ranked] == expected["frontier"]
    assert (*done.best, done.iterations) == (
        expected["best"],
        expected["best_score"],
        expected["iterations"],
    )
    assert done.cost == close(expected["cost"])
    saved = done.checkpoint and {
        "iteration": done.checkpoint.iteration,
        "category_offset": done.checkpoint.category_offset,
        "per_cat_offset": done.checkpoint.offsets,
    }
    assert saved == trace["checkpoint"]


@pytest.mark.parametrize("case", MISC["pareto"])
def test_the_pareto_front_of_gepa_is_the_same_down_to_the_draw(case):
    front = search_operators.pareto_front(case["scores"])
    assert {str(task): best for task, best in front.items()} == case["front"]
    reduced = search_operators.reduce_front(front, case["aggregate"])
    assert {str(task): best for task, best in reduced.items()} == case["reduced_front"]
    assert sorted({program for best in reduced.values() for program in best}) == case["survivors"]
    assert {
        str(program): held for program, held in search_operators.front_weights(reduced).items()
    } == case["selection_weights"]
    drawn = [
        search_operators.sample_front(front, case["aggregate"], random.Random(seed))
        for seed in range(5)
    ]
    assert drawn == case["picks_seed0_4_cpython"]


def sign_flip(gained: int, lost: int) -> float:
    """The p-value of tasks that pass or fail outright, where the sign-flip test is McNemar's."""
    return paired_tests.sign_flip_p_value([1.0] * gained + [-1.0] * lost)


def test_mcnemar_is_exact():
    for case in MISC["mcnemar_exact"]:
        assert sign_flip(case["wins"], case["losses"]) == close(case["p_one_sided_greater"])


def test_the_sign_flip_test_is_exact():
    for case in MISC["sign_flip_exact"]:
        assert paired_tests.sign_flip_p_value(case["diffs"]) == close(case["p_one_sided"])


def test_the_interval_is_wilsons():
    for case in MISC["wilson"]:
        assert metrics.wilson_interval(case["k"], case["n"]) == close(case["ci95"])


def test_the_money_of_the_betting_test_is_the_same():
    for case in MISC["e_process"]:
        bets = (case["lambda"],)
        assert list(e_process.wealth(case["diffs"], bets)) == close(case["wealth"])
        reading = e_process.read(case["diffs"], 0.05, bets)
        accepted = reading.pairs if reading.reading is e_process.Reading.ACCEPT else None
        assert accepted == case["reject_at_alpha_0.05"]


def test_the_gate_of_cap_evolve_decides_the_same():
    for case in GATES["cap_evolve_decide"]:
        given = case["in"]
        decision = cap_evolve_gate.decide(
            given["current_val"],
            given["candidate_val"],
            given["mode"],
            differences=given.get("paired_deltas", ()),
            k=given.get("k_se", 1.0),
            errors=(given.get("current_stderr", 0.0), given.get("candidate_stderr", 0.0)),
            threshold=given.get("threshold", 0.0),
            sizes=(given.get("current_size", 0), given.get("candidate_size", 0)),
            coverage=given.get("coverage", 1.0),
            least_coverage=given.get("min_coverage", 0.6),
        )
        wanted = case["out"]
        assert (decision.accept, decision.indecisive) == (wanted["accept"], wanted["indecisive"]), (
            case
        )
        assert (decision.delta, decision.threshold) == close(
            (wanted["delta"], wanted["threshold"])
        ), case


def test_the_statistics_of_cap_evolve_are_the_same():
    for case in GATES["cap_evolve_stats"]:
        if "combined_stderr" in case:
            assert repeats.combined_standard_error(case["means"], case["stderrs"]) == close(
                case["combined_stderr"]
            )
            continue
        rewards = case["rewards"]
        assert (repeats.mean(rewards), repeats.standard_error(rewards)) == close(
            (case["mean"], case["stderr"])
        )
        for k, wanted in case["pass_k"].items():
            assert repeats.passes_all(rewards, int(k)) == (
                wanted if wanted is None else close(wanted)
            )
            assert repeats.passes_any(rewards, int(k)) == close(case["pass_at_k"][k])


def test_the_gate_of_skillopt_decides_the_same():
    for case in GATES["skillopt_gate"]:
        score = skillopt_gate.score(case["cand_hard"], case["cand_soft"], case["metric"], case["w"])
        action = skillopt_gate.decide(score, case["current"], case["best"])
        taken, best = (
            action is not skillopt_gate.Action.REJECT,
            action is skillopt_gate.Action.ACCEPT_NEW_BEST,
        )
        wanted = case["out"]
        assert action == wanted["action"]
        assert (score if taken else case["current"]) == close(wanted["current_score"])
        assert (score if best else case["best"]) == close(wanted["best_score"])
        assert ("C" if taken else "P", "C" if best else "B") == (
            wanted["current_skill"],
            wanted["best_skill"],
        )


def test_shares_of_all_sizes_pass_the_smallest_tallies_of_the_specification():
    """5-0, 7-1, 9-2 and 10-3 pass at .05, one fewer does not."""
    for gained, lost in ((5, 0), (7, 1), (9, 2), (10, 3)):
        assert sign_flip(gained, lost) <= 0.05 < sign_flip(gained - 1, lost)
    assert all(one < other for one, other in pairwise(sign_flip(4, lost) for lost in range(9)))

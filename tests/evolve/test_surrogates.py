"""The surrogates of Reinforce++ and GRPO give what Autogenesis' own code gave; recorded from that
code, unmodified.
"""

import json
import random
import time
from pathlib import Path

import pytest

from evolvable_evolve.evolution.optimizers import surrogates

VECTORS = json.loads(
    (Path(__file__).parent / "vectors/rl_vectors.json").read_text(encoding="utf-8")
)


def close(expected: object) -> object:
    return pytest.approx(expected, abs=1e-12, rel=0)


def test_advantages_are_rewards_normalised_over_their_group():
    for case in VECTORS["normalize"]:
        assert surrogates.group_advantages(case["rewards"]) == close(case["advantages"]), case


def test_no_reward_and_a_single_one_have_no_advantage():
    assert surrogates.group_advantages([]) == []
    assert surrogates.group_advantages([0.7]) == [0.0]
    assert surrogates.group_signal([], []).objectives == ()


def test_both_objectives_clip_ratios_on_both_sides():
    for case in VECTORS["clip"]:
        ratio, advantage, epsilon = case["ratio"], case["advantage"], case["eps"]
        assert surrogates.grpo_objective(ratio, advantage, epsilon) == close(
            case["grpo_objective"]
        ), case
        found = surrogates.reinforce_objective(ratio, advantage, epsilon)
        assert found == close((case["rpp_clipped_ratio"], case["rpp_objective"])), case


def test_similarity_is_the_edit_distance_of_tokens_to_their_longer_number():
    for case in VECTORS["similarity"]:
        words = case["a"].split(), case["b"].split()
        tokens = surrogates.tokenize(case["a"]), surrogates.tokenize(case["b"])
        assert surrogates.edit_distance(*words) == case["distance_ws"], case
        assert surrogates.token_similarity(*words) == close(case["similarity_ws"]), case
        assert surrogates.edit_distance(*tokens) == case["distance_wordpunct"], case
        assert surrogates.text_similarity(case["a"], case["b"]) == close(
            case["similarity_wordpunct"]
        ), case


def test_the_signal_of_reinforce_has_the_penalty_for_leaving_the_answer_of_the_base():
    for case in VECTORS["reinforce_pp"]:
        reference, before, now = (case[name].split() for name in ("y_sft", "y_prev", "y"))
        found = surrogates.reinforce_signal(
            case["reward"],
            surrogates.token_similarity(before, now),
            surrogates.token_similarity(reference, now),
            epsilon=case["eps"],
            beta=case["beta"],
            epsilon_0=case["eps0"],
        )
        said = (
            found.reference_similarity,
            found.penalty,
            found.advantage,
            found.ratio,
            found.clipped,
            found.objective,
        )
        names = ("eta_sft", "penalty", "advantage", "ratio", "clipped", "objective")
        assert said == close(tuple(case[name] for name in names)), case


def test_the_signals_of_a_group_are_those_of_grpo():
    for case in VECTORS["grpo_full"]:
        before = case["y_prev"].split()
        ratios = [
            surrogates.token_similarity(before, answer.split()) for answer in case["candidates"]
        ]
        found = surrogates.group_signal(case["rewards"], ratios)
        assert found.ratios == close(tuple(case["ratios"]))
        assert found.advantages == close(tuple(case["advantages"]))
        assert found.objectives == close(tuple(case["objectives"]))


def test_the_distance_is_that_of_the_table_of_all_prefixes():
    chance = random.Random(7)

    def by_table(one: list[str], other: list[str]) -> int:
        row = list(range(len(other) + 1))
        for at, token in enumerate(one, 1):
            before, row[0] = row[0], at
            for place, wanted in enumerate(other, 1):
                swap = before + (token != wanted)
                before, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, swap)
        return row[-1]

    for _ in range(200):
        one, other = (chance.choices("abcd", k=chance.randrange(0, 40)) for _ in range(2))
        assert surrogates.edit_distance(one, other) == by_table(one, other), (one, other)


def test_answers_of_many_words_are_compared_up_to_a_bound_and_quickly():
    long, other = ("word%d " * 9_000 % tuple(range(at, at + 9_000)) for at in (0, 3))
    began = time.process_time()

    assert len(surrogates.tokenize(long)) == surrogates.MAX_TOKENS
    assert surrogates.text_similarity(long, other) == close(1 - 6 / surrogates.MAX_TOKENS)
    assert time.process_time() - began < 2

"""The surrogates of Reinforce++ and GRPO as Autogenesis defines them (arXiv 2604.15034, E.3.6 and
E.3.7).

All functions are pure. They describe how far an answer moved and how it was rewarded, and decide
nothing. An objective is largest for a good answer that equals the one before, so a search by it
would reward answers that do not change.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

EPSILON = 0.2
"""ε: the distance from 1 beyond which a ratio is clipped."""

BETA = 0.01
"""β: the weight of the penalty for an answer that is unlike the reference."""

EPSILON_0 = 1e-8
"""ε0: the least similarity whose logarithm is taken."""

LEAST_VARIANCE = 1e-8
"""The variance up to which rewards count as equal; their deviation is then taken as 1."""

MAX_TOKENS = 4_000
"""Tokens of an answer that are compared, from its beginning."""

_TOKEN = re.compile(r"\w+|[^\w\s]")


def tokenize(text: str) -> list[str]:
    """Return the words and the punctuation of a text, the first `MAX_TOKENS` of them."""
    return _TOKEN.findall(text)[:MAX_TOKENS]


def edit_distance(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the Levenshtein distance of two sequences of tokens.

    It is the bit-parallel algorithm of Myers (1999) in the form of Hyyrö (2003), which is exact and
    has one addition of long integers for each token. It is written here because the libraries for
    it are compiled, and nothing else needs them.
    """
    if not first or not second:
        return len(first) + len(second)
    # By token, its positions in `first`, one bit each.
    places: dict[str, int] = {}
    for at, token in enumerate(first):
        places[token] = places.get(token, 0) | 1 << at
    size, last = len(first), 1 << len(first) - 1
    whole = (1 << size) - 1
    # A column of the table of distances as two sets of bits: the cells at which it rises and at
    # which it falls by one. `distance` is its last cell.
    plus, minus, distance = whole, 0, size
    for token in second:
        here = places.get(token, 0)
        same = here | minus
        zero = (((here & plus) + plus) ^ plus) | same
        up, down = minus | ~(zero | plus) & whole, plus & zero
        distance += bool(up & last) - bool(down & last)
        up = up << 1 | 1
        plus, minus = (down << 1 | ~(zero | up)) & whole, up & zero & whole
    return distance


def token_similarity(first: Sequence[str], second: Sequence[str]) -> float:
    """Return η = 1 - distance / longer length of two token sequences (E.3.6); 0 where either is
    empty, or both are.
    """
    if not first or not second:
        return 0.0
    return 1.0 - edit_distance(first, second) / max(len(first), len(second))


def text_similarity(first: str, second: str) -> float:
    """Return η of two texts."""
    return token_similarity(tokenize(first), tokenize(second))


@dataclass(frozen=True, slots=True)
class ReinforceSignal:
    """The signal of one answer in Reinforce++.

    advantage: A, made from the reward, the similarity to the reference and the penalty. ratio: π.
    clipped: π clipped. objective: J.
    """

    reward: float
    reference_similarity: float
    penalty: float
    advantage: float
    ratio: float
    clipped: float
    objective: float


def reinforce_objective(
    ratio: float, advantage: float, epsilon: float = EPSILON
) -> tuple[float, float]:
    """Return the clipped ratio and the objective of Reinforce++ (E.3.6).

    clipped = clip(π, 1 - ε, 1 + ε), J = min(π A, clipped A).
    """
    clipped = min(max(ratio, 1 - epsilon), 1 + epsilon)
    return clipped, min(ratio * advantage, clipped * advantage)


def reinforce_signal(
    reward: float,
    ratio: float,
    reference_similarity: float,
    *,
    epsilon: float = EPSILON,
    beta: float = BETA,
    epsilon_0: float = EPSILON_0,
) -> ReinforceSignal:
    """Return the signal of one answer (E.3.6).

    penalty = β |log max(η(y_sft, y), ε0)|, A = r - penalty.

    Args:
        reward: r, by the scorer.
        ratio: π = η(y before, y).
        reference_similarity: η(y_sft, y), to the answer under the base.
    """
    # ε0 keeps the logarithm finite where two answers have nothing in common.
    penalty = beta * abs(math.log(max(reference_similarity, epsilon_0)))
    advantage = reward - penalty
    clipped, objective = reinforce_objective(ratio, advantage, epsilon)
    return ReinforceSignal(
        reward, reference_similarity, penalty, advantage, ratio, clipped, objective
    )


def group_advantages(rewards: Sequence[float]) -> list[float]:
    """Return A_i = (r_i - mean) / σ of a group of rewards (E.3.7), σ of the population.

    σ is 1 where the variance is at most `LEAST_VARIANCE`. A single reward has the advantage 0.
    """
    if len(rewards) <= 1:
        return [0.0] * len(rewards)
    mean = sum(rewards) / len(rewards)
    variance = sum((reward - mean) ** 2 for reward in rewards) / len(rewards)
    deviation = math.sqrt(variance) if variance > LEAST_VARIANCE else 1.0
    return [(reward - mean) / deviation for reward in rewards]


def grpo_objective(ratio: float, advantage: float, epsilon: float = EPSILON) -> float:
    """Return J_i of one answer of a group (E.3.7).

    J = min(π A, clipped A), where clipped = min(π, 1 + ε) if A >= 0, else max(π, 1 - ε).
    """
    clipped = min(ratio, 1 + epsilon) if advantage >= 0 else max(ratio, 1 - epsilon)
    return min(ratio * advantage, clipped * advantage)


@dataclass(frozen=True, slots=True)
class GroupSignal:
    """The signals of the answers of one group in GRPO, in their order."""

    rewards: tuple[float, ...]
    advantages: tuple[float, ...]
    ratios: tuple[float, ...]
    objectives: tuple[float, ...]


def group_signal(
    rewards: Sequence[float], ratios: Sequence[float], epsilon: float = EPSILON
) -> GroupSignal:
    """Return the signals of one group (E.3.7). ratios: π_i = η(y before, y_i)."""
    advantages = group_advantages(rewards)
    pairs = zip(ratios, advantages, strict=True)
    objectives = [grpo_objective(ratio, advantage, epsilon) for ratio, advantage in pairs]
    return GroupSignal(tuple(rewards), tuple(advantages), tuple(ratios), tuple(objectives))

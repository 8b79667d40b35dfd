"""SkillMAS's Q(skill, task type): the running mean of outcomes, one update for each episode, in any
order stored.
"""

import json
import random
from pathlib import Path

import pytest

from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.storage.evidence import Grade, Outcome, ReportedOutcome, Use
from evolvable_store.storage.observations import Execution, VerifiedEnd
from evolvable_store.store import Store
from evolvable_tools.library import Library
from evolvable_tools.metrics import Utility, agent_episodes, agent_utilities, utilities

VECTORS = json.loads(
    (Path(__file__).parents[1] / "data/evidence_vectors.json").read_text(encoding="utf-8")
)


def test_each_update_is_skillmas():
    for case in VECTORS["skillmas_utility"]:
        q = Utility(case["q0"])
        for step in case["trace"]:
            q = q.with_reward(step["reward"])
            assert (q.value, q.n) == (step["Q"], step["N_after"]), case


EPISODES = [
    # session, skill, task type, outcome: two slices of one episode are one update; the last word of
    # a session counts
    *[(f"s{n}", "pdf", "forms", Outcome.SUCCEEDED if n % 3 else Outcome.FAILED) for n in range(9)],
    *[("s1", "pdf", "forms", Outcome.SUCCEEDED), ("s2", "pdf", "forms", Outcome.FAILED)],
    *[("t1", "pdf", " Forms ", Outcome.PARTIAL), ("t2", "pdf", None, Outcome.SUCCEEDED)],
    *[("t3", "csv", "tables", Outcome.SUCCEEDED), ("t4", "csv", "tables", Outcome.UNKNOWN)],
]


def learned(home: Path, skill_text: str, order: random.Random) -> dict[str, tuple[float, int]]:
    """Stores the episodes in a random order, and returns Q."""
    with Library.open(home, create=True) as library:
        ids = {}
        for name in ("pdf", "csv"):
            with library.store.transaction(Actor.HUMAN, "x") as tx:
                from samples import skill

                tx.put(Ref.parse(name), skill(skill_text))
            ids[library.store.head(Ref.parse(name)).id] = name
        named = {name: identity for identity, name in ids.items()}
        rows = list(enumerate(EPISODES))
        order.shuffle(rows)
        for number, (session, name, task_type, outcome) in rows:
            at, use = f"2026-11-20T12:00:{number:02}.000000Z", f"use-{number:012x}"
            library.evidence.add_use(Use(use, at, named[name], 1, None, session))
            who = {"grade": Grade.REPORTED, "voter": session}
            told = ReportedOutcome(
                at, named[name], 1, outcome, use, None, task_type, None, session, **who
            )
            library.evidence.add_outcome(told)
        found = utilities(library.store.backend.evidence.list_attempts())
        return {f"{ids[resource]}/{kind}": (q.value, q.n) for (resource, kind), q in found.items()}


@pytest.mark.process
def test_q_comes_from_the_log_alone_whatever_the_order_it_was_stored_in(tmp_path):
    found = [learned(tmp_path / str(seed), "text", random.Random(seed)) for seed in range(4)]

    assert found == [found[0]] * 4
    # s2 said at last that it failed, so of the nine sessions 5 went well; "Forms" of t1 is the same
    # task type.
    assert found[0] == {
        "pdf/forms": (found[0]["pdf/forms"][0], 10),
        "pdf/": (1.0, 1),
        "csv/tables": (1.0, 1),
    }
    assert abs(found[0]["pdf/forms"][0] - 5 / 10) < 1e-12


def test_nothing_told_is_no_utility(tmp_path):
    with Store.open(tmp_path / "home", create=True) as store:
        assert utilities(store.backend.evidence.list_attempts()) == {}


def test_an_agent_has_the_verified_end_of_its_own_part_and_one_episode_of_each_connection():
    """Another sub-agent, an end that is not verified, and a session that nobody verified are no
    episodes.
    """
    ends = [
        VerifiedEnd("s1", "2026-11-23T08:00:00Z", Outcome.SUCCEEDED, "forms", "c1"),
        VerifiedEnd("s2", "2026-11-23T09:00:00Z", Outcome.SUCCEEDED, "forms", "c1"),
        VerifiedEnd("s3", "2026-11-23T10:00:00Z", Outcome.FAILED, "forms", None),
    ]

    def part(session, outcome, link, grade=Grade.VERIFIED, executor="agent:clerk", agent=7):
        return Execution(
            1,
            "2026-11-23T08:30:00Z",
            None,
            outcome,
            session,
            executor,
            agent,
            3,
            grade=grade,
            link=link,
        )

    parts = [
        *(
            part("s1", Outcome.SUCCEEDED, "c1"),
            part("s2", Outcome.FAILED, "c1"),
            part("s3", Outcome.SUCCEEDED, None),
        ),
        part("s3", Outcome.FAILED, "c2", Grade.REPORTED),
        part("s1", Outcome.FAILED, "c1", executor="subagent:other", agent=None),
        part("s9", Outcome.FAILED, "c9"),
    ]

    learned = agent_utilities(agent_episodes(ends, parts))

    assert learned == {
        ("main", "forms"): Utility(0.5, 2),
        ("agent:clerk", "forms"): Utility(0.5, 2),
    }

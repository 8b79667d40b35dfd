"""One daily budget for all processes: several that review at once never pass a limit, be it calls,
tokens or money.
"""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from labelled_sessions import Labelled, labelled
from model_api import ModelApi, Reply, says
from processes import poll

from evolvable_store.storage.proposals import Spending
from evolvable_store.store import Store

pytestmark = pytest.mark.process

CHILD = Path(__file__).parents[1] / "support" / "review_children.py"
SESSION = next(one for one in labelled() if one.name == "alembic")
PROCESSES, SESSIONS = 3, 4
IN, OUT = 3_000, 1_000
COST = (IN * 3 + OUT * 15) / 1_000_000

# Even one process after the other cannot ask all twelve questions within any of them.
BUDGETS = {
    "calls": ("calls=5,tokens=100000000", Spending(5, 100_000_000, 1e9)),
    "tokens": ("calls=1000,tokens=40000", Spending(1_000, 40_000, 1e9)),
    "money": (
        "calls=1000,tokens=100000000,money=0.27,price=3/15",
        Spending(1_000, 100_000_000, 0.27),
    ),
}


def answers() -> list[Reply]:
    """More answers than may be asked for, each of which costs the same."""
    usage = {"input_tokens": IN, "output_tokens": OUT}
    return [
        says('{"candidates": [], "why_none": "nothing"}', usage=usage)
        for _ in range(PROCESSES * SESSIONS)
    ]


def within(spent: Spending, limit: Spending) -> bool:
    return (
        spent.calls <= limit.calls
        and spent.tokens <= limit.tokens
        and spent.money <= limit.money + 1e-9
    )


def test_processes_that_review_at_once_never_pass_what_a_day_may_cost(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.mkdir()
    stores = {name: Store.open(tmp_path / name, create=True) for name in BUDGETS}
    apis = {name: ModelApi(*answers()) for name in BUDGETS}
    for number in range(PROCESSES):
        (tmp_path / f"sessions-{number}").mkdir()
        for of in range(SESSIONS):
            Labelled(f"{number}-{of}", SESSION.events, frozenset()).write(
                tmp_path / f"sessions-{number}"
            )
    children: list[subprocess.Popen[str]] = []
    passed: list[str] = []
    try:
        for api in apis.values():
            api.__enter__()
        for number in range(PROCESSES):
            jobs = [
                (tmp_path / n, BUDGETS[n][0], apis[n].url, tmp_path / f"sessions-{number}")
                for n in BUDGETS
            ]
            command = [
                sys.executable,
                str(CHILD),
                str(gate),
                str(number),
                *(str(word) for job in jobs for word in job),
            ]
            children.append(
                subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            )

        def spent(name: str) -> Spending:
            store = stores[name]
            return store.backend.reviews.spending_of(store.now()[:10])

        def over() -> bool:
            passed.extend(name for name in BUDGETS if not within(spent(name), BUDGETS[name][1]))
            running = [child for child in children if child.poll() is None]
            with contextlib.suppress(subprocess.TimeoutExpired):
                _ = running and running[0].wait(0.02)  # they need the processor more
            return not running

        poll(
            lambda: over() or len(list(gate.glob("ready-*"))) == PROCESSES,
            "the processes to be ready",
        )
        (gate / "go").touch()
        poll(over, "the processes to end")
        ended = [child.communicate(timeout=10) for child in children]
        assert [child.returncode for child in children] == [0] * PROCESSES, ended[0][1]
        allowed = [
            sum(numbers) for numbers in zip(*(json.loads(out) for out, _ in ended), strict=True)
        ]
        assert not passed
        for name, count in zip(BUDGETS, allowed, strict=True):
            asked, limit = len(apis[name].asked), BUDGETS[name][1]
            assert asked == count == spent(name).calls
            assert within(Spending(asked, asked * (IN + OUT), asked * COST), limit)
            assert 1 < asked < PROCESSES * SESSIONS, (name, asked)
        assert len(apis["calls"].asked) == 5
    finally:
        for child in children:
            child.kill()
            child.communicate()
        for api in apis.values():
            api.__exit__(None, None, None)
        for store in stores.values():
            store.close()

"""Every promise of docs/promises.md names tests that exist."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]


def test_each_promise_and_each_attack_names_tests_that_exist():
    text = (ROOT / "docs/promises.md").read_text(encoding="utf-8")
    guarantees, attacks = text.partition("\n## Guarantees\n")[2].split(
        "\n## Attacks that are tests\n"
    )
    promises = [*re.split(r"\n\d+\. ", guarantees)[1:], *re.split(r"\n- ", attacks)[1:]]
    everything = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")
    )

    assert len(promises) > 1
    for promise in promises:
        named = re.findall(r"`(test_\w+)`", promise)
        assert named, promise
        for name in named:
            assert re.search(rf"(def {name}\b|^{name} = )", everything, re.MULTILINE), name

"""Every promise of docs/promises.md names tests that exist."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]


def test_each_promise_names_tests_that_exist():
    text = (ROOT / "docs/promises.md").read_text(encoding="utf-8")
    promises = re.split(r"\n\d+\. ", text)[1:]
    everything = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))

    for promise in promises:
        named = re.findall(r"`(test_\w+)`", promise)
        assert named, promise
        for name in named:
            assert re.search(rf"(def {name}\b|^{name} = )", everything, re.MULTILINE), name

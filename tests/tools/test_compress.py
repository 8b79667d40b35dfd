"""A history made short: nine parts, an index of what was named, and a tail that parts no call from its result."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evolvable_tools.review.context_compression import _assets, _texts, compress_history

NAMED = [
    "src/app/cart.py",
    "https://example.org/spec.html",
    "docs/plan.md",
    "shot.png",
    "skill:pdf",
    "Makefile.am/x",
    "notes.txt",
]


def lost(before, after):
    """Return what was named before and is in neither summary, assets nor tail."""
    said = "\n".join(text for message in after.messages for text in _texts(message))
    named = _assets(text for message in before for text in _texts(message))
    return [name for names in vars(named).values() for name in names if name not in said]


def said(number):
    name = NAMED[number % len(NAMED)]
    return {"role": "user" if number % 2 else "assistant", "content": f"Step {number}: look at {name} " + "word " * 60}


def call(number):
    block = {"type": "tool_use", "id": f"t{number}", "name": "Read", "input": {"file_path": f"lib/{number}.py"}}
    return {"role": "assistant", "content": [block]}


def result(number):
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{number}", "content": "x " * 200}]}


def history(length):
    return [message for n in range(length) for message in ([said(n)] if n % 3 else [call(n), result(n)])]


def test_a_history_within_the_limit_stays_as_it_is():
    messages = history(10)
    same = compress_history(messages)
    assert (same.messages, same.level, same.summary) == (messages, 0, {})


def test_a_long_history_becomes_nine_parts_an_index_and_a_tail():
    messages = [{"role": "user", "content": "Please port the cart. We always use tabs."}, *history(60)]
    short = compress_history(messages, keep=10, max_tokens=1_000)
    parts = "request constraints files errors decisions user_instructions open_tasks state next_step"
    assert tuple(short.summary) == tuple(parts.split())
    assert short.summary["user_instructions"] and "We always use tabs." in short.summary["constraints"][0]
    assert short.messages[1:] == messages[-10:]
    assert (short.assets.skills, short.assets.images) == (["skill:pdf"], ["shot.png"])
    assert short.tokens_after < short.tokens_before / 2
    assert lost(messages, short) == []


@pytest.mark.process
@settings(deadline=None, max_examples=30)
@given(st.integers(1, 60), st.integers(1, 20))
def test_nothing_that_was_named_is_lost_and_no_call_is_parted(length, keep):
    messages = history(length)
    short = compress_history(messages, keep=keep, max_tokens=0)
    assert lost(messages, short) == []
    tail = short.messages[1:] if short.level else short.messages
    blocks = [block for message in tail if isinstance(message["content"], list) for block in message["content"]]
    calls = {block["id"] for block in blocks if block["type"] == "tool_use"}
    results = {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}
    assert results <= calls
    assert len(tail) - keep in (0, 1) or len(messages) <= keep


def test_compressed_again_it_knows_what_it_knew_and_counts():
    first = compress_history(history(60), keep=5, max_tokens=500)
    grown = [*first.messages, *history(40)]
    second = compress_history(grown, keep=5, max_tokens=500)
    assert (first.level, second.level) == (1, 2)
    assert lost([*history(60), *history(40)], second) == []
    assert compress_history(first.messages, keep=5, max_tokens=10**6).messages == first.messages

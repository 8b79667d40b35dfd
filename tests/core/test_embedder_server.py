"""A server with a real embedder: words answer at once, the meaning joins in, and one process embeds
for all servers.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anyio import from_thread, to_thread
from embedding_place import clients, is_running, processes, worker
from mcp import Client
from mcp_place import Place
from processes import poll

from evolvable_tools.embedding.embedder_client import LOG

pytestmark = [
    pytest.mark.models,
    pytest.mark.process,
    pytest.mark.anyio,
    # torch's exporter to ONNX and its loading of weights warn of their own future.
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning"
    ),
]

BY_MEANING = "glue several Acrobat documents together"
"""No word of it stands in a skill."""

Answer = dict[str, Any]


class EmbeddingPlace(Place):
    """A place whose servers embed."""

    def __init__(self, root: Path, spec: str) -> None:
        super().__init__(root)
        self.spec = spec

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, "EVOLVABLE_EMBEDDER": self.spec}


@pytest.fixture
def place(tmp_path: Path, model: str) -> Iterator[EmbeddingPlace]:
    """A library of two skills; whatever embeds for it is ended with the test."""
    place = EmbeddingPlace(tmp_path, model)
    with clients(place.home):
        yield place
    assert processes(place.home) == []


async def find(client: Client, task: str) -> Answer:
    result = await client.call_tool("find_skill", {"task": task, "detail": True})
    assert not result.is_error, result.content
    found: Answer = result.structured_content
    return found


def embedding(found: Answer) -> str:
    """Returns what the embedding stage said."""
    (said,) = (report["said"] for report in found["stages"] if report["stage"] == "embedding")
    return str(said)


async def until(client: Client, task: str, condition: Callable[[Answer], object]) -> Answer:
    """Returns the first answer to a task for which a condition holds."""
    answers: list[Answer] = []

    def holds() -> object:
        answers[:] = [from_thread.run(find, client, task)]
        return condition(answers[0])

    await to_thread.run_sync(partial(poll, holds, "another answer", 25))
    return answers[0]


def knows_meanings(found: Answer) -> bool:
    return bool(found["matches"]) and "meaning: cosine" in found["matches"][0]["why"]


async def test_words_answer_at_once_and_the_meaning_joins_in_when_the_embedder_is_warm(
    place: EmbeddingPlace, model: str
) -> None:
    async with place.client("modern") as client:
        started = time.monotonic()
        first = await find(client, "fill a PDF form")
        seconds = time.monotonic() - started

        found = await until(client, BY_MEANING, knows_meanings)
        warm = await find(client, "fill a PDF form")

    best = first["matches"][0]
    assert (best["ref"], best["stage"], first["verdict"]) == ("skill:pdf", "text", "sure")
    assert embedding(first) == "embedder is warming up" and seconds < 2
    assert (warm["matches"][0]["ref"], warm["verdict"]) == ("skill:pdf", "sure")
    assert "words: " in warm["matches"][0]["why"]
    assert embedding(warm).startswith("not waited for")
    assert embedding(found).startswith("onnx:minilm@")
    assert (found["matches"][0]["ref"], found["matches"][0]["stage"]) == ("skill:pdf", "embedding")


async def test_what_is_written_while_the_server_runs_is_found_by_its_meaning(
    place: EmbeddingPlace,
) -> None:
    async with place.client("modern") as client:
        await until(client, BY_MEANING, knows_meanings)
        text = "---\nname: bicycles\ndescription: Repair bicycles.\n---\n\none\n"
        written = {
            "ref": "skill:bicycles",
            "reason": "new",
            "files": {"SKILL.md": text},
            "create": True,
        }
        result = await client.call_tool("update_resource", written)
        assert not result.is_error, result.content

        found = await until(
            client, "mend my bike", lambda found: found["matches"][0]["ref"] == "skill:bicycles"
        )

    assert found["matches"][0]["stage"] == "embedding"


async def test_two_servers_of_a_library_share_one_process(place: EmbeddingPlace) -> None:
    async with AsyncExitStack() as stack:
        one, other = [await stack.enter_async_context(place.client("modern")) for _ in range(2)]
        for client in (one, other):
            await until(client, BY_MEANING, knows_meanings)
        serving = worker(place.home)

        # Each server may have started one; all but one end.
        await to_thread.run_sync(
            poll, lambda: processes(place.home) == [serving], "one process to remain", 10
        )
        assert (place.home / LOG).read_text(encoding="utf-8").count("serves") == 1


async def test_the_process_outlives_its_server_and_serves_the_next(place: EmbeddingPlace) -> None:
    async with place.client("modern") as client:
        await until(client, BY_MEANING, knows_meanings)
        first = worker(place.home)

    assert is_running(first)
    async with place.client("modern") as client:
        await until(client, BY_MEANING, knows_meanings)
        assert worker(place.home) == first


async def test_the_process_ends_when_it_is_told_and_words_go_on_alone(
    place: EmbeddingPlace,
) -> None:
    async with place.client("modern") as client:
        await until(client, BY_MEANING, knows_meanings)
        ended = worker(place.home)
        os.kill(ended, signal.SIGTERM)
        await to_thread.run_sync(poll, lambda: not is_running(ended), "the process to end", 10)

        found = await find(client, "fill a PDF form")
        assert (found["matches"][0]["ref"], found["verdict"] == "none") == ("skill:pdf", False)
        again = await until(client, BY_MEANING, knows_meanings)

        assert again["matches"][0]["ref"] == "skill:pdf"
        serving = worker(place.home)
        assert serving != ended
        await to_thread.run_sync(
            poll, lambda: processes(place.home) == [serving], "one process to remain", 10
        )


async def test_a_model_that_is_not_there_is_said_and_words_answer(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    place = EmbeddingPlace(tmp_path, f"onnx:{tmp_path / 'empty'}")
    with clients(place.home):
        async with place.client("modern") as client:
            found = await until(
                client, "fill a PDF form", lambda found: "cannot start" in embedding(found)
            )

    assert "holds no model" in embedding(found)
    assert found["matches"][0]["ref"] == "skill:pdf"

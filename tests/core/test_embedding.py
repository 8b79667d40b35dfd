"""Embedding: two embedders, and one process for each library that all its servers ask."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from importlib import import_module
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from embedding_place import (
    SKILLS,
    ask,
    clients,
    complete,
    identity,
    is_running,
    library,
    processes,
    put,
    put_long,
    remove,
    until,
)
from embedding_place import worker as worker_of
from filelock import FileLock
from library_trouble import TROUBLE, refusing
from processes import PATIENCE, poll

from evolvable_store.errors import EvolvableError, InvalidArgument, LibraryError
from evolvable_store.resource import Kind
from evolvable_store.search.vector_store import (
    VECTORS_FILE,
    TextRole,
    Vectors,
    digest_text,
    embedding_progress,
    forget_vectors,
    open_vectors,
)
from evolvable_store.storage.connection import dbapi
from evolvable_store.storage.learned import LearnedTask, TaskSource
from evolvable_store.store import Store
from evolvable_tools.embedding import ipc
from evolvable_tools.embedding.embedder import Embedder, SimilarResources, parse_spec
from evolvable_tools.embedding.embedder_client import LOG, MAX_TASK, SharedEmbedder, truncate_task
from evolvable_tools.retrieval.cascade import PAPER_PATIENCE

Connect = Callable[..., SharedEmbedder]

AT = datetime.now(UTC).isoformat()

VECTOR_SERVICE = "evolvable_tools.embedding.vector_service"
"""Imported late, as `learned_vectors`: it needs numpy, which is not installed everywhere."""

# torch's exporter to ONNX and its loading of weights warn of their own future.
pytestmark = [
    pytest.mark.models,
    pytest.mark.process,
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning"
    ),
]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A library of three skills."""
    return library(tmp_path / "home")


@pytest.fixture
def connect(home: Path) -> Iterator[Connect]:
    """Makes clients of the library."""
    with clients(home) as connect:
        yield connect


# The embedders


def open_embedder(spec: str) -> Embedder:
    embedder: Embedder = import_module("evolvable_tools.embedding.local_models").open_embedder(spec)
    return embedder


def test_both_embedders_give_nearly_the_same_vectors(model: str) -> None:
    light, heavy = open_embedder(model), open_embedder("sentence-transformers")
    texts = ["merge pdf files", "", "bake bread " * 300, "日本語のテキスト", "\ud800 no Unicode"]

    cosines = (light.encode(texts) * heavy.encode(texts)).sum(axis=1)

    assert light.dimension == heavy.dimension == 384
    assert light.encode(texts).dtype == "float32"
    assert light.encode([]).shape == (0, 384)
    assert cosines.min() > 0.999


def test_a_text_has_the_same_vector_alone_and_in_a_batch(model: str) -> None:
    embedder = open_embedder(model)
    texts = [f"{'word ' * number} end" for number in range(20, 0, -1)]

    together = embedder.encode(texts)

    assert all(
        float(embedder.encode([text])[0] @ row) > 0.9999
        for text, row in zip(texts, together, strict=True)
    )


def test_both_embedders_give_the_vectors_of_tokens_and_a_long_text_only_the_first(
    model: str,
) -> None:
    from evolvable_tools.embedding.token_vectors import (
        KEPT_TOKENS,
        late_interaction,
        normalize_rows,
    )

    light, heavy = open_embedder(model), open_embedder("sentence-transformers")
    texts = ["merge pdf files", "", "bake bread " * 300, "\ud800 no Unicode"]

    (rows, tokens), (_, theirs) = light.encode_tokens(texts), heavy.encode_tokens(texts)

    assert [its.shape for its in tokens] == [its.shape for its in theirs]
    assert [len(its) for its in tokens][2] == KEPT_TOKENS
    assert float((rows * light.encode(texts)).sum(axis=1).min()) > 0.999
    task = normalize_rows(tokens[0].astype("float32"))
    assert late_interaction(task, tokens[0]) > 0.99 > late_interaction(task, tokens[2])
    assert late_interaction(task, tokens[0][:0]) == 0.0


def test_what_is_no_embedder_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_spec("word2vec:x")
    assert "onnx" in caught.value.hint


@pytest.mark.parametrize("kind", ["onnx", "sentence-transformers"])
def test_an_empty_folder_is_no_model(kind: str, tmp_path: Path) -> None:
    with pytest.raises(EvolvableError) as caught:
        open_embedder(f"{kind}:{tmp_path}")
    assert str(tmp_path) in str(caught.value) and caught.value.hint


def test_a_broken_model_is_named(model: str, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"no model")
    shutil.copy(Path(model.partition(":")[2]) / "tokenizer.json", tmp_path)
    with pytest.raises(EvolvableError, match="cannot be loaded"):
        open_embedder(f"onnx:{tmp_path}")


def in_cache(cache: Path, model: str, *names: str) -> Path:
    """Puts these files of a model where the hub's client keeps what it fetched from team/tiny;
    returns that folder.
    """
    folder = cache / "models--team--tiny"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs/main").write_text("1234")
    for name in names:
        target = folder / "snapshots/1234" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(Path(model.partition(":")[2]) / target.name)
    return folder


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Switches the hub's client off the network; returns the folder of what it fetched before,
    which is nothing.
    """
    constants = import_module("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize(
    "fetched",
    [(), ("tokenizer.json",), ("onnx/model.onnx",), ("onnx/model.onnx", "tokenizer.json")],
)
def test_without_a_network_a_model_that_is_not_whole_is_refused_for_that(
    fetched: tuple[str, ...], model: str, offline: Path
) -> None:
    in_cache(offline, model, *fetched)
    with pytest.raises(EvolvableError, match="cannot be fetched: no network"):
        open_embedder("onnx:team/tiny")


def test_without_a_network_a_model_known_to_have_no_pooling_is_opened(
    model: str, offline: Path
) -> None:
    absent = (
        in_cache(offline, model, "onnx/model.onnx", "tokenizer.json")
        / ".no_exist/1234/1_Pooling/config.json"
    )
    absent.parent.mkdir(parents=True)
    absent.touch()
    assert open_embedder("onnx:team/tiny").model == "onnx:team/tiny/model.onnx"


# Asking


def test_a_question_before_it_is_warm_is_answered_at_once_and_says_so(
    connect: Connect, model: str
) -> None:
    first = ask(connect(model, patience=0.05))
    assert (first.available, first.said) == (False, "embedder is warming up")


def test_the_nearest_skill_means_the_same(connect: Connect, model: str, home: Path) -> None:
    client = connect(model)
    answer = until(client, complete)
    assert answer.nearest[0] == identity(home, "pdf")
    assert len(answer.cosines) == len(SKILLS)
    assert answer.said.startswith("onnx:minilm@")


def test_what_is_asked_about_is_compared_token_by_token(
    connect: Connect, model: str, home: Path
) -> None:
    client, ids = connect(model), [identity(home, name) for name in SKILLS]
    until(client, complete)

    late = client.begin("merge pdf forms").similar(ids, kind=Kind.SKILL, scopes=None, limit=5).late

    assert max(late, key=lambda id_: late[id_]) == identity(home, "pdf")
    assert set(late) == set(ids) and all(0 < alike <= 1 for alike in late.values())


def test_a_learned_task_is_near_what_means_the_same_until_it_is_removed(
    connect: Connect, model: str, home: Path
) -> None:
    used = LearnedTask(
        identity(home, "sql"), "why does the report take so long", AT, False, TaskSource.PERSON
    )
    with Store.open(home) as store:
        store.backend.learned.add([used])
    client = connect(model)

    near = until(
        client,
        lambda answer: answer.learned,
        task="the statistics page is slow",
        ids=[used.resource],
    ).learned
    far = ask(client, "bake a cake", ids=[used.resource]).learned.get(used.resource, 0.0)
    with Store.open(home) as store:
        store.backend.learned.remove(
            store.backend.learned.tasks_of([used.resource])[used.resource][0].id
        )

    assert set(near) == {used.resource} and far + 0.2 < near[used.resource] < 1
    until(
        client,
        lambda answer: not answer.learned,
        task="the statistics page is slow",
        ids=[used.resource],
    )


def test_an_old_learned_task_counts_less_and_a_resource_that_is_gone_has_none(
    connect: Connect, model: str, home: Path
) -> None:
    task, old = (
        "why does the report take so long",
        (datetime.now(UTC) - timedelta(days=180)).isoformat(),
    )
    sql, pdf = identity(home, "sql"), identity(home, "pdf")
    with Store.open(home) as store:
        both = [
            LearnedTask(id_, task, at, False, TaskSource.PERSON)
            for id_, at in ((sql, old), (pdf, AT))
        ]
        store.backend.learned.add(both)
    client = connect(model)

    near = until(client, lambda answer: len(answer.learned) == 2, task=task, ids=[sql, pdf]).learned
    remove(home, "pdf")

    assert near[sql] == pytest.approx(near[pdf] / 2, abs=0.01)
    until(client, lambda answer: set(answer.learned) == {sql}, task=task, ids=[sql, pdf])


def test_learned_tasks_that_could_not_be_read_are_read_again(
    model: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned_vectors = import_module("evolvable_tools.embedding.learned_vectors")
    embedder, busy = open_embedder(model), [LibraryError("It is busy.", "Later.")]
    read = learned_vectors.tasks_in_force

    def reading(*given: Any) -> Any:
        if busy:
            raise busy.pop()
        return read(*given)

    monkeypatch.setattr(learned_vectors, "tasks_in_force", reading)
    with Store.open(home) as store, Vectors.open(home) as vectors:
        task = LearnedTask(
            identity(home, "sql"), "the report is slow", AT, False, TaskSource.PERSON
        )
        store.backend.learned.add([task])
        learned = learned_vectors.LearnedVectors(
            store, vectors, embedder, vectors.model(embedder.model, model)
        )
        with pytest.raises(LibraryError):
            learned.step()
        while learned.step():
            pass

        assert set(learned.nearness(embedder.encode(["the report is slow"])[0])) == {task.resource}


def test_the_vectors_of_learned_tasks_are_kept_and_a_purge_removes_them(
    connect: Connect, model: str, home: Path
) -> None:
    with Store.open(home) as store:
        task = LearnedTask(
            identity(home, "sql"), "the report is slow", AT, False, TaskSource.PERSON
        )
        store.backend.learned.add([task])
    until(
        connect(model),
        lambda answer: answer.learned,
        task="the report is slow",
        ids=[task.resource],
    )

    with closing(open_vectors(home)) as vectors:
        poll(
            lambda: vectors.execute("SELECT count(*) FROM learned").fetchone()[0] == 1,
            "the vector to be kept",
        )
        forget_vectors(home, [])
        assert vectors.execute("SELECT count(*) FROM learned").fetchone()[0] == 0


def test_of_a_long_task_the_beginning_counts(connect: Connect, model: str, home: Path) -> None:
    assert truncate_task("short") == "short"
    assert truncate_task("short" * 1000) == ("short" * 1000)[:MAX_TASK]

    answer = until(connect(model), complete, task="bake bread at home. " * 1000)
    assert answer.nearest[0] == identity(home, "bread")


def test_other_kinds_and_scopes_are_not_answered(connect: Connect, model: str) -> None:
    client = connect(model)
    until(client, complete)
    assert ask(client, scopes=["elsewhere"]).nearest == ()
    assert client.begin("pdf").similar([], kind=Kind.AGENT, scopes=None, limit=5).nearest == ()


def test_the_best_description_is_known_once_descriptions_were_asked_for(
    connect: Connect, model: str, home: Path
) -> None:
    client = connect(model)
    until(client, complete)
    assert not client.begin("bake a cake").nearest_description(Kind.SKILL, None).available

    poll(
        lambda: client.begin("bake a cake").nearest_description(Kind.SKILL, None).available,
        "the descriptions",
    )

    best = client.begin("bake a cake").nearest_description(Kind.SKILL, None).best
    assert best is not None and best[0] == identity(home, "bread") and 0 < best[1] < 1


def test_the_paper_s_stage_waits_for_the_embedder_from_its_start_on(
    connect: Connect, model: str, home: Path
) -> None:
    hasty = connect(model, patience=0.0)

    found = [
        hasty.begin(f"bake {number} cakes").nearest_description(Kind.SKILL, None, within=60.0)
        for number in range(20)
    ]

    assert [one.best and one.best[0] for one in found] == [identity(home, "bread")] * 20


def test_the_paper_s_stage_does_not_wait_for_an_embedder_that_cannot_start(
    connect: Connect, home: Path
) -> None:
    client = connect("onnx:/no/such/folder")
    poll(
        lambda: "cannot start" in client.begin("bake").nearest_description(Kind.SKILL, None).said,
        "an embedder that ends",
    )

    before = time.monotonic()
    assert (
        "cannot start"
        in client.begin("bake a cake").nearest_description(Kind.SKILL, None, within=60.0).said
    )
    assert time.monotonic() - before < 30


@pytest.mark.nightly
def test_the_paper_s_stage_is_the_same_in_300_calls_beside_two_busy_loops(
    connect: Connect, model: str, home: Path
) -> None:
    hasty = connect(model, patience=0.0)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        found = [
            hasty.begin(f"bake {number} cakes").nearest_description(
                Kind.SKILL, None, within=PAPER_PATIENCE * (1 + (not number))
            )
            for number in range(300)
        ]
    finally:
        for process in busy:
            process.kill()
            process.wait()

    assert [one.best and one.best[0] for one in found] == [identity(home, "bread")] * 300


def test_a_late_answer_does_not_confuse_the_next(connect: Connect, model: str, home: Path) -> None:
    warm, hasty = connect(model), connect(model, patience=0.0)
    until(warm, complete)
    poll(lambda: "within 0 ms" in ask(hasty, "bake bread").said, "an answer that comes late")

    hasty.patience = 2.0

    answer = until(hasty, lambda answer: answer.available, task="tune a query of a database")
    assert answer.nearest[0] == identity(home, "sql")


def test_while_an_answer_is_late_the_next_task_is_told_so(
    connect: Connect, model: str, home: Path
) -> None:
    client = connect(model, patience=0.2)
    until(client, complete)
    worker = psutil.Process(worker_of(home))
    worker.suspend()
    try:
        poll(lambda: worker.status() == psutil.STATUS_STOPPED, "a process that stands still")
        assert "within 200 ms" in ask(client).said
        assert "an earlier task" in ask(client).said
    finally:
        worker.resume()

    until(client, complete)


# Following the library


def test_a_change_is_followed_and_only_what_is_new_is_embedded(
    connect: Connect, model: str, home: Path
) -> None:
    client = connect(model)
    until(client, complete)
    put(home, "copy-of-bread", "Bake bread and cakes at home.")
    put(home, "bread", SKILLS["bread"])
    put(home, "pdf", "Repair bicycles.")
    pdf = identity(home, "pdf")
    answer = until(
        client,
        lambda a: complete(a) and len(a.cosines) == 4 and a.nearest[0] == pdf,
        task="mend my bike",
    )
    assert answer.nearest[0] == pdf


def test_a_removed_skill_is_never_answered(connect: Connect, model: str, home: Path) -> None:
    client, pdf = connect(model), identity(home, "pdf")
    until(client, complete)
    remove(home, "pdf")
    until(client, lambda answer: pdf not in answer.nearest)
    assert (
        pdf
        not in client.begin("pdf forms")
        .similar([pdf], kind=Kind.SKILL, scopes=None, limit=9)
        .cosines
    )


def test_an_empty_library_is_said_to_be_empty(connect: Connect, model: str, home: Path) -> None:
    for name in SKILLS:
        remove(home, name)
    answer = until(connect(model), lambda answer: "empty" in answer.said)
    assert (answer.available, answer.nearest) == (False, ())


def test_progress_is_seen_without_the_process(connect: Connect, model: str, home: Path) -> None:
    assert embedding_progress(home) is None
    until(connect(model), complete)
    seen = embedding_progress(home)
    assert seen is not None and (seen.done, seen.total) == (3, 3)


# One process


def run(home: Path, spec: str, **options: Any) -> int:
    """Returns the exit status of a process that is started beside one that serves."""
    return int(import_module(VECTOR_SERVICE).serve_vectors(home, spec, **options))


def serves(name: str) -> Callable[[SimilarResources], bool]:
    """Returns the condition that the model of this folder answers and is complete."""
    return lambda answer: complete(answer) and answer.said.startswith(f"onnx:{name}@")


def with_vectors(home: Path) -> set[str]:
    """Returns the folders of the models that have all their vectors."""
    with Vectors.open(home) as vectors:
        every = [
            (model, *vectors.count_texts(model, [TextRole.WHOLE])) for model in vectors.models()
        ]
    assert len(every) <= 3
    return {
        model.name.removeprefix("onnx:").partition("@")[0]
        for model, done, total in every
        if done == total
    }


def test_the_vectors_of_tokens_are_closed_only_when_no_client_reads_them(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite crashes under a thread whose connection another one closes."""
    reading, closed, steps = threading.Event(), threading.Event(), list[str]()
    real = Vectors.tokens_of

    def slow(vectors: Vectors, *asked: Any) -> dict[int, bytes]:
        reading.set()
        closed.wait(0.2)  # in vain
        found = real(vectors, *asked)
        steps.append("read")
        return found

    def close() -> None:
        reader.close()
        steps.append("closed")
        closed.set()

    monkeypatch.setattr(Vectors, "tokens_of", slow)
    with Vectors.open(home) as vectors:
        service: Any = SimpleNamespace(
            model=vectors.model("m", "1"), embedder=SimpleNamespace(dimension=4)
        )
    reader = import_module(VECTOR_SERVICE).TokenReader(Vectors.open(home))
    client = threading.Thread(target=reader.read, args=(service, [1]))
    client.start()
    assert reading.wait(PATIENCE)
    close()
    client.join(PATIENCE)

    assert steps == ["read", "closed"]
    assert reader.read(service, [1]) == {}
    assert steps == ["read", "closed"]


def test_two_clients_share_one_process(connect: Connect, model: str, home: Path) -> None:
    one, other = connect(model), connect(model)
    until(one, complete)
    until(other, complete)
    log = (home / "embedder.log").read_text(encoding="utf-8")
    assert log.count("serves") == 1


def test_after_a_kill_the_next_questions_say_so_and_a_new_process_comes_up(
    connect: Connect, model: str, home: Path
) -> None:
    client = connect(model)
    until(client, complete)
    killed = worker_of(home)
    os.kill(killed, signal.SIGKILL)
    poll(lambda: not is_running(killed), "the process to die")

    assert not ask(client).available

    until(client, complete)
    assert worker_of(home) != killed


def test_a_damaged_file_of_vectors_is_made_anew(connect: Connect, model: str, home: Path) -> None:
    (home / VECTORS_FILE).write_bytes(b"no database" * 1000)
    until(connect(model), complete)
    assert (home / f"{VECTORS_FILE}.damaged").exists()


def test_without_its_file_the_process_begins_again(
    connect: Connect, model: str, home: Path
) -> None:
    client = connect(model)
    until(client, complete)
    before = worker_of(home)
    (home / VECTORS_FILE).unlink()
    poll(lambda: not is_running(before), "the process to end")
    until(client, complete)


@pytest.mark.nightly
def test_a_second_home_of_a_library_takes_the_vectors_that_the_first_computed(
    model: str, tmp_path: Path
) -> None:
    """The vectors of two skills are exchanged in the database: a home that computes its own would
    not see it.
    """
    from postgres_place import address_home, administer

    address_home(tmp_path / "first", "vectors")
    one, other = library(tmp_path / "first"), tmp_path / "second"
    address_home(other, "vectors")
    with clients(one) as connect:
        until(connect(model), complete)
        assert ask(connect(model)).nearest[0] == identity(one, "pdf")
    texts = {name: digest(f"{name}. {SKILLS[name]}") for name in ("pdf", "bread", "sql")}
    pdf, bread, sql = (f"decode('{text}', 'hex')" for text in texts.values())
    administer(
        f"""UPDATE evolvable.embedding e SET value = f.value, tokens = f.tokens
        FROM evolvable.embedding f
        WHERE (e.hash, f.hash) IN (({pdf}, {bread}), ({bread}, {pdf}));
        UPDATE evolvable.embedding SET value = '[1,2,3]' WHERE hash = {sql}"""
    )

    with clients(other) as connect:
        until(connect(model), complete)
        answer = ask(connect(model))
        assert answer.nearest[0] == identity(other, "bread")
        # Computed: the shared is none.
        assert ask(connect(model), "slow SELECT").nearest[0] == identity(other, "sql")
        with Store.open(one) as store, Vectors.open(other) as kept:
            shared, name = store.backend.shared_vectors(), kept.models()[0].name
            assert shared is not None
            hashes = [bytes.fromhex(text) for text in texts.values()]
            assert all(len(found.numbers) == 384 for found in shared.find(name, hashes).values())
            put(other, "bread", "Bake bread for many guests.")
            poll(
                lambda: len(shared.find(name, hashes)) == 2,
                "the vector of a text that no resource has to go",
            )


def digest(text: str) -> str:
    return digest_text(text).hash.hex()


def test_a_changed_model_takes_over_without_a_gap(
    connect: Connect, model: str, home: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(model.partition(":")[2], tmp_path / "other")
    old, new = connect(model), connect(f"onnx:{folder}")
    until(old, complete)
    first = worker_of(home)

    until(new, lambda answer: answer.available and answer.said.startswith("onnx:other@"))

    assert not is_running(first)
    until(old, lambda answer: complete(answer) and answer.said.startswith("onnx:other@"))
    assert ask(old).nearest[0] == identity(home, "pdf")


def test_the_models_in_service_and_before_keep_their_vectors_and_older_ones_do_not(
    connect: Connect, model: str, home: Path, tmp_path: Path
) -> None:
    for name in ("one", "two", "three"):
        shutil.copytree(model.partition(":")[2], tmp_path / name)
    for name, expected in (
        ("one", {"one"}),
        ("two", {"one", "two"}),
        ("one", {"one", "two"}),
        ("three", {"one", "three"}),
    ):
        client = connect(f"onnx:{tmp_path / name}")
        until(client, serves(name))
        poll(
            lambda expected=expected: with_vectors(home) == expected, f"{name} with the one before"
        )


def test_who_does_not_propose_uses_the_model_that_serves(
    connect: Connect, model: str, home: Path, tmp_path: Path
) -> None:
    other = f"onnx:{shutil.copytree(model.partition(':')[2], tmp_path / 'other')}"
    until(connect(model), complete)
    first = worker_of(home)

    guest = connect(other, propose=False)

    assert until(guest, complete).said.startswith("onnx:minilm@")
    assert run(home, other, give_way=True) == 0
    assert (processes(home), worker_of(home)) == ([first], first)


def test_who_does_not_propose_starts_its_model_where_none_serves(
    connect: Connect, model: str
) -> None:
    assert until(connect(model, propose=False), complete).said.startswith("onnx:minilm@")


def test_another_model_that_cannot_be_opened_leaves_the_one_that_serves_alone(
    connect: Connect, model: str, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    until(connect(model), complete)
    before = ipc.read_announcement(home), (home / ipc.ADDRESS).stat().st_ino

    assert run(home, f"onnx:{tmp_path / 'empty'}") == 1

    assert (ipc.read_announcement(home), (home / ipc.ADDRESS).stat().st_ino) == before


def test_the_process_is_told_no_secret_but_that_of_the_hub(
    connect: Connect, model: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC_API_KEY", "MY_TOKEN", "my_secret", "HF_TOKEN", "TOKENS"):
        monkeypatch.setenv(name, "x")
    until(connect(model), complete)
    told = {
        line.partition(b"=")[0]
        for line in Path(f"/proc/{worker_of(home)}/environ").read_bytes().split(b"\0")
    }
    assert not told & {b"ANTHROPIC_API_KEY", b"MY_TOKEN", b"my_secret"}
    assert {b"HF_TOKEN", b"TOKENS", b"PATH"} <= told


def test_a_changed_model_leaves_the_old_one_in_service_while_it_embeds(
    connect: Connect, model: str, home: Path, tmp_path: Path
) -> None:
    put_long(home, 40)
    until(connect(model), complete)
    other = shutil.copytree(model.partition(":")[2], tmp_path / "other")
    client = connect(f"onnx:{other}")

    meanwhile = until(client, lambda answer: "is being prepared" in answer.said)

    assert meanwhile.available and meanwhile.nearest[0] == identity(home, "pdf")
    old, _, coming = meanwhile.said.partition("; ")
    assert old.startswith("onnx:minilm@") and coming.startswith("onnx:other@")
    put(home, "bicycles", "Repair bicycles.")
    mended = until(
        client, lambda answer: identity(home, "bicycles") in answer.nearest, task="mend my bike"
    )
    assert mended.said.startswith("onnx:minilm@")
    until(client, lambda answer: complete(answer) and answer.said.startswith("onnx:other@"))


@pytest.mark.nightly
def test_when_the_old_model_cannot_be_opened_the_new_one_says_how_far_it_is(
    connect: Connect, model: str, home: Path, tmp_path: Path
) -> None:
    put_long(home, 40)
    old = shutil.copytree(model.partition(":")[2], tmp_path / "old")
    other = shutil.copytree(old, tmp_path / "other")
    until(connect(f"onnx:{old}"), complete)
    (old / "model.onnx").unlink()
    client = connect(f"onnx:{other}")

    meanwhile = until(client, lambda answer: " of 43 resources embedded" in answer.said)

    assert meanwhile.available is not meanwhile.said.startswith("embedder is warming up: 0 of 43 ")
    assert "cannot serve until onnx:other@" in (home / LOG).read_text(encoding="utf-8")
    assert until(client, complete).said.startswith("onnx:other@")


def test_it_ends_by_itself_when_nobody_asks(model: str, home: Path) -> None:
    import subprocess
    import sys

    command = [sys.executable, "-m", "evolvable_tools.embedding", str(home), model, "0.1"]
    assert subprocess.run(command, timeout=60, capture_output=True).returncode == 0
    assert ipc.read_announcement(home) is None


def test_a_model_that_cannot_be_loaded_is_said(connect: Connect, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    client = connect(f"onnx:{tmp_path / 'empty'}")
    assert "holds no model" in until(client, lambda answer: "cannot start" in answer.said).said


# Strangers


def test_a_wrong_key_is_refused(connect: Connect, model: str, home: Path) -> None:
    client = connect(model)
    until(client, complete)
    announced = ipc.read_announcement(home)
    assert announced is not None and announced.address is not None
    address = announced.address if isinstance(announced.address, str) else tuple(announced.address)

    with pytest.raises((AuthenticationError, OSError, EOFError)):
        Client(address, authkey=b"wrong")

    assert ask(client).available
    assert (home / "embedder.key").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "garbage", [b"", b"\xff" * 64, b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x02{}"]
)
def test_garbage_does_not_stop_it(connect: Connect, model: str, home: Path, garbage: bytes) -> None:
    client = connect(model)
    until(client, complete)
    announced = ipc.read_announcement(home)
    assert announced is not None
    is_path = isinstance(announced.address, str)
    with socket.socket(socket.AF_UNIX if is_path else socket.AF_INET) as stranger:
        stranger.connect(announced.address if is_path else tuple(announced.address or ()))
        stranger.sendall(garbage)
    assert ask(client).available


@pytest.mark.parametrize(
    "message", [{}, {"op": "similar"}, {"op": "begin", "task": 7, "number": 1}, {"op": "drop"}]
)
def test_nonsense_ends_only_the_line_it_came_on(
    connect: Connect, model: str, home: Path, message: dict[str, object]
) -> None:
    client = connect(model)
    until(client, complete)
    announced = ipc.read_announcement(home)
    assert announced is not None
    line = ipc.dial(home, announced)
    assert line is not None
    with line:
        ipc.send(line, message)
        with pytest.raises((EOFError, OSError)):
            ipc.receive(line)
    assert ask(client).available


# Trouble that passes


# Then the file is made again.
@pytest.mark.parametrize("trouble", sorted(TROUBLE.keys() - {"unreachable"}))
def test_a_change_that_the_vectors_file_refused_is_embedded_once_when_the_trouble_is_over(
    connect: Connect, model: str, home: Path, trouble: str
) -> None:
    client = connect(model)
    until(client, complete)
    serving = worker_of(home)
    with refusing(home / VECTORS_FILE, "resource", trouble):
        put(home, "excel", "Clean and sum up spreadsheets.")
        poll(
            lambda: str(home / VECTORS_FILE) in (home / LOG).read_text(encoding="utf-8"),
            "the trouble to be met",
            20,
        )
    new = identity(home, "excel")
    answer = until(
        client, lambda answer: new in answer.nearest, task="add up the columns of a table"
    )
    assert answer.available and answer.nearest.count(new) == 1
    assert worker_of(home) == serving


def test_a_question_that_meets_a_defect_is_in_the_log_and_ends_only_its_line(
    connect: Connect, model: str, home: Path
) -> None:
    client = connect(model)
    until(client, complete)
    announced = ipc.read_announcement(home)
    assert announced is not None
    line = ipc.dial(home, announced)
    assert line is not None
    with closing(dbapi.connect(str(home / VECTORS_FILE), isolation_level=None)) as db:
        db.execute("DROP TABLE token")
        db.execute("CREATE VIEW token AS SELECT model, hash, 'no bytes' AS data FROM vector")
        # The process removes unused vectors once its texts are complete. Where it could not, it
        # would take the file for damaged and write it anew.
        for change in ("DELETE", "INSERT"):
            db.execute(
                f"CREATE TRIGGER no_{change} INSTEAD OF {change} ON token BEGIN SELECT 1; END"
            )
    with line:
        ipc.send(line, {"op": "begin", "task": "merge", "number": 1})
        asked = {"op": "similar", "number": 1, "kind": "skill", "scopes": None, "limit": 3}
        ipc.send(line, asked | {"ids": [identity(home, "pdf")]})
        assert line.poll(20)
        with pytest.raises((EOFError, OSError)):
            ipc.receive(line)
    poll(
        lambda: "Traceback" in (home / LOG).read_text(encoding="utf-8"), "the defect in the log", 20
    )
    assert ask(client).available


def test_a_process_that_another_does_not_make_room_for_leaves_it_in_service(
    model: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module(VECTOR_SERVICE), "HANDOVER_SECONDS", 0.05)
    other = ipc.Announcement(os.getpid(), "onnx:another", str(home / "nobody-listens"))
    with FileLock(home / ipc.LOCK, mode=0o600):
        ipc.announce(home, other)
        assert run(home, model, idle=0.1) == 0
        assert ipc.read_announcement(home) == other

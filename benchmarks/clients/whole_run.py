"""A whole evolution through a real client, as executor and as brain: from a task set to a promoted
skill.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

from model import Model, Say, Seen, Use
from place import KEY, Place
from talks import Check
from tolls import (
    COUNTS,
    SECRET,
    THINKING,
    Sent,
    agent,
    carts_of,
    materials,
    not_told,
    text_of,
    thinker,
)

from evolvable_evolve.evolution.ledger.run_directory import find_run
from evolvable_evolve.evolution.ledger.run_reducer import read_records


def answers(seen: Seen) -> Say | Use:
    """The stand-in: one of the two roles, or an agent with or without the skill."""
    return thinker(seen) if THINKING in text_of(seen.request) else agent(seen)


@dataclass(frozen=True)
class Client:
    """A client that does the tasks of a run and answers for its proposer model. key: the variable
    of its key.

    provider, address: whose models it asks, and where below the stand-in.
    """

    name: str
    model: str
    key: str
    provider: str
    address: str = ""


CLAUDE = Client("claude", "claude-haiku-5-5", "ANTHROPIC_API_KEY", "anthropic")
CODEX = Client("codex", "gpt-5.5", "OPENAI_API_KEY", "openai", "/v1")


def whole(binary: Path, place: Place, client: Client) -> Iterator[Check]:
    """evolve start, until the verdict, then report, adopt, and adopt --undo."""
    folder = materials(place.root)
    with Model(repeat(answers), bare=True) as model:
        given = {"PATH": f"{binary.parent}{os.pathsep}{place.environment['PATH']}", client.key: KEY}
        place.address(f"{model.url}{client.address}", client.provider)

        def run(*words: str) -> dict[str, Any]:
            done = place.person(*words, "--json", typed="y\n", **given)
            return parsed(done.stdout) | (
                {"failed": f"{done.stdout}{done.stderr}"} if done.returncode else {}
            )

        run("import", str(folder / "tolls"), "--yes", "--kind", "environment")
        run("import", str(folder / "toll"), "--yes")
        options = ("--brain", client.name, "--stand-in", "--iterations", "1", "--test-repeats", "1")
        program = (
            "-p",
            "skill:toll",
            "--executor",
            f"{client.name}:{client.model}",
            "--max-calls",
            "2000",
        )
        begin = ("evolve", "start", "environment:tolls", *program, *options, "--wait")
        started = place.person(*begin, seconds=600, **given)
        status = run("evolve", "status")
        said = started.stdout[-1500:] + started.stderr[-1500:]
        yield "the run comes to a verdict", status.get("state") == "finished", said
        yield (
            "the better skill is promoted",
            status.get("verdict") == "PROMOTE",
            status.get("why", "") + said,
        )
        yield (
            "its figures say that they are scripted",
            status.get("label") == "scripted",
            str(status.get("label")),
        )
        if status.get("state") == "finished":
            yield from _measured(model, place, status)
        yield from _sent(model)
        yield from _kept(place, str(status.get("run")))
        yield from _reported(run("evolve", "report"))
        yield from _adopted(place, run)


def _measured(model: Model, place: Place, status: dict[str, Any]) -> Iterator[Check]:
    """Whether the model was asked exactly what the ledger says, and each part of the task set as it
    should be.
    """
    records = read_records(find_run(place.library, status["run"]))
    trials = [
        one["trial"] for one in records if one["type"] == "trial" and not one["trial"]["cached"]
    ]
    (begun,) = (one for one in records if one["type"] == "run")
    (verdict,) = (one for one in records if one["type"] == "verdict")
    factors = {begun["base"]: "2", verdict["candidate"]: "3"}
    told = Counter(
        (int(one["task"].split("-")[1]), factors.get(one["program"], "")) for one in trials
    )
    sent = Sent.of(model.asked)
    asked = sent.trials()
    spent = status.get("spent", {})
    counted = (spent.get("trials"), spent.get("trouble")) == (len(trials), 0)
    yield (
        "every trial was counted and paid",
        counted and spent.get("calls", 0) >= len(trials),
        str(spent),
    )
    yield (
        "the model was asked what the ledger says, each trial once",
        asked == told,
        f"{asked - told} {told - asked}",
    )
    train, val, test = (set(carts_of(split)) for split in COUNTS)
    by_factor = {
        factor: {carts for carts, with_it in asked if with_it == factor}
        for factor in ("", "2", "3")
    }
    both = by_factor["2"] & by_factor["3"]
    yield (
        "each task of train and val was run with the base and with the candidate",
        train | val <= both,
        str(by_factor),
    )
    half = set(sorted(val)[: len(val) // 2])  # ahead on these, the comparison ends
    yield (
        "half of val, and nothing else, was run without a skill as well",
        by_factor[""] == half,
        str(by_factor[""]),
    )
    opened = {carts for carts, _ in asked} & test
    stages = [stage["tasks"] for stage in verdict["stages"]]
    early = (
        0 < len(stages) < len(verdict["planned"]) and stages == verdict["planned"][: len(stages)]
    )
    yield "the test ended after a stage, before it was opened whole", early, str(verdict)
    paired = len(opened) == sum(stages) == verdict["n"] and opened <= both
    yield (
        "each opened task of the test was run with the base and with the candidate",
        paired,
        str(sorted(opened)),
    )
    known = {int(task.split("-")[1]) for task in verdict["base"]}
    yield "no other task of the test reached the model", opened == known < test, f"{opened} {known}"
    canaries = verdict["canaries"]
    odd = [one for one in trials if one["task"].count("-") > 1]
    alone = len(odd) == canaries["asked"] > 0 and {one["program"] for one in odd} == {
        verdict["candidate"]
    }
    fair = alone and not canaries["answered"]
    yield (
        "canary tasks were run with the candidate alone, and none was answered",
        fair,
        str(canaries),
    )
    empty = sent.without_skill()
    exact = (
        len(empty) == sum(count for (_, factor), count in told.items() if not factor) == len(half)
    )
    yield "without the skill nothing of it is in the request", exact, f"{len(empty)} {empty[:1]}"


def _sent(model: Model) -> Iterator[Check]:
    """What proposer and builder were told, and where the key and the secret of an agent stand."""
    questions = Sent.of(model.asked).questions
    yield from not_told(questions)
    yield (
        "neither was shown the secret of an agent",
        bool(questions) and SECRET not in "".join(questions),
        "",
    )
    proposer = next((one for one in questions if "evidence" in one), "")
    yield (
        "it is masked there, and the answer around it is not",
        "by the token [" in proposer,
        proposer[-1500:],
    )
    keys = sum(KEY in json.dumps(one) for one in model.asked)
    yield "the key stands in no request", keys == 0, str(keys)


def _kept(place: Place, run: str) -> Iterator[Check]:
    """What the run left in its folder."""
    files = [path for path in (place.library / "evolve" / run).rglob("*") if path.is_file()]
    keys = [path.name for path in files if KEY.encode() in path.read_bytes()]
    yield "the key stands in no file of the run", bool(files) and not keys, str(keys)
    left = [str(path) for path in place.root.rglob("*") if path.name.startswith("client-")]
    yield "no private place of a client stays behind", not left, str(left[:5])


def _reported(said: dict[str, Any]) -> Iterator[Check]:
    text, page = str(said.get("text", "")), Path(str(said.get("html", "/none")))
    yield "the report tells the verdict", "PROMOTE" in text and "scripted" in text, str(said)[-800:]
    whole = page.read_text(encoding="utf-8") if page.is_file() else ""
    yield (
        "its page is written, and says scripted",
        "scripted" in whole and "times 3" in whole,
        str(page),
    )
    yield (
        "no secret is in it",
        bool(whole) and SECRET not in whole + text and KEY not in whole + text,
        "",
    )


def _adopted(place: Place, run: Any) -> Iterator[Check]:
    yield "it is not live before it is adopted", place.heads().get("toll") == 1, str(place.heads())
    said = run("evolve", "adopt")
    live = place.heads().get("toll") == 2 and "times 3" in place.text("toll", 2)
    yield "adopting it makes it live", live, str(said)
    said = run("evolve", "adopt", "--undo")
    back = place.heads().get("toll") == 3 and place.text("toll", 3) == place.text("toll", 1)
    yield "undoing it brings the old text back", back, str(said)


claude_code = partial(whole, client=CLAUDE)
codex_exec = partial(whole, client=CODEX)


def parsed(text: str) -> dict[str, Any]:
    """Return the JSON object that a command printed, an empty one where it printed none."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}

"""A whole evolution through the real Claude Code, as executor and as brain: from a task set to a promoted skill."""

import json
import os
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

from model import Model, Say, Seen, Use
from place import KEY, Place
from talks import Check
from tolls import COUNTS, SECRET, THINKING, Sent, agent, carts_of, materials, not_told, text_of, thinker


def answers(seen: Seen) -> Say | Use:
    """The stand-in: one of the two roles, or an agent with or without the skill."""
    return thinker(seen) if THINKING in text_of(seen.request) else agent(seen)


def claude_code(binary: Path, place: Place) -> Iterator[Check]:
    """evolve start, until the verdict, then report, adopt, and adopt --undo."""
    folder = materials(place.root)
    with Model(repeat(answers), bare=True) as model:
        given = {
            "PATH": f"{binary.parent}{os.pathsep}{place.environment['PATH']}",
            "ANTHROPIC_API_KEY": KEY,
        }
        place.address(model.url)

        def run(*words: str) -> dict[str, Any]:
            done = place.person(*words, "--json", typed="y\n", **given)
            return parsed(done.stdout) | ({"failed": f"{done.stdout}{done.stderr}"} if done.returncode else {})

        run("import", str(folder / "tolls"), "--yes", "--kind", "environment")
        run("import", str(folder / "toll"), "--yes")
        options = ("--brain", "claude", "--stand-in", "--iterations", "1", "--test-repeats", "1", "--max-calls", "2000")
        program = ("-p", "skill:toll", "--executor", "claude:claude-haiku-5-5")
        begin = ("evolve", "start", "environment:tolls", *program, *options, "--wait")
        started = place.person(*begin, seconds=600, **given)
        status = run("evolve", "status")
        said = started.stdout[-1500:] + started.stderr[-1500:]
        yield "the run comes to a verdict", status.get("state") == "finished", said
        yield "the better skill is promoted", status.get("verdict") == "PROMOTE", status.get("why", "")
        yield "its figures say that they are scripted", status.get("label") == "scripted", str(status.get("label"))
        spent = status.get("spent", {})
        yield "every trial was counted and paid", spent.get("trials", 0) >= 90 and spent.get("trouble") == 0, str(spent)
        yield from _sent(model)
        yield from _kept(place, str(status.get("run")))
        yield from _reported(run("evolve", "report"))
        yield from _adopted(place, run)


def _sent(model: Model) -> Iterator[Check]:
    """What reached the model."""
    sent = Sent.of(model.asked)
    yield from not_told(sent.questions)
    yield "neither was shown the secret of an agent", SECRET not in "".join(sent.questions), ""
    proposer = next((one for one in sent.questions if "evidence" in one), "")
    yield "it is masked there, and the answer around it is not", "by the token [" in proposer, proposer[-1500:]
    keys = sum(KEY in json.dumps(one) for one in model.asked)
    yield "the key stands in no request", keys == 0, str(keys)
    arms, whole = sent.arms(), {"", "2", "3"}
    base_alone = {carts: arms[carts] for carts in carts_of("train") if arms[carts] - {"2"}}
    yield "training tasks were run with the base alone", not base_alone, str(base_alone)
    for split in ("val", "test"):
        off = {carts: arms[carts] for carts in carts_of(split) if arms[carts] != whole}
        yield f"each task of {split} was run without a skill, with the base and with the candidate", not off, str(off)
    empty = [text for one in sent.tasks if "toll:" not in (text := json.dumps(one)) and "times" not in text]
    yield "without the skill nothing of it is in the request", len(empty) >= COUNTS["val"] + COUNTS["test"], ""


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
    yield "its page is written, and says scripted", "scripted" in whole and "times 3" in whole, str(page)
    yield "no secret is in it", bool(whole) and SECRET not in whole + text and KEY not in whole + text, ""


def _adopted(place: Place, run: Any) -> Iterator[Check]:
    yield "it is not live before it is adopted", place.heads().get("toll") == 1, str(place.heads())
    said = run("evolve", "adopt")
    live = place.heads().get("toll") == 2 and "times 3" in place.text("toll", 2)
    yield "adopting it makes it live", live, str(said)
    said = run("evolve", "adopt", "--undo")
    back = place.heads().get("toll") == 3 and place.text("toll", 3) == place.text("toll", 1)
    yield "undoing it brings the old text back", back, str(said)


def parsed(text: str) -> dict[str, Any]:
    """Returns the JSON object that a command printed, an empty one where it printed none."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}

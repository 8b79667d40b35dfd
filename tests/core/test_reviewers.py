"""Whoever thinks about a session: the model that a client lends, and a command of a person, which
is never reviewed.
"""

import json
import sys

import mcp_types as types
import pytest
from command_line import CommandLine
from labelled_sessions import labelled, secrets
from samples import teach
from transcripts import Run, Says, User, write_claude_code

from evolvable_store.store import Store

pytestmark = pytest.mark.process

SESSION = next(one for one in labelled() if one.name == "alembic")
SAID = "We always generate migrations with alembic revision"


def answer(data):
    span = next(one["id"] for one in data["evidence"] if SAID in one["text"])
    edit = {"op": "text", "old": "By hand.", "new": "With alembic revision."}
    one = {
        "kind": "skill-edit",
        "target": "skill:db-migrations",
        "claim": "Migrations are generated.",
        "edits": [edit],
    }
    return json.dumps({"candidates": [{**one, "evidence": [{"span": span, "quote": SAID}]}]})


class Lent:
    """The model of a client that lends it; keeps what it was asked."""

    def __init__(self):
        self.asked = []

    async def __call__(self, context, params):
        self.asked.append(params)
        text = f"Here it is: {answer(json.loads(params.messages[0].content.text))}"
        content = types.TextContent(type="text", text=text)
        return types.CreateMessageResult(role="assistant", model="clients-own", content=content)


async def reviewed(client, path):
    result = await client.call_tool("review_session", {"transcript_path": str(path)})
    assert not result.is_error, result.content[0].text
    return result.structured_content


@pytest.mark.anyio
async def test_a_model_that_the_client_lends_thinks_within_the_budget(place):
    with Store.open(place.home) as store:
        teach(store, "db-migrations", "Write database migrations.", body="By hand.")
    path, model = SESSION.write(place.root), Lent()
    async with place.client("handshake", sampling_callback=model) as client:
        done = await reviewed(client, path)
        again = await reviewed(client, path)
    assert [one["ref"] for one in done["proposals"]] == ["skill:db-migrations"]
    assert done["cost"]["thinker"].startswith("sampling:") and done["cost"]["reserved"] > 0
    assert (again["proposals"][0]["proposal_id"], len(model.asked)) == (
        done["proposals"][0]["proposal_id"],
        1,
    )
    assert model.asked[0].system_prompt.startswith("You review a finished session")


@pytest.mark.anyio
async def test_in_the_modern_era_the_agent_thinks_though_its_client_would_lend_a_model(place):
    model = Lent()
    async with place.client("modern", sampling_callback=model) as client:
        begun = await reviewed(client, SESSION.write(place.root))
    assert (begun["state"], model.asked) == ("begun", [])


COMMAND = """
import json, os, subprocess, sys
asked = sys.stdin.read()
open(sys.argv[1], "w").write(asked)
stop = json.dumps(
    {"session_id": "thinking", "transcript_path": "/t.jsonl", "hook_event_name": "Stop"}
)
run_hook = "from evolvable_server.hooks.command import main; main()"
hook = [sys.executable, "-P", "-c", run_hook, "Stop"]
out = subprocess.run(hook, input=stop, text=True, capture_output=True, check=True).stdout
again = [sys.executable, "-P", "-m", "evolvable_server", "review", sys.argv[2], "--json"]
answer = subprocess.run(again, text=True, capture_output=True, check=True).stdout
state = json.loads(answer)["state"]
lines = asked.splitlines()
data = json.loads("\\n".join(lines[lines.index(lines[-1]) + 1 : -1]))
span = next(one["id"] for one in data["evidence"] if "We always" in one["text"])
mark = os.environ["EVOLVABLE_REVIEWING"]
said = {"candidates": [], "why_none": f"hook {out!r}, review {state}, mark {mark}, seen {span}"}
usage = {"input_tokens": 700, "cache_read_input_tokens": 100, "output_tokens": 50}
print(json.dumps({"type": "result", "result": json.dumps(said), "usage": usage}))
"""


@pytest.fixture
def evolvable(tmp_path):
    made = CommandLine(tmp_path)
    with Store.open(made.home, create=True) as store:
        teach(store, "db-migrations", "Write database migrations.", body="By hand.")
    return made


def test_a_command_that_thinks_is_marked_and_neither_its_hooks_nor_its_servers_review_anything(
    evolvable,
):
    """In processes of their own, as a client's command would start them."""
    script, asked = evolvable.root / "think.py", evolvable.root / "asked"
    script.write_text(COMMAND, encoding="utf-8")
    path = SESSION.write(evolvable.project)
    command = [sys.executable, str(script), str(asked), str(path)]
    evolvable.configure(
        f"[reviewers.mine]\ncommand = {json.dumps(command)}\n[roles]\nreviewer = 'mine'\n"
    )
    ran = evolvable.process("review", path, "--json")

    assert ran.code == 0, ran.out + ran.err
    done = ran.json
    assert done["why"] == "hook '', review off, mark 1, seen s5"
    assert done["cost"]["tokens"] == 850
    assert not (evolvable.home / "reviews").exists()

    # What it was asked makes a session that is listed and never reviewed, also where its client
    # keeps transcripts.
    prompt = asked.read_text(encoding="utf-8")
    assert prompt.startswith("(evolvable-thinking: ")
    kept = write_claude_code(evolvable.user, [User(prompt), Says("Nothing.")])
    (listed,) = evolvable("sessions", "--json").json["sessions"]
    assert (listed["path"], listed["taken"]) == (str(kept), "skipped")
    assert "itself a review" in evolvable("review", kept).out


def test_a_session_too_large_for_an_answer_of_a_tool_is_handed_off_by_its_most_telling_parts(
    evolvable,
):
    """Clients cut an answer at some 48,000 characters, and a cut packet is no packet."""
    long = '“Quoted” and "more".\n' * 150
    talk = [User("Make the release."), *(event for n in range(60) for event in turns(n, long))]
    last = "From now on always tag a release before it is built."
    path = write_claude_code(evolvable.root, [*talk, User(last), Says("I will.")])
    out = evolvable("review", path, "--json").out
    data = json.loads(out)["packet"]["data"]

    assert len(json.dumps(json.loads(out), ensure_ascii=False)) < 42_000
    assert data["left_out"] > 0
    assert last in [one["text"] for one in data["evidence"]]
    assert set(data["verified"]) <= {one["id"] for one in data["evidence"]}
    assert not any(secret in out for secret in secrets()[:3])


def turns(number, text):
    yield User(f"Look at part {number}. {text}")
    yield Run(f"pytest tests/part_{number}.py", f"1 failed {secrets()[number % 3]}", code=1)
    yield Run(f"pytest tests/part_{number}.py", "1 passed")
    yield User(f"No, part {number} was right before. {text}")

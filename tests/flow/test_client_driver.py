"""The driver of clients on a terminal: a scripted client asks, the person at the keyboard answers,
nothing waits long.

benchmarks/clients drives the real clients with it; here a small program behind the same terminal
does what they do.
"""

import shutil
import sys
import time
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "clients"))

import terminal
from chat import ChatModel
from model import Say, Use

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
]

CLIENT = '''
"""A client on a terminal. Its arguments: the address of its model, and what is odd about it."""

import json, os, sys, tty, urllib.request

URL, ODD = sys.argv[1:]
UP, DOWN, ENTER = b"\\x1b[A", b"\\x1b[B", b"\\r"
tty.setraw(0)


def draw(*lines):
    os.write(1, ("\\x1b[2J\\x1b[H" + "\\r\\n".join(lines)).encode())


def keys():
    data = os.read(0, 64)
    while data:
        size = 3 if data[:1] == b"\\x1b" else 1
        yield data[:size]
        data = data[size:]


def line(prompt):
    draw(prompt)
    said, deaf = b"", ODD == "misses the first Enter"
    while True:
        for key in keys():
            if key == ENTER and deaf:
                deaf = False
            elif key == ENTER:
                return said.decode()
            else:
                said += key
                os.write(1, key)


def choose(question, *answers):
    at = 0
    while True:
        marked = None if ODD == "marks by colour" else at
        marks = ["> " if number == marked else "  " for number in range(len(answers))]
        draw(question, *(mark + one for mark, one in zip(marks, answers)))
        for key in keys():
            if key == ENTER:
                return answers[at]
            at = (at + {UP: -1, DOWN: 1}.get(key, 0)) % len(answers)


def ask(messages):
    tools = [{"type": "function", "function": {"name": "update_resource"}}]
    body = json.dumps({"model": "m", "messages": messages, "tools": tools}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(URL + "/v1/chat/completions", body, headers)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]


if ODD == "is never ready":
    draw("Starting ...")
    os.read(0, 1)
if ODD == "ends":
    sys.exit(1)
if ODD == "asks for trust first":
    choose("Trust this folder?", "Yes, trust it", "No")
messages = [{"role": "user", "content": line("Ready> ")}]
while calls := (said := ask(messages)).get("tool_calls"):
    tool = "other_tool" if ODD == "asks about something else" else calls[0]["function"]["name"]
    answers = ("No", "Yes, once", "Yes, always") if ODD == "has No first" else ("Yes", "No")
    result = "not asked"
    if ODD != "asks nothing":
        result = choose("It wants to use " + tool + ". May it?", *answers)
    messages += [said, {"role": "tool", "tool_call_id": calls[0]["id"], "content": result}]
draw(said["content"], "Ready> ")
while line(said["content"] + "\\r\\nReady> ") != "/exit":
    pass
'''


@pytest.fixture
def hold(tmp_path, monkeypatch):
    """Hold a session with the scripted client; return the person, the model, and why it did not
    come to its end.
    """
    script = tmp_path / "client.py"
    script.write_text(CLIENT, encoding="utf-8")
    for name, seconds in (("START", 20), ("TURN", 20), ("END", 10), ("AGAIN", 1)):
        monkeypatch.setattr(terminal, name, seconds)

    def held(odd=""):
        dialogue = terminal.Dialogue(
            "Ready>", "May it\\?", asides={r"Trust this folder\?": ("Enter",)}
        )
        turns = [lambda _: Use("update_resource", {}, "evolvable"), lambda _: Say("DONE")]
        with ChatModel(turns) as model:
            words = [sys.executable, str(script), model.url, odd]
            screen = terminal.Screen(
                words, {"TERM": "xterm-256color"}, tmp_path, tmp_path / "socket"
            )
            person = terminal.Person(screen, dialogue, model)
            try:
                person.converse("Count the pages.")
            except (TimeoutError, AssertionError) as error:
                return person, model, str(error)
            finally:
                screen.close()
        return person, model, ""

    return held


def answers(model):
    """Return what the client was told by the person, as the model saw it."""
    return model.seen.results


@pytest.mark.parametrize(
    "odd", ["", "marks by colour", "asks for trust first", "misses the first Enter"]
)
def test_a_question_is_recognised_and_answered_with_yes(hold, odd):
    person, model, trouble = hold(odd)
    assert trouble == ""
    assert person.asked == ["update_resource"]
    assert answers(model) == ["Yes"]
    assert model.asked[0]["messages"][0]["content"] == "Count the pages."


def test_the_first_answer_that_begins_with_yes_is_chosen_where_another_one_is_marked(hold):
    person, model, trouble = hold("has No first")
    assert (person.asked, answers(model), trouble) == (["update_resource"], ["Yes, once"], "")


def test_a_client_that_asks_nothing_is_not_noted_as_asking(hold):
    person, model, trouble = hold("asks nothing")
    assert (person.asked, answers(model), trouble) == ([], ["not asked"], "")


def test_a_question_about_another_call_is_not_answered(hold):
    person, model, trouble = hold("asks about something else")
    assert "a question about something else" in trouble
    assert "other_tool" in trouble
    assert (person.asked, model.seen.results) == ([], [])


def test_a_client_that_is_never_ready_is_given_up_after_the_limit_with_its_screen(
    hold, monkeypatch
):
    monkeypatch.setattr(terminal, "START", 2)
    begun = time.monotonic()
    person, model, trouble = hold("is never ready")
    assert "the screen shows" in trouble
    assert "Starting ..." in trouble
    assert time.monotonic() - begun < 15
    assert model.asked == []


def test_a_client_that_ends_at_once_is_not_waited_for(hold, monkeypatch):
    monkeypatch.setattr(terminal, "START", 600)
    _, model, trouble = hold("ends")
    assert "it ended" in trouble
    assert model.asked == []

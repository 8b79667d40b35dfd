"""Changes of agents by sessions: what reaches the gate, the proposal, its trial, and what takes it
back.
"""

import itertools
import json
import shutil
from dataclasses import replace

import pytest
from earned import WORDS, client
from model_api import asking
from round_sessions import RoundModel, Sessions, failing, guard
from session_transplant import Course, calm_world, hard_world, transplant
from talks import Talk

from evolvable_evolve.evolution.ledger.run_directory import Ledger, read_ledger
from evolvable_evolve.rounds.executor_evidence import (
    ExecutorEvidence,
    ExecutorSession,
    TriedRepair,
    decide_change,
    executor_sessions,
)
from evolvable_evolve.rounds.pool import decide_trial, list_pool, start_trial
from evolvable_evolve.rounds.round_state import LEDGER, read_rounds
from evolvable_evolve.rounds.service import run_round
from evolvable_store.errors import InvalidArgument
from evolvable_store.operation import Actor, Principal
from evolvable_store.resource import Ref
from evolvable_store.storage import Execution, Grade, Outcome, VerifiedEnd
from evolvable_store.storage.proposals import Proposals
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.outcomes.ingest import record_uses
from evolvable_tools.verbs import edit, proposal_inbox
from evolvable_tools.verbs.load import load_skill

PERSON = Caller(Actor.HUMAN)
DECIDES = Caller(Actor.HUMAN, principal=Principal.PERSON, via="terminal")
REPAIR = TriedRepair(
    "round 1's change of skill:forms", "skill:forms", ("delta",), admitted=False, ended="01"
)


def some(
    kind: str,
    number: int,
    passed: int,
    agent: str = "main",
    skill: str = "skill:forms",
    at: str = "02",
):
    """So many sessions of a type, of which so many end well."""
    return [
        ExecutorSession(
            f"{kind}-{agent}-{at}-{n}", f"{at}-{n:03}", kind, agent, n < passed, (skill,)
        )
        for n in range(number)
    ]


def behind(**more) -> ExecutorEvidence:
    """Evidence of one type that goes badly after a repair, and of another that goes well."""
    sessions = [*some("delta", 30, 6), *some("alpha", 30, 27, skill="skill:basics")]
    skills = frozenset(("skill:forms", "skill:basics"))
    return replace(
        ExecutorEvidence(sessions, {"main": skills}, movable=skills, repairs=[REPAIR]), **more
    )


def test_a_type_that_fails_after_a_repair_gets_a_specialist_whose_skill_delegates_to_it():
    found = decide_change(behind())
    assert (found.decision.action, found.skill, found.agent) == (
        "add",
        "skill:forms",
        "agent:delta",
    )
    assert found.edit.skills_moved == ("skill:forms",) and found.edit.boundary == ("delta",)


@pytest.mark.parametrize(
    "given",
    [
        behind(repairs=[]),
        behind(repairs=[replace(REPAIR, task_types=("alpha",))]),
        behind(movable=frozenset()),
        behind(tried=frozenset({"add-agent main agent:delta delta"})),
        behind(since="03"),
        behind(look=4_000),
        behind(repairs=[replace(REPAIR, admitted=True, ended="03")]),
    ],
    ids=[
        "no repair",
        "another type",
        "no skill leads there",
        "tried",
        "before a kept change",
        "too many looks",
        "mended",
    ],
)
def test_without_a_repair_a_skill_that_leads_there_or_new_sessions_the_agents_stay(given):
    assert decide_change(given).edit is None


def test_what_another_agent_should_have_done_moves_the_delegate_of_the_skill_to_it():
    owned = {
        "main": frozenset(),
        "agent:clerk": frozenset(("skill:forms",)),
        "agent:scribe": frozenset(),
    }
    sessions = some("delta", 3, 0, agent="agent:clerk")
    given = ExecutorEvidence(
        sessions,
        owned,
        {"skill:forms": "agent:clerk"},
        frozenset(("skill:forms",)),
        better={one.session: "agent:scribe" for one in sessions},
    )
    found = decide_change(given)
    assert (found.decision.action, found.skill, found.agent) == (
        "modify",
        "skill:forms",
        "agent:scribe",
    )
    stranger = replace(given, better={one.session: "agent:unknown" for one in sessions})
    assert decide_change(stranger).edit is None
    assert decide_change(replace(given, frozen=frozenset({"agent:scribe"}))).edit is None


def test_two_agents_that_own_the_same_and_do_it_equally_well_become_one_and_the_idle_one_goes():
    owned = {
        "main": frozenset(),
        "agent:a": frozenset(("skill:x", "skill:y")),
        "agent:b": frozenset(("skill:x",)),
    }
    owned["agent:b"] |= {"skill:y"}
    sessions = [
        *some("delta", 6, 3, agent="agent:a", skill="skill:x"),
        *some("delta", 6, 3, agent="agent:b", skill="skill:y"),
    ]
    delegates = {"skill:x": "agent:a", "skill:y": "agent:b"}
    given = ExecutorEvidence(sessions, owned, delegates, frozenset(delegates))
    found = decide_change(given)
    assert (found.decision.action, found.skill, found.agent) == ("merge", "skill:y", "agent:a")
    after = replace(
        given, sessions=sessions[:6], owned={**owned, "agent:b": frozenset()}, delegates={}, look=4
    )
    assert decide_change(after).edit is None, "an agent that no merge emptied is a person's"
    gone = decide_change(replace(after, idle={"agent:b": 3}))
    assert (gone.decision.action, gone.skill, gone.agent) == ("remove", "", "agent:b")


def ended(session: str, at: str, outcome: Outcome | None, link: str | None) -> VerifiedEnd:
    return VerifiedEnd(session, at, outcome, "fix", link)


def test_a_connection_has_one_vote_and_a_part_that_nothing_verified_has_none():
    ends = [ended(f"s{n}", f"0{n}", Outcome.FAILED, "one-client") for n in range(9)]
    assert [one.session for one in executor_sessions(ends, [], {})] == ["s8"]
    part = Execution(
        1, "08", None, Outcome.SUCCEEDED, "s8", "agent:clerk", 7, 3, grade=Grade.VERIFIED
    )
    (mine,) = executor_sessions(ends, [part], {})
    assert (mine.agent, mine.passed) == ("agent:clerk", True)
    for grade in (Grade.REPORTED, Grade.HISTORY):
        assert executor_sessions(ends, [replace(part, grade=grade)], {}) == []
    assert executor_sessions([replace(ends[8], outcome=None)], [], {}) == []
    assert executor_sessions([replace(ends[8], session="ags:run/1")], [], {}) == [], (
        "there a planner chooses"
    )


WHY = "that is wrong: check the encoding of the table before you write it"


@pytest.fixture
def desk(library, skill, tmp_path):
    """A library whose skill fails at one type of task, after a repair that was tried
    and retired.
    """
    lines = [
        f"Step {n}: do the {word} of the table."
        for n, word in enumerate(["reading", "sorting", "joining"])
    ]
    skill("tables", *lines, description="Works with tables of numbers.")
    skill("letters", "Write the letter.", "Sign the letter.", description="Writes letters.")
    sessions = Sessions(library, tmp_path / "machine")
    for number in range(2):
        sessions.run(f"bad{number}", "tables", f"Fix the table {number} in a.csv", failing(why=WHY))

    def guards(document):
        quote = "check the encoding of the table before you write it"
        new = "Check the encoding of the table before you write it."
        return guard(document, quote, "Step 0: do the reading of the table.", new, "It is checked.")

    with RoundModel(guards) as api, asking(api) as model:
        run_round(library, PERSON, sessions.settings(reviewer_model=model))
    (trial,) = list_pool(library).trials
    decide_trial(library, DECIDES, trial.id, "retire", "no use")
    return sessions


def work(library, number: int, task: str, skill: str, outcome: str, start: int = 0) -> None:
    """So many sessions that are served a skill, do one type of task and end so."""
    for name in (f"{skill}-{outcome}-{start + n}" for n in range(number)):
        loaded = load_skill(library, client(name), Ref.parse(skill))
        said = f"...\nuse_id: {loaded.use_id} (report_outcome with it when the task is done)"
        talk = Talk(name).typed(task).called("mcp__evolvable__load_skill", {"ref": skill}, said)
        talk.called("mcp__evolvable__load_skill", {"ref": skill, "path": "notes.md"}, said)
        record_uses(library, talk.ran("sed -i s/a/b/ a.py").typed(WORDS[outcome]).session)


def proposed(library, desk):
    """The round that proposes a specialist for the type that goes badly."""
    work(library, 8, "Fix the table", "tables", "failed")
    work(library, 8, "Write the letter", "letters", "succeeded")
    return run_round(library, PERSON, desk.settings())


@pytest.mark.process
def test_a_round_proposes_one_change_of_agents_and_tries_nothing_by_itself(library, desk):
    found = proposed(library, desk).agents
    types = {one.task_type for one in library.store.backend.observations.verified_ends()}
    assert (found.action, found.ref) == ("add", "skill:tables"), (
        found.why,
        read_rounds(library).repairs,
        types,
    )
    waiting = {one.ref: one for one in proposal_inbox.list_waiting(library)}
    assert set(waiting) == {"skill:tables", found.edit["agents"][1]}
    assert library.store.head_or_none(Ref.parse(found.edit["agents"][1])) is None
    assert list_pool(library).trials == []
    shown = proposal_inbox.show_proposal(library, found.proposal_id)
    assert f'delegate: "{found.edit["agents"][1]}"' in shown.diff
    work(library, 1, "Fix the table", "tables", "failed", start=50)
    again = run_round(library, PERSON, desk.settings()).agents
    assert again.action == "keep" and "waits" in again.why
    proposal_inbox.reject(library, found.proposal_id, "no", DECIDES)
    work(library, 1, "Fix the table", "tables", "failed", start=60)
    assert run_round(library, PERSON, desk.settings()).agents.action == "keep", (
        "it is not proposed again"
    )
    assert "Fix the table" not in (library.store.home / LEDGER).read_text()


@pytest.mark.process
@pytest.mark.parametrize("better", [True, False])
def test_the_arms_of_the_pool_keep_the_specialist_or_take_it_back(library, desk, better):
    found = proposed(library, desk).agents
    agent = Ref.parse(found.edit["agents"][1])
    trial = start_trial(library, DECIDES, found.proposal_id)
    assert trial.approved and library.store.head(agent).version == 1
    assert {one.state for one in _both(library, found)} == {"approved"}

    served: dict[bool, list[str]] = {True: [], False: []}
    names = (f"arm{n}" for n in range(500))
    # The key that sessions are drawn with is another in each trial.
    while min(map(len, served.values())) < 15:
        name = next(names)
        loaded = load_skill(library, client(name), Ref.parse("tables"))
        delegated = loaded.delegate is not None and loaded.delegate.available
        assert delegated is (loaded.version == trial.version)
        served[delegated].append(name)
    for delegated, names in served.items():
        for name in names:
            word = WORDS["succeeded" if delegated is better else "failed"]
            record_uses(library, Talk(name).typed("Fix the table").ran("true").typed(word).session)
    run_round(library, PERSON, desk.settings())
    (ended,) = (one for one in list_pool(library, ended=True).trials if one.id == trial.id)
    assert ended.state == ("promoted" if better else "retired")
    loaded = load_skill(library, client("later"), Ref.parse("tables"))
    assert (loaded.delegate is not None) is better
    assert (library.store.head_or_none(agent).version is not None) is better, (
        "the agent of a trial that lost goes with it"
    )
    work(library, 1, "Fix the table", "tables", "failed", start=70)
    assert run_round(library, PERSON, desk.settings()).agents.action == "keep"


def _both(library, found):
    return [
        library.store.backend.proposals.get(identity)
        for identity in (found.proposal_id, found.agent_proposal_id)
    ]


@pytest.mark.process
def test_a_trial_does_not_begin_where_its_agent_was_turned_down(library, desk):
    found = proposed(library, desk).agents
    proposal_inbox.reject(library, found.agent_proposal_id, "no", DECIDES)
    with pytest.raises(InvalidArgument, match="was turned down"):
        start_trial(library, DECIDES, found.proposal_id)


@pytest.mark.process
def test_no_votes_of_one_client_and_no_reports_reach_the_gate(library, desk):
    work(library, 8, "Write the letter", "letters", "succeeded")
    before = run_round(library, PERSON, desk.settings()).agents
    for n in range(10):  # ten sessions over one connection, each reported and ended as it likes
        name = f"many{n}"
        loaded = load_skill(library, client(name, "one-client"), Ref.parse("tables"))
        said = f"...\nuse_id: {loaded.use_id} (report_outcome with it when the task is done)"
        talk = (
            Talk(name)
            .typed("Fix the table")
            .called("mcp__evolvable__load_skill", {"ref": "tables"}, said)
        )
        record_uses(library, talk.ran("sed -i s/a/b/ a.py").typed(WORDS["failed"]).session)
    for n in range(10):  # and transcripts of sessions that the server never saw
        unseen = (
            Talk(f"unseen{n}").typed("Fix the table").loaded("tables").ran("sed -i s/a/b/ a.py")
        )
        record_uses(library, unseen.typed("that is wrong").session)
    after = run_round(library, PERSON, desk.settings()).agents
    assert (before.action, after.action) == ("keep", "keep")
    assert proposal_inbox.list_waiting(library) == []


@pytest.mark.process
@pytest.mark.parametrize("named", ["agent:scribe", "agent:nobody"])
def test_a_model_names_the_agent_that_should_have_done_it_and_only_one_of_the_library_counts(
    library, desk, named
):
    text = (
        "---\nname: scribe\ndescription: Writes letters for others.\n---\n\nYou are the scribe.\n"
    )
    files = {"AGENT.md": text}
    edit.update_resource(
        library, PERSON, Ref.parse("agent:scribe"), "new", files=files, create=True
    )
    for number in range(2):
        desk.run(f"late{number}", "letters", f"Fix the letter {number} in b.py", failing(why=WHY))

    def answer(document):
        found = guard(document, "check the encoding of the table", "Sign the letter.", "x", "x")
        cited = found["diagnoses"][0]["quotes"]
        wrong = {
            "cause": "bad executor assignment",
            "repair": "handoff-to-structure",
            "quotes": cited,
        }
        return {"diagnoses": [{**wrong, "better_agent": named}], "candidates": []}

    with RoundModel(answer) as api, asking(api) as model:
        report = run_round(library, PERSON, desk.settings(reviewer_model=model))
    assert "Writes letters for others." in json.dumps(api.shown)
    assert {one["sign"] for one in report.diagnosed} == {"F"}
    known = "agent:scribe" if named == "agent:scribe" else ""
    assert {one["better"] for one in read_rounds(library).handoffs} == {known}


class Killed(BaseException):
    """The process ended here: nothing in the product catches it."""


def dies(monkeypatch, owner, name, at, *, first):
    """Has the call number `at` of a function end the process, before it does its work or right
    after it.
    """
    calls, works = itertools.count(), getattr(owner, name)

    def dying(*given, **more):
        here = next(calls) == at
        if here and first:
            raise Killed
        done = works(*given, **more)
        if here:
            raise Killed
        return done

    monkeypatch.setattr(owner, name, dying)


def sign_twice(document):
    """A model's answer to a failed letter: a guard that is small enough for a trial."""
    new = "Sign the letter twice."
    return guard(
        document, "sign the letter twice", "Sign the letter.", new, "The letter is signed twice."
    )


def outcome_of_round(library, sessions):
    """All that a round left: its state, what waits, what is on trial, and what its
    questions cost.
    """
    waiting = sorted((one.ref, one.reason) for one in proposal_inbox.list_waiting(library))
    trials = [(one.ref, one.state, one.reason) for one in list_pool(library, ended=True).trials]
    return (
        read_rounds(library).plain(),
        waiting,
        trials,
        library.store.backend.reviews.spending_of(sessions.day),
    )


@pytest.mark.process
def test_a_round_killed_at_any_record_or_proposal_comes_to_the_same_change_of_agents_and_bill(
    library, desk, tmp_path, monkeypatch
):
    work(library, 8, "Fix the table", "tables", "failed")
    work(library, 8, "Write the letter", "letters", "succeeded")
    for number in range(2):
        why = "that is wrong: sign the letter twice"
        desk.run(
            f"late{number}",
            "letters",
            f"Fix the letter {number} in b.py",
            failing("make letter", why),
        )
    now, home = library.store.clock(), library.store.home
    desk.day = library.store.now()[:10]
    library.close()

    def played(name, *death):
        """Run a round in a copy of the library, and again where it died; return what it left and
        what it was asked.
        """
        shutil.copytree(home, tmp_path / name)
        with (
            Library.open(tmp_path / name) as opened,
            RoundModel(sign_twice) as api,
            asking(api) as model,
        ):
            opened.store.clock = lambda: now
            if death:
                with monkeypatch.context() as patch:
                    dies(patch, *death[:-1], first=death[-1])
                    with pytest.raises(Killed):
                        run_round(opened, PERSON, desk.settings(reviewer_model=model))
            state = read_rounds(opened)
            if (state.number, state.running) != (2, False):  # the first round was that of the desk
                run_round(opened, PERSON, desk.settings(reviewer_model=model))
            return outcome_of_round(opened, desk), len(api.asked)

    whole, asked = played("whole")
    state, waiting, trials, spent = whole
    agent = state["agent_changes"][-1]["agents"][1]
    changed = {ref for ref, _ in waiting} | {ref for ref, one, _ in trials if one == "trial"}
    assert changed == {agent, "skill:tables", "skill:letters"} and asked == 2 and spent.calls > 0, (
        waiting,
        trials,
    )
    new = len(read_ledger(tmp_path / "whole" / LEDGER)) - len(read_ledger(home / LEDGER))
    assert new > 8
    for at in range(new):
        assert played(f"after-{at}", Ledger, "append", at, False) == (whole, asked), at
        found, again = played(f"before-{at}", Ledger, "append", at, True)
        assert found[:3] == whole[:3], at
        assert again - asked == found[3].calls - spent.calls <= 1, (
            "an answer that was not recorded is asked for again"
        )
    for at in range(len(waiting)):
        for first in (True, False):
            assert played(f"proposal-{at}-{first}", Proposals, "add", at, first) == (
                whole,
                asked,
            ), at


def test_by_simulated_sessions_a_specialist_that_helps_is_kept_and_one_that_harms_is_not():
    means = transplant(1)
    assert means["full"] > means["seed"] > means["library only"]
    harmful = Course(hard_world(0.05), 1).run()
    assert (harmful.proposed, harmful.kept, harmful.agents) == (1, 0, {})
    assert Course(calm_world(0.8), 1).run().proposed == 0

"""Rounds over real sessions: learn, retain, diagnose, change at most one thing of a cluster; killed
at any record.
"""

import asyncio
import contextlib
import json
import random
import shutil
import sys
from collections import Counter

import pytest
from command_line import CommandLine
from earned import seen, verified
from hypothesis import given, settings
from hypothesis import strategies as st
from model_api import asking
from round_sessions import RoundModel, Sessions, failing, guard, passing
from round_simulation import look_rates
from talks import Talk
from transcripts import Run, Says, Subagent

from evolvable_evolve.evolution.driver import drive_run
from evolvable_evolve.evolution.ledger.run_directory import (
    Ledger,
    LedgerDamaged,
    NoSuchRun,
    find_run,
    read_ledger,
)
from evolvable_evolve.evolution.proposers.edit_plan import FailureCause, RepairTag
from evolvable_evolve.evolution.proposers.proposer_model import NeedsAnswer
from evolvable_evolve.evolution.run_config import HostContext
from evolvable_evolve.evolution.start import start_run
from evolvable_evolve.evolution.statistics.staged_test import clopper_pearson_upper
from evolvable_evolve.rounds.diagnosis import ProposalSign, TraceDiagnosis, diagnose, proposal_sign
from evolvable_evolve.rounds.pool import decide_trial, list_pool, start_trial
from evolvable_evolve.rounds.round_source import TrialSource
from evolvable_evolve.rounds.round_state import LEDGER, fold_rounds, read_rounds
from evolvable_evolve.rounds.service import run_round
from evolvable_evolve.rounds.traces import PER_CLUSTER, RetainReason, RoundTrace, retain
from evolvable_store.errors import Refused
from evolvable_store.operation import Actor, Principal
from evolvable_store.resource import Kind, Ref
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.outcomes.ingest import record_uses
from evolvable_tools.outcomes.task_types import TASK_TYPES
from evolvable_tools.verbs import edit, proposal_inbox, versions

PERSON = Caller(Actor.HUMAN)
DECIDES = Caller(Actor.HUMAN, principal=Principal.PERSON, via="terminal")
WHY = "that is wrong: check the encoding of the table before you write it"
CLAIM = "The encoding of the table is checked before it is written."
GUARD = "Check the encoding of the table before you write it."


@pytest.fixture
def sessions(library, skill, tmp_path):
    lines = [
        f"Step {n}: do the {word} of the table."
        for n, word in enumerate(["reading", "sorting", "joining", "writing"])
    ]
    skill("tables", *lines, description="Works with tables of numbers.")
    skill(
        "letters",
        "Write the letter.",
        "Sign the letter.",
        "Send no letter.",
        description="Writes letters.",
    )
    return Sessions(library, tmp_path / "machine")


def fill(sessions, bad=3):
    """Sessions that fail in one way, and two that work."""
    for number in range(bad):
        sessions.run(f"bad{number}", "tables", f"Fix the table {number} in a.csv", failing(why=WHY))
    for number in range(2):
        sessions.run(f"good{number}", "letters", f"Write letter {number}", passing())


def guards(document):
    if document["reward"]:
        return {"diagnoses": [], "candidates": []}
    return guard(
        document,
        "check the encoding of the table before you write it",
        "Step 0: do the reading of the table.",
        GUARD,
        CLAIM,
    )


@pytest.mark.process
def test_a_round_learns_diagnoses_and_puts_one_small_change_on_trial(library, sessions):
    fill(sessions)
    library.impressions.flush()
    evidence = library.store.backend.evidence
    seen = evidence.count_impressions("")
    with RoundModel(guards) as api, asking(api) as model:
        report = run_round(library, PERSON, sessions.settings(reviewer_model=model))
        again = run_round(library, PERSON, sessions.settings(reviewer_model=model))

    library.impressions.flush()
    assert seen and evidence.count_impressions("") == seen, (
        "what a round searches for is shown to no agent"
    )

    assert (report.number, report.episodes, report.successes) == (1, 5, 2)
    assert report.retained == {"repeated-failure": 3}
    assert {(one["sign"], one["cause"]) for one in report.diagnosed} == {
        ("A-", "missing precondition")
    }
    (change,) = report.changes
    assert (change.action, change.ref, change.proposal_id) == ("refine", "skill:tables", None)
    (trial,) = list_pool(library).trials
    assert (trial.id, trial.since_round, trial.approved, trial.reason) == (
        change.trial,
        1,
        False,
        CLAIM,
    )
    assert (again.number, again.episodes, again.changes, len(api.asked)) == (2, 0, [], 3)
    shown = json.dumps(api.shown)
    assert "policy_cards" in shown and "skill:tables" in shown


@pytest.mark.process
def test_a_library_without_the_skills_of_the_program_has_their_policy_cards(library, sessions):
    for number in range(2):
        sessions.run(
            f"bad{number}",
            "tables",
            f"Write the commit messages for change {number}",
            failing(why=WHY),
        )
    with RoundModel(guards) as api, asking(api) as model:
        run_round(library, PERSON, sessions.settings(reviewer_model=model))

    assert "skill:write-commit-messages" in json.dumps(api.shown)
    assert library.store.head_or_none(Ref.parse("write-commit-messages")) is None


@pytest.mark.process
def test_a_sub_agents_check_changes_the_skill_and_a_person_alone_tries_a_skill_that_delegates(
    library, person, skill, sessions
):
    lines = ["Step 0: do the reading of the table.", "Step 1: do the writing of the table."]
    skill(
        "ledgers",
        *lines,
        description="Keeps ledgers.",
        metadata="metadata:\n  delegate: agent:clerk\n",
    )
    clerk = "You are the clerk."
    text = f"---\nname: clerk\ndescription: Keeps tables.\n---\n\n{clerk}\n"
    ref = Ref.parse("agent:clerk")
    edit.update_resource(library, person, ref, "new", files={"AGENT.md": text}, create=True)
    library.working_copies.check_out(sessions.home / ".claude/agents", kind=Kind.AGENT)
    check = "1 failed: check the encoding of the table before you write it"
    work = [
        Run("pytest -q", check, code=1),
        Run("sed -i s/a/b/ a.py"),
        Run("pytest -q", check, code=1),
    ]
    start = Subagent(
        "Fix it.", [*work, Says("It fails.")], "It fails.", name="clerk", system=clerk, noted=True
    )
    for number in range(2):
        sessions.run(f"bad{number}", "ledgers", f"Fix the table {number} in a.csv", [start])
    assert [one.used for one in library.evidence.list_attempts([library.store.head(ref).id])] == [
        True
    ] * 2
    with RoundModel(guards) as api, asking(api) as model:
        report = run_round(library, PERSON, sessions.settings(reviewer_model=model))

    assert {(one["cluster"], one["sign"]) for one in report.diagnosed} == {("skill:ledgers", "A-")}
    assert [(one.action, one.ref, one.trial) for one in report.changes] == [
        ("refine", "skill:ledgers", None)
    ]
    (waiting,) = (one for one in proposal_inbox.list_waiting(library) if one.ref == "skill:ledgers")
    assert start_trial(library, DECIDES, waiting.proposal_id).approved, (
        "an agent's own text delegates nothing"
    )


@pytest.mark.process
def test_a_round_without_a_model_keeps_the_traces_for_the_next_one(library, sessions):
    fill(sessions)
    first = run_round(library, PERSON, sessions.settings())
    assert (first.unasked, first.why_unasked, first.changes) == (3, "no model is named", [])
    with RoundModel(guards) as api, asking(api) as model:
        second = run_round(library, PERSON, sessions.settings(reviewer_model=model))
    assert second.retained == {"repeated-failure": 3} and len(api.asked) == 3
    assert [one.action for one in second.changes] == ["refine"]
    assert read_rounds(library).failures.most_common(1)[0][1] == 3, "a trace is counted once"


@pytest.mark.process
def test_no_text_of_a_session_is_in_the_ledger(library, sessions):
    fill(sessions)
    with RoundModel(guards) as api, asking(api) as model:
        run_round(library, PERSON, sessions.settings(reviewer_model=model))
    text = (library.store.home / LEDGER).read_text()
    assert "encoding" not in text and "pytest" not in text and "a.csv" not in text
    assert not (library.store.home / "rounds").exists()


class Killed(BaseException):
    """The process ended here."""


@pytest.mark.process
def test_a_round_that_is_killed_at_any_record_goes_on_to_the_same_state(
    library, sessions, tmp_path, monkeypatch
):
    fill(sessions, 2)
    sessions.run(
        "big",
        "letters",
        "Write letter 9",
        failing("make letter", "that is wrong: sign the letter twice"),
    )
    sessions.run(
        "big2",
        "letters",
        "Write letter 8",
        failing("make letter", "that is wrong: sign the letter twice"),
    )
    home = library.store.home
    library.close()

    def answers(document):
        if document["cluster"] == "skill:letters" and not document["reward"]:
            found = guard(
                document,
                "sign the letter twice",
                "Sign the letter.",
                "Sign the letter twice.",
                "Twice.",
            )
            (candidate,) = found["candidates"]
            candidate["edits"][0]["new"] = "\n".join(["Sign the letter twice.", *"abcdefgh"])
            return found
        return guards(document)

    def play(copy, most):
        """Run a round in a copy of the library that ends before its record `most`; return its whole
        ledger.
        """
        append = Ledger.append

        def dying(ledger, type, fields=None):
            if len(ledger.records) >= most:
                raise Killed
            return append(ledger, type, fields)

        with Library.open(copy) as opened:
            opened.store.clock = lambda: sessions.moment
            with monkeypatch.context() as patch:
                patch.setattr(Ledger, "append", dying)
                with pytest.raises(Killed):
                    run_round(opened, PERSON, config)
            run_round(opened, PERSON, config)
            about = [(one.ref, one.reason) for one in proposal_inbox.list_waiting(opened)]
            trials = [
                (one.ref, one.state, one.reason) for one in list_pool(opened, ended=True).trials
            ]
            return read_rounds(opened).plain(), about, trials

    sessions.moment = library.store.clock()
    with RoundModel(answers) as api, asking(api) as model:
        config = sessions.settings(reviewer_model=model)
        whole = tmp_path / "whole"
        shutil.copytree(home, whole)
        with Library.open(whole) as opened:
            opened.store.clock = lambda: sessions.moment
            run_round(opened, PERSON, config)
            expected = read_rounds(opened).plain()
        records = len(read_ledger(whole / LEDGER))
        assert {one["action"] for one in expected["evolved"].values()} == {
            "refine",
            "hold",
        } and records > 10
        outcomes = []
        for most in range(records):
            shutil.copytree(home, tmp_path / f"killed{most}")
            outcomes.append(play(tmp_path / f"killed{most}", most))
    assert all(state == expected for state, _, _ in outcomes)
    assert all(len(about) == 1 and len(trials) == 1 for _, about, trials in outcomes)


NATURAL = {
    "missing precondition": "add-guard",
    "wrong action order": "reorder-step",
    "misleading retrieval": "tighten-retrieval",
    "skill conflict": "split-skill",
    "bad executor assignment": "handoff-to-structure",
    "missing capability": "add-skill",
}
CAUSES = tuple(NATURAL)


@pytest.mark.parametrize("cause", CAUSES)
def test_only_one_supported_cause_with_one_of_four_repairs_allows_a_repair(cause):
    evidence = {"s1": "the check was never made before the write"}
    quotes = [{"span": "s1", "quote": "never made before"}]
    told = {"cause": cause, "repair": NATURAL[cause], "quotes": quotes}
    sign = (*[ProposalSign.REPAIR] * 4, ProposalSign.STRUCTURE, ProposalSign.NOTHING)[
        CAUSES.index(cause)
    ]
    found = diagnose([told], evidence)
    assert (found.cause, found.unique, found.tag) == (cause, True, NATURAL[cause])
    assert [proposal_sign(reward, found) for reward in (0, 1, None)] == [sign, "A+", ""]
    # A cause without words of the evidence counts nothing; a second one that has them takes the
    # uniqueness.
    other = {"cause": next(c for c in CAUSES if c != cause), "repair": "add-guard"}
    unsupported = {
        **other,
        "quotes": [{"span": "s1", "quote": "words not said"}, {"span": "s9", "quote": "never"}],
    }
    assert diagnose([told, unsupported], evidence) == found
    two = diagnose([told, {**other, "quotes": told["quotes"]}], evidence)
    assert not two.unique and proposal_sign(0, two) is ProposalSign.NOTHING
    assert diagnose([{**told, "quotes": []}], evidence) == TraceDiagnosis()
    assert proposal_sign(0, TraceDiagnosis()) is ProposalSign.NOTHING


@pytest.mark.parametrize("cause", [None, *FailureCause])
@pytest.mark.parametrize("tag", [None, *RepairTag])
@pytest.mark.parametrize("unique", [True, False])
def test_the_whole_truth_table_of_what_a_trace_may_propose(cause, tag, unique):
    """A success gives A+, a failure A- only with one cause and one of four repairs; without an end
    nothing follows.
    """
    found = TraceDiagnosis(cause, unique, tag)
    local = tag in ("add-guard", "reorder-step", "tighten-retrieval", "split-skill")
    failed = "A-" if unique and local else "F" if unique and tag == "handoff-to-structure" else ""

    assert [proposal_sign(reward, found) for reward in (1, 0, None)] == ["A+", failed, ""]


def random_traces(rng):
    """From 10 to 60 traces of few skills, causes and procedures, so that everything happens."""
    skills = ["skill:a", "skill:b", "skill:c"]
    return [
        RoundTrace(
            *(
                str(number),
                str(rng.randrange(3)),
                rng.choice(["fix", "add"]),
                "main",
                rng.choice([0, 1, None]),
            ),
            score=rng.choice([0.0, 0.5, 1.0]),
            selected=frozenset(rng.sample(skills, rng.randrange(3))),
            used=frozenset(rng.sample(skills, rng.randrange(3))),
            steps=rng.randrange(6),
            cause=rng.choice(["", "x", "y"]),
            procedures=tuple(rng.sample(["p", "q"], rng.randrange(3))),
            last_check=rng.random() < 0.5,
        )
        for number in range(rng.randint(10, 60))
    ]


@settings(max_examples=50)
@given(st.integers(0, 2**32))
def test_of_random_traces_none_is_retained_twice_and_no_cluster_has_more_than_five(seed):
    order = random.Random(seed)
    traces = random_traces(order)
    kept = retain(traces)
    assert all(
        number <= PER_CLUSTER for number in Counter(one.trace.cluster for one in kept).values()
    )
    assert max(Counter(one.trace.id for one in kept).values(), default=1) == 1
    assert all(one.trace.reward is not None for one in kept)
    for one in kept:
        if one.reason is RetainReason.REPEATED_FAILURE:
            assert one.trace.reward == 0 and one.trace.cause
        if one.reason is RetainReason.REUSABLE_SUCCESS:
            assert one.trace.reward == 1 and one.trace.steps >= 3
        if one.reason is RetainReason.MISMATCH:
            assert one.trace.selected != one.trace.used
    shuffled = list(traces)
    order.shuffle(shuffled)
    assert retain(shuffled) == kept
    newest = [one.at for one in traces if one.reward is not None]
    assert not kept or max(one.trace.at for one in kept) <= max(newest)


def test_a_ledger_that_is_not_ours_is_refused(library, sessions):
    with Ledger.open(library.store.home / LEDGER) as ledger:
        ledger.append("round", {"number": "x", "source": 1})
    with pytest.raises(LedgerDamaged):
        run_round(library, PERSON, sessions.settings())
    with pytest.raises(LedgerDamaged):
        fold_rounds([{"type": "nothing", "at": ""}])


@pytest.mark.process
def test_a_round_over_a_run_reads_its_training_trials_alone_and_lets_no_task_leak(
    library, sessions, skill
):
    skill("helps", "Say hello.", "Answer with the code.", description="Answers forms.")
    tasks = [
        {
            "id": f"t{n}",
            "prompt": (
                f"Form {n}: which code has drawer {n * 7919 % 10007} of the {word} cabinet in "
                "the north hall?"
            ),
            "expected": f"code-{n * 104729 % 99991}",
            "split": ("train", "val", "test", "test")[n % 4],
            "tags": ["needs:iso"],
        }
        for n, word in enumerate(["oak", "ash", "elm", "fir", "yew", "box", "bay", "fig"] * 5)
    ]
    about = "---\nname: forms\ndescription: Tasks.\n---\n"
    files = {"ENVIRONMENT.md": about, "tasks.jsonl": "\n".join(map(json.dumps, tasks))}
    edit.update_resource(
        library, PERSON, Ref.parse("environment:forms"), "mine", files=files, create=True
    )
    host = HostContext({})
    refs = (Ref.parse("environment:forms"), [Ref.parse("skill:helps")])
    run = start_run(library, PERSON, host, *refs, {"kind": "simulated"}, {}).run
    with contextlib.suppress(NeedsAnswer):
        asyncio.run(drive_run(library, PERSON, find_run(library.store.home, run), host))

    def answers(document):
        typed = next(piece for piece in document["evidence"] if piece["origin"] == "user")
        found = guard(
            document, typed["text"][:60], "Say hello.", typed["text"], "A task is repeated."
        )
        return {**found, "candidates": [{**found["candidates"][0], "target": "skill:helps"}]}

    with RoundModel(answers) as api, asking(api) as model:
        report = run_round(
            library,
            PERSON,
            sessions.settings(reviewer_model=model),
            TrialSource.of(library, PERSON, run),
        )
    assert report.source == f"run:{run}" and report.episodes > 0 == report.successes
    shown = json.dumps(api.shown)
    assert {one["id"] for one in tasks if one["prompt"] in shown} <= {
        one["id"] for one in tasks if one["split"] == "train"
    }
    assert not any(one["expected"] in shown for one in tasks)
    said = [
        piece["text"]
        for one in api.shown
        for piece in one["evidence"]
        if piece["origin"] == "assistant"
    ]
    assert len(said) == len(api.shown) and all("missing rule: iso" in text for text in said)
    assert [one.action for one in report.changes] == ["no-op"] * len(
        report.changes
    ) and report.changes
    assert list_pool(library).trials == [] and proposal_inbox.list_waiting(library) == []
    with pytest.raises(NoSuchRun):
        TrialSource.of(library, PERSON, "20200101")


@pytest.mark.process
def test_what_does_worse_than_no_skill_is_proposed_to_go_and_waits_for_a_person(
    library, skill, tmp_path
):
    sessions, names = Sessions(library, tmp_path), [f"harm{n}" for n in range(6)]
    for name in (*names, "helps"):
        skill(name, f"The {name} way.", f"Go on with {name}.")
    for number in range(20):
        seen(library, f"alone{number}")
        record_uses(
            library, Talk(f"alone{number}").typed("x").ran("true").typed("it works").session
        )
    for number in range(5):
        for name in names:
            verified(library, name, f"{name}-{number}", "failed")
        verified(library, "helps", f"helps-{number}", "succeeded")
    report = run_round(library, PERSON, sessions.settings())
    assert {one["ref"] for one in report.pruned} == {f"skill:{name}" for name in names}
    waiting = proposal_inbox.list_waiting(library)
    assert len(waiting) == 6 and all(one.removes for one in waiting), (
        "nothing that others made goes without a person"
    )
    assert run_round(library, PERSON, sessions.settings()).pruned == [], (
        "without more evidence it is not said again"
    )
    done = proposal_inbox.approve_together(library, PERSON, [waiting[0].proposal_id], "yes")
    assert library.store.head_or_none(Ref.parse(waiting[0].ref)).version is None
    versions.undo(library, PERSON, "no", operation=done[0].operation)
    assert library.store.head(Ref.parse(waiting[0].ref)).version is not None


def test_when_sessions_go_worse_by_more_than_noise_the_changed_skills_come_later_for_one_round():
    evolved = {"cluster": "skill:a", "action": "refine", "why": "", "ref": "skill:a"}
    learned = {"failures": {}, "procedures": {}, "retained": []}

    def a_round(number, success, *changes):
        steps = [{"type": "round", "number": number, "source": "sessions", "sessions": []}]
        steps += [{"type": "learned", **learned}, *({"type": "evolved", **one} for one in changes)]
        steps += [{"type": "pruned", "proposed": []}, {"type": "looked", "trials": []}]
        return [*steps, {"type": "ended", "success": success}]

    first = a_round(1, [19, 20], evolved)
    assert fold_rounds(first).suspects == () and fold_rounds(first).changed == ("skill:a",)
    assert fold_rounds([*first, *a_round(2, [16, 20])]).suspects == (), "that is noise"
    worse = [*first, *a_round(2, [2, 20])]
    assert fold_rounds(worse).suspects == ("skill:a",)
    assert fold_rounds([*worse, *a_round(3, [2, 20])]).suspects == (), "for one round"


def test_where_reviews_are_off_there_are_no_rounds(library, sessions):
    with pytest.raises(Refused, match="EVOLVABLE_REVIEW=off"):
        run_round(library, PERSON, sessions.settings(on=False))
    assert not (library.store.home / LEDGER).exists()
    assert library.store.head_or_none(TASK_TYPES) is None


@pytest.mark.process
def test_of_simulated_trials_without_an_effect_few_are_promoted_and_harmful_ones_are_retired():
    promoted, _, _ = look_rates(0.5, 0.0, 400)
    assert clopper_pearson_upper(promoted, 400) <= 0.05
    promoted, retired, used = look_rates(0.5, 0.4, 100)
    assert promoted >= 95 and used < 35
    promoted, retired, _ = look_rates(0.5, -0.25, 100)
    assert promoted == 0 and retired >= 50


ANSWERS = """
import json, re, sys
said = sys.stdin.read()
data = json.loads(re.search(r"^(data-[0-9a-f]{16})\\n(\\{.*\\})\\n\\1$", said, re.M | re.S)[2])
quote = "check the encoding of the table before you write it"
span = next(one["id"] for one in data["evidence"] if quote in one["text"])
cited = [{"span": span, "quote": quote}]
old = "Step 0: do the reading of the table."
edit = {"op": "add-guard", "path": "SKILL.md", "old": old, "new": GUARD}
named = {"cause": "missing precondition", "repair": "add-guard", "quotes": cited}
what = {"kind": "skill-edit", "claim": GUARD, "target": data["cluster"], "evidence": cited}
what["edits"] = [edit]
print(json.dumps({"diagnoses": [named], "candidates": [what]}))
"""


@pytest.mark.process
def test_at_the_command_line_a_round_asks_the_command_that_a_person_named_and_no_other(
    library, sessions, tmp_path
):
    run = CommandLine(tmp_path)
    sessions.home = run.user
    fill(sessions)
    library.close()
    script = tmp_path / "answers.py"
    script.write_text(f"GUARD = {GUARD!r}\n{ANSWERS}")
    home = {"EVOLVABLE_HOME": str(library.store.home)}

    refused = run("round", "--brain", f"{sys.executable} {script}", code=1, **home)
    assert "named by a person" in refused.err
    run("proposer", "add", "answers", "--", sys.executable, script, **home)
    said = run("round", "--brain", "answers", **home).out
    assert "Round 1 over 5 episodes" in said and "refine: skill:tables (trial 1)" in said
    assert "skill:tables" in run("pool", **home).out
    spent = json.loads(run("review", "--status", "--json", **home).out)["left"]
    assert spent["of_calls"] - spent["calls"] == 3, "it is within the budget of reviews"


@pytest.mark.process
def test_while_a_version_is_on_trial_nothing_else_of_its_skill_is_asked_or_changed(
    library, sessions
):
    fill(sessions, 2)
    with RoundModel(guards) as api, asking(api) as model:
        run_round(library, PERSON, sessions.settings(reviewer_model=model))
        asked = len(api.asked)
        for number in range(2, 4):
            sessions.run(
                f"bad{number}", "tables", f"Fix the table {number} in a.csv", failing(why=WHY)
            )
        second = run_round(library, PERSON, sessions.settings(reviewer_model=model))
        assert len(api.asked) == asked and second.unasked == 0
        assert [one.action for one in second.changes] == ["no-op"] and proposal_inbox.list_waiting(
            library
        ) == []
        assert all("is on trial" in one["why"] for one in second.diagnosed) and second.diagnosed
        (trial,) = list_pool(library).trials
        decide_trial(library, DECIDES, trial.id, "retire", "it does not help")
        for number in range(4, 6):
            sessions.run(
                f"bad{number}", "tables", f"Fix the table {number} in a.csv", failing(why=WHY)
            )
        third = run_round(library, PERSON, sessions.settings(reviewer_model=model))
    [change] = third.changes
    assert "trial 1 " in change.why and "retired" in change.why

"""The command that learns from finished sessions: review."""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evolvable_server.cli.state import State, command
from evolvable_server.cli.terminal import Row, count, local_time, say, show_table, warn
from evolvable_store.errors import EvolvableError

if TYPE_CHECKING:
    from evolvable_tools.library import Caller, Library
    from evolvable_tools.review import Reviewed
    from evolvable_tools.review.review_config import BudgetLeft, LastReview, ReviewStatus


@dataclass(frozen=True, slots=True)
class ReviewedAll:
    """What became of each session of the queue."""

    reviews: "list[Reviewed]"


@command("review")
@click.argument("session", required=False, metavar="[SESSION]")
@click.option("--queue", is_flag=True, help="All the sessions that hooks have queued.")
@click.option("--answer", type=click.File("rb"), help="Hand in what was thought of a packet: JSON with review_id.")
@click.option("--status", is_flag=True, help="What waits, what the last review came to, what budget is left.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="With --queue: how many.")
def review_command(
    state: State, session: str | None, queue: bool, answer: click.File | None, status: bool, limit: int
) -> None:
    """Learn from finished sessions.

    SESSION is the file of a transcript, or a session's id. What comes of it waits in `evolvable inbox`. Who thinks is
    set by EVOLVABLE_REVIEW; without, a packet is written for an agent to think about.
    """
    if (session is not None) + queue + (answer is not None) + status > 1:
        raise click.UsageError("Name a session, or --queue, or --answer, or --status.")
    from evolvable_server.reviews import review_settings
    from evolvable_tools.review.review_config import review_status
    from evolvable_tools.review.service import review_session, submit_review, work_queue

    config = state.config()
    with state.library() as (library, caller), review_settings(config) as settings:
        if status:
            found = review_status(library, settings, config.home)
            state.show(found, lambda: _show_standing(found))
            return
        if queue:
            done = ReviewedAll(list(work_queue(library, caller, settings, config.home, limit)))
            _watch(library, caller)
            state.show(done, lambda: _show_all(done.reviews, settings.on))
            return
        if answer is not None:
            said = _answer(answer)
            one = submit_review(
                library, caller, settings, said["review_id"], said["candidates"], said.get("why_none", "")
            )
        else:
            path = Path(session) if session and Path(session).is_file() else None
            named = session if path is None else None
            one = review_session(library, caller, settings, transcript_path=path, session=named)
        _watch(library, caller)
    state.show(one, lambda: _show(one))


def _watch(library: "Library", caller: "Caller") -> None:
    """Looks whether what was adopted does worse by what the sessions showed; then it is proposed to be taken back."""
    from evolvable_tools.evolve.ledger.run_directory import EVOLVE_DIR

    if (library.store.home / EVOLVE_DIR).is_dir():
        from evolvable_tools.evolve.deploy import monitor_adoptions

        with contextlib.suppress(EvolvableError):  # the next review looks again
            monitor_adoptions(library, caller)


def _answer(file: click.File) -> "dict[str, Any]":
    import json

    from evolvable_store.errors import InvalidArgument

    try:
        said = json.loads(file.read())  # type: ignore[attr-defined]
    except ValueError:
        said = None
    if (
        not isinstance(said, dict)
        or not isinstance(said.get("review_id"), str)
        or not isinstance(said.get("candidates"), list)
    ):
        raise InvalidArgument(
            "The answer is no JSON object with review_id and candidates.", "See packet.answer_schema."
        )
    return said


def _show_all(reviews: "list[Reviewed]", on: bool) -> None:
    if not reviews:
        say("No session waits for a review." if on else "Reviews are off here.")
    for one in reviews:
        say(f"Session {one.session}:")
        _show(one)
        say()


def _show(one: "Reviewed") -> None:
    if one.signals:
        say("It showed: " + ", ".join(f"{code} {number}" for code, number in sorted(one.signals.items())))
    if one.redacted:
        say(
            "Taken out before anything was kept: "
            + ", ".join(f"{kind} {n}" for kind, n in sorted(one.redacted.items()))
        )
    for proposed in one.proposals:
        made = f" (made, operation {proposed.operation})" if proposed.operation else ""
        say(f"Proposal {proposed.proposal_id}: {proposed.ref}: {proposed.claim}{made}")
    for refusal in one.refused:
        say(f"Refused [{refusal.code}]: {refusal.claim}: {refusal.reason}")
    if one.cost.get("tokens"):
        say(f"{one.cost['thinker']} took {one.cost['tokens']:,} tokens.")
    if one.state == "waits":
        warn(one.why)
    elif one.packet is not None:
        say(f"Somebody has to think: an agent by review_session, or you by `evolvable review --json {one.session}`")
        say(f"and `--answer FILE`. Review {one.review_id} waits until then.")
    elif one.why:
        say(one.why)
    if one.proposals:
        say(f"\n{count(len(one.proposals), 'proposal')} to decide on: evolvable inbox")


def _show_standing(found: "ReviewStatus") -> None:
    who = "whoever calls (handoff)" if found.thinker == "handoff" else found.thinker
    policies = "".join(f", {kind}={policy}" for kind, policy in found.policies.items())
    rows: list[Row] = [
        [("reviews", "bold"), f"on; {who} thinks{policies}" if found.on else "off (EVOLVABLE_REVIEW=off)"],
        [("queued", "bold"), _some(found.queued, "session", "evolvable review --queue")],
        [("begun", "bold"), _some([f"{b.session} ({b.state})" for b in found.waiting], "review", "evolvable review")],
        [("inbox", "bold"), count(found.proposals, "proposal") + (": evolvable inbox" if found.proposals else "")],
        [("last", "bold"), _last(found.last)],
        [("left today", "bold"), _left(found.left)],
    ]
    show_table(("", " "), rows, wide=(" ",))


def _some(names: "list[str]", what: str, next_step: str) -> str:
    if not names:
        return "none"
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{count(len(names), what)}: {', '.join(names[:3])}{more} (`{next_step}`)"


def _last(last: "LastReview | None") -> str:
    if last is None:
        return "none yet"
    said = f"{count(len(last.proposals), 'proposal')}." if last.proposals else last.why
    shown = ", ".join(f"{code} {number}" for code, number in sorted(last.signals.items()))
    refused = "".join(f" Refused: {one}" for one in last.refused[:3])
    return (
        f"{local_time(last.at)}, session {last.session}: {said}" + (f" It showed {shown}." if shown else "") + refused
    )


def _left(left: "BudgetLeft") -> str:
    money = "" if left.money is None or left.of_money is None else f", {left.money:.2f} of {left.of_money:.2f} in money"
    tokens = f"{left.tokens:,} of {left.of_tokens:,} tokens"
    return f"{left.calls} of {left.of_calls} calls, {tokens}{money} (until midnight UTC)"

"""The commands sessions, review, compress and stats."""

import contextlib
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import click

from evolvable_server import plugins
from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.options import page_option, say_more
from evolvable_server.cli.terminal import (
    count,
    file_size,
    local_time,
    progress,
    say,
    show_fields,
    show_table,
    some,
    warn,
)
from evolvable_server.config import read_machine
from evolvable_store import read_regular, waiting_sessions
from evolvable_store.errors import EvolvableError, InvalidArgument
from evolvable_store.resource import Ref
from evolvable_tools import Caller, outcomes
from evolvable_tools.review import Compressed

if TYPE_CHECKING:
    from evolvable_tools import Caller, Library
    from evolvable_tools.review import (
        AssetFiles,
        LastReview,
        Reviewed,
        ReviewSettings,
        ReviewStatus,
    )
    from evolvable_tools.sessions import SessionPage

# Start time: only `review` and `compress` need the reviewer.


@command("sessions", table=True)
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000),
    default=20,
    show_default=True,
    help="How many, the newest first.",
)
@page_option
@click.option(
    "--project", metavar="PATH", help="Only those that worked in this folder or below it."
)
def sessions_command(
    state: CommandContext, limit: int, page: int, project: str | None
) -> Output[Any]:
    """List the sessions that clients wrote down.

    Shows which of them the library has imported. Nothing is read into the library, and nothing is
    written.
    """
    from evolvable_tools.sessions import list_sessions

    with state.library() as (library, _):
        log = library.store.backend.observations
        transcripts = read_machine(state.config().project).transcripts
        pages = list_sessions(
            transcripts,
            log.ingested_session,
            limit * page,
            project,
            library.store.backend.transcript_rows.foreign,
        )
    # `list_sessions` returns the newest ones from the first on; the earlier pages are cut off here.
    shown_page = dataclasses.replace(pages, sessions=pages.sessions[limit * (page - 1) :])
    return Output(shown_page, lambda _: _show_sessions(shown_page, page))


def _show_sessions(shown_page: "SessionPage", page: int) -> None:
    if not shown_page.sessions and page == 1:
        say("No client wrote a session here.")
        return
    show_table(
        ["session", "client", "when", "turns", "size", "imported", "project"],
        [
            [
                (session.session, "bold"),
                session.client,
                local_time(session.at),
                f"{session.turns}",
                file_size(session.size),
                session.taken,
                session.project or "",
            ]
            for session in shown_page.sessions
        ],
        names=("project",),  # an id is whole: `review` takes it
        spare=("size", "turns", "client", "imported", "when"),
    )
    say_more(page, len(shown_page.sessions), shown_page.more > 0)


@command("review")
@click.argument("words", nargs=-1, metavar="[SESSION | auto on | auto off]")
@click.option("--queue", is_flag=True, help="All the sessions that hooks have queued.")
@click.option(
    "--answer",
    type=click.File("rb"),
    help="Hand in the answer to a review request: JSON with review_id.",
)
@click.option(
    "--status", is_flag=True, help="What waits, what the last review came to, what budget is left."
)
@click.option(
    "--limit",
    type=click.IntRange(1, 500),
    default=50,
    show_default=True,
    help="With --queue: how many.",
)
@click.option(
    "--budget", metavar="LIMITS", help="With `auto on`: of a day, such as tokens=300000,money=2."
)
@click.option(
    "--skill", "skills", metavar="REF", multiple=True, help="With `auto`: make its lessons at once."
)
def review_command(
    state: CommandContext,
    words: tuple[str, ...],
    queue: bool,
    answer: click.File | None,
    status: bool,
    limit: int,
    budget: str | None,
    skills: tuple[str, ...],
) -> Output[Any]:
    """Learn from finished sessions.

    SESSION is the file of a transcript, or a session's id. Proposals wait in `evolvable inbox`.
    `evolvable role model role reviewer` names the reviewer model; without one, a review request is
    written for an agent to answer.

    `auto on` has each session of this project reviewed after its end: by the reviewer model, else
    by the client that held it, within a daily budget. `auto off` takes that back, and `auto` shows
    it.
    """
    # `auto` is a word of this command, and no session.
    if words[:1] == ("auto",) and len(words) <= 2:
        from evolvable_server.cli.auto_commands import run_auto

        return run_auto(state, words[1] if len(words) == 2 else "show", budget, skills)
    if len(words) > 1 or budget is not None or skills:
        raise click.UsageError("Name one session. --budget and --skill go with `auto on`.")
    session = words[0] if words else None
    if (session is not None) + queue + (answer is not None) + status > 1:
        raise click.UsageError("Name a session, or --queue, or --answer, or --status.")
    from evolvable_server.model_setup import review_settings
    from evolvable_tools.review import review_status, submit_review

    config = state.config()
    with state.library() as (library, caller), review_settings(config) as settings:
        if status:
            return Output(review_status(library, settings, config.home), _show_status)
        if queue:
            done = _work_queue(library, caller, settings, config.home, limit)
            _check_adopted(library, caller)
            return Output({"reviews": done}, lambda _: _show_reviews(done, settings.on))
        if answer is not None:
            submission = _read_submission(answer)
            reviewed = submit_review(
                library,
                caller,
                settings,
                submission["review_id"],
                submission["candidates"],
                submission.get("why_none", ""),
            )
        else:
            reviewed = _review_one(library, caller, settings, session)
        _check_adopted(library, caller)
    return Output(reviewed, _show_review)


def _review_one(
    library: "Library", caller: "Caller", settings: "ReviewSettings", session: str | None
) -> "Reviewed":
    """Review the session that is named, by its id or its file."""
    from evolvable_tools.review import review_session  # start time, as above
    from evolvable_tools.sessions import is_transcript_path

    # The file may be gone: the form of a path tells it from a session's name.
    is_path = session is not None and (Path(session).is_file() or is_transcript_path(Path(session)))
    path = Path(session) if session and is_path else None
    session_id = session if path is None else None
    return review_session(library, caller, settings, transcript_path=path, session=session_id)


def _work_queue(
    library: "Library", caller: "Caller", settings: "ReviewSettings", home: Path, limit: int
) -> "list[Reviewed]":
    """Review the sessions that wait, the oldest first."""
    from evolvable_tools.review import work_queue  # start time, as above

    waiting = min(limit, len(waiting_sessions(home)))
    done = list["Reviewed"]()
    with progress("Reviewing sessions") as show:
        show(0, waiting)
        for reviewed in work_queue(library, caller, settings, home, limit):
            done.append(reviewed)
            show(len(done), waiting)
    return done


def _check_adopted(library: "Library", caller: "Caller") -> None:
    """Have adopted changes proposed to be taken back where the sessions show that they do worse."""
    with contextlib.suppress(EvolvableError):  # the next review looks again
        plugins.hooks().after_review(library=library, caller=caller)


def _read_submission(file: click.File) -> dict[str, Any]:
    try:
        submission = json.loads(file.read())  # type: ignore[attr-defined]
    except ValueError:
        submission = None
    if not _is_submission(submission):
        raise InvalidArgument(
            "The answer is no JSON object with review_id and candidates.",
            "The request has an answer_schema.",
        )
    return submission


def _is_submission(value: Any) -> TypeGuard[dict[str, Any]]:
    if not isinstance(value, dict):
        return False
    return isinstance(value.get("review_id"), str) and isinstance(value.get("candidates"), list)


def _show_reviews(reviews: "list[Reviewed]", on: bool) -> None:
    if not reviews:
        say("No session waits for a review." if on else "Reviews are off here.")
    for review in reviews:
        say(f"Session {review.session}:")
        _show_review(review)
        say("")


def _show_review(reviewed: "Reviewed") -> None:
    if reviewed.signals:
        say(f"It showed: {_format_counts(reviewed.signals)}")
    if reviewed.redacted:
        say(f"Taken out before anything was kept: {_format_counts(reviewed.redacted)}")
    for proposed in reviewed.proposals:
        suffix = f" (made, operation {proposed.operation})" if proposed.operation else ""
        say(f"Proposal {proposed.proposal_id}: {proposed.ref}: {proposed.claim}{suffix}")
    say(
        *(
            f"Refused [{refusal.code}]: {refusal.claim}: {refusal.reason}"
            for refusal in reviewed.refused
        )
    )
    if reviewed.cost.get("tokens"):
        say(f"{reviewed.cost['thinker']} took {reviewed.cost['tokens']:,} tokens.")
    elif reviewed.cost.get("reserved"):
        say(
            f"{reviewed.cost['thinker']} reported no tokens; {reviewed.cost['reserved']:,} stay "
            "reserved for it today."
        )
    if reviewed.state == "waits":
        warn(reviewed.why)
    elif reviewed.packet is not None:
        say(
            "It needs an answer: of an agent by review_session, or yours by `evolvable learn "
            f"review --json {reviewed.session}`"
        )
        say(f"and `--answer FILE`. Review {reviewed.review_id} waits until then.")
        alone = (
            "For a model that answers by itself: `evolvable role model role reviewer claude` (or "
            "codex, anthropic)."
        )
        say(reviewed.why if reviewed.refused else alone)
    elif reviewed.why:
        say(reviewed.why)
    if reviewed.proposals:
        say(f"\n{count(len(reviewed.proposals), 'proposal')} to decide on: evolvable inbox")


def _format_counts(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(numbers.items()))


def _show_status(status: "ReviewStatus") -> None:
    from evolvable_server.care import budget_words  # start time, as above

    reviewer = "the calling agent (handoff)" if status.thinker == "handoff" else status.thinker
    policies = "".join(f", {kind}={policy}" for kind, policy in status.policies.items())
    begun = [f"{review.session} ({review.state})" for review in status.waiting]
    where = ": evolvable inbox" if status.proposals else ""
    mode = f"on; {reviewer} reviews{policies}" if status.on else "off (EVOLVABLE_REVIEW=off)"
    fields = {
        "reviews": mode,
        "queued": _format_names(status.queued, "session", "evolvable learn review --queue"),
        "begun": _format_names(begun, "review", "evolvable learn review"),
        "inbox": f"{count(status.proposals, 'proposal')}{where}",
        "last": _describe_last(status.last),
        "left today": budget_words(status.left),
    }
    show_fields([((name, "bold"), text) for name, text in fields.items()])


def _format_names(names: "list[str]", what: str, next_step: str) -> str:
    if not names:
        return "none"
    return f"{count(len(names), what)}: {some(names, 3)} (`{next_step}`)"


def _describe_last(last: "LastReview | None") -> str:
    if last is None:
        return "none yet"
    outcome = f"{count(len(last.proposals), 'proposal')}." if last.proposals else last.why
    signals = f" It showed {_format_counts(last.signals)}." if last.signals else ""
    refused = "".join(f" Refused: {refusal}" for refusal in last.refused[:3])
    return f"{local_time(last.at)}, session {last.session}: {outcome}{signals}{refused}"


# The history is read whole, and takes several times its size in memory as Python objects.
MOST = 64 << 20
"""Bytes of a history that are read."""


@command("compress")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--keep", type=click.IntRange(1, 200), default=12, show_default=True, help="Messages that stay."
)
@click.option(
    "--max-tokens",
    type=click.IntRange(0),
    default=64_000,
    show_default=True,
    help="Shorter ones stay whole.",
)
def compress_command(
    state: CommandContext, file: Path, keep: int, max_tokens: int
) -> Output[Compressed]:
    """Make a long conversation short, without a model.

    FILE holds a JSON list of messages, each with role and content. Nothing that was named is lost:
    it stands in the summary, in the last messages, which stay as they are, or in a file of the
    library's home. --json prints them.
    """
    from evolvable_tools.review import FOLDER, AssetFiles, compress_history

    with state.library() as (library, _):
        files = AssetFiles(library.store.home / FOLDER)
        found = compress_history(
            _read_messages(file), keep=keep, max_tokens=max_tokens, files=files
        )
    return Output(found, lambda compressed: _show_compressed(compressed, files))


def _read_messages(file: Path) -> list[dict[str, Any]]:
    # Before the reading, because the limit is for the memory.
    if file.stat().st_size > MOST:
        raise InvalidArgument(
            f"{file} has more than {MOST >> 20} MB.", "Give the part that is to be made short."
        )
    try:
        messages = json.loads(read_regular(file))
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(
            f"{file} is no JSON: {error}.", "Give a list of messages: [{role, content}, ...]."
        ) from None
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise InvalidArgument(f"{file} is no list of messages.", "Give [{role, content}, ...].")
    return messages


def _show_compressed(found: Compressed, files: "AssetFiles") -> None:
    if not found.summary:
        over = "Over the limit, and there is nothing to leave out" if found.over else "Short enough"
        say(f"{over}: {found.tokens_before:,} tokens. Nothing was changed.")
        return
    say(
        f"{found.tokens_before:,} tokens before, {found.tokens_after:,} after, "
        f"{count(len(found.messages), 'message')}."
    )
    for part, lines in found.summary.items():
        say(f"\n{part}", *(f"  {line}" for line in lines))
    if found.over:
        warn(
            "The summary or the last messages are over the limit; keep fewer messages, or allow "
            "more tokens."
        )
    if found.older:
        say(f"\nAll names: {files.path(found.older)}")


_STYLES = {"helps": "green", "harms": "red", "dead": "yellow"}

_REASONS = {
    "shown-not-loaded": (
        "shown and never opened, so its description may promise what it does not hold"
    ),
    "loaded-not-used": "opened and never followed",
    "used-not-shown": "used and found by no search, so its description may say too little",
    "harms": "tasks end worse with it",
    "newer-is-worse": "the newest version does worse than an older one",
    "model-differs": "it does not help every model alike",
}


@command("stats", table=True)
@click.argument("ref", required=False)
@click.option(
    "--days",
    type=click.IntRange(1, outcomes.MAX_DAYS),
    default=30,
    show_default=True,
    help="How far back `dead` looks.",
)
def stats_command(state: CommandContext, ref: str | None, days: int) -> Output[outcomes.Stats]:
    """Show what is used, what helps, what harms and what is dead.

    Every share comes with the number of attempts that it is of, and with its 95 % interval. With
    REF also by version, model and task type.
    """
    with state.library() as (library, caller):
        found = outcomes.stats(library, caller, Ref.parse(ref) if ref else None, days=days)
    return Output(found, lambda _: _show_stats(found, whole=ref is not None))


def _show_stats(found: outcomes.Stats, *, whole: bool) -> None:
    if not found.resources:
        say("Nothing was shown, loaded or used yet.")
        return
    show_table(
        ["ref", "verdict", "shown", "loaded", "used", "helped", "verified", "reported", "why"],
        [
            [
                (line.ref, "bold"),
                (outcomes.verdict_words(line.verdict), _STYLES.get(line.verdict, "")),
                *(str(line.shown), str(line.loaded), str(line.used), _format_share(line.helped)),
                *(str(line.verified.n), str(line.reported.n), line.why),
            ]
            for line in found.resources
        ],
        names=("ref",),
        wide=("why",),
        spare=("reported", "why", "verified", "shown", "used", "loaded"),
    )
    if whole:
        _show_parts(found.resources[0])
    if found.agents:
        say("")
        show_table(
            ["agent", "task type", "Q", "verified"],
            [
                [
                    agent.agent,
                    agent.task_type or "not told",
                    f"{agent.q:.2f}",
                    _format_share(agent.share),
                ]
                for agent in found.agents
            ],
        )
    if found.base is not None:
        say(f"\nCompared with {found.base.of}: {_format_share(found.base.share)}.")
    if found.opportunities:
        say("\nWorth a review:")
        say(
            *(
                f"  {opportunity.ref}: {_REASONS[opportunity.reason]}: {opportunity.numbers}"
                for opportunity in found.opportunities
            )
        )
        if not whole:
            say("Look closer: evolvable learn stats REF")


def _show_parts(line: outcomes.ResourceStats) -> None:
    if line.versions:
        say("")
        show_table(
            ["version", "model", "helped"],
            [
                [f"@{part.version}", part.model or "not known", _format_share(part.share)]
                for part in line.versions
            ],
        )
    if line.task_types:
        say("")
        show_table(
            ["task type", "Q", "helped", "verified"],
            [
                [
                    row.task_type or "not told",
                    f"{row.q:.2f}",
                    _format_share(row.share),
                    _format_share(row.verified),
                ]
                for row in line.task_types
            ],
        )
    if line.not_counted:
        say(f"\n{count(line.not_counted, 'outcome')} kept as history, not counted.")
    last = [("shown", line.last_shown), ("opened", line.last_loaded)]
    moments = [f"{what} {local_time(at)}" for what, at in last if at is not None]
    if moments:
        say(f"\nLast {', last '.join(moments)}.")


def _format_share(share: outcomes.Share) -> str:
    return str(share) if share.n else "outcome unknown"

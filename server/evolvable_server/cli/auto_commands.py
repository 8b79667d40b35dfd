"""`learn review auto`: switch automatic reviews on and off by project, and show their budget."""

from collections.abc import Sequence

from evolvable_server.care import AutoStatus, auto_status, budget_words, switch_off, switch_on
from evolvable_server.cli.command_context import CommandContext, Output
from evolvable_server.cli.terminal import Cell, count, say, show_fields
from evolvable_server.learning_consent import check_own
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Kind, Ref

ACTIONS = ("show", "on", "off")


def run_auto(
    state: CommandContext, action: str, budget: str | None, skills: Sequence[str]
) -> Output[AutoStatus]:
    """Switch automatic reviews on or off for the project that is open, or for the lessons of
    skills; show them.
    """
    if action not in ACTIONS:
        raise InvalidArgument(
            f"{action[:40]!r} is no action of `learn review auto`.", "It is on, off or show."
        )
    config = state.config()
    # Before anything changes: the passphrase is asked for here, and may be refused.
    if action != "show":
        state.require_person("Switching automatic reviews")
        state.unlock()
    # An unknown skill raises here, before the switch is written.
    with state.library() as (library, _):
        refs = [str(library.store.head(Ref.parse(name, Kind.SKILL)).ref) for name in skills]
    if action == "on":
        check_own(config.home)
        switch_on(config, refs, budget)
    elif action == "off":
        switch_off(config, refs)
    if action != "show":
        state.record(f"automatic reviews {action}", ", ".join(refs) or str(config.project))
    with state.library() as (library, _):
        status = auto_status(config, library)
    return Output(status, show_auto_status)


def show_auto_status(status: AutoStatus) -> None:
    """Write the status of automatic reviews for a person."""
    on = ", ".join(status.projects) or "nowhere"
    rows: list[tuple[Cell, Cell]] = [
        (("automatic", "bold"), f"on in {on}" if status.projects else "off"),
        (("left today", "bold"), budget_words(status.left)),
        (("queued", "bold"), count(status.waiting, "session")),
    ]
    if status.skills:
        lessons = f"lessons of {', '.join(status.skills)}, where the scan has no question"
        rows.append((("at once", "bold"), lessons))
    rows += [(("failed", "bold"), (failure, "yellow")) for failure in status.failed]
    if status.nobody:
        text = (
            f"{count(len(status.nobody), 'session')} of clients without a headless mode: "
            "`evolvable learn review`"
        )
        rows.append((("by hand", "bold"), text))
    show_fields(rows)
    if not status.here:
        say("Switch it on for this project: evolvable learn review auto on")

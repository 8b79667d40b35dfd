"""Runs that an agent asked for and only a person begins: listed, and asked about one by one at the
terminal.
"""

from collections.abc import Sequence

from evolvable_server.cli.terminal import ask, discard_typed, remark, say, style_text
from evolvable_server.config import Config
from evolvable_server.plugins import WaitingRun, waiting_runs
from evolvable_tools import Library

_KEYS = "y,n,s"
_HELP = "y begins it, n removes it, s leaves it waiting."


def describe_run(run: WaitingRun) -> dict[str, str]:
    """Return the fields of a waiting run for JSON."""
    return {"run": run.run, "text": run.text, "begin": run.command}


def show_runs(runs: Sequence[WaitingRun]) -> None:
    """List runs that wait, each with what begins it."""
    for run in runs:
        say(
            "",
            f"Run {run.run} waits for your yes:",
            *(f"  {line}" for line in run.text.splitlines()),
        )
        remark(f"`{run.command}` begins it, as does a yes in `evolvable inbox decide`.")


def ask_about_runs(library: Library, config: Config) -> None:
    """Ask a person about each run that waits: a yes begins it in a process of its own, a no removes
    it.

    Raise click.Abort when the person interrupts.
    """
    for number, run in enumerate(runs := waiting_runs(library), 1):
        say(
            "",
            f"Run {run.run}, which an agent asked for:",
            *(f"  {line}" for line in run.text.splitlines()),
        )
        question = f"({number}/{len(runs)}) Begin it [{_KEYS}]?"
        while (answer := _read_answer(question)) not in _KEYS.split(","):
            say(_HELP)
        if answer != "s":
            say(*(run.begin(config) if answer == "y" else run.remove()))


def _read_answer(question: str) -> str:
    """Return what the person types, in small letters.

    What was typed before the question was asked is discarded.
    """
    discard_typed()
    typed = ask(
        style_text(question, "bold blue"), default="", show_default=False, prompt_suffix=" "
    )
    return typed.strip().lower()

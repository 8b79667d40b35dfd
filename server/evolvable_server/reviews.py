"""How this process reviews sessions, by its settings: who thinks, within what, and what a client reads anyway."""

import contextlib
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from evolvable_server.config import REVIEW_BUDGET, REVIEW_POLICY, Config, read_machine, thinking_environment
from evolvable_server.environment import REVIEW
from evolvable_server.means import named, neutral, thinking_command
from evolvable_server.redaction import Redaction

if TYPE_CHECKING:
    from evolvable_store.resource import Kind
    from evolvable_tools.approval_policy import ApprovalPolicy
    from evolvable_tools.llm.anthropic_model import AnthropicModel
    from evolvable_tools.llm.command_model import CommandModel
    from evolvable_tools.review.review_config import ReviewBudget, ReviewSettings

TIMEOUT = 180.0
"""Seconds for a thought about a whole session."""

BOOT_FILES = ("CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", ".claude/CLAUDE.md")
"""What clients read of a project at their start."""

MAX_BOOT = 200_000
"""Bytes of one such file."""


@contextlib.contextmanager
def review_settings(config: Config) -> Iterator["ReviewSettings"]:
    """Yields the settings of reviews. Raises InvalidArgument for a setting that names nothing."""
    # Late: a server answers its first question without them.
    from evolvable_server.clients.memory_copies import without_ours
    from evolvable_tools.review.review_config import ReviewSettings

    _, _, budget = budget_limits(config)
    machine = read_machine(config.project)
    own = [machine.user / ".claude/CLAUDE.md", machine.codex / "AGENTS.md"]
    if machine.claude is not None:
        own.append(machine.claude / "CLAUDE.md")
    thinker = _thinker(config)

    def boot(project: str | None) -> tuple[str, ...]:
        theirs = [Path(project) / name for name in BOOT_FILES] if project else []
        # What we write there ourselves is a memory, which may be said again.
        return tuple(text for path in (*theirs, *own) if (text := without_ours(_text(path))))

    try:
        yield ReviewSettings(
            Redaction(config.home).redactor(),
            config.review != "off",
            thinker,
            budget,
            policies(config),
            boot,
            lambda session: _transcript(machine.transcripts, session),
            machine.user,
        )
    finally:
        if thinker is not None:
            thinker.close()


def budget_limits(config: Config) -> "tuple[ReviewBudget, ReviewBudget, ReviewBudget]":
    """Return the budget of the person's configuration, what the environment asks for, and what holds: the lower.

    Raise InvalidArgument for a setting that says none.
    """
    from evolvable_tools.review.review_config import parse_budget, stricter_budget

    with named("budgets.review of the person's configuration"):
        floor = parse_budget(str(config.person.budgets.get("review", "")))
    with named(REVIEW_BUDGET):
        asked = parse_budget(config.review_budget, floor)
    return floor, asked, stricter_budget(floor, asked)


def policies(config: Config) -> "Mapping[Kind, ApprovalPolicy]":
    """Return what becomes of proposals, by kind: the stricter of the person's configuration and the environment.

    Raise InvalidArgument for a setting that says none.
    """
    from evolvable_tools.approval_policy import parse_policies, stricter_policies

    with named("review_policy of the person's configuration"):
        floor = parse_policies(config.person.review_policy)
    with named(REVIEW_POLICY):
        return stricter_policies(floor, parse_policies(config.review_policy))


def _transcript(folders: Sequence[Path], session: str) -> Path | None:
    """Returns the newest transcript whose name has a session's id in it, as both clients name theirs."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{5,100}", session):
        return None
    found = [path for folder in folders if folder.is_dir() for path in folder.rglob(f"*{session}.jsonl")]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def lazy_settings(config: Config, until: contextlib.ExitStack) -> Callable[[], "ReviewSettings"]:
    """Returns a function that makes the settings when it is first called; they are closed with `until`."""
    made: list[ReviewSettings] = []
    turn, redaction = threading.Lock(), Redaction(config.home)

    def settings() -> "ReviewSettings":
        with turn:
            if not made:
                made.append(until.enter_context(review_settings(config)))
            return replace(made[0], redactor=redaction.redactor())

    return settings


def _thinker(config: Config) -> "AnthropicModel | CommandModel | None":
    if config.review in ("off", "handoff"):
        return None
    from evolvable_tools.llm.anthropic_model import MODEL, AnthropicModel
    from evolvable_tools.llm.command_model import CommandModel

    who, _, model = config.review.partition(":")
    if who == "anthropic":
        proxy = config.person.models.get("proxy")
        return AnthropicModel(config.api_key, model or MODEL, config.api_url, TIMEOUT, proxy=proxy)
    with named(REVIEW):
        folder, environment = neutral(config.home), thinking_environment(config)
        command = thinking_command(config, "reviewers", config.review)
        return CommandModel(command, TIMEOUT, folder=folder, environment=environment)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BOOT).decode("utf-8", "replace")
    except OSError:
        return ""

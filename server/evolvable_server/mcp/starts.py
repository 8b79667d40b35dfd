"""The gate before a run begins or goes on: the person is asked what runs, where, and what it may spend."""

from collections.abc import Mapping
from typing import Any

from evolvable_server.config import Config
from evolvable_server.mcp.deciding import Decision
from evolvable_server.naming import named_commands
from evolvable_store.errors import InvalidArgument

MAX_TEXT = 200
"""Characters of one line of the question."""

_LIMITS = {"max_cost": "${} in all", "max_tokens": "{} tokens", "max_calls": "{} calls of models"}


class Starts(Decision):
    """Asks a person before a run begins or goes on."""

    key = "start"

    def __init__(self, config: Config) -> None:
        self._config = config

    async def asks(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Returns whether this call starts a run or goes on with one."""
        return tool in ("evolve_start", "evolve_continue")

    def by_hand(self, arguments: Mapping[str, Any], why: str) -> str:
        """Returns what the agent is told when nobody said yes."""
        return (
            f"{why}, and a run executes commands, may spend money and opens the sealed test: a person starts it."
            " Nothing was started."
        )

    def question(self, arguments: Mapping[str, Any]) -> str:
        """Returns what the person is asked. Raises Refused, InvalidArgument for what nobody named."""
        if "executor" not in arguments:
            return self._continued(arguments)
        settings = arguments.get("settings")
        settings = settings if isinstance(settings, Mapping) else {}
        lines = [
            f"Start an evolution on {_line(arguments.get('task_set'))} of {_line(arguments.get('program'))}?",
            f"The tasks are done by {self._named('executors', arguments['executor'])}",
            f"Proposals are made by {self._named('proposers', arguments.get('brain') or 'handoff')}",
        ]
        if settings.get("judge"):
            lines.append(f"Answers are judged by {self._named('judges', settings['judge'])}")
        given = {name: value for name, value in arguments.items() if value is not None}
        given |= {f"max_{name}": settings[name] for name in ("cost", "tokens", "calls") if name in settings}
        lines.append(f"It runs in {self._config.home} with your rights, and opens the sealed test at its end.")
        return "\n".join([*lines, _spends(given)])

    def _continued(self, arguments: Mapping[str, Any]) -> str:
        from evolvable_tools.evolve.driver import load_run_state
        from evolvable_tools.evolve.ledger.run_directory import find_run

        folder = find_run(self._config.home, arguments.get("run"))
        state = load_run_state(folder)
        executor = state.settings.get("executor", {})
        who = executor.get("name") or executor.get("model") or executor.get("kind")
        command = f" ({_line(executor['command'])})" if executor.get("command") else ""
        lines = [
            f"Go on with run {folder.id} on {_line(state.settings.get('task_set'))}?",
            f"The tasks are done by {_line(executor.get('kind'))} {_line(who)}{command}",
            f"So far it took {state.bill.tokens:,} tokens and ${state.bill.cost:.2f}.",
        ]
        given = {name: value for name, value in arguments.items() if value is not None}
        old = {f"max_{name}": value for name, value in state.settings.get("limit", {}).items() if value is not None}
        return "\n".join([*lines, _spends(old | given)])

    def _named(self, role: str, who: Any) -> str:
        """Returns whom a text names, with the command that it stands for."""
        if not isinstance(who, str):
            raise InvalidArgument("executor, brain and judge are texts.", "Such as claude:MODEL, or a name.")
        text = f"{_line(who)}"
        if who.partition(":")[0] in ("claude", "codex", "anthropic", "handoff", "simulated"):
            return text
        commands = named_commands(self._config)
        roles = (role, "proposers") if role == "judges" and who in commands["proposers"].commands else (role,)
        command = commands[roles[-1]].get(who)
        return f"{text}, the command {_line(list(command.words))}"


def _spends(given: Mapping[str, Any]) -> str:
    limits = [text.format(_line(given[name])) for name, text in _LIMITS.items() if name in given]
    return f"It may spend {', '.join(limits)}." if limits else "There is no limit on what it may spend."


def _line(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= MAX_TEXT else f"{line[:MAX_TEXT]}..."

"""An agent as a function of a task, and the allowance for runs that no person starts."""

import asyncio
from dataclasses import dataclass
from typing import Any

from evolvable_evolve.ags import AgsRequest, AgsStatus, ags_status, start_ags, stop_ags
from evolvable_evolve.evolution import AGS_DIR, Allowance, find_run, parse_executor_spec
from evolvable_evolve.run_launcher import evolve_context, start_driver
from evolvable_server import Config
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Ref
from evolvable_tools import Caller, Library

_POLL = 0.2
"""Seconds between two looks at a run."""


def ags_allowance(config: Config) -> Allowance | None:
    """Return the allowance for runs of agents that no person starts, None for none.

    Raise InvalidArgument.
    """
    return Allowance.strictest((part.budgets.get(AGS_DIR) for part in config.person.parts), AGS_DIR)


@dataclass(frozen=True, slots=True)
class AgentHost:
    """Runs an agent outside of a plan.

    person: whether the caller is a person, who may name any executor.
    """

    config: Config
    person: bool = False

    async def run(
        self, library: Library, caller: Caller, ref: Ref, task: str, executor: str
    ) -> AgsStatus:
        """Have an agent do a task, and return its run, which has ended. executor: its name, '' for
        the first allowed.

        Another process drives the run; where this call is cancelled the run is stopped. Raises
        Refused, InvalidArgument, NoSuchResource.
        """
        run = await asyncio.to_thread(self._start, library, caller, ref, task, executor)
        home = self.config.home
        try:
            while (status := await asyncio.to_thread(ags_status, home, run)).state == "running":
                await asyncio.sleep(_POLL)
        except asyncio.CancelledError:
            stop_ags(home, run)
            raise
        return status

    def _start(self, library: Library, caller: Caller, ref: Ref, task: str, executor: str) -> str:
        allowance = ags_allowance(self.config)
        allowed = allowance.executors if allowance and not self.person else ()
        name = executor or next(iter(allowed), "")
        if not name:
            hint = (
                'Name one: {"task": TEXT, "executor": NAME}. `evolvable role executor list` shows '
                "those you named."
            )
            raise InvalidArgument(f"{ref} did not run: no executor is named.", hint)
        host = evolve_context(self.config, person=self.person)
        commands = host.commands["executors"] if host.commands else None
        spec = parse_executor_spec(name, commands, host.models)
        begun = start_ags(library, caller, host, AgsRequest(task, spec, "none", (ref,)), allowance)
        start_driver(self.config.home, find_run(self.config.home, begun.run, AGS_DIR), verb=AGS_DIR)
        return begun.run


def last_item(status: AgsStatus) -> dict[str, Any]:
    """Return the one item of a run without a planner, {} where it never began."""
    return next(iter(status.items), {})

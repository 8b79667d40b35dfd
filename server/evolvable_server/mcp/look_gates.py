"""Ask the person at the client about what an agent created or changed: a yes makes it looked at.

A created resource or file works at once in its own session, and is asked about once, after the
call. With `confirm = "session"` a change that nobody looked at is asked about at the first load in
a session. Every other answer than yes leaves all as it is.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import mcp_types as types
from anyio.to_thread import run_sync
from mcp.server.mcpserver import Context

from evolvable_server.mcp.call import Call, CallSessions, caller_of, name_of
from evolvable_server.mcp.elicitation import (
    MAX_DIFF,
    MAX_REASON,
    ApprovalGate,
    ProposalGate,
    approve_looked,
    confirm,
    cut_line,
    has_answer,
    may_ask,
    unseen_in,
)
from evolvable_server.mcp.results import structured_result
from evolvable_server.mcp.server import LibraryServer
from evolvable_store.resource import Ref
from evolvable_tools import Caller, Library

if TYPE_CHECKING:
    from evolvable_tools.verbs import UnseenChange

Result = types.CallToolResult | types.InputRequiredResult

_KEY = "look"

MAX_NAMES = 200
"""Characters of the names of new files in a question."""

_LOOKED, _RESULT = "looked", "result"
"""Fields of a question's state: the shown tree by its ref, and the result of the call before it."""


class LookGate:
    """The base of these gates: the caller of a call, and the question."""

    def __init__(self, library: Library, caller: Caller, sessions: CallSessions) -> None:
        self._library, self._caller, self._sessions = library, caller, sessions

    def _find_caller(self, context: Context[Any, Any]) -> Caller:
        return caller_of(self._caller, context, self._sessions)

    def _can_ask(self, context: Context[Any, Any]) -> bool:
        """Return whether a yes in this client counts as the person's; over HTTP it does not."""
        bearer = name_of(context.request_context.request)
        if bearer is not None or self._library.lock is not None:
            return False
        return has_answer(context) or may_ask(context)

    async def _ask(
        self, context: Context[Any, Any], caller: Caller, question: str, state: dict[str, Any]
    ) -> types.InputRequiredResult | None:
        """Ask, and record a yes.

        Return the result that ends a call with the question, None after the answer.
        """
        answer = await confirm(context, _KEY, lambda: question, json.dumps(state))
        if isinstance(answer, types.InputRequiredResult):
            return answer
        if answer == "accept":
            await run_sync(approve_looked, self._library, caller, state[_LOOKED])
        return None


class CreationGate(LookGate):
    """Asks once about a resource or a file that an agent created, after the call that
    created it.
    """

    def __init__(
        self, library: Library, caller: Caller, sessions: CallSessions, approval: ApprovalGate
    ) -> None:
        """approval: asks about what waits, before a resource is there."""
        super().__init__(library, caller, sessions)
        self._approval = approval

    def asks(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether this call may create a resource or a file."""
        return tool == "update_resource" and self._approval.asks(tool, arguments)

    async def call(
        self, tool: str, arguments: dict[str, Any], context: Context[Any, Any], call: Call
    ) -> Result:
        """Make the call; where it created what nobody looked at, ask."""
        state = json.loads(context.request_state or "{}") if has_answer(context) else {}
        caller = self._find_caller(context)
        # The call was made before the question, and must not be made again.
        if _LOOKED in state:
            if self._can_ask(context):
                await self._ask(context, caller, "", state)
            return structured_result(state[_RESULT])
        result = await self._approval.call(tool, arguments, context, call)
        content = result.structured_content if isinstance(result, types.CallToolResult) else None
        # Another state is that of the approval's question, which the person has just answered.
        if not content or not content.get("operation") or state or not self._can_ask(context):
            return result
        unseen, created = await run_sync(self._created_files, caller, content)
        if unseen is None or not created:
            return result
        question = await run_sync(_make_question, unseen, created)
        state = {_LOOKED: {unseen.ref: unseen.tree}, _RESULT: content}
        return await self._ask(context, caller, question, state) or result

    def _created_files(
        self, caller: Caller, content: Mapping[str, Any]
    ) -> "tuple[UnseenChange | None, list[str]]":
        """Return the unseen change of the resource that a call changed, and the created files."""
        ref, before = Ref.parse(str(content["ref"])).at(None), content.get("previous_version")
        head = self._library.store.head(ref, caller.scopes)
        old = self._library.store.manifest(head, before) if before else {}
        created = [path for path in content["changed"] if path not in old]
        if not created:
            return None, created
        return unseen_in(self._library, caller, str(ref), content["version"]), created


class SessionGate(LookGate):
    """Asks about an agent's unseen change, once in a session for each resource, as it is loaded."""

    def __init__(self, library: Library, caller: Caller, sessions: CallSessions) -> None:
        super().__init__(library, caller, sessions)
        self._asked: set[tuple[str | None, str]] = set()

    def asks(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether this call loads a resource."""
        return tool == "load_skill"

    async def call(
        self, tool: str, arguments: dict[str, Any], context: Context[Any, Any], call: Call
    ) -> Result:
        """Ask where there is something to look at, then make the call."""
        if not self._can_ask(context):
            return await call(tool, arguments, context)
        caller = self._find_caller(context)
        if has_answer(context):
            if _LOOKED in (state := json.loads(context.request_state or "{}")):
                await self._ask(context, caller, "", state)
            return await call(tool, arguments, context)
        unseen = await run_sync(
            unseen_in, self._library, caller, str(arguments.get("ref")), arguments.get("version")
        )
        # A client that names no session is known by its connection.
        key = caller.session or caller.connection, unseen.ref if unseen is not None else ""
        if unseen is None or key in self._asked:
            return await call(tool, arguments, context)
        # Before the question: a client that cancels it is not asked again.
        self._asked.add(key)
        question = await run_sync(_make_question, unseen)
        ended = await self._ask(context, caller, question, {_LOOKED: {unseen.ref: unseen.tree}})
        return ended if ended is not None else await call(tool, arguments, context)


def _make_question(unseen: "UnseenChange", created: Sequence[str] = ()) -> str:
    """Return the question. Text of an agent is cut, and has lines of its own.

    created: the new files.
    """
    if unseen.is_new:
        what = f"An agent created {unseen.ref}. Is it fine?"
    elif created:
        names = cut_line(", ".join(created), MAX_NAMES)
        what = f"An agent added to {unseen.ref}: {names}. Is all that changed fine?\n{unseen.line}"
    else:
        what = f"An agent changed {unseen.ref} since you last looked. Is it fine?\n{unseen.line}"
    if unseen.is_new or created:
        end = (
            "If you accept, every session works by it. If you do not, only its own session does, "
            "until you look."
        )
    else:
        end = (
            "If you accept, it counts as yours. If you do not, it is used as it is; this session "
            "does not ask again."
        )
    changes = unseen.diff[:MAX_DIFF] + ("\n[cut]" if len(unseen.diff) > MAX_DIFF else "")
    return "\n".join([what, f"Its reason: {cut_line(unseen.reason, MAX_REASON)}", changes, end])


def add_approvals(
    server: LibraryServer,
    library: Library,
    caller: Caller,
    sessions: CallSessions,
    *,
    confirms: bool,
) -> None:
    """Make the server ask about waiting changes, decisions, and what an agent created.

    confirms: also about unseen changes, at the first load in a session.
    """
    approval = ApprovalGate(library, caller, sessions)
    server.gates += [
        CreationGate(library, caller, sessions, approval),
        approval,
        ProposalGate(library),
    ]
    if confirms:
        server.gates.append(SessionGate(library, caller, sessions))

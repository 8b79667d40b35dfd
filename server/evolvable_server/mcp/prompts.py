"""The prompts that a client offers: `use_skill`, `memory`, and those of the library, read anew for every question."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import mcp_types as types
from anyio.to_thread import run_sync
from mcp.server.mcpserver.prompts import Prompt
from mcp.shared.exceptions import MCPError

from evolvable_server.mcp.server import LibraryServer
from evolvable_server.mcp.uris import complete_uri
from evolvable_store.errors import EvolvableError
from evolvable_store.resource import Kind, Ref
from evolvable_tools.library import Caller, Library
from evolvable_tools.untrusted_text import bound_text, enclose

if TYPE_CHECKING:
    from evolvable_tools.verbs import search

MAX_COMPLETIONS = 100


def use_skill(library: Library, caller: Caller) -> Callable[[str, str], str]:
    """Returns the prompt's function over this library."""

    def prompt(name: str, task: str = "") -> str:
        from evolvable_tools.verbs import load  # late: a server answers before it is asked for a prompt

        loaded = load.load_skill(library, caller, Ref.parse(name))
        goal, text = f" for this task: {task}" if task else "", loaded.text or ""
        if loaded.marked:
            text = enclose(text, f"{loaded.path} of {loaded.ref}@{loaded.version}", loaded.trust)
        return (
            f"Follow the skill {loaded.ref}@{loaded.version} below{goal}. Its other files can be read with load_skill."
            f" When you are done, call report_outcome with use_id {loaded.use_id}.\n\n{text}"
        )

    return prompt


def briefing(library: Library, caller: Caller) -> Callable[[], str]:
    """Returns the function of the prompt `memory` over this library."""

    def prompt() -> str:
        from evolvable_tools.verbs import memory_facts

        return memory_facts.briefing(library, caller)

    return prompt


class LibraryPrompts:
    """The prompts of one library, for one caller."""

    def __init__(self, library: Library, caller: Caller) -> None:
        self._library, self._caller = library, caller

    async def everything(self) -> list[types.Prompt]:
        """Returns every prompt of the library, by name."""
        from evolvable_tools.verbs import search

        found = await run_sync(search.list_prompts, self._library, self._caller)
        return [_as_prompt(prompt) for prompt in found]

    async def filled(self, name: str, arguments: Mapping[str, str]) -> types.GetPromptResult:
        """Returns a prompt with its arguments filled in. Raises MCPError."""
        from evolvable_tools.verbs import search

        try:
            text = await run_sync(search.fill_prompt, self._library, self._caller, name, arguments)
        except EvolvableError as error:
            raise MCPError(code=types.INVALID_PARAMS, message=error.text) from None
        content = types.TextContent(type="text", text=text)
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=content)])

    def complete(self, prompt: str, argument: str, begun: str) -> list[str]:
        """Returns the known values of a prompt's argument that begin so.

        An argument that is called like a kind is a name of that kind, as is `name` of use_skill.
        """
        from evolvable_tools.verbs import search

        if prompt == "use_skill":
            return self._names(Kind.SKILL, begun) if argument == "name" else []
        found = search.get_prompt(self._library, self._caller, prompt).arguments
        values = next((one.values for one in found if one.name == argument), None)
        if values == () and argument in set(Kind):
            return self._names(Kind(argument), begun)
        return [value for value in values or () if value.startswith(begun)]

    def _names(self, kind: Kind, begun: str) -> list[str]:
        return self._library.index.names(kind, begun, MAX_COMPLETIONS + 1, self._caller.scopes)


def _as_prompt(prompt: "search.Prompt") -> types.Prompt:
    arguments = [
        types.PromptArgument(
            name=argument.name,
            description=f"one of {', '.join(argument.values)}" if argument.values else None,
            required=argument.required,
        )
        for argument in prompt.arguments
    ]
    return types.Prompt(
        name=prompt.ref.name, description=bound_text(prompt.description, trusted=prompt.trusted), arguments=arguments
    )


def add_prompts(server: LibraryServer, library: Library, caller: Caller) -> None:
    """Adds the prompts `use_skill`, `memory` and the library's, with completion.

    Arguments are one word: clients split on spaces.

    The variables of resource templates complete here too: the protocol has one question for both.
    """
    server.add_prompt(
        Prompt.from_function(
            use_skill(library, caller),
            name="use_skill",
            title="Use a skill",
            description="Load a skill by name and follow it.",
        )
    )
    server.add_prompt(
        Prompt.from_function(
            briefing(library, caller),
            name="memory",
            title="Memory",
            description="What is known of you and your work, and how it may be added to.",
        )
    )
    server.live_prompts = live = LibraryPrompts(library, caller)

    def values(
        reference: types.PromptReference | types.ResourceTemplateReference,
        argument: types.CompletionArgument,
        known: Mapping[str, str],
    ) -> list[str]:
        try:
            if isinstance(reference, types.PromptReference):
                return live.complete(reference.name, argument.name, argument.value)
            return complete_uri(library, caller, reference.uri, argument.name, argument.value, known)
        except EvolvableError:
            return []  # of what is not there, nothing is known

    async def complete(
        reference: types.PromptReference | types.ResourceTemplateReference,
        argument: types.CompletionArgument,
        context: types.CompletionContext | None,
    ) -> types.Completion:
        known = (context.arguments if context else None) or {}
        found = await run_sync(values, reference, argument, known)
        return types.Completion(values=found[:MAX_COMPLETIONS], has_more=len(found) > MAX_COMPLETIONS)

    server.completion()(complete)  # type: ignore[no-untyped-call]

"""The prompt that puts a skill to work, and the completion of its name."""

from collections.abc import Callable

from anyio.to_thread import run_sync
from mcp.server.mcpserver.prompts import Prompt
from mcp_types import (
    Completion,
    CompletionArgument,
    CompletionContext,
    PromptReference,
    ResourceTemplateReference,
)

from evolvable_server.mcp.server import LibraryServer
from evolvable_store.resource import Kind, Ref
from evolvable_tools import usage
from evolvable_tools.library import Caller, Library

MAX_COMPLETIONS = 100


def use_skill(library: Library, caller: Caller) -> Callable[[str, str], str]:
    """Returns the prompt's function over this library."""

    def prompt(name: str, task: str = "") -> str:
        loaded = usage.load(library, caller, Ref.parse(name))
        goal = f" for this task: {task}" if task else ""
        return (
            f"Follow the skill {loaded.ref}@{loaded.version} below{goal}. Its other files can be read with load_skill."
            f" When you are done, call report_outcome with use_id {loaded.use_id}.\n\n{loaded.text or ''}"
        )

    return prompt


def add_prompts(server: LibraryServer, library: Library, caller: Caller) -> None:
    """Adds the prompt `use_skill` and completion for its argument. Arguments are one word: clients split on spaces."""
    server.add_prompt(
        Prompt.from_function(
            use_skill(library, caller),
            name="use_skill",
            title="Use a skill",
            description="Load a skill by name and follow it.",
        )
    )

    async def complete(
        reference: PromptReference | ResourceTemplateReference,
        argument: CompletionArgument,
        context: CompletionContext | None,
    ) -> Completion | None:
        if not (isinstance(reference, PromptReference) and argument.name == "name"):
            return None
        names = await run_sync(library.index.names, Kind.SKILL, argument.value, MAX_COMPLETIONS + 1)
        return Completion(values=names[:MAX_COMPLETIONS], has_more=len(names) > MAX_COMPLETIONS)

    server.completion()(complete)  # type: ignore[no-untyped-call]

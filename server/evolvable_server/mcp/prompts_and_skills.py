"""The prompts of the server, and the extension io.modelcontextprotocol/skills (SEP-2640).

Prompts are `use_skill`, `memory`, `inbox`, `why` and those of the library, read again for every
request. The extension serves the stable channel by skills/list, skills/get and
resources/directory/read: an entry promises the bytes that resources/read gives for its URIs.
Clients of protocol versions without extensions do not see the capability; the methods answer them
too.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import mcp_types as types
from anyio.to_thread import run_sync
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver.prompts import Prompt
from mcp.shared.exceptions import MCPError

from evolvable_server.mcp import resources
from evolvable_server.mcp.person_prompts import PersonPrompts
from evolvable_server.mcp.results import answer_on_thread
from evolvable_server.mcp.server import LibraryServer
from evolvable_store.errors import EvolvableError, NoSuchResource, quote_text
from evolvable_store.resource import USER_SCOPE, Kind, Ref
from evolvable_store.storage import ChannelEntry
from evolvable_tools import (
    Caller,
    Library,
    authorships,
    bound_text,
    enclose,
    verbs,
    version_authorship,
)
from evolvable_tools.verbs import MAIN, HostCatalog, SkillEntry

# The protocol allows 100 values in one answer.
MAX_COMPLETIONS = 100


class LibraryPrompts:
    """The prompts of one library, for one caller."""

    def __init__(self, library: Library, caller: Caller) -> None:
        self._library, self._caller = library, caller

    def use_skill(self, name: str, task: str = "") -> str:
        """Return the prompt to follow a skill."""
        loaded = verbs.load_skill(self._library, self._caller, Ref.parse(name))
        goal, text = f" for this task: {task}" if task else "", loaded.text or ""
        if loaded.marked:
            text = enclose(text, f"{loaded.path} of {loaded.ref}@{loaded.version}", loaded.notice)
        report = ""
        if loaded.use_id:
            report = f" When you are done, call report_outcome with use_id {loaded.use_id}."
        return (
            f"Follow the skill {loaded.ref}@{loaded.version} below{goal}. Its other files can be "
            f"read with load_skill.{report}\n\n{text}"
        )

    def memory(self) -> str:
        """Return the briefing: the memories of the person and of the project."""
        return verbs.briefing(self._library, self._caller)

    def inbox(self) -> str:
        """Return the person's question for what waits."""
        return self._person.inbox()

    def why(self, ref: str, task: str = "") -> str:
        """Return the person's question why a resource is as it is."""
        return self._person.why(ref, task)

    @property
    def _person(self) -> PersonPrompts:
        return PersonPrompts(self._library, self._caller)

    async def everything(self) -> list[types.Prompt]:
        """Return every prompt of the library, by name."""
        prompts = await run_sync(verbs.list_prompts, self._library, self._caller)
        return [_as_prompt(prompt) for prompt in prompts]

    async def fill_prompt(self, name: str, arguments: Mapping[str, str]) -> types.GetPromptResult:
        """Return a prompt with its arguments filled in. Raise MCPError."""
        try:
            text = await run_sync(verbs.fill_prompt, self._library, self._caller, name, arguments)
        except EvolvableError as error:
            raise MCPError(code=types.INVALID_PARAMS, message=error.text) from None
        content = types.TextContent(type="text", text=text)
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=content)])

    def complete(self, prompt: str, argument: str, begun: str) -> list[str]:
        """Return the known values of a prompt's argument that begin with `begun`.

        An argument that is called like a kind is a name of that kind, as is `name` of use_skill.
        """
        if prompt == "use_skill":
            return self._complete_name(Kind.SKILL, begun) if argument == "name" else []
        if prompt == "why":
            # One more than an answer has, to know whether there are others.
            return self._person.complete(argument, begun, MAX_COMPLETIONS + 1)
        arguments = verbs.get_prompt(self._library, self._caller, prompt).arguments
        # None where the prompt has no such argument, () where it names no values for it.
        values = next(
            (candidate.values for candidate in arguments if candidate.name == argument), None
        )
        if values == () and argument in set(Kind):
            return self._complete_name(Kind(argument), begun)
        return [value for value in values or () if value.startswith(begun)]

    def _complete_name(self, kind: Kind, begun: str) -> list[str]:
        # One more than an answer has, to know whether there are others.
        return self._library.index.names(kind, begun, MAX_COMPLETIONS + 1, self._caller.scopes)


def _as_prompt(prompt: "verbs.Prompt") -> types.Prompt:
    arguments = [
        types.PromptArgument(
            name=argument.name,
            description=f"one of {', '.join(argument.values)}" if argument.values else None,
            required=argument.required,
        )
        for argument in prompt.arguments
    ]
    return types.Prompt(
        name=prompt.ref.name,
        description=bound_text(prompt.description, trusted=prompt.is_trusted),
        arguments=arguments,
    )


def add_prompts(server: LibraryServer, library: Library, caller: Caller) -> None:
    """Add the prompts `use_skill`, `memory`, `inbox`, `why` and the library's, with completion.

    Arguments are one word: clients split on spaces.

    The variables of resource templates complete here too: the protocol has one question for both.
    """
    server.live_prompts = live = LibraryPrompts(library, caller)
    server.late_prompts = [
        partial(Prompt.from_function, function, title=title, description=description)
        for function, title, description in (
            (live.use_skill, "Use a skill", "Load a skill by name and follow it."),
            (
                live.memory,
                "Memory",
                "What is known of you and your work, and how it may be added to.",
            ),
            (live.inbox, "Inbox", "What waits for your decision."),
            (live.why, "Why", "Why a resource is as it is, and why a search finds it."),
        )
    ]

    def find_values(
        reference: types.PromptReference | types.ResourceTemplateReference,
        argument: types.CompletionArgument,
        arguments: Mapping[str, str],
    ) -> list[str]:
        try:
            if isinstance(reference, types.PromptReference):
                return live.complete(reference.name, argument.name, argument.value)
            return resources.complete_uri(
                library, caller, reference.uri, argument.name, argument.value, arguments
            )
        except EvolvableError:
            return []  # a prompt or a resource that does not exist has no values

    async def complete(
        reference: types.PromptReference | types.ResourceTemplateReference,
        argument: types.CompletionArgument,
        context: types.CompletionContext | None,
    ) -> types.Completion:
        arguments = (context.arguments if context else None) or {}
        completions = await run_sync(find_values, reference, argument, arguments)
        return types.Completion(
            values=completions[:MAX_COMPLETIONS], has_more=len(completions) > MAX_COMPLETIONS
        )

    server.completion()(complete)  # type: ignore[no-untyped-call]


PAGE_SKILLS, PAGE_FILES = 100, 2_000
"""Skills and files after which a page ends; the last skill may bring more files."""

PAGE_CHILDREN = 1_000
"""Children of one page of a directory."""

DIRECTORY = "inode/directory"

VERSION_TTL_MS = 24 * 3_600_000
"""How long clients may cache the file of a version: it never changes."""

Key = tuple[str, str]


class UriParams(types.PaginatedRequestParams):
    """A URI, and where to go on."""

    uri: str


class ListSkillsResult(types.CacheableResult):
    """One page of skills."""

    skills: list[dict[str, Any]]
    next_cursor: str | None = None
    result_type: Literal["complete"] = "complete"


class GetSkillResult(types.CacheableResult):
    """One skill."""

    skill: dict[str, Any]
    result_type: Literal["complete"] = "complete"


class ReadDirectoryResult(types.CacheableResult):
    """One page of the direct children of a directory, files and directories by name."""

    resources: list[types.Resource]
    next_cursor: str | None = None
    result_type: Literal["complete"] = "complete"


class SkillsExtension(Extension):
    """Skills over MCP, from the stable channel of one library."""

    identifier = "io.modelcontextprotocol/skills"

    def __init__(self, library: Library, caller: Caller) -> None:
        self._library, self._caller = library, caller

    def settings(self) -> dict[str, Any]:
        """Return the settings that the extension declares: directories can be read."""
        return {"directoryRead": True}

    def methods(self) -> Sequence[MethodBinding]:
        """Return the three methods, for all protocol versions."""
        return [
            MethodBinding("skills/list", types.PaginatedRequestParams, self._answer_list),
            MethodBinding("skills/get", UriParams, self._answer_get),
            MethodBinding("resources/directory/read", UriParams, self._answer_directory),
        ]

    async def _answer_list(self, _: Any, params: types.PaginatedRequestParams) -> ListSkillsResult:
        return await answer_on_thread(self._list_page, params.cursor)

    async def _answer_get(self, _: Any, params: UriParams) -> GetSkillResult:
        return await answer_on_thread(self._find_skill, params.uri, uri=params.uri)

    async def _answer_directory(self, _: Any, params: UriParams) -> ReadDirectoryResult:
        return await answer_on_thread(
            self._list_children, params.uri, params.cursor, uri=params.uri
        )

    def _list_page(self, cursor: str | None) -> ListSkillsResult:
        catalog = HostCatalog(self._library.store)
        skills = catalog.skills(self._caller.scopes)
        entries: list[dict[str, Any]] = []
        versions: list[tuple[int, int]] = []
        files, last = 0, ("", "")
        for skill in skills[_find_start(skills, cursor) :]:
            # Checked before a skill is added: the page ends after the skill that fills it.
            if len(entries) >= PAGE_SKILLS or files >= PAGE_FILES:
                return ListSkillsResult(
                    skills=self._with_notes(versions, entries),
                    next_cursor=resources.encode_cursor(last),
                )
            entry, last = catalog.entry(skill), _sort_key(skill)
            # A skill that is left out takes no place on the page.
            if entry.is_listed:
                entries.append(_as_skill(entry, None))
                versions.append((skill.resource, entry.version))
                files += len(entry.files)
        return ListSkillsResult(skills=self._with_notes(versions, entries))

    def _with_notes(
        self, versions: Sequence[tuple[int, int]], skills: Sequence[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return the skills, each with a note on the author of the version that hosts see."""
        heads = self._library.store.backend.heads_by_id([resource for resource, _ in versions])
        authors = authorships(self._library, heads)
        notes = []
        for resource, version in versions:
            head = heads[resource]
            if version == head.latest:
                # The authors of newest versions came with one query for all.
                author = authors[resource]
            else:
                author = version_authorship(self._library, head, version)
            notes.append(author.why)
        return [_with_note(skill, text) for skill, text in zip(skills, notes, strict=True)]

    def _find_skill(self, uri: str) -> GetSkillResult:
        target = resources.resolve(self._library.store, uri)
        if target.head.kind is not Kind.SKILL or target.path != MAIN:
            raise NoSuchResource(
                f"No skill is served at {quote_text(uri, 200)}.",
                f"A skill's URI ends with /{MAIN}.",
            )
        channel_entry = self._library.store.backend.channel.of(target.head.id)
        if channel_entry is None:
            raise NoSuchResource(
                f"{target.head.ref} is not on the channel.",
                "`evolvable care fsck` says whether it should be.",
            )
        entry = HostCatalog(self._library.store).entry(channel_entry, target.version)
        if entry.left_out:
            raise NoSuchResource(
                f"{entry.ref.at(entry.version)} is not offered: {'; '.join(entry.left_out)}."
            )
        note = version_authorship(self._library, target.head, entry.version).why
        skill = _with_note(_as_skill(entry, target.version if target.is_versioned else None), note)
        return GetSkillResult(skill=skill, ttl_ms=VERSION_TTL_MS if target.is_versioned else 0)

    def _list_children(self, uri: str, cursor: str | None) -> ReadDirectoryResult:
        target = resources.resolve(self._library.store, uri, directory=True)
        files = self._library.store.manifest(target.head, target.version)
        inside = f"{target.path}/" if target.path else ""
        paths = [path.removeprefix(inside) for path in files if path.startswith(inside)]
        # A pair with a slash is a directory, one without is a file.
        names = sorted({path.partition("/")[:2] for path in paths})
        if not names:
            raise NoSuchResource(
                f"{quote_text(uri, 200)} is not a directory.",
                "A skill's own is its URI without its file.",
            )
        after = _parse_cursor(cursor)[0] if cursor else ""
        rest = [(name, bool(slash)) for name, slash in names if name > after]
        page = [
            _as_resource(target, f"{inside}{name}", is_directory)
            for name, is_directory in rest[:PAGE_CHILDREN]
        ]
        has_more = len(rest) > PAGE_CHILDREN
        next_cursor = resources.encode_cursor((page[-1].name, "")) if has_more else None
        return ReadDirectoryResult(
            resources=page,
            next_cursor=next_cursor,
            ttl_ms=VERSION_TTL_MS if target.is_versioned else 0,
        )


def _as_skill(entry: SkillEntry, version: int | None) -> dict[str, Any]:
    resources = [
        {
            "uri": _make_uri(entry.ref, path, version),
            "digest": f"sha256:{file.sha256}",
            "size": file.size,
        }
        for path, file in sorted(entry.files.items())
    ]
    frontmatter: Mapping[str, object] = entry.frontmatter
    return {
        "uri": _make_uri(entry.ref, MAIN, version),
        "frontmatter": dict(frontmatter),
        "resources": resources,
    }


def _with_note(skill: dict[str, Any], note: str) -> dict[str, Any]:
    """Return a skill with a note in `_meta` where its author is not trusted; its frontmatter stays
    as it is written.
    """
    return {**skill, "_meta": resources.mark_of(note)} if note else skill


def _as_resource(target: resources.ResolvedUri, path: str, is_directory: bool) -> types.Resource:
    uri = _make_uri(target.head.ref, path, target.version if target.is_versioned else None)
    mime = DIRECTORY if is_directory else resources.mime_of(path)
    return types.Resource(uri=uri, name=path.rpartition("/")[2], mime_type=mime)


def _make_uri(ref: Ref, path: str, version: int | None) -> str:
    return resources.uri_of(ref.scope or USER_SCOPE, ref.name, path, ref.kind, version)


def _sort_key(skill: ChannelEntry) -> Key:
    return skill.ref.name, skill.ref.scope or USER_SCOPE


def _find_start(skills: Sequence[ChannelEntry], cursor: str | None) -> int:
    return bisect_right(skills, _parse_cursor(cursor), key=_sort_key) if cursor else 0


def _parse_cursor(cursor: str) -> Key:
    name, scope = resources.decode_cursor(cursor, (str, str))
    return name, scope

"""Tries every way into a server that its own lists name: tools, resources, templates, prompts,
completions.

The lists come from the server, and arguments from the schemas, so what is added later is tried too.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from mcp import Client
from mcp.shared.exceptions import MCPError

_CHANGING = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?"), "<time>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d\b"), "<day>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"\b[0-9a-f]{12,64}\b"), "<hex>"),
    (re.compile(r'("[a-z_]*(?:ms|seconds)": )[0-9.e-]+'), r"\1<ms>"),
)
"""What differs between two answers to the same question: times, and what is made by chance."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What a stranger tries.

    names: of resources. words: of texts. numbers: of versions, operations, proposals.
    """

    names: Sequence[str]
    scopes: Sequence[str]
    words: Sequence[str]
    numbers: Sequence[int] = (1, 2, 3, 7)
    most: int = 100
    """How many values of an argument are tried."""

    def refs(self) -> list[str]:
        """Return names as a caller writes them, of all kinds."""
        plain = [
            *self.names,
            *(f"{scope}/{self.names[0]}" for scope in self.scopes),
            f"{self.names[0]}@1",
        ]
        return [
            *plain,
            *(
                f"{kind}:{self.names[0]}"
                for kind in ("prompt", "agent", "tool", "environment", "memory")
            ),
        ]

    def values(self, name: str, schema: Mapping[str, Any]) -> list[Any]:
        """Return what to try for an argument."""
        choices = [schema, *schema.get("anyOf", ())]
        if found := next((one["enum"] for one in choices if "enum" in one), None):
            return list(found)
        kinds = {one.get("type") for one in choices}
        if "integer" in kinds or "number" in kinds:
            return list(self.numbers)
        if "boolean" in kinds:
            return [True, False]
        if "array" in kinds:
            items = next(one.get("items", {}) for one in choices if one.get("type") == "array")
            return (
                [[value] for value in self.values(name.rstrip("s"), items)[:3]] if items else [[]]
            )
        if "object" in kinds:
            return [{"SKILL.md": "x"}, {}]
        return self._texts(name)

    def _texts(self, name: str) -> list[str]:
        if name in ("ref", "skill", "resource", "agent", "copy_of", "delegate") or "ref" in name:
            return self.refs()
        if name in ("task_set", "program", "tool"):
            return [f"{kind}:{self.names[0]}" for kind in ("environment", "tool", "skill")]
        if name == "scope":
            return list(self.scopes)
        if name == "path":
            return ["SKILL.md", "../SKILL.md"]
        return [*self.words, *self.names[:1], "1"]


Answers = dict[str, str]
"""What every question was answered, without what differs from one time to the next."""


def plain(text: str, own: Mapping[str, str]) -> str:
    """Return an answer with its times and random names replaced, and `own` texts of this place."""
    for value, name in own.items():
        text = text.replace(value, name)
    for pattern, replacement in _CHANGING:
        text = pattern.sub(replacement, text)
    return text


class Walk:
    """One client that tries everything."""

    def __init__(self, client: Client, probe: Probe, own: Mapping[str, str]) -> None:
        """own: texts of this place that differ between two places, each with what stands for it."""
        self._client, self._probe, self._own = client, probe, own
        self.answers: Answers = {}
        self.tools: set[str] = set()

    async def everything(self) -> Answers:
        """Try all; return what was answered."""
        await self._lists()
        tools = (await self._client.list_tools(cache_mode="bypass")).tools
        self.tools = {tool.name for tool in tools}
        for tool in tools:
            for arguments in self._calls(tool):
                await self._ask(
                    f"{tool.name} {json.dumps(arguments)}",
                    self._client.call_tool(tool.name, arguments),
                )
        await self._resources()
        await self._prompts()
        await self._lists()
        return self.answers

    def _calls(self, tool: types.Tool) -> Iterator[dict[str, Any]]:
        """Yield arguments: each value of each argument once, the required ones filled with the
        first value.
        """
        properties: Mapping[str, Any] = tool.input_schema.get("properties", {})
        first = {
            name: self._probe.values(name, properties[name])[0]
            for name in tool.input_schema.get("required", ())
        }
        yield first
        for name, schema in properties.items():
            for value in self._probe.values(name, schema)[: self._probe.most]:
                if first.get(name) != value:
                    yield {**first, name: value}

    async def _lists(self) -> None:
        client = self._client
        await self._ask(
            f"resources/list {len(self.answers)}", client.list_resources(cache_mode="bypass")
        )
        await self._ask(
            f"templates/list {len(self.answers)}",
            client.list_resource_templates(cache_mode="bypass"),
        )
        await self._ask(
            f"prompts/list {len(self.answers)}", client.list_prompts(cache_mode="bypass")
        )

    async def _resources(self) -> None:
        templates = (
            await self._client.list_resource_templates(cache_mode="bypass")
        ).resource_templates
        schemes = {"skill", "prompt", "agent", "tool", "environment", "memory"}
        uris = [f"{scheme}://{name}" for scheme in sorted(schemes) for name in self._uri_names()]
        for template in templates:
            text = template.uri_template
            for name in self._probe.names:
                filled = text.replace("{name}", name).replace("{scope}", self._probe.scopes[0])
                filled = re.sub(r"\{\+?(file|path)\}", "SKILL.md", filled)
                uris.append(re.sub(r"\{[^}]*\}", "1", filled))
            for variable in re.findall(r"\{\+?(\w+)\}", text):
                reference = types.ResourceTemplateReference(uri=text)
                for begun in ("", self._probe.names[0][:3]):
                    asked = {"name": variable, "value": begun}
                    await self._ask(
                        f"complete {text} {asked}", self._client.complete(reference, asked)
                    )
        for uri in dict.fromkeys(uris):
            await self._ask(f"read {uri}", self._client.read_resource(uri, cache_mode="bypass"))

    def _uri_names(self) -> list[str]:
        one = self._probe.names[0]
        names = [f"{name}/SKILL.md" for name in self._probe.names]
        return [
            *names,
            *(f"{scope}/{one}/SKILL.md" for scope in self._probe.scopes),
            f"version.1/{one}/SKILL.md",
            one,
        ]

    async def _prompts(self) -> None:
        for prompt in (await self._client.list_prompts(cache_mode="bypass")).prompts:
            arguments = [one.name for one in prompt.arguments or ()]
            reference = types.PromptReference(name=prompt.name)
            for value in self._probe.refs()[:4]:
                asked = self._client.get_prompt(prompt.name, dict.fromkeys(arguments, value))
                await self._ask(f"prompt {prompt.name} {value}", asked)
            for name in arguments:
                for begun in ("", self._probe.names[0][:3], f"prompt:{self._probe.names[0][:3]}"):
                    asked = {"name": name, "value": begun}
                    await self._ask(
                        f"complete {prompt.name} {asked}", self._client.complete(reference, asked)
                    )
        for name in self._probe.names:
            await self._ask(f"prompt {name}", self._client.get_prompt(name))

    async def _ask(self, question: str, asked: Any) -> None:
        try:
            answer = (await asked).model_dump_json(exclude={"meta"})
        except MCPError as error:
            answer = f"{error.error.code} {error.error.message} {error.error.data}"
        self.answers[plain(question, self._own)] = plain(answer, self._own)

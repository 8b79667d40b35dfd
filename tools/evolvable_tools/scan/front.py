"""What a change of the head of a main file gives a resource: tools, programs, a model, more occasions of use."""

from collections.abc import Iterator, Mapping

from evolvable_store.frontmatter import parse_document
from evolvable_tools.scan.findings import Finding, Severity
from evolvable_tools.scan.views import View, written_out

_TOOLS = ("tools", "allowed-tools", "allowedTools", "allowed_tools")
_POWERS = {
    "hooks": "a hook, which runs commands by itself",
    "mcpServers": "an MCP server, which is a program of its own",
    "mcp-servers": "an MCP server, which is a program of its own",
    "mcp_servers": "an MCP server, which is a program of its own",
    "permissionMode": "another permission mode",
    "permission-mode": "another permission mode",
    "permissions": "other permissions",
    "model": "another model",
    "delegate": "the right to hand work to other agents",
    "delegates": "the right to hand work to other agents",
    "skills": "other skills that are loaded with it",
    "agent": "an agent that runs it",
    "agents": "other agents that it calls",
    "isolation": "another isolation",
    "sandbox": "another sandbox",
    "env": "environment variables",
    "shell": "another shell",
    "autoApprove": "approvals without a question",
    "alwaysApply": "use in every conversation",
}
_LIMITS = ("disallowedTools", "disallowed-tools", "disable-model-invocation", "readonly", "read-only", "paths", "globs")
_HINT = "Approve it if the resource needs that; otherwise leave it out."
_EVERYTHING = frozenset(
    ("*", "**", ".*", "any", "all", "anything", "everything", "always", "every message", "every task", "")
)


def front(before: View | None, after: View) -> Iterator[Finding]:
    """Yield a finding for each thing that the head of a main file gives the resource and did not before."""
    if before is None or head(before.text) == head(after.text):
        return
    was, now = _fields(before), _fields(after)
    yield from _tools(was, now, after.path)
    for key, what in _POWERS.items():
        if now.get(key) not in (None, False) and now.get(key) != was.get(key):
            yield _finding("front.power", after.path, f"{key}: {now[key]}", f"gives it {what} ({key})")
    for key in _LIMITS:
        if key in was and was[key] != now.get(key) and was[key] not in (None, False, []):
            yield _finding("front.limit", after.path, f"{key}: {was[key]}", f"takes a limit away or changes it ({key})")
    for trigger in _list(now.get("triggers")):
        if trigger.strip().casefold() in _EVERYTHING and trigger not in _list(was.get("triggers")):
            yield _finding("front.trigger", after.path, f"triggers: {trigger}", "claims every occasion as a trigger")


def _tools(was: Mapping[str, object], now: Mapping[str, object], path: str) -> Iterator[Finding]:
    for key in _TOOLS:
        if key not in was and key not in now:
            continue
        if key in was and key not in now and not any(other in now for other in _TOOLS):
            yield _finding(
                "front.tools",
                path,
                f"{key}: {was[key]}",
                f"takes the list of tools away ({key}), so that every tool may be used",
            )
        elif key in now and (key in was or any(other in was for other in _TOOLS)):
            known = {tool for other in _TOOLS for tool in _list(was.get(other))}
            more = [tool for tool in _list(now[key]) if tool not in known]
            if more:
                yield _finding("front.tools", path, f"{key}: {now[key]}", f"allows more tools: {', '.join(more)[:80]}")


def _list(value: object) -> list[str]:
    if isinstance(value, str):
        return [one.strip() for one in _split(value) if one.strip()]
    return [str(one) for one in value][:200] if isinstance(value, list) else []


def _split(text: str) -> list[str]:
    """Split at commas and blanks outside of brackets: Bash(git log:*) is one tool."""
    found, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char in ", " and depth <= 0:
            found.append(text[start:at])
            start = at + 1
    return [*found, text[start:]]


def head(text: str) -> str:
    """Return the head of a main file as it is written, '' without one."""
    if not text.startswith("---"):
        return ""
    return text[: max(text.find("\n---", 3), 0)]


def _fields(view: View) -> Mapping[str, object]:
    return parse_document(view.text[: 64 * 1024].encode("utf-8", "replace")).fields


def _finding(rule: str, path: str, excerpt: str, why: str) -> Finding:
    return Finding(rule, Severity.MEDIUM, path, 1, written_out(excerpt[:120]), why, _HINT)

"""Which of the means that a change adds a person shall see first."""

from collections.abc import Iterable, Iterator

from evolvable_tools.scan import capabilities as means
from evolvable_tools.scan.findings import Capability, Finding, Severity

_M, _L = Severity.MEDIUM, Severity.LOW

ANY_TOOL = frozenset(("*", "Bash(*)", "Bash(:*)", "Bash(**)", "mcp__*"))
SHELL = frozenset(("Bash", "Shell", "Execute", "PowerShell"))

_KNOWN = frozenset(
    (
        *(
            "github.com",
            "raw.githubusercontent.com",
            "api.github.com",
            "gitlab.com",
            "pypi.org",
            "files.pythonhosted.org",
        ),
        *(
            "registry.npmjs.org",
            "npmjs.com",
            "crates.io",
            "docs.rs",
            "pkg.go.dev",
            "proxy.golang.org",
            "docs.python.org",
        ),
        "developer.mozilla.org",
    )
)
"""Hosts that a developer's machine talks to every day; what they serve may still be anybody's."""

_WHYS = {
    means.NETWORK: "it reaches {what} now",
    means.ENVIRONMENT: "it reads {what} from the environment now",
    means.CREDENTIALS: "it touches the credentials in {what} now",
    means.WRITES: "it writes to {what} now, outside its own folder and the project",
    means.RUNS: "it runs {what} now",
    means.TOOL: "it may use {what} without asking now",
    means.HOOK: "it brings a hook ({what}), which runs commands by itself",
    means.MCP: "it brings an MCP server ({what}), which is a program of its own",
    means.PERMISSION: "it works without asking for permission ({what})",
    means.PROGRAM: "it brings a program that nobody can read ({what})",
}
_HINT = "Approve it if the resource needs that; otherwise leave it out."


def gains(added: Iterable[Capability], *, is_new: bool) -> Iterator[Finding]:
    """Yields a finding for each means that was added. is_new: there was nothing before, so all of them are."""
    added = tuple(added)
    kinds = {one.kind for one in added}
    way_out = not is_new and means.NETWORK in kinds and bool(kinds & {means.ENVIRONMENT, means.CREDENTIALS})
    for one in added:
        severity = _always(one) if is_new else _in_a_change(one, way_out)
        why = _WHYS[one.kind].format(what=one.what[:100])
        yield Finding(
            f"capability.{one.kind}", severity, "", 0, "", why.replace(" now", "", 1) if is_new else why, _HINT
        )


def _always(one: Capability) -> Severity:
    """Returns what a means of a new resource leads to: only what no resource should bring along."""
    if one.kind in (means.HOOK, means.MCP, means.PROGRAM):
        return _M
    if one.kind == means.TOOL:
        return _M if one.what in ANY_TOOL else _L
    if one.kind == means.PERMISSION:
        return _M if one.what == "bypassPermissions" else _L
    return _L


def _in_a_change(one: Capability, way_out: bool) -> Severity:
    """Returns what a means leads to that the resource did not have before. way_out: secrets came with the network."""
    if one.kind == means.NETWORK:
        return _M if way_out or one.what not in _KNOWN else _L
    if one.kind == means.ENVIRONMENT:
        return _M if way_out else _L
    if one.kind == means.TOOL:
        return _M if one.what in ANY_TOOL or one.what in SHELL else _L
    return _M

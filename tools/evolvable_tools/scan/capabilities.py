"""What a resource has the means to do, read from its files: a set, so that a change is a difference
of sets.

One rule judges which of the means that a change adds a person should see first. Another judges what
a change of the head of a main file grants: tools, programs, a model, more occasions of use. The
lists and patterns are data, in `capabilities.toml`.
"""

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping

from evolvable_store import (
    ALL_TOOLS,
    Document,
    head_text,
    parse_document,
    plain_key,
    read_grants,
    split_outside_brackets,
)
from evolvable_store.resource import Kind
from evolvable_tools.scan.scan_findings import Capability, Finding, FindingSeverity, PatternTable
from evolvable_tools.scan.text_analysis import TextView, escape_unprintable
from evolvable_tools.scan.text_loops import PartFinder

NETWORK, ENVIRONMENT, CREDENTIALS, WRITES = "network", "environment", "credentials", "writes"
RUNS, TOOL, HOOK, MCP, PERMISSION, PROGRAM = "runs", "tool", "hook", "mcp", "permission", "program"

# A bounded name, and what may follow a host: a port, a path, or the end of what quotes it.
_HOST = re.compile(r"https?://([a-z0-9][a-z0-9.-]{0,120}[a-z0-9])(?=[:/?#\"'\s)>\]`,]|$)")
_NAMESPACE = re.compile(r"xmlns(?::[\w-]{1,20})?\s?=\s?[\"']$")
"""Before the name of a vocabulary in XML, which nobody reaches."""
_NEAR = frozenset(("localhost", "127.0.0.1", "0.0.0.0"))
# Addresses of documentation and placeholders.
_NO_HOST = re.compile(
    r"(?:^|\.)(?:example\.(?:com|org|net)|example|localhost)$|^(?:your|my)|^x{2,}"
)

_TABLE = PatternTable("capabilities.toml")
_REACHES, _ENVIRONMENT, _CREDENTIALS, _WRITES = (
    _TABLE.compile(name) for name in ("reaches", "environment", "credentials", "writes")
)
_PLACES, _OUTSIDE, _KNOWN = (
    frozenset(_TABLE.data[name]) for name in ("places", "outside", "known_hosts")
)
_WHYS: Mapping[str, str] = _TABLE.data["whys"]
_POWERS: Mapping[str, str] = _TABLE.data["powers"]
_RUNS = [
    (row["what"], frozenset(row["anchors"]), re.compile(_TABLE.join(row["pattern"])))
    for row in _TABLE.data["runs"]
]
_GRANTS = {what: what.lower() for what in _TABLE.data["grants"]}
# Here and in `_ANCHORS`: a pattern runs only over a text with one of its anchors, which are all
# found in one pass.
_ENVIRONMENT_ANCHORS = frozenset(("$", "os.environ", "os.getenv", "process.env", "env["))
_ANCHORS = PartFinder(
    tuple(
        {"://", *_GRANTS.values()}.union(
            _ENVIRONMENT_ANCHORS, _PLACES, _OUTSIDE, *(row[1] for row in _RUNS)
        )
    )
)
_HARMLESS = frozenset(_TABLE.data["harmless_tools"].split())
_TOOLS = re.compile(r"[A-Za-z_*][\w*.:-]{0,80}(?:\([^()\n]{0,200}\))?")

MAX_NAMED = 200
"""Tools that are read from one list."""


KnownTexts = dict[int, frozenset[Capability]]
"""The capabilities of texts, by the identity of the view: two versions share the views of equal
files.
"""


def capabilities(
    views: Mapping[str, TextView], main: str, cache: KnownTexts
) -> frozenset[Capability]:
    """Return everything that the text files of a resource, of which `main` is the main one, have
    the means to do.

    cache: of views that are still in use; the capabilities of the others are added.
    """
    gathered: set[Capability] = set()
    for path, view in views.items():
        # Views are known by identity: to hash a text takes a pass over it. The caller holds them,
        # so no id is used again.
        if id(view) not in cache:
            cache[id(view)] = frozenset(_read_text(view))
        gathered.update(cache[id(view)])
        if path == main:
            gathered.update(_read_frontmatter(view))
        if path.rpartition("/")[2] in _TABLE.data["settings_files"]:
            gathered.update(_read_settings(view))
    return frozenset(gathered)


def capabilities_of_texts(views: Iterable[TextView]) -> Iterator[Capability]:
    """Yield what the texts have the means to do, their heads and settings left out."""
    return itertools.chain.from_iterable(map(_read_text, views))


def _read_text(view: TextView) -> Iterator[Capability]:
    low, anchors = view.plain, _ANCHORS.find(view.plain)
    if "://" in anchors:
        yield from (Capability(NETWORK, host) for host in _find_hosts(view))
    if not _ENVIRONMENT_ANCHORS.isdisjoint(anchors):
        # The text as written, because names of variables are mostly in capitals.
        names = {match[1].upper() for match in _ENVIRONMENT.finditer(view.text)}
        yield from (Capability(ENVIRONMENT, name) for name in names)
    if not _PLACES.isdisjoint(anchors):
        places = {
            next(part for part in match.groups() if part) for match in _CREDENTIALS.finditer(low)
        }
        yield from (Capability(CREDENTIALS, place) for place in places)
    if not _OUTSIDE.isdisjoint(anchors):
        yield from (Capability(WRITES, match[1]) for match in _WRITES.finditer(low))
    for what, own_anchors, pattern in _RUNS:
        if not own_anchors.isdisjoint(anchors) and pattern.search(low):
            yield Capability(RUNS, what)
    yield from (Capability(PERMISSION, what) for what, grant in _GRANTS.items() if grant in anchors)


def _find_hosts(view: TextView) -> set[str]:
    """Return the hosts that are reached: named in a program, or on a line with a command that
    reaches.
    """
    hosts: set[str] = set()
    low = view.plain
    for match in _HOST.finditer(low):
        host = match[1]
        # The name of an XML namespace looks like an address and is never asked. The name of the
        # attribute is short.
        if low[match.start() - 1 : match.start()] in "\"'" and _NAMESPACE.search(
            low, max(0, match.start() - 40), match.start()
        ):
            continue
        if host in hosts or host in _NEAR or _NO_HOST.search(host) or "." not in host:
            continue
        # A minified file is one line, so the search goes back a bounded way.
        first = max(0, match.start() - 300)
        start = max(low.rfind("\n", first, match.start()) + 1, first)
        if view.is_code or _REACHES.search(low, start, match.start()):
            hosts.add(host)
    return hosts


def _read_frontmatter(view: TextView) -> Iterator[Capability]:
    if not view.text.lstrip().startswith("---"):
        return
    fields = {plain_key(key): value for key, value in _read_fields(view).items()}
    # `allowed-tools` of a skill and `tools` of an agent.
    for key in ("allowedtools", "tools"):
        yield from (Capability(TOOL, tool) for tool in _list_tools(fields.get(key)))
    if hooks := fields.get("hooks"):
        yield from (
            Capability(HOOK, str(name)[:80])
            for name in (hooks if isinstance(hooks, dict) else ["hooks"])
        )
    if servers := fields.get("mcpservers"):
        yield from (Capability(MCP, name) for name in _list_names(servers))
    mode = fields.get("permissionmode")
    if mode in ("bypassPermissions", "acceptEdits", "dontAsk", "auto"):
        yield Capability(PERMISSION, str(mode))


def _list_tools(value: object) -> list[str]:
    if isinstance(value, list):
        # Bounds here and below, because the head may be hostile.
        return [str(tool)[:200] for tool in value][:MAX_NAMED]
    return _TOOLS.findall(value)[:MAX_NAMED] if isinstance(value, str) else []


def _list_names(value: object) -> list[str]:
    if isinstance(value, dict):
        return [str(name)[:80] for name in value]
    if isinstance(value, list):
        return [
            str(next(iter(item), "") if isinstance(item, dict) else item)[:80] for item in value
        ]
    return [str(value)[:80]]


def _read_settings(view: TextView) -> Iterator[Capability]:
    try:
        settings = json.loads(view.text)
    except (ValueError, RecursionError):
        return
    if not isinstance(settings, dict):
        return
    if servers := settings.get("mcpServers"):
        yield from (Capability(MCP, name) for name in _list_names(servers))
    if hooks := settings.get("hooks"):
        yield from (Capability(HOOK, name) for name in _list_names(hooks))
    permissions = settings.get("permissions")
    allowed = permissions.get("allow") if isinstance(permissions, dict) else None
    yield from (Capability(TOOL, tool) for tool in _list_tools(allowed))


_M, _L = FindingSeverity.MEDIUM, FindingSeverity.LOW

ANY_TOOL = frozenset(("*", "Bash(*)", "Bash(:*)", "Bash(**)", "mcp__*"))
# The shell tools of several clients.
SHELL = frozenset(("Bash", "Shell", "Execute", "PowerShell"))

_HINT = "Approve it if the resource needs that; otherwise leave it out."


def capability_findings(added: Iterable[Capability], *, is_new: bool) -> Iterator[Finding]:
    """Yield a finding for each means that was added.

    is_new: there was nothing before, so all of them are.
    """
    added = tuple(added)
    kinds = {capability.kind for capability in added}
    # Secrets without a network stay here, and a network without secrets takes nothing along.
    way_out = not is_new and NETWORK in kinds and bool(kinds & {ENVIRONMENT, CREDENTIALS})
    for capability in added:
        severity = _judge_new(capability) if is_new else _judge_gain(capability, way_out)
        why = _WHYS[capability.kind].format(what=capability.what[:100])
        why = why.replace(" now", "", 1) if is_new else why
        yield Finding(f"capability.{capability.kind}", severity, "", 0, "", why, _HINT)


def _judge_new(capability: Capability) -> FindingSeverity:
    """Return what a means of a new resource leads to: only what no resource should bring along."""
    any_tool = capability.kind == TOOL and capability.what in ANY_TOOL
    bypass = capability.kind == PERMISSION and capability.what == "bypassPermissions"
    return _M if any_tool or bypass or capability.kind in (HOOK, MCP, PROGRAM) else _L


def _judge_gain(capability: Capability, way_out: bool) -> FindingSeverity:
    """Return what a means leads to that the resource did not have before.

    way_out: secrets came with the network.
    """
    if capability.kind == NETWORK:
        return _M if way_out or capability.what not in _KNOWN else _L
    if capability.kind == ENVIRONMENT:
        return _M if way_out else _L
    if capability.kind == TOOL:
        return _M if capability.what in ANY_TOOL or capability.what in SHELL else _L
    # Everything else is a gain that a person decides on.
    return _M


_DELEGATES = frozenset(("delegate", "delegates"))
_AGENT_POWERS = _DELEGATES.union(
    ("tools", "model", "permissionmode", "hooks", "mcpservers", "env", "autoapprove")
)
"""Keys of a head for which a new agent that no person wrote waits for approval."""

_KEYS = {plain_key(key): what for key, what in _POWERS.items()}


def frontmatter_findings(before: TextView | None, after: TextView, kind: Kind) -> Iterator[Finding]:
    """Yield a finding for each thing that the head of a main file gives the resource and did not
    before.

    before: None for a new resource. For a new agent everything that its head grants is reported,
    for another new resource only a delegate: the rest is reported as its capabilities.
    """
    # A head that stays as it is grants nothing new.
    if before is not None and head_text(before.text) == head_text(after.text):
        return
    was = _read_document(before) if before is not None else Document({}, "", ())
    now = _read_document(after)
    grants = read_grants(now)
    if before is None:
        granted = [("tools", tool) for tool in grants.tools - {ALL_TOOLS}] + sorted(grants.grants)
        granted += [("permissionmode", grants.mode)] if grants.mode else []
        reported = _AGENT_POWERS if kind is Kind.AGENT else _DELEGATES
        gained = [grant for grant in granted if grant[0] in reported]
    else:
        # Many skills of others have a head that YAML breaks in; it grants what can be read of it.
        gained = grants.list_added_grants(read_grants(was))
        if kind is not Kind.AGENT:
            gained = [
                grant
                for grant in gained
                if grant[0] != "head" and not (grant[0] == "tools" and grant[1] in _HARMLESS)
            ]
    for key, what in gained:
        yield _make_grant_finding(after.path, key, what)
    before_triggers = _list_items(was.fields.get("triggers"))
    for trigger in _list_items(now.fields.get("triggers")) if before is not None else ():
        is_everything = trigger.strip().casefold() in _TABLE.data["everything"]
        if is_everything and trigger not in before_triggers:
            why = "claims every occasion as a trigger"
            yield _make_finding("front.trigger", after.path, f"triggers: {trigger}", why)


def _make_grant_finding(path: str, key: str, what: str) -> Finding:
    """Return the finding of one thing that a head grants."""
    if key == "tools":
        why = "every tool" if what == ALL_TOOLS else what[:80]
        return _make_finding("front.tools", path, f"tools: {what}", f"allows more tools: {why}")
    if key == "head":
        return _make_finding(
            "front.unclear", path, what, "has a head that clients may read in different ways"
        )
    if what.startswith("no longer: "):
        return _make_finding(
            "front.limit", path, f"{key} {what}", f"takes a limit away or changes it ({key})"
        )
    power = _KEYS.get(key, "something that it did not have")
    return _make_finding("front.power", path, f"{key}: {what}", f"gives it {power} ({key})")


def _list_items(value: object) -> list[str]:
    if isinstance(value, str):
        return [item.strip() for item in split_outside_brackets(value) if item.strip()]
    return [str(item) for item in value][:200] if isinstance(value, list) else []


def _read_fields(view: TextView) -> Mapping[str, object]:
    return _read_document(view).fields


def _read_document(view: TextView) -> Document:
    return parse_document(view.text.encode("utf-8", "replace"))


def _make_finding(rule: str, path: str, excerpt: str, why: str) -> Finding:
    return Finding(
        rule, FindingSeverity.MEDIUM, path, 1, escape_unprintable(excerpt[:120]), why, _HINT
    )

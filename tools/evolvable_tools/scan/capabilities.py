"""What a resource has the means to do, read from its files: a set, so that a change is a difference of sets."""

import json
import re
from collections.abc import Iterator, Mapping

from evolvable_store.frontmatter import parse_document
from evolvable_tools.scan.findings import Capability
from evolvable_tools.scan.views import View

NETWORK, ENVIRONMENT, CREDENTIALS, WRITES = "network", "environment", "credentials", "writes"
RUNS, TOOL, HOOK, MCP, PERMISSION, PROGRAM = "runs", "tool", "hook", "mcp", "permission", "program"

_HOST = re.compile(r"https?://([a-z0-9][a-z0-9.-]{0,120}[a-z0-9])(?=[:/?#\"'\s)>\]`,]|$)")
_REACHES = re.compile(
    r"\b(?:curl|wget|fetch|http\.get|http\.post|requests\.|httpx\.|urlopen|axios|invoke-webrequest"
    r"|invoke-restmethod|iwr|irm|git clone|aiohttp"
    r"|websocket|base_url|api_url|endpoint|webhook)"
)
_NEAR = frozenset(("localhost", "127.0.0.1", "0.0.0.0"))
_NO_HOST = re.compile(r"(?:^|\.)(?:example\.(?:com|org|net)|example|localhost)$|^(?:your|my)|^x{2,}")

_ENVIRONMENT = re.compile(
    r"(?:\$\{?|os\.environ(?:\.get)?[\[(]\s?[\"']|os\.getenv\([\"']|process\.env\.|env\[[\"']|\$env:)"
    r"([A-Za-z][A-Za-z0-9_]{0,40}(?:_KEY|_TOKEN|_SECRET|_PASSWORD|_PASS|_CREDENTIALS|_PAT|_key|_token|_secret)"
    r"|TOKEN|SECRET|PASSWORD)(?![A-Za-z0-9_])"
)
_CREDENTIALS = re.compile(
    r"(?:~|\$home|\$\{home\}|/root|path\.home\(\)\s?/\s?[\"'])/?(\.(?:ssh|aws|netrc|npmrc|pypirc|kube|gnupg"
    r"|git-credentials|docker/config\.json"
    r"|config/gcloud|config/gh|claude/\.credentials|codex/auth))|(/etc/shadow|login\.keychain)"
    r"|security\s(find-generic-password)|(\bid_rsa\b|\bid_ed25519\b)"
)
_PLACES = (
    *(".ssh", ".aws", ".netrc", ".npmrc", ".pypirc", ".kube", ".gnupg", "git-credentials", ".docker", "gcloud"),
    *("config/gh", ".claude/", "codex/auth", "/etc/shadow", "keychain", "generic-password", "id_rsa", "id_ed25519"),
)

_OUTSIDE = ("~/", "$home", "/etc/", "/usr/", "/root/", "/opt/", "/library/", "/system/", "/var/spool/")

_WRITES = re.compile(
    r"(?:>>?|\btee(?:\s-a)?|\b(?:cp|mv|install|ln)\s[^\n;|&]{1,80}?)\s{1,3}[\"']?"
    r"((?:~|\$home|/etc|/usr|/root|/opt|/library|/system|/var/spool)(?:/[\w.${}-]{1,40}){1,5})"
)
_PIPED = re.compile(
    r"\|\s{0,3}(?:sudo\s{1,3}(?:-e\s)?)?(?:env\s)?(?:/bin/)?(?:ba|z)?sh\b(?:\s-[sc]?\b|\s|$)|\b(?:ba"
    r"|z)?sh\s<\(\s?(?:curl|wget)|\beval\s\"?\$\((?:curl|wget)"
    r"|\|\s{0,3}(?:iex|invoke-expression)\b"
)
_RUNS = (
    ("what an address serves", ("curl", "wget", "| iex", "|iex", "invoke-expression"), _PIPED),
    (
        "a text as a program",
        ("eval(", "exec(", "new function("),
        re.compile(r"(?<![\w.])(?:eval|exec)\(\s?(?![\"')])|new\sfunction\("),
    ),
    (
        "commands through a shell",
        ("shell=true", "os.system(", "child_process"),
        re.compile(r"shell\s?=\s?true|os\.system\(|child_process"),
    ),
    ("sudo", ("sudo ",), re.compile(r"(?:^|[\s;&|(`])sudo\s(?!apt|dnf|yum|pacman)[a-z/-]")),
)
_GRANTS = (
    ("bypassPermissions", "bypasspermissions"),
    ("--dangerously-skip-permissions", "--dangerously-skip-permissions"),
    ("--dangerously-bypass-approvals-and-sandbox", "--dangerously-bypass-approvals-and-sandbox"),
)
_TOOLS = re.compile(r"[A-Za-z_*][\w*.:-]{0,80}(?:\([^()\n]{0,200}\))?")

MAX_NAMED = 200
"""Tools that are read from one list."""


def capabilities(views: Mapping[str, View], main: str) -> frozenset[Capability]:
    """Returns everything that the text files of a resource, of which `main` is the main one, have the means to do."""
    found: set[Capability] = set()
    for path, view in views.items():
        found.update(_of_text(view))
        if path == main:
            found.update(_of_frontmatter(view))
        if path.rpartition("/")[2] in (
            ".mcp.json",
            "mcp.json",
            "settings.json",
            "settings.local.json",
            "hooks.json",
            "plugin.json",
        ):
            found.update(_of_settings(view))
    return frozenset(found)


def of_texts(views: Mapping[str, View]) -> frozenset[Capability]:
    """Return what the texts have the means to do, their heads and settings left out."""
    return frozenset(one for view in views.values() for one in _of_text(view))


def _of_text(view: View) -> Iterator[Capability]:
    low = view.plain
    if "://" in low:
        yield from (Capability(NETWORK, host) for host in _hosts(view))
    if "env" in low or "$" in low:
        names = {match[1].upper() for match in _ENVIRONMENT.finditer(view.text)}
        yield from (Capability(ENVIRONMENT, name) for name in names)
    if any(anchor in low for anchor in _PLACES):
        places = {next(part for part in match.groups() if part) for match in _CREDENTIALS.finditer(low)}
        yield from (Capability(CREDENTIALS, place) for place in places)
    if any(anchor in low for anchor in _OUTSIDE):
        yield from (Capability(WRITES, match[1]) for match in _WRITES.finditer(low))
    for what, anchors, pattern in _RUNS:
        if any(anchor in low for anchor in anchors) and pattern.search(low):
            yield Capability(RUNS, what)
    yield from (Capability(PERMISSION, what) for what, anchor in _GRANTS if anchor in low)


def _hosts(view: View) -> set[str]:
    """Returns the hosts that are reached: named in a program, or on a line with a command that reaches."""
    hosts: set[str] = set()
    low = view.plain
    for match in _HOST.finditer(low):
        host = match[1]
        if host in hosts or host in _NEAR or _NO_HOST.search(host) or "." not in host:
            continue
        first = max(0, match.start() - 300)
        start = max(low.rfind("\n", first, match.start()) + 1, first)
        if view.is_code or _REACHES.search(low, start, match.start()):
            hosts.add(host)
    return hosts


def _of_frontmatter(view: View) -> Iterator[Capability]:
    if not view.text.lstrip().startswith("---"):
        return
    fields = parse_document(view.text[: 64 * 1024].encode("utf-8", "replace")).fields
    for key in ("allowed-tools", "tools", "allowedTools"):
        yield from (Capability(TOOL, tool) for tool in _tools(fields.get(key)))
    hooks = fields.get("hooks")
    if hooks:
        names = hooks if isinstance(hooks, dict) else ["hooks"]
        yield from (Capability(HOOK, str(name)[:80]) for name in names)
    servers = fields.get("mcpServers") or fields.get("mcp-servers")
    if servers:
        yield from (Capability(MCP, name) for name in _names(servers))
    mode = fields.get("permissionMode")
    if mode in ("bypassPermissions", "acceptEdits", "dontAsk", "auto"):
        yield Capability(PERMISSION, str(mode))


def _tools(value: object) -> list[str]:
    if isinstance(value, list):
        return [str(one)[:200] for one in value][:MAX_NAMED]
    return _TOOLS.findall(value)[:MAX_NAMED] if isinstance(value, str) else []


def _names(value: object) -> list[str]:
    if isinstance(value, dict):
        return [str(name)[:80] for name in value]
    if isinstance(value, list):
        return [str(next(iter(one), "") if isinstance(one, dict) else one)[:80] for one in value]
    return [str(value)[:80]]


def _of_settings(view: View) -> Iterator[Capability]:
    try:
        settings = json.loads(view.text)
    except (ValueError, RecursionError):
        return
    if not isinstance(settings, dict):
        return
    if servers := settings.get("mcpServers"):
        yield from (Capability(MCP, name) for name in _names(servers))
    if hooks := settings.get("hooks"):
        yield from (Capability(HOOK, name) for name in _names(hooks))
    permissions = settings.get("permissions")
    allowed = permissions.get("allow") if isinstance(permissions, dict) else None
    yield from (Capability(TOOL, tool) for tool in _tools(allowed))

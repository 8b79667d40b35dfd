"""The hosts that commands of any tool reach, and the options that weaken a check."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from evolvable_tools.scan.concepts import concepts
from evolvable_tools.scan.findings import Finding, Severity
from evolvable_tools.scan.hosts import WELL_KNOWN
from evolvable_tools.scan.prohibitions import forbids
from evolvable_tools.scan.sentences import Part, Sentence
from evolvable_tools.scan.views import MAX_EXCERPT, written_out

_M, _L = Severity.MEDIUM, Severity.LOW

_UPLOADS = (
    r"git\s+(?:-\S+\s+)*(?:push|remote\s+(?:add|set-url)|send-email)|rsync|scp|sftp|rclone|lftp|ftp|nc|ncat|netcat|socat|telnet"
    r"|aws\s+s3|gsutil|s3cmd|azcopy|smbclient|croc|wormhole|sendmail|mailx?|mutt|swaks|dig|nslookup|drill|host|ping6?|logger"
    r"|curl[^\n]{0,200}?\s(?:-d|--data\S*|-f|--form\S*|-t|--upload-file|-x\s?p(?:ost|ut)|--json)|wget[^\n]{0,200}?--post-\w+"
    r"|docker\s+push|npm\s+publish|twine\s+upload|kubectl\s+cp|ssh"
)
_TOOLS = (
    r"curl|wget|git|https?|xh|aria2c|iwr|irm|invoke-webrequest|invoke-restmethod|start-bitstransfer|bitsadmin|certutil"
    r"|pip3?|uv|uvx|pipx|poetry|npm|npx|pnpm|yarn|bunx?|deno|cargo|go|gem|bundle|composer|docker|podman|helm|kubectl|terraform|brew"
    r"|apt(?:-get|-key)?|add-apt-repository|dnf|yum|conda|mamba|nix|snap|flatpak|psql|mysql|redis-cli|mongosh?|sqlcmd|claude|codex"
)
_UPLOAD = re.compile(rf"(?:^|[\s`$(|;&\"'/])(?:{_UPLOADS})[\s`]")
_PUSHES = re.compile(
    r"(?:^|[\s`$(|;&\"'/])(?:git\s+(?:-\S+\s+)*(?:push|remote\s+(?:add|set-url))|rsync|scp|sftp|rclone|lftp|nc|ncat|netcat|socat|telnet|docker\s+push)[\s`]"
)
_TOOL = re.compile(rf"(?:^|[\s`$(|;&\"'/])(?:{_TOOLS})\s")
_INDEX = re.compile(
    r"--(?:extra-)?index(?:-url)?[ =]|\bpip3?\s[^\n]{0,80}\s-i\s+https?:|--registry[ =]|--find-links[ =]|goproxy=|--source[ =]|--trusted-host"
    r"|index-url\s*=|registry\s*=|--add-repo|\btap\s|--channel\s|(?:pip|npm|yarn|pnpm|cargo|poetry)\s+(?:config|source)\s|--repo[ =]"
    r"|registry\s+set|set\s+registry|uv_index\w*=|pip_index_url=|npm_config_registry="
)
_URL_HOST = re.compile(r"(?:[a-z][a-z0-9+]{1,12})://(?:[^\s/@]{1,80}@)?([a-z0-9][a-z0-9.-]{0,120}[a-z0-9])")
_REMOTE = re.compile(
    r"(?<![\w./-])(?:[\w.-]{1,40}@)([a-z0-9][a-z0-9.-]{1,100})(?=:|\s|$|`|/)|(?<![\w./@-])([a-z0-9-]+(?:\.[a-z0-9-]+)+)::?(?=[\w/~])"
)
_IP = re.compile(r"(?<![\d.])((?:\d{1,3}\.){3}\d{1,3})(?![\d.])")
_REGISTRY = re.compile(
    r"\b(?:docker|podman)\s+(?:run|pull|push|create)\b[^\n]{0,160}?\s((?:[a-z0-9-]+\.)+[a-z]{2,}(?::\d+)?)/"
)
_BARE = re.compile(
    r"(?<![\w/@-])((?:[a-z0-9-]+\.)+(?:com|net|org|io|dev|app|sh|me|co|ru|cn|de|xyz|info|test|example|invalid|cloud|site|top|ai))\b"
)
_LOCAL = re.compile(
    r"^(?:localhost|127\.|0\.0\.0\.0|10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|host\.docker\.internal|.*\.local$)"
)
_PLACEHOLDER = re.compile(
    r"^(?:www\.|api\.)?example\.(?:com|org|net)$|^(?:your|my)[\w-]*\.|[<{$]|^x{2,}|\byour-|^host$|^server$|^domain\.com$"
)
_WEAK = re.compile(
    r"(?<![\w-])(?:--insecure|--no-check-certificate|--no-verify|--no-verify-ssl|--skip-(?:tls-)?verify\w*|--trusted-host|--allow-unauthenticated"
    r"|--no-gpg-(?:check|sign)s?|--nogpgcheck|--force-yes|--privileged|--no-sandbox|--disable-web-security|--insecure-skip-tls-verify"
    r"|--allow-insecure\S*|--disable-(?:security|content-trust|ssl)\S*|--no-audit|--skip-(?:checks?|hooks?|signature\S*|validation|review)"
    r"|--dangerously-\S+|--ignore-(?:certificate|ssl)-errors|-skipcertificatecheck|--yolo|--full-auto|--trust-all\S*)(?![\w-])"
    r"|\bcurl\s+(?:\S+\s+){0,6}-[a-z]{0,4}k[a-z]{0,4}(?=\s)"
    r"|\bverify(?:_ssl|_certs?|_tls|ssl)?\s?[=:]\s?(?:false|0|none|no)\b|reject_?unauthorized\w*\W{1,3}(?:false|0)|tls_reject_unauthorized\W{1,3}0"
    r"|strict-?ssl\W{1,3}(?:false|0)|ssl_?verify\w*\W{1,3}(?:false|0|no)|sslmode\s?=\s?['\"]?(?:disable|allow)|ssl_no_verify"
    r"|pythonhttpsverify\W{1,2}0|stricthostkeychecking[= ]\s?no\b|userknownhostsfile[= ]\s?/dev/null|insecureskipverify\W{1,3}true"
    r"|cert_none\b|check_hostname\s?=\s?false|_create_unverified_context|chmod\s(?:-\w+\s)?(?:0?777|a\+rwx|o\+w)\b"
    r"|git\s+push\s[^\n`]{0,60}?(?:--force(?!-with|-if)|\s-f\b)|executionpolicy\s(?:bypass|unrestricted)|\bhusky=0|\bskip=\w+\sgit\b"
    r"|com\.apple\.quarantine|setenforce\s0|ufw\sdisable|set-mppreference|spctl\s--\w+-disable|nopasswd|core\.hookspath\W{1,3}/dev/null"
)


@dataclass(frozen=True, slots=True)
class Reached:
    """A host that a line reaches, and how: index, upload, or tool."""

    how: str
    host: str
    line: Sentence


def reached(sentences: Iterable[Sentence]) -> Iterator[Reached]:
    """Yield the hosts that commands reach, in code, in prose or in a table."""
    for one in sentences:
        text = one.text
        if "." not in text:
            continue
        how = (
            "index"
            if _INDEX.search(text)
            else "push"
            if _PUSHES.search(text)
            else "upload"
            if _UPLOAD.search(text)
            else "tool"
            if _TOOL.search(text)
            else ""
        )
        if not how:
            continue
        for host in _hosts(text, how):
            yield Reached(how, host, one)


def _hosts(text: str, how: str) -> set[str]:
    hosts = {match[1] for match in _URL_HOST.finditer(text)}
    hosts |= {match[1] or match[2] for match in _REMOTE.finditer(text)}
    hosts |= {match[1] for match in _IP.finditer(text)} if how in ("upload", "push") or hosts else set()
    hosts |= {match[1] for match in _REGISTRY.finditer(text)}
    if how in ("upload", "push") and re.search(r"\b(?:dig|nslookup|drill|nc|ncat|ping|telnet|ssh)\b", text):
        hosts |= {match[1] for match in _BARE.finditer(text)}
    return {host for host in hosts if "." in host and not _LOCAL.search(host)}


def new_hosts(path: str, sentences: Iterable[Sentence], known: str, *, is_new: bool) -> Iterator[Finding]:
    """Yield a finding for each host that commands of added lines reach. known: the text that was there before."""
    told = set()
    for one in reached(sentences):
        if one.host in told or (known and one.host in known):
            continue
        placeholder = _PLACEHOLDER.search(one.host) is not None
        # What is sent to a well-known host may be sent to anybody's account there.
        if (one.host in WELL_KNOWN and one.how not in ("push", "upload")) or (
            placeholder and (is_new or one.how != "index")
        ):
            continue
        if one.line.part is Part.PROSE and forbids(one.line.text) and one.how == "tool":
            continue
        told.add(one.host)
        why = {
            "index": f"it takes packages from {one.host}",
            "push": f"it sends files to {one.host} or connects to it",
            "upload": f"it sends to {one.host} or connects to it",
            "tool": f"it reaches {one.host}",
        }[one.how]
        severity = _M if not is_new or one.how in ("index", "push") else _L
        excerpt = written_out(one.line.text[:MAX_EXCERPT])
        yield Finding(
            f"host.{one.how}", severity, path, one.line.line, excerpt, why, "Approve it if you know the address."
        )


def new_addresses(path: str, sentences: Iterable[Sentence], known: str) -> Iterator[Finding]:
    """Yield a finding for each address in a sentence that also asks for something to be sent, loaded or run."""
    for one in sentences:
        if one.part is Part.CODE or "://" not in one.text:
            continue
        hosts = {match[1] for match in _URL_HOST.finditer(one.text)}
        hosts = {
            host
            for host in hosts
            if host not in known and "." in host and not _LOCAL.search(host) and host not in WELL_KNOWN
        }
        if not hosts or _LINKED.fullmatch(one.text.strip()):
            continue
        if set(concepts(one.text)) & {"send", "follow"} and not forbids(one.text):
            why = f"names the new address {sorted(hosts)[0]} where something is sent or run"
            excerpt = written_out(one.text[:MAX_EXCERPT])
            yield Finding("host.address", _M, path, one.line, excerpt, why, "Approve it if you know the address.")


_LINKED = re.compile(
    r"(?:\W{0,4}(?:see|docs?|documentation|reference|source|link|full|more)?\b[^.]{0,40})?\[[^\]]{1,120}\]\([^)]{1,300}\)[^a-z]{0,5}.{0,160}"
)


def weak_options(path: str, sentences: Iterable[Sentence], *, is_new: bool) -> Iterator[Finding]:
    """Yield a finding for each option that turns a check off, but for those that a sentence forbids."""
    for one in sentences:
        match = _WEAK.search(one.text)
        if match is None or (one.part is not Part.CODE and forbids(one.text) and not is_excused(one.text)):
            continue
        excerpt = written_out(one.text[:MAX_EXCERPT])
        why = f"turns a check off: {written_out(match[0].strip()[:60])}"
        asked = _RECOMMENDS.search(one.text) and not _CAUTIONS.search(one.text) and not forbids(one.text)
        shown = (
            not asked or one.part is Part.CODE or one.program or one.text.startswith("|") or "dangerously" in match[0]
        )
        severity = _L if is_new and shown else _M
        yield Finding("option.weak", severity, path, one.line, excerpt, why, "Leave the check on.")


_RECOMMENDS = re.compile(
    r"\b(?:use|pass|set|add|run|with|commit|push|fetch|call|append|include|quicker|faster|then)\b|`"
)
_CAUTIONS = re.compile(
    r"careful|danger|refuse|warning|avoid|bypass|never|risk|insecure\b(?! -)|alternative to|attack|vulnerab|audit|detect|check for|postgres://"
)


def is_excused(text: str) -> bool:
    """Return whether a sentence that forbids one thing still asks for another: 'do not wait, use --insecure'."""
    return re.search(r"(?:,|;|instead|use|always|pass|set|add)\s+[^.]{0,40}--", text) is not None and not re.search(
        r"(?:never|do not|don't|must not|avoid|without)\s+(?:\w+\s+){0,4}[`'\"]?(?:\w+\s+){0,3}--?", text
    )

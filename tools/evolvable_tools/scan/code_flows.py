"""What commands and programs do that a person should see first.

The hosts that commands of any tool reach, and the options that weaken a check. What a program does
with secrets, files and the network is read from its statements as sources and sinks. The patterns
are data, in `code_flows.toml`.
"""

import re
from collections.abc import Container, Iterable, Iterator

from evolvable_tools.scan.lexicon import concepts
from evolvable_tools.scan.scan_findings import Finding, FindingSeverity, PatternTable
from evolvable_tools.scan.sentence_rules import forbids, report
from evolvable_tools.scan.text_analysis import Sentence, TextPart, TextView, escape_unprintable
from evolvable_tools.scan.text_loops import PartFinder

_TABLE = PatternTable("code_flows.toml")
# Patterns that are iterated over or fully matched, which `Alternatives` does not offer.
_WHOLE = {
    name: _TABLE.compile(name)
    for name in ("url_host", "remote", "ip", "registry", "bare", "linked", "namespace")
}
_PATTERNS = {
    name: _TABLE.alternatives(name) for name in _TABLE.data["patterns"].keys() - _WHOLE.keys()
}

WELL_KNOWN = frozenset(_TABLE.data["well_known"].split())
"""Hosts that developers' machines talk to every day. What they serve may still be anybody's."""

_M, _L = FindingSeverity.MEDIUM, FindingSeverity.LOW
_KNOWN_ADDRESS = "Approve it if you know the address."

_WAYS_TO_HOST = {
    "index": ("index", "it takes packages from {}"),
    "push": ("pushes", "it sends files to {} or connects to it"),
    "upload": ("upload", "it sends to {} or connects to it"),
    "tool": ("tool", "it reaches {}"),
}
"""Ways in which a command reaches a host, the most serious first: the pattern of each, and its
reason in a finding.
"""


def _has(text: str, name: str) -> bool:
    """Return whether a pattern of the table occurs in a text."""
    return _PATTERNS[name].search(text) is not None


def _find_way_to_host(text: str) -> str:
    """Return the way in which a line reaches a host, a key of _WAYS_TO_HOST; '' without one."""
    return next((how for how, (name, _) in _WAYS_TO_HOST.items() if _has(text, name)), "")


# `host.name:path` as scp and rsync write it, or numbers with points.
_ADDRESS = re.compile(r"\.(?:[a-z0-9-]+::?[\w/~]|\d{1,3}\.\d)")
_HOST_COMMANDS = re.compile(r"\b(?:dig|nslookup|drill|nc|ncat|ping|telnet|ssh)\b")
"""Commands that name a host without a scheme."""
_CLEAR_SIGNS = frozenset(("://", "@", "podman", "docker"))
_HOST_SIGNS = PartFinder((*_CLEAR_SIGNS, "dig", "nslookup", "drill", "nc", "ping", "telnet", "ssh"))


def _may_name_a_host(text: str) -> bool:
    """Return whether `_find_hosts` can find a host in a line. Every line is asked, so this is
    cheap.
    """
    if "." not in text:
        return False
    signs = _HOST_SIGNS.find(text)
    if not _CLEAR_SIGNS.isdisjoint(signs) or (signs and _HOST_COMMANDS.search(text) is not None):
        return True
    return _ADDRESS.search(text) is not None


def _find_hosts(text: str, how: str) -> set[str]:
    hosts = {match[1] for match in _WHOLE["url_host"].finditer(text)}
    hosts |= {match[1] or match[2] for match in _WHOLE["remote"].finditer(text)}
    # Numbers with points are versions in most texts, so they need another sign that the line
    # reaches a machine.
    if how in ("upload", "push") or hosts:
        hosts |= {match[1] for match in _WHOLE["ip"].finditer(text) if _is_machine(text, match)}
    hosts |= {match[1] for match in _WHOLE["registry"].finditer(text)}
    if how in ("upload", "push") and _HOST_COMMANDS.search(text):
        hosts |= {match[1] for match in _WHOLE["bare"].finditer(text)}
    return {host for host in hosts if "." in host and not _PATTERNS["local"].search(host)}


def _is_machine(text: str, match: re.Match[str]) -> bool:
    """Return whether four numbers are the address of a machine, and no version of something."""
    if any(int(number) > 255 for number in match[1].split(".")):
        return False
    # "v1.2.3.4" and the like stand right behind a word for versions.
    before = max(0, match.start() - 20)
    return _PATTERNS["versioned"].search(text, before, match.start()) is None


def find_new_hosts(
    path: str, sentences: Iterable[Sentence], known_text: Container[str], *, is_new: bool
) -> Iterator[Finding]:
    """Yield a finding for each host that commands of added lines reach, in code, in prose or in a
    table.

    known_text: the text that was there before.
    """
    reported = set()
    for sentence in sentences:
        how = _find_way_to_host(sentence.text) if _may_name_a_host(sentence.text) else ""
        for host in sorted(_find_hosts(sentence.text, how)) if how else ():
            if host in reported or host in known_text:
                continue
            if _needs_no_question(host, how, sentence, is_new):
                continue
            reported.add(host)
            # In a new resource no host is more than shown, but for the source of packages and the
            # target of a copy.
            severity = _M if not is_new or how in ("index", "push") else _L
            why = _WAYS_TO_HOST[how][1].format(host)
            yield report(path, sentence, f"host.{how}", severity, why, _KNOWN_ADDRESS)


def _needs_no_question(host: str, how: str, sentence: Sentence, is_new: bool) -> bool:
    # What is sent to a well-known host may be sent to anybody's account there.
    if host in WELL_KNOWN and how not in ("push", "upload"):
        return True
    if _PATTERNS["placeholder"].search(host) and (is_new or how != "index"):
        return True
    # "Never call https://..." is a prohibition.
    return sentence.part is TextPart.PROSE and how == "tool" and forbids(sentence.text)


def find_new_addresses(
    path: str, sentences: Iterable[Sentence], known_text: Container[str]
) -> Iterator[Finding]:
    """Yield a finding for each address in a sentence that also asks for something to be sent,
    loaded or run.
    """
    for sentence in sentences:
        if sentence.part is TextPart.CODE or "://" not in sentence.text:
            continue
        # The name of an XML namespace looks like an address and is never asked.
        text = _WHOLE["namespace"].sub("", sentence.text)
        unknown_hosts = {
            host
            for host in _WHOLE["url_host"].findall(text)
            if "." in host and host not in known_text
        }
        hosts = {host for host in unknown_hosts - WELL_KNOWN if not _has(host, "local")}
        # A list of links asks for nothing.
        if not hosts or _WHOLE["linked"].fullmatch(sentence.text.strip()):
            continue
        if concepts(sentence.text) & {"send", "follow"} and not forbids(sentence.text):
            why = f"names the new address {sorted(hosts)[0]} where something is sent or run"
            yield report(path, sentence, "host.address", _M, why, _KNOWN_ADDRESS)


def find_weak_options(
    path: str, sentences: Iterable[Sentence], *, is_new: bool
) -> Iterator[Finding]:
    """Yield a finding for each option that turns a check off, but for those that a sentence
    forbids.
    """
    for sentence in sentences:
        match = _PATTERNS["weak"].search(sentence.text)
        if match is None or _only_forbids(sentence):
            continue
        why = f"turns a check off: {escape_unprintable(match[0].strip()[:60])}"
        is_recommended = (
            _has(sentence.text, "recommends")
            and not _has(sentence.text, "cautions")
            and not forbids(sentence.text)
        )
        is_listed = (
            sentence.part is TextPart.CODE or sentence.program or sentence.text.startswith("|")
        )
        is_only_shown = not is_recommended or is_listed or "dangerously" in match[0]
        leaves_peer = _PATTERNS["unchecked_peer"].search(match[0]) is not None
        is_peer_unchecked = leaves_peer and _reaches_others(sentence.text)
        # Without the option: its own name must not count as the caution.
        is_warned = (
            sentence.part is TextPart.PROSE
            and not sentence.program
            and _has(sentence.text.replace(match[0], ""), "cautions")
        )
        is_harmless = (is_new and is_only_shown) or is_warned
        severity = _L if is_harmless and not is_peer_unchecked else _M
        yield report(path, sentence, "option.weak", severity, why, "Leave the check on.")


def _only_forbids(sentence: Sentence) -> bool:
    """Return whether a sentence of a document forbids something, and asks for nothing else."""
    if sentence.part is TextPart.CODE:
        return False
    return forbids(sentence.text) and not is_excused(sentence.text)


def _reaches_others(text: str) -> bool:
    """Return whether a line names an address of another machine, which is then not checked."""
    return any(
        not _PATTERNS["local"].search(match[1]) for match in _WHOLE["url_host"].finditer(text)
    )


_ASKED_OPTION = re.compile(r"(?:,|;|instead|use|always|pass|set|add)\s+[^.]{0,40}--")
_FORBIDDEN_OPTION = re.compile(
    r"(?:never|do not|don't|must not|avoid|without)\s+(?:\w+\s+){0,4}[`'\"]?(?:\w+\s+){0,3}--?"
)


def is_excused(text: str) -> bool:
    """Return whether a sentence that forbids one thing still asks for another: 'do not wait, use
    --insecure'.
    """
    return _ASKED_OPTION.search(text) is not None and _FORBIDDEN_OPTION.search(text) is None


def find_flows(
    view: TextView,
    text: str,
    *,
    is_file: bool,
    changed: str | None = None,
    known_programs: str = "",
) -> Iterator[Finding]:
    """Yield what a program does that a person should see first.

    text: the program in lower case, whole. is_file: it is a file and not a code block of a
    document. changed: only the statements that a change brings; None for a new program.
    known_programs: the programs that were there before. A finding needs a statement of the change
    in it.
    """
    new = text if changed is None else changed
    is_change = changed is not None
    if is_file:
        flows = _find_file_flows(text, new, known_programs, is_change)
    else:
        flows = _find_block_flows(new, is_change)
    for rule, why in flows:
        excerpt = escape_unprintable(new.strip()[:120])
        yield Finding(
            rule, _M, view.path, 0, excerpt, why, "Read the program before you approve it."
        )


def _find_file_flows(
    text: str, new: str, known_programs: str, is_change: bool
) -> Iterator[tuple[str, str]]:
    sends, sends_now = _has(text, "sends"), _has(new, "sends")
    yield from _find_file_sends(text, new, sends, sends_now)
    # Of the two halves of a flow one has to be new; the other may have been there.
    if _has(new, "credentials") or (_has(text, "credentials") and sends_now):
        yield "program.credentials", "it touches credentials"
    if _has(text, "opaque") and _has(text, "runs") and (_has(new, "opaque") or _has(new, "runs")):
        yield "program.opaque", "it decodes a text and can run it"
    if _has(new, "hidden_name"):
        why = "it puts together the name of what it calls, so that nobody can read it"
        yield "program.hidden-name", why
    if _has(new, "library"):
        yield "program.library", "it touches this library or an agent's configuration"
    if _has(new, "weakens"):
        yield "program.weakens", "it turns a protection off or hides what it does"
    if sends_now and _has(text, "files") and _is_pointed(new):
        yield "program.sends-files", "it reads files and sends to an address"
    if is_change and sends_now and not _has(known_programs, "sends"):
        yield "program.network", "it reaches the network, which this resource did not before"
    if is_change and sends and _has(new, "named_keys") and not _has(known_programs, "named_keys"):
        yield "program.keys", "it reads a key and reaches the network"


def _find_block_flows(new: str, is_change: bool) -> Iterator[tuple[str, str]]:
    sends = _has(new, "sends")
    environment = _PATTERNS["whole_environment"].search(new)
    # A code block may show unrelated commands, so both have to stand near each other.
    if environment and _sends_near(new, environment):
        yield "program.environment", "it reads the whole environment and reaches the network"
    if not is_change:
        return
    if sends and _has(new, "remote_code"):
        yield "program.remote-code", "it runs what an address serves"
    if sends and _has(new, "credentials"):
        yield "program.credentials", "it touches credentials"
    # On one line, because in a document the key and the request often belong to different examples.
    if any(_has(line, "sends") and _PATTERNS["key"].search(line) for line in new.split("\n")):
        yield "program.keys", "it sends a key"


def _sends_near(text: str, match: re.Match[str]) -> bool:
    """Return whether something is sent within 200 characters of a match."""
    start, end = max(0, match.start() - 200), match.end() + 200
    return _PATTERNS["sends"].search(text, start, end) is not None


def _find_file_sends(
    text: str, new: str, sends: bool, sends_now: bool
) -> Iterator[tuple[str, str]]:
    if not sends and not sends_now:
        return
    sends_new = sends and _has(new, "whole_environment")
    if sends_new or (sends_now and _has(text, "whole_environment")):
        yield "program.environment", "it reads the whole environment and reaches the network"
    if _PATTERNS["key_in_address"].search(new):
        yield "program.key-in-address", "it puts a value of the environment into an address"
    if _has(new, "remote_code"):
        yield "program.remote-code", "it runs what an address serves"


def _is_pointed(text: str) -> bool:
    """Return whether a program sends with a raw protocol, or posts to an address that is written in
    it.
    """
    return _has(text, "raw") or (_has(text, "address") and _has(text, "post"))

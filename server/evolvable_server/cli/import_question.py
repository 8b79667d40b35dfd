"""Show what an import would bring and what the scan found in it, and ask once."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from evolvable_server.cli.command_context import CommandContext, to_cli_words
from evolvable_server.cli.terminal import confirm, count, progress, remark, say
from evolvable_tools.scan import Finding, FindingSeverity
from evolvable_tools.verbs.scan_import import Answer, Coming, Preview, preview

if TYPE_CHECKING:
    from evolvable_tools.library import Library

MAX_LISTED = 50
"""Resources without findings that are listed one by one; those with findings are all listed."""

MAX_FINDINGS = 5
"""Findings of low severity that are shown of one resource; those of higher severity are all shown."""


def ask(state: CommandContext, library: "Library", source: Path, form: str, options: dict[str, Any]) -> Answer:
    """Show what an import would bring, ask once, and return the person's yes. Raise InvalidArgument for a no.

    An import that would bring nothing new asks nothing.
    """
    with progress("reading") as show:
        if form == "folders":
            options = {**options, "progress": show}
        found = preview(library, source, form, **options)
    if not found.coming:
        return found.answer
    for line in _lines(source, found):
        # With --json the result alone is on stdout.
        (remark if state.json else say)(line)
    asking = sum(1 for one in found.coming if one.asks)
    findings = f", {asking} with findings that need your decision" if asking else ""
    confirm(f"Import {count(len(found.coming), 'resource')}{findings}?", refused="Nothing was imported.")
    return found.answer


def _lines(source: Path, found: Preview) -> list[str]:
    lines = [f"{source} brings {count(len(found.coming), 'resource')}:"]
    asking = [one for one in found.coming if one.findings]
    others = [one for one in found.coming if not one.findings]
    for one in (*asking, *others[:MAX_LISTED]):
        lines += ["", _headline(one), *_findings(one.findings)]
        if one.capabilities:
            lines.append(f"  has the means to: {', '.join(one.capabilities)}")
    if len(others) > MAX_LISTED:
        lines += ["", f"and {len(others) - MAX_LISTED:,} more without findings"]
    for name, problems in found.refused:
        lines += ["", f"{name}  (refused)", *(f"  {to_cli_words(problem)}" for problem in problems)]
    return [*lines, ""]


def _headline(one: Coming) -> str:
    if not one.files:
        return f"{one.ref}  (history only)"
    new = f"replaces version {one.base}" if one.base else "new"
    return f"{one.ref}  ({new}, {count(one.files, 'file')}, {one.size:,} bytes)"


def _findings(findings: list[Finding]) -> list[str]:
    asking = [f"  {one.severity}: {one}" for one in findings if one.severity is not FindingSeverity.LOW]
    low = [f"  {one.severity}: {one}" for one in findings if one.severity is FindingSeverity.LOW]
    more = [f"  and {len(low) - MAX_FINDINGS:,} more of low severity"] if len(low) > MAX_FINDINGS else []
    return [*asking, *low[:MAX_FINDINGS], *more]

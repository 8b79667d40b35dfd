"""The commands `rspl`, with the operators of Autogenesis' resource protocol, and `tool`, which
approves tools.
"""

import asyncio
import json
import os
import shlex
import sys
from dataclasses import dataclass
from typing import Any

import click

from evolvable_evolve import contracts, rspl, variables
from evolvable_evolve.agent_runs import AgentHost
from evolvable_evolve.rspl import OPERATORS, RsplOperator
from evolvable_evolve.run_launcher import choose_sandbox
from evolvable_server import commands_of_role, is_person
from evolvable_server.cli import (
    KIND,
    REF,
    CommandContext,
    ExitCode,
    Output,
    VerbGroup,
    command,
    expect_option,
    home_option,
    json_option,
    reason_option,
    show_tool_version,
    show_updated,
)
from evolvable_server.cli.terminal import confirm, count, remark, say, show_table, warn
from evolvable_store import Head, Principal
from evolvable_store.errors import EvolvableError, InvalidArgument
from evolvable_store.resource import Kind, Ref
from evolvable_tools import Caller, Library, verbs
from evolvable_tools.verbs import ToolVersion, Updated


@click.group("rspl", cls=VerbGroup, modules=(__name__,))
@home_option
@json_option
def rspl_command() -> None:
    """Use the operators of the resource protocol that other commands do not have.

    `evolvable lab rspl operators` lists all 19 with their commands.
    """


@click.group("tool", cls=VerbGroup, modules=(__name__,))
@home_option
@json_option
def tool_command() -> None:
    """Approve which versions of tools may run on this machine.

    A tool declares a command in its TOOL.md. It runs in the sandbox of trials, by `evolvable lab
    rspl run`, or as an MCP tool in a server with `--toolsets tools`.
    """


@command("operators")
def operators_command(state: CommandContext) -> Output[dict[str, Any]]:
    """List the 19 operators of RSPL, the command that each one is, and for which kinds it is
    refused.
    """
    operators = list(OPERATORS.values())
    return Output({"operators": operators}, lambda _: _show_operators(operators))


def _show_operators(operators: list[RsplOperator]) -> None:
    refused = [
        "; ".join(f"{kind}: {why}" for kind, why in operator.refused.items())
        for operator in operators
    ]
    rows = [
        [operator.name, operator.group, operator.verb, why]
        for operator, why in zip(operators, refused, strict=True)
    ]
    show_table(
        ["operator", "group", "command", "refused"], rows, wide=("refused",), spare=("group",)
    )


@command("info")
@click.argument("ref", type=REF)
def info_command(state: CommandContext, ref: Ref) -> Output[verbs.ResourceInfo]:
    """Show what a resource is: description, metadata, arguments, trust, and what it was copied
    from.
    """
    with state.library() as (library, caller):
        found = verbs.get_info(library, caller, ref)
    return Output(found, _show_fields)


@command("state")
@click.argument("ref", type=REF)
def state_command(state: CommandContext, ref: Ref) -> Output[verbs.ResourceState]:
    """Show how a resource stands: head, stable channel, folders, uses, and what waits
    for a person.
    """
    with state.library() as (library, caller):
        found = verbs.get_state(library, caller, ref)
    return Output(found, _show_fields)


def _show_fields(found: object) -> None:
    fields = {name: value for name, value in vars(found).items() if value not in ("", None, [], {})}
    width = max(map(len, fields))
    for name, value in fields.items():
        text = value
        if not isinstance(value, str):
            text = json.dumps(value, ensure_ascii=True, default=str)
        say(f"{name.replace('_', ' '):{width}}  {text}")


@command("variables")
@click.argument("ref", type=REF)
@click.argument("ids", nargs=-1, metavar="[ID]...")
def variables_command(
    state: CommandContext, ref: Ref, ids: tuple[str, ...]
) -> Output[variables.Variables]:
    """List the variables of a resource; with IDs show their values.

    A variable is the description, a section of a Markdown file, or a file.
    """
    with state.library() as (library, caller):
        found = variables.get_variables(library, caller, ref, ids)
    return Output(found, lambda _: _show_variables(found, bool(ids)))


def _show_variables(found: variables.Variables, values: bool) -> None:
    if values:
        for variable in found.variables:
            say(variable.note if variable.value is None else variable.value.rstrip("\n"))
        return
    rows = [
        [variable.id, variable.role, f"{variable.size:,}", "" if variable.evolvable else "frozen"]
        for variable in found.variables
    ]
    show_table(["variable", "role", "characters", ""], rows, names=("variable",), spare=("role",))


@command("set")
@click.argument("ref", type=REF)
@click.argument("values", nargs=-1, required=True, metavar="ID=TEXT...")
@reason_option("variables were set on the command line")
@click.option("--propose", is_flag=True, help="Change nothing; leave it to a person in the inbox.")
@expect_option
def set_command(
    state: CommandContext,
    ref: Ref,
    values: tuple[str, ...],
    reason: str,
    propose: bool,
    expect: int | None,
) -> Output[Updated]:
    """Set variables of a resource in one new version.

    ID=- reads the text from stdin. Without --expect the newest version is changed.
    """
    pairs = [value.partition("=") for value in values]
    if any(not equals for _, equals, _ in pairs):
        raise click.UsageError("Write ID=TEXT, or ID=- for a text on stdin.")
    texts = {name: sys.stdin.read() if text == "-" else text for name, _, text in pairs}
    with state.library() as (library, caller):
        base = expect if expect is not None else library.store.head(ref, caller.scopes).version or 0
        done = variables.set_variables(library, caller, ref, texts, base, reason, propose=propose)
    return Output(done, show_updated)


@command("save-contract")
@click.argument("refs", nargs=-1, type=REF, metavar="[REF]...")
@click.option("--kind", type=KIND, help="Of every resource of this kind [default: of everything].")
@reason_option("")
def save_contract_command(
    state: CommandContext, refs: tuple[Ref, ...], kind: str | None, reason: str
) -> Output[Updated]:
    """Write the contract of resources into environment:contracts.

    CONTRACT.md says of each what it is for, its arguments, and what it asks for, in at most 150
    tokens.
    """
    with state.library() as (library, caller):
        done = contracts.save_contract(
            library, caller, kind=Kind(kind) if kind else None, refs=refs, reason=reason
        )
    return Output(done, show_updated)


@command("load-contract")
@click.option(
    "--version", type=click.IntRange(min=1), help="Of environment:contracts [default: the newest]."
)
def load_contract_command(
    state: CommandContext, version: int | None
) -> Output[contracts.LoadedContract]:
    """Read the contract back, and say which entries are no longer as the library is.

    Exit code 1: an entry drifted, or its resource is not there.
    """
    with state.library() as (library, caller):
        found = contracts.load_contract(library, caller, version)
    code = ExitCode.ERROR if found.drifted or found.unknown else ExitCode.DONE
    return Output(found, _show_contract, code)


def _show_contract(found: contracts.LoadedContract) -> None:
    rows = [
        [f"{entry.ref}@{entry.version}", entry.state, str(entry.values.get("use", ""))]
        for entry in found.entries
    ]
    show_table(["resource", "state", "use"], rows, names=("resource",), wide=("use",))
    say(f"{count(len(found.drifted), 'entry')} drifted, {len(found.unknown)} unknown.")


@command("build")
@click.argument("ref", type=REF)
def build_command(state: CommandContext, ref: Ref) -> Output[rspl.BuiltResource]:
    """Write the files of a version into a folder of the library's home, named by their hash."""
    with state.library() as (library, caller):
        built = rspl.build_resource(library, caller, ref)
    return Output(built, lambda _: say(built.path))


@command("run")
@click.argument("ref", type=REF)
@click.option(
    "--input", "given", default="{}", metavar="JSON", help="One JSON object; - reads it from stdin."
)
def run_command(state: CommandContext, ref: Ref, given: str) -> Output[rspl.ResourceRun]:
    """Run a resource.

    A tool runs its command in the sandbox, in a version that you approved. A prompt is filled in,
    an environment scores an output of a train task ({"task": ID, "output": TEXT}), an agent does a
    task with an executor that you name ({"task": TEXT, "executor": NAME}), and of other kinds the
    document is shown.
    """
    try:
        values = json.loads(sys.stdin.read() if given == "-" else given)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise InvalidArgument(
            "The input is not one JSON object.", """Such as --input '{"a": 1}'."""
        )
    config = state.config()
    scorers = commands_of_role(config, "scorers", person=is_person())
    agents = AgentHost(config, state.identity.principal is Principal.PERSON)
    host = rspl.RunHost(dict(os.environ), choose_sandbox(config), scorers, agents)
    with state.library() as (library, caller):
        ran = asyncio.run(rspl.run_resource(library, caller, ref, values, host))
        _warn_older(library, caller, ref, ran)
    return Output(ran, _show_run)


def _warn_older(library: Library, caller: Caller, ref: Ref, ran: rspl.ResourceRun) -> None:
    """Show why a version of a tool ran that is older than the newest."""
    if ref.kind is Kind.TOOL and not ref.version:
        head = library.store.head(ref, caller.scopes)
        if head.version is not None and ran.version != head.version:
            line = verbs.out_of_force_line(library, head, head.version)
            remark(f"{ran.ref}@{ran.version} ran, not version {head.version}: {line}")


def _show_run(ran: rspl.ResourceRun) -> None:
    if ran.score is not None:
        say(f"score {ran.score:g}")
    warn(*filter(None, [ran.note]))
    say(ran.text.rstrip("\n"))


@dataclass(frozen=True, slots=True)
class ListedTool:
    """One tool with a command.

    approved: the version that runs, None where a person approved none.
    """

    ref: str
    head: int
    approved: int | None
    command: list[str]
    problem: str = ""


@command("list")
def list_command(state: CommandContext) -> Output[dict[str, Any]]:
    """List the tools with a command, and the version of each that runs."""
    with state.library() as (library, _):
        approved = verbs.approved_digests(library)
        found = [
            _describe_tool(library, head, approved)
            for head in library.store.heads(Kind.TOOL)
            if head.version
        ]
    return Output({"tools": found}, lambda _: _show_tools(found))


def _describe_tool(library: Library, head: Head, approved: frozenset[str]) -> ListedTool:
    approved_version = verbs.approved_version(library, head, approved)
    number = approved_version.version if approved_version else None
    words, problem = list[str](), ""
    try:
        newest = verbs.tool_version(library, head, head.version or 0)
        words = list(newest.spec.argv) if newest else []
        problem = "" if newest else "it declares no command"
    except EvolvableError as error:
        problem = str(error)
    return ListedTool(str(head.ref), head.version or 0, number, words, problem)


def _show_tools(found: list[ListedTool]) -> None:
    if not found:
        say("There is no tool in the library.")
        return
    rows = [
        [
            tool.ref,
            str(tool.head),
            str(tool.approved or "none"),
            tool.problem or shlex.join(tool.command),
        ]
        for tool in found
    ]
    show_table(["tool", "newest", "runs", "command"], rows, names=("tool",), wide=("command",))


@command("approve")
@click.argument("ref", type=REF)
def approve_command(state: CommandContext, ref: Ref) -> Output[dict[str, Any]]:
    """Approve a version of a tool to run on this machine.

    Shows the command, its program, its files and what the scan finds, and asks. The approval is for
    these bytes: of a later version the command runs only when it is approved too, and until then
    the approved one goes on.
    """
    state.require_person("Approving a tool")
    with state.library() as (library, caller):
        tool = _find_version(library, ref, caller.scopes)
        show_tool_version(library, caller, tool)
        confirm("Have you read its files, and may it run?")
        verbs.approve_tool(library, caller, tool, via="terminal")
    result = {"ref": tool.ref, "version": tool.version, "digest": tool.digest}
    return Output(result, lambda _: say(f"{tool.ref}@{tool.version} may run."))


@command("withdraw")
@click.argument("ref", type=REF)
def withdraw_command(state: CommandContext, ref: Ref) -> Output[dict[str, Any]]:
    """Withdraw the approval of a tool: of the version that REF names, else of all of
    its versions.
    """
    state.require_person("Withdrawing a tool")
    with state.library() as (library, caller):
        versions = list[int]()
        store, scopes = library.store, caller.scopes
        # The second call raises the error, which names similar resources.
        head = store.head_or_none(ref.at(None), scopes) or store.head(ref, scopes)
        approved = verbs.approved_digests(library)
        for number in [ref.version] if ref.version else range(1, head.latest + 1):
            try:
                found = verbs.tool_version(library, head, number)
            except InvalidArgument:
                continue
            if found is not None and found.digest in approved:
                verbs.withdraw_tool(library, caller, found, via="terminal")
                versions.append(number)
    result = {"ref": str(head.ref), "versions": versions}
    text = f"{head.ref}: {count(len(versions), 'version')} may no longer run."
    return Output(result, lambda _: say(text))


def _find_version(library: Library, ref: Ref, scopes: tuple[str, ...]) -> ToolVersion:
    if ref.kind is not Kind.TOOL:
        raise InvalidArgument(f"{ref} is no tool.", f"Write tool:{ref.name} if it is one.")
    head = library.store.head(ref.at(None), scopes)
    tool = verbs.tool_version(library, head, ref.version or head.latest)
    if tool is None:
        raise InvalidArgument(
            f"{head.ref} declares no command.", "Its TOOL.md needs metadata.run with argv."
        )
    return tool

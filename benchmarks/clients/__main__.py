"""Drives the real Claude Code, Codex and VS Code through sessions with this server; one line for
each check.

python benchmarks/clients --claude PATH --codex PATH --code-server PATH
python benchmarks/clients --only "whole way" --matrix docs/clients.md --copilot PATH --opencode PATH

No network and no account: each client has a fresh home, a dummy key and a scripted model on the
loopback interface. Commands of ours that a person gives are told that they are at a terminal
(tests/support/account); clients never are.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import agents
import automatic
import by_hand
import claude
import codex
import consenting
import delegating
import disturbed
import evolution
import listing
import planning
import reviewing
import rounding
import trying
import whole_run
import whole_way
import whole_way_clients as ways
from place import Place
from talks import Check

from evolvable_server.clients import has_hooks
from evolvable_server.clients.registry import CLIENTS

Session = Callable[[Path, Place], Iterator[Check]]

CLAUDE: dict[str, Session] = {
    "claude -p": partial(claude.in_print_mode, era="modern"),
    "claude -p, handshake": partial(claude.in_print_mode, era="handshake"),
    "claude -p, reload": claude.reload_in_print_mode,
    "claude": claude.in_a_terminal,
    "claude, reload": claude.reload_in_a_terminal,
    "claude -p, plugin": claude.with_the_plugin,
    "claude, plugin": claude.plugin_in_a_terminal,
    "claude -p, consent": consenting.claude_print,
    "claude, consent": consenting.claude_in_a_terminal,
    "claude, consent with a hook that answers": consenting.claude_with_a_hook_that_answers,
    "claude -p, delegation, modern": partial(delegating.claude_code, era="modern"),
    "claude -p, delegation, handshake": partial(delegating.claude_code, era="handshake"),
    "claude -p, delegation by the Skill tool": delegating.by_the_skill_tool,
    "claude -p, round, approval": rounding.by_approval,
    "claude -p, round, trial": rounding.by_trial,
    "claude -p, collection": listing.of_a_collection,
    "claude -p, executor": partial(evolution.as_executor, make=evolution.claude_executor),
    "claude -p, executor with agents": agents.claude_code,
    "claude -p, brain": partial(evolution.as_brain, kind="claude"),
    "claude -p, whole evolution": whole_run.claude_code,
    "claude -p, evolution of agents": agents.whole_run,
    "claude -p, ags": planning.claude_code,
    "claude -p, whole evolution by hand-off": by_hand.claude_code,
    "claude -p, review by hand-off": reviewing.claude_hand_off,
    "claude -p, review of the queue by the API": reviewing.claude_queue,
    "claude -p, review by claude -p": reviewing.claude_headless,
    "claude -p, review by a person's own command": reviewing.claude_own_command,
    "claude -p, automatic review": reviewing.claude_automatic,
    "claude -p, try, table": trying.claude_table,
    "claude -p, try, sessions": trying.claude_sessions,
    **disturbed.sessions_of("claude"),
}
CODEX: dict[str, Session] = {
    "codex exec": codex.by_exec,
    "codex exec, reload": codex.reload_by_exec,
    "codex exec, plugin": codex.with_the_plugin,
    "codex exec, consent": consenting.codex_exec,
    "codex exec, consent without a sandbox": consenting.codex_unconfined,
    "codex exec, delegation": delegating.codex_exec,
    "codex exec, executor": partial(evolution.as_executor, make=evolution.codex_executor),
    "codex exec, brain": partial(evolution.as_brain, kind="codex"),
    "codex exec, whole evolution": whole_run.codex_exec,
    "codex exec, review by hand-off": reviewing.codex_hand_off,
    "codex exec, review by codex exec": reviewing.codex_headless,
    "codex exec, automatic review": reviewing.codex_automatic,
    "codex exec, try, table": trying.codex_table,
    "codex exec, try, sessions": trying.codex_sessions,
    **disturbed.sessions_of("codex"),
}
VSCODE: dict[str, str] = {
    "vscode": "in_the_chat",
    "vscode, reload": "reload_in_the_chat",
    "vscode, question": "question_in_the_chat",
}


def of_vscode() -> dict[str, Session]:
    """Return the sessions of VS Code, which need a package that the others do not."""
    import vscode

    return {title: getattr(vscode, name) for title, name in VSCODE.items()}


WAYS: dict[str, tuple[type[ways.Driver], str, str]] = {
    "claude": (ways.ClaudeCode, "claude-code", "`--allowedTools mcp__evolvable`"),
    "codex": (ways.Codex, "codex", ""),
    "copilot": (ways.Copilot, "copilot", "`--allow-tool evolvable`"),
    "opencode": (ways.OpenCode, "opencode", ""),
    "qwen": (ways.Qwen, "qwen", "`connect --trust`"),
    "droid": (ways.Droid, "droid", "`--auto high`"),
}
"""Option -> how the client is driven, its name in `connect`, and what lets it do what its default
refuses.
"""


def driven(option: str, binary: Path, node: str) -> ways.Driver:
    """Return how a client is driven."""
    driver, name, switch = WAYS[option]
    return driver(name, CLIENTS[name].title, binary, node, switch, has_hooks(name))


def walked(option: str, binary: Path, node: str) -> tuple[Session, whole_way.WholeWay]:
    """Return the session of the whole way of a client, and what will be seen of it."""
    client = driven(option, binary, node)
    way = whole_way.WholeWay(client.title, "", client.switch)

    def session(_: Path, place: Place) -> Iterator[Check]:
        way.version = client.version(place)
        return whole_way.walk(client, place.root, way)

    return session, way


def ran(title: str, session: Session, binary: Path, verbose: bool) -> list[bool]:
    """Run one session in a place of its own and print its checks."""
    started, results = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="clients-", ignore_cleanup_errors=True) as root:
        try:
            for what, good, instead in session(binary, Place(Path(root).resolve())):
                results.append(good)
                print(f"{'ok    ' if good else 'FAILED'}  {title}: {what}", flush=True)
                if not good:
                    print(f"        {instead if verbose else instead[:400]}", flush=True)
        except Exception as error:
            results.append(False)
            print(f"FAILED  {title}: {type(error).__name__}: {error}", flush=True)
    print(f"        ({time.monotonic() - started:.0f} s)", flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--claude", type=Path, help="the binary of Claude Code")
    parser.add_argument("--codex", type=Path, help="the binary of Codex")
    parser.add_argument(
        "--code-server", type=Path, help="the program of code-server, which serves VS Code"
    )
    parser.add_argument("--only", default="", help="only sessions whose title holds this")
    parser.add_argument("--verbose", action="store_true", help="all of what was there instead")
    for option in ("copilot", "opencode", "qwen", "droid"):
        parser.add_argument(f"--{option}", type=Path, help=f"the binary of {option}")
    parser.add_argument("--node", default="", help="the folder of a newer Node, for Qwen Code")
    parser.add_argument(
        "--matrix", type=Path, help="the page whose table of the whole way is written anew"
    )
    options = parser.parse_args()
    given = [(CLAUDE, options.claude)] * bool(options.claude) + [(CODEX, options.codex)] * bool(
        options.codex
    )
    if options.code_server:
        given.append((of_vscode(), options.code_server))
    walks = {
        option: walked(option, binary, options.node)
        for option in WAYS
        if (binary := getattr(options, option)) is not None
    }
    given += [
        ({f"{option}, whole way": session}, getattr(options, option))
        for option, (session, _) in walks.items()
    ]
    given += [
        (
            {
                f"{option}, automatic review": automatic.automatic_review(
                    driven(option, binary, options.node)
                )
            },
            binary,
        )
        for option in automatic.CLIENTS
        if (binary := getattr(options, option)) is not None
    ]
    results = [
        good
        for sessions, binary in given
        for title, session in sessions.items()
        if options.only in title
        for good in ran(title, session, binary.absolute(), options.verbose)
    ]
    if options.matrix:
        whole_way.write_matrix(options.matrix, [way for _, way in walks.values()])
    print(f"{sum(results)} of {len(results)} checks passed")
    sys.exit(not (results and all(results)))


if __name__ == "__main__":
    main()

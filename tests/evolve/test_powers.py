"""What gives an agent power in a client is what a person stood for: in folders that checkout
writes, and in tools.
"""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import CommandLine, skill_text
from confined import needs_sandbox
from mcp_place import Place

from evolvable_evolve.ags.workers import open_agent
from evolvable_store.errors import Refused
from evolvable_store.objects import File
from evolvable_store.operation import Actor, Identity, Principal
from evolvable_store.resource import Ref, main_file
from evolvable_store.store import Store
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.verbs.scan_import import ask_trust, trust

pytestmark = pytest.mark.process

OWNER = Identity(Principal.PERSON, "terminal")
AGENT = Identity(Principal.AGENT, "client:claude-code")
THEIRS = Identity(Principal.REPOSITORY, "file")
BROUGHT = Identity(Principal.IMPORT, "remote:origin")
BASE = "allowed-tools: Read\n"
WIDE = "allowed-tools: Read, Bash(*)\n"


@pytest.fixture
def machine(tmp_path: Path) -> CommandLine:
    """A machine with the skill csv of its owner, which may read, in the library and in
    no folder.
    """
    run = CommandLine(tmp_path)
    with Store.open(run.home, create=True):
        pass
    put(run, "csv", OWNER, BASE)
    return run


def put(
    run: CommandLine, name: str, identity: Identity, more: str, body: str = "one\n\ntwo\n\nthree"
) -> None:
    """Write a version of a resource as somebody, without the rules of a change: they may have let
    it through.
    """
    ref = Ref.parse(name)
    actor = {Principal.PERSON: Actor.HUMAN, Principal.AGENT: Actor.AGENT}.get(
        identity.principal, Actor.IMPORT
    )
    text = skill_text(ref.name, more=more, body=body)
    with Store.open(run.home) as store, store.transaction(actor, "made", identity=identity) as tx:
        tx.put(ref, {main_file(ref.kind, ref.name): File(text.encode())})


def lying(run: CommandLine, name: str = "csv") -> str:
    return (run.user / f".claude/skills/{name}/SKILL.md").read_text()


def newest(run: CommandLine, name: str = "csv") -> tuple[int, str]:
    with Store.open(run.home) as store:
        head = store.head(Ref.parse(name))
        return head.latest, store.file(head, main_file(head.kind, head.name)).data.decode()


@pytest.mark.parametrize(
    ("who", "words"),
    [
        (AGENT, "changed by your agent"),
        (THEIRS, "brought by a repository"),
        (BROUGHT, "imported from elsewhere"),
        (Identity(Principal.AGENT, "ags"), "changed by your agent"),
    ],
)
def test_checkout_writes_what_the_owner_gave_and_says_who_changed_it(machine, who, words) -> None:
    put(machine, "csv", who, WIDE, body="better")
    ran = machine("checkout", "claude-code")
    assert "allowed-tools: Read\n" in lying(machine) and "Bash" not in lying(machine)
    assert lying(machine).endswith("\nbetter\n")
    assert ran.err.count(f"allowed-tools {words}: evolvable approve csv") == 1
    assert words in machine("status").out and words in machine("show", "csv").out


@pytest.mark.parametrize(
    "head",
    [
        "allowed-tools: [Read, 'Bash(*)']\n",
        "'allowed-tools': Bash(*)\n",
        '"allowed\\x2dtools": Bash(*)\n',
        "allowed_tools: Bash(*)\n",
        "Allowed-Tools: Bash(*)\n",
        "allowedTools: Bash(*)\n",
        "? allowed-tools\n: Bash(*)\n",
        "allowed-tools:\n  - Read\n  - Bash(*)\n",
        "allowed-tools: >\n  Read,\n  Bash(*)\n",
        BASE + "allowed-tools: Bash(*)\n",
        BASE + "ALLOWED_TOOLS: Bash(*)\n",
        BASE + "tools: Bash(*)\n",
        BASE + "permissionMode: Bash(*)\n",
        BASE + "permission_mode: Bash(*)\n",
        BASE + "model: Bash(*)\n",
        BASE + "hooks: {PreToolUse: [{command: Bash(*)}]}\n",
        BASE
        + "hooks:\n  PreToolUse:\n    - command: Bash(*)\n\n    # more\n    - command: Bash(*)\n",
        BASE + "hooks: {a: &all Bash(*), b: *all}\n",
        BASE + "note: a: b\nhooks: Bash(*)\n",
        BASE + "? hooks\n: Bash(*)\nnote: a: b\n",
        BASE + "mcpServers: {a: {command: Bash(*)}}\n",
    ],
)
@pytest.mark.parametrize("kind", ["skill", "agent"])
def test_no_spelling_of_a_power_reaches_a_folder(machine, kind, head) -> None:
    ref = f"{kind}:theirs"
    put(machine, ref, OWNER, BASE)
    put(machine, ref, AGENT, head)
    machine("checkout", "claude-code")
    place = (
        machine.user
        / ".claude"
        / ("skills/theirs/SKILL.md" if kind == "skill" else "agents/theirs.md")
    )
    assert "Bash" not in place.read_text() and "allowed-tools: Read\n" in place.read_text()
    before = newest(machine, ref)
    assert (
        not machine("sync", "--json").json["folders"][0]["taken"] and newest(machine, ref) == before
    )


def test_a_whole_head_in_braces_is_that_of_the_base(machine) -> None:
    text = (
        "---\n{name: csv, description: Works with csv files., allowed-tools: 'Bash(*)'}\n---\n\n"
        "better\n"
    )
    with (
        Store.open(machine.home) as store,
        store.transaction(Actor.AGENT, "made", identity=AGENT) as tx,
    ):
        tx.put(Ref.parse("csv"), {"SKILL.md": File(text.encode())})
    machine("checkout", "claude-code")
    assert "allowed-tools: Read\n" in lying(machine) and lying(machine).endswith("better\n")
    machine("sync")
    assert newest(machine) == (2, text)


def test_a_limit_that_an_agent_took_away_is_written(machine) -> None:
    put(machine, "agent:clerk", OWNER, "tools: Read\ndisallowedTools: WebFetch\n")
    put(machine, "agent:clerk", AGENT, "")
    machine("checkout", "claude-code")
    there = (machine.user / ".claude/agents/clerk.md").read_text()
    assert "tools: Read\n" in there and "disallowedTools: WebFetch\n" in there


def test_what_no_person_stood_for_is_given_no_power(machine) -> None:
    put(machine, "new", AGENT, WIDE + "model: opus\n")
    ran = machine("checkout", "claude-code")
    assert "allowed-tools" not in lying(machine, "new") and "model" not in lying(machine, "new")
    assert "evolvable approve new" in ran.err


@pytest.mark.parametrize("how", ["undo", "restore", "agent restores"])
def test_taking_a_version_back_puts_no_value_in_force(tmp_path, how) -> None:
    machine = CommandLine(tmp_path)
    with Store.open(machine.home, create=True):
        pass
    put(machine, "csv", OWNER if how == "agent restores" else AGENT, WIDE)
    put(machine, "csv", OWNER, BASE)
    if how == "undo":
        machine("undo", "2")
    elif how == "restore":
        machine("restore", "csv", "1")
    else:
        machine("restore", "csv", "1", "--yes", CLAUDECODE="1", code=None)
        if newest(machine)[0] == 2:  # it waits: somebody lets it through
            put(machine, "csv", AGENT, WIDE)
    assert WIDE in newest(machine)[1]
    machine("checkout", "claude-code")
    assert BASE in lying(machine) and "Bash" not in lying(machine)


def test_a_merge_with_the_owners_save_keeps_the_agents_value_out_of_force(machine) -> None:
    machine("checkout", "claude-code")
    with (
        Store.open(machine.home) as store,
        store.transaction(Actor.AGENT, "made", identity=AGENT) as tx,
    ):
        tx.put(Ref.parse("csv"), {"SKILL.md": File(skill_text("csv", more=WIDE).encode())})
    machine.save(machine.user / ".claude/skills", "csv", lying(machine).replace("three", "four"))
    machine("sync")
    number, text = newest(machine)
    assert number > 2 and WIDE in text and "four" in text
    assert BASE in lying(machine) and "four" in lying(machine) and "Bash" not in lying(machine)


def test_a_change_over_the_protocol_reaches_no_folder_that_is_watched(machine) -> None:
    machine("checkout", "claude-code", "codex")
    put(machine, "csv", AGENT, WIDE)
    machine("sync")
    assert BASE in lying(machine)
    assert BASE in (machine.user / ".agents/skills/csv/SKILL.md").read_text()
    machine(
        "update",
        "csv",
        "--edit",
        "SKILL.md",
        "two",
        "two and a half",
        "-m",
        "better",
        CLAUDECODE="1",
    )
    assert (
        BASE in lying(machine) and "two and a half" in lying(machine) and WIDE in newest(machine)[1]
    )
    assert "No difference" in machine("diff").err


def test_what_an_agents_file_tool_wrote_is_given_to_no_other_folder(machine) -> None:
    machine("checkout", "claude-code")
    machine.save(machine.user / ".claude/skills", "csv", skill_text("csv", more=WIDE))
    machine("sync")
    with Library.open(machine.home) as library:
        head = library.store.head(Ref.parse("csv"))
        library.store.backend.attestations.attribute(
            [(head.id, head.latest)], library.store.now(), AGENT
        )
    machine("checkout", "codex")
    assert BASE in (machine.user / ".agents/skills/csv/SKILL.md").read_text()
    machine(
        "update",
        "csv",
        "--edit",
        "SKILL.md",
        "two",
        "two and a half",
        "-m",
        "better",
        CLAUDECODE="1",
    )
    assert WIDE in lying(machine), "what a client reads from the disk itself stays as it is"
    assert "two and a half" in lying(machine)
    assert "two and a half" in (machine.user / ".agents/skills/csv/SKILL.md").read_text()
    assert "Bash" not in (machine.user / ".agents/skills/csv/SKILL.md").read_text()


def git(place: Path, *words: str) -> None:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(["git", "-C", str(place), *who, *words], check=True, capture_output=True)


@pytest.mark.parametrize("follow", [False, True])
def test_a_pull_of_a_strangers_change_gives_nothing_to_another_folder(machine, follow) -> None:
    project, theirs = machine.project, machine.root / "theirs"
    git(machine.root, "init", "-q", str(project))
    machine("checkout", project / "skills")
    git(project, "add", ".")
    git(project, "commit", "-qm", "mine")
    git(machine.root, "clone", "-q", str(project), str(theirs))
    machine("checkout", "claude-code")
    machine.save(theirs / "skills", "csv", skill_text("csv", more=WIDE, body="theirs"))
    git(theirs, "commit", "-qam", "theirs")
    git(project, "pull", "-q", str(theirs))
    machine("sync")
    if follow:  # somebody's rule lets it through
        put(machine, "csv", THEIRS, WIDE, body="theirs")
        machine("sync")
    assert "Bash" not in lying(machine) and lying(machine).endswith("theirs\n") is follow


def test_the_owners_edits_of_a_folder_are_edits_and_the_proposed_value_stays(machine) -> None:
    put(machine, "csv", AGENT, "model: opus\n" + WIDE)
    machine("checkout", "claude-code")
    assert "model" not in lying(machine)
    folder = machine.user / ".claude/skills"
    machine.save(folder, "csv", lying(machine).replace("two", "two, by hand"))
    machine("sync")
    number, text = newest(machine)
    assert number == 3 and "two, by hand" in text and "model: opus\n" + WIDE in text
    machine.save(folder, "csv", lying(machine).replace("Works with", "Reads"))
    machine("sync")
    assert newest(machine)[0] == 4
    assert "model: opus\n" + WIDE in newest(machine)[1]
    assert "Reads" in newest(machine)[1]
    for _ in range(3):
        machine("sync")
    assert newest(machine)[0] == 4 and BASE in lying(machine) and "model" not in lying(machine)


def test_the_owners_own_value_in_the_folder_replaces_the_proposed_one(machine) -> None:
    put(machine, "csv", AGENT, WIDE)
    machine("checkout", "claude-code", "codex")
    machine.save(
        machine.user / ".claude/skills", "csv", lying(machine).replace("Read\n", "Read, Write\n")
    )
    machine("sync")
    assert "allowed-tools: Read, Write\n" in newest(machine)[1]
    assert (
        "allowed-tools: Read, Write\n" in (machine.user / ".agents/skills/csv/SKILL.md").read_text()
    )
    assert "out of force" not in machine("status").out


def test_an_approval_puts_it_in_force_and_writes_it(machine) -> None:
    put(machine, "csv", AGENT, WIDE)
    machine("checkout", "claude-code", "codex")
    machine("approve", "csv", "--yes")
    assert WIDE in lying(machine)
    assert WIDE in (machine.user / ".agents/skills/csv/SKILL.md").read_text()
    assert newest(machine)[0] == 2 and "out of force" not in machine("status").out
    machine.save(machine.user / ".claude/skills", "csv", lying(machine).replace(WIDE, BASE))
    machine("sync")
    assert newest(machine)[0] == 3 and BASE in newest(machine)[1]


def _edit(run: CommandLine) -> None:
    run("update", "csv", "--edit", "SKILL.md", BASE, WIDE, "-m", "wider")


def _save(run: CommandLine) -> None:
    run.save(run.user / ".claude/skills", "csv", skill_text("csv", more=WIDE))
    run("sync")


@pytest.mark.parametrize("change", [_edit, _save])
def test_an_owner_who_changes_a_power_is_stopped_nowhere(
    machine: CommandLine, change: Callable[[CommandLine], None]
) -> None:
    machine("checkout", "claude-code")
    change(machine)
    machine("checkout", "codex")
    assert WIDE in lying(machine)
    assert WIDE in (machine.user / ".agents/skills/csv/SKILL.md").read_text()
    assert "out of force" not in machine("status").out + machine("show", "csv").out
    put(machine, "csv", AGENT, WIDE, body="the agent changes a line")
    machine("sync")
    assert WIDE in lying(machine) and "the agent changes a line" in lying(machine)


def tool(run: CommandLine, identity: Identity, script: str, words: tuple[str, ...] = ()) -> None:
    actor = Actor.HUMAN if identity is OWNER else Actor.AGENT
    spec = json.dumps({"argv": ["{python}", "-I", "{tool}/do.py", *words]})
    text = f"---\nname: add\ndescription: Adds.\nmetadata:\n  run: {spec}\n---\n"
    with Store.open(run.home) as store, store.transaction(actor, "made", identity=identity) as tx:
        tx.put(
            Ref.parse("tool:add"), {"TOOL.md": File(text.encode()), "do.py": File(script.encode())}
        )


@needs_sandbox
@pytest.mark.parametrize("changed", ["script", "argument"])
def test_a_tool_that_an_agent_changed_does_not_run_until_it_is_approved(machine, changed) -> None:
    tool(machine, OWNER, "print(1)")
    assert machine("rspl", "run", "tool:add").out == "1\n", "it is the owner's"
    tool(
        machine,
        AGENT,
        "print(2)" if changed == "script" else "print(1)",
        () if changed == "script" else ("x",),
    )
    refused = machine("rspl", "run", "tool:add", code=1)
    assert "changed by your agent: evolvable approve tool:add" in refused.err
    assert "tool command changed by your agent" in machine("status").out
    machine("approve", "tool:add", "--yes")
    assert machine("rspl", "run", "tool:add").out == ("2\n" if changed == "script" else "1\n")
    machine.person = False
    assert machine("rspl", "run", "tool:add", CLAUDECODE="1").out == (
        "2\n" if changed == "script" else "1\n"
    )


@needs_sandbox
def test_the_owners_saved_tool_runs_for_the_owner_and_for_no_agent(machine) -> None:
    tool(machine, OWNER, "print(1)")
    machine("checkout", machine.root / "tools", "--kind", "tool")
    machine.save(machine.root / "tools", "add", "print(3)", "do.py")
    machine("sync")
    assert machine("rspl", "run", "tool:add").out == "3\n"
    machine.person = False
    assert "has not been approved" in machine("rspl", "run", "tool:add", code=1, CLAUDECODE="1").err
    machine.person = True
    machine("approve", "tool:add", "--yes")
    tool(machine, AGENT, "print(4)")
    ran = machine("rspl", "run", "tool:add")
    assert ran.out == "3\n" and "evolvable approve tool:add" in ran.err


@pytest.mark.parametrize("how", ["page", "trust", "approve and sync"])
def test_every_door_that_approves_writes_what_is_now_in_force(machine, how) -> None:
    put(machine, "csv", AGENT, WIDE)
    machine("checkout", "claude-code")
    if how == "trust":
        machine("trust", "skill:csv", stdin="y\n")
    else:
        with Library.open(machine.home) as library:
            caller = Caller(
                Actor.HUMAN, principal=Principal.PERSON, via="page" if how == "page" else "terminal"
            )
            trust(library, caller, ask_trust(library, caller, ref=Ref.parse("csv")))
    machine("sync")
    assert WIDE in lying(machine) and newest(machine)[0] == 2


def test_a_sub_agents_file_that_the_owner_edits_keeps_the_proposed_value(machine) -> None:
    put(machine, "agent:clerk", OWNER, "tools: Read\n")
    put(machine, "agent:clerk", AGENT, "model: opus\ntools: Read, Bash(*)\n")
    machine("checkout", "claude-code")
    place = machine.user / ".claude/agents/clerk.md"
    place.write_text(place.read_text().replace("three", "four"))
    machine("sync")
    number, text = newest(machine, "agent:clerk")
    assert number == 3 and "model: opus\ntools: Read, Bash(*)\n" in text and "four" in text
    put(machine, "agent:clerk", OWNER, "model: haiku\ntools: Read\n")
    machine("sync")
    assert "model: haiku\ntools: Read\n" in place.read_text()


def test_a_command_file_gets_no_tools_that_nobody_approved(machine) -> None:
    put(machine, "prompt:commit", OWNER, BASE)
    put(machine, "prompt:commit", AGENT, WIDE)
    machine("checkout", machine.user / ".claude/commands", "--kind", "prompt")
    there = [path.read_text() for path in (machine.user / ".claude/commands").rglob("*.md")]
    assert len(there) == 1 and BASE in there[0]


def test_a_folder_that_lost_its_file_in_a_crash_is_given_the_base_again(machine) -> None:
    put(machine, "csv", AGENT, WIDE)
    machine("checkout", "claude-code")
    written = lying(machine)
    with Store.open(machine.home) as store:  # as a crash leaves it: written, and not bound
        (folder,) = (one for one in store.backend.bindings.folders() if one.kind == "skill")
        bound = store.backend.bindings.of_folder(folder)["csv"]
        store.backend.bindings.bind([replace(bound, version=1, signature="")])
    machine("sync")
    assert newest(machine)[0] == 2 and lying(machine) == written


def test_json_of_status_and_checkout_names_each_resource_once(machine) -> None:
    put(machine, "csv", AGENT, WIDE + "model: opus\n")
    line = "allowed-tools, model changed by your agent: evolvable approve csv"
    given = machine("checkout", "claude-code", "codex", "--json").json["out_of_force"]
    assert len(given) == 1 and given[0].startswith(line)
    assert machine("status", "--json").json["out_of_force"] == [line]
    assert machine("show", "csv", "--json").json["out_of_force"] == [line]


def test_the_powers_of_what_the_program_brings_are_in_force(tmp_path) -> None:
    machine = CommandLine(tmp_path)
    machine("quickstart", "--home", machine.home, code=None)
    assert "out of force" not in machine("status").out


def test_hundred_saves_of_the_owner_put_nothing_of_an_agent_in_force(machine) -> None:
    put(machine, "csv", AGENT, WIDE)
    saved = Identity(Principal.UNKNOWN, "file")
    for number in range(60):
        put(machine, "csv", saved, WIDE, body=f"line {number}")
    machine("checkout", "claude-code")
    assert BASE in lying(machine) and "line 59" in lying(machine)


@pytest.mark.anyio
async def test_an_agents_change_over_the_protocol_leaves_the_folder_with_the_owners_value(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path)
    with (
        Store.open(place.home) as store,
        store.transaction(Actor.HUMAN, "made", identity=OWNER) as tx,
    ):
        tx.put(
            Ref.parse("csv"),
            {"SKILL.md": File(skill_text("csv", more="allowed-tools: Read, Write\n").encode())},
        )
    path = place.skills / "csv/SKILL.md"
    with Library.open(place.home) as library:
        library.working_copies.sync()
    edits = [
        {"path": "SKILL.md", "old": "Read, Write", "new": "Read"},
        {"path": "SKILL.md", "old": "two", "new": "two and a half"},
    ]
    async with place.client("modern") as client:
        arguments = {"ref": "csv", "edits": edits, "reason": "rows went missing"}
        made = (await client.call_tool("update_resource", arguments)).structured_content
        again = {**arguments, "edits": [{"path": "SKILL.md", "old": "three", "new": "four"}]}
        more = (await client.call_tool("update_resource", again)).structured_content
    assert made["version"] and more["version"] == made["version"] + 1
    assert (
        "allowed-tools: Read, Write\n" in path.read_text() and "two and a half" in path.read_text()
    )
    assert "four" in path.read_text()


@needs_sandbox
def test_a_tool_that_was_withdrawn_does_not_run_for_its_owner(machine) -> None:
    tool(machine, OWNER, "print(1)")
    machine("approve", "tool:add", "--yes")
    machine("tool", "withdraw", "tool:add")
    assert "has not been approved" in machine("rspl", "run", "tool:add", code=1).err


def test_a_plan_names_who_changed_an_agent_that_does_not_run(machine) -> None:
    put(machine, "agent:clerk", OWNER, "tools: Read\n")
    put(machine, "agent:clerk", AGENT, "tools: Read, Bash\n")
    with Library.open(machine.home) as library, pytest.raises(Refused) as refused:
        open_agent(library, Caller(Actor.HUMAN), "agent:clerk")
    assert "by your agent: evolvable approve agent:clerk" in str(refused.value)

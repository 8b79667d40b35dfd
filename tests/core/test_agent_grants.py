"""What an AGENT.md brings is a capability: an agent's change that adds or widens one waits for a
person.
"""

from collections.abc import Callable

import pytest

from evolvable_store.errors import EvolvableError
from evolvable_store.objects import File
from evolvable_store.operation import Identity, Principal
from evolvable_store.resource import Kind, Ref
from evolvable_store.storage.bindings import WatchedFolder
from evolvable_store.workingcopy.incoming import IncomingDirectory
from evolvable_tools.file_edits import TextEdit
from evolvable_tools.verbs import edit

CLERK = Ref.parse("agent:clerk")
BASE = (
    "tools: Read, Bash(git log:*)\nmodel: haiku\ndisallowedTools: WebFetch, WebSearch\n"
    "skills: filing\n"
)


def text(head: str) -> str:
    return f"---\nname: clerk\ndescription: Files papers.\n{head}---\n\nFile every paper.\n"


@pytest.fixture
def held(library, person, agent) -> Callable[..., bool]:
    """Whether an agent's change from one head to another waits, or is refused.

    before: None for a new agent.
    """
    numbers = iter(range(1000))

    def changed(before: str | None, after: str, *, raw: bool = False) -> bool:
        name = f"clerk-{next(numbers)}"
        ref = Ref.parse(f"agent:{name}")
        heads = after, before
        texts = (one if raw or one is None else text(one) for one in heads)
        new, old = (one and one.replace("name: clerk", f"name: {name}", 1) for one in texts)
        if old is not None:
            with library.store.transaction(person.actor, "start") as tx:
                tx.put(ref.within("user"), {"AGENT.md": File(old.encode())})
        try:
            more = {"create": True} if old is None else {"expected_version": 1}
            made = edit.update_resource(
                library, agent, ref, "a change", files={"AGENT.md": new}, **more
            )
        except EvolvableError:
            return True
        return made.proposal_id is not None

    return changed


def test_each_capability_that_is_added_or_widened_waits(held):
    for more in (
        "permissionMode: acceptEdits\n",
        "permissionMode: bypassPermissions\n",
        "hooks: {PreToolUse: [{command: x}]}\n",
        "mcpServers: {files: {command: npx}}\n",
        "mcpServers: [files]\n",
        "delegate: agent:other\n",
        "metadata: {delegate: 'agent:other'}\n",
        "autoApprove: '*'\n",
    ):
        assert held(BASE, BASE + more), more
    for old, new in (
        ("tools: Read,", "tools: Read, Write,"),
        ("tools: Read, Bash(git log:*)", "tools: Read, Bash(git:*)"),
        ("tools: Read, Bash(git log:*)", "tools: Read, Bash"),
        ("tools: Read, Bash(git log:*)", "tools: '*'"),
        ("tools: Read, Bash(git log:*)\n", ""),
        ("model: haiku", "model: opus"),
        ("model: haiku\n", ""),
        ("disallowedTools: WebFetch, WebSearch", "disallowedTools: WebFetch"),
        ("disallowedTools: WebFetch, WebSearch\n", ""),
        ("skills: filing", "skills: filing, deploying"),
    ):
        assert old in BASE and held(BASE, BASE.replace(old, new)), new
    wide = (
        "hooks: {PreToolUse: [{command: x}]}\nmcpServers: {a: {command: x}}\npermissionMode: plan\n"
    )
    for old, new in (
        ("[{command: x}]", "[{command: x}, {command: y}]"),
        ("[{command: x}]}", "[{command: x}], Stop: [{command: x}]}"),
        ("a: {command: x}", "a: {command: y}"),
        ("a: {command: x}", "a: {command: x}, b: {command: x}"),
        ("permissionMode: plan", "permissionMode: default"),
        ("permissionMode: plan\n", ""),
    ):
        assert held(wide, wide.replace(old, new)), new


def test_what_narrows_or_says_the_same_in_other_words_goes_live(held):
    for old, new in (
        ("tools: Read, Bash(git log:*)", "tools: Read"),
        ("tools: Read, Bash(git log:*)", "tools:\n  - 'Bash(git log:*)'\n  - Read"),
        ("disallowedTools: WebFetch", "disallowedTools: Write, WebFetch"),
        ("skills: filing", "skills: [filing]"),
        ("skills: filing\n", ""),
        ("model: haiku", "model: 'haiku'"),
        ("model: haiku\n", "model: haiku\npermissionMode: plan\n"),
        ("model: haiku\n", "model: haiku\npermissionMode: default\ncolor: red\n"),
    ):
        assert old in BASE and not held(BASE, BASE.replace(old, new)), new
    assert not held("permissionMode: acceptEdits\n", "")
    assert not held(
        "mcpServers: {a: {command: x}, b: {command: x}}\n", "mcpServers: {b: {command: x}}\n"
    )


def test_yaml_that_clients_may_read_otherwise_waits_or_is_refused(held):
    for tricky in (
        "tools: Read\nTools: Bash\n",
        "tools: Read\nTOOLS: [Bash]\n",
        "PermissionMode: bypassPermissions\n",
        "permission_mode: acceptEdits\n",
        "mcp_servers: {a: {command: x}}\n",
        "Hooks: {Stop: [{command: x}]}\n",
        "tools: Read\ntools: Bash\n",
        "x: &all [Bash]\ntools: *all\n",
        "<<: {permissionMode: bypassPermissions}\ntools: Read\n",
        "tools: !!set {Bash}\n",
        "tools: {Bash: true}\n",
        "tools: true\n",
        "tools: 7\n",
        "tools: []\n",
        "tools: ''\n",
        "tools: null\n",
        "tools: [[Bash]]\n",
        "tools: [Read, {Bash: x}]\n",
        '"\\x74ools": [Bash]\n',
        'tools: "Read\\x2c Bash"\n',
        "? tools\n: Bash\n",
        "permissionMode: [bypassPermissions]\n",
        "permissionMode: {mode: bypassPermissions}\n",
        "delegate: [agent:other]\n",
        "metadata: {Delegate: {agent: 'agent:other'}}\n",
    ):
        assert held("tools: Read\n", tricky), tricky


def test_a_head_that_is_hidden_from_the_eye_is_compared_all_the_same(held):
    before, after = text("tools: Read\n"), text("tools: Bash\n")
    for lead in ("\n", "\n \t\n", " " * 70_000 + "\n"):
        assert held(lead + before, lead + after, raw=True), lead[:5]
        assert held(before, lead + after, raw=True), lead[:5]
    cut = '---\nname: clerk\ndescription: "Files\n---x papers."\ntools: Read\n---\n\nFile.\n'
    assert held(cut, cut.replace("Read", "Bash"), raw=True)
    # A person's file may have a key twice; which one counts is up to the client.
    twice = text("tools: Read\ntools: Read\n")
    assert held(twice, twice[::-1].replace("daeR", "hsaB", 1)[::-1], raw=True)
    assert held(twice, twice.replace("Read", "Bash", 1), raw=True)


def test_another_name_for_the_main_file_hides_nothing(library, person, agent):
    with library.store.transaction(person.actor, "start") as tx:
        tx.put(CLERK.within("user"), {"agent.md": File(text("tools: Read\n").encode())})

    files = {"agent.md": None, "AGENT.md": text("tools: Read, Bash\n")}
    made = edit.update_resource(library, agent, CLERK, "x", files=files, expected_version=1)

    assert made.proposal_id is not None


def test_a_new_agent_that_names_a_capability_waits_and_one_that_names_none_does_not(
    held, library, agent, person
):
    """A copy of a trusted agent is a new one, and so is one that is made where another
    was removed.
    """
    for head in (
        "tools: Read\n",
        "model: opus\n",
        "permissionMode: acceptEdits\n",
        "hooks: {Stop: [{command: x}]}\n",
        "mcpServers: [files]\n",
        "delegate: agent:other\n",
    ):
        assert held(None, head), head
    assert not held(None, "")
    edit.update_resource(
        library, person, CLERK, "x", files={"AGENT.md": text("tools: Read, Bash\n")}, create=True
    )
    copied = edit.update_resource(
        library, agent, Ref.parse("agent:mine"), "x", create=True, copy_of=CLERK
    )
    assert copied.proposal_id is not None


def test_an_agents_change_of_a_skills_delegate_waits(library, agent, skill):
    """Otherwise an agent could have a trusted skill run by an agent with the tools that
    it wants.
    """
    new = skill("papers", metadata="metadata:\n  delegate: agent:clerk\n", caller=agent)
    assert library.store.head_or_none(new) is None, "a new one waits too"
    ref = skill("filing", metadata="metadata:\n  x: y\n")

    def changes(old: str, new: str) -> bool:
        return edit.update_resource(
            library, agent, ref, "x", edits=[TextEdit("SKILL.md", old, new)]
        ).proposal_id is not None  # fmt: skip

    assert changes("  x: y", "  x: y\n  delegate: agent:clerk")
    assert changes("  x: y", "  delegate: {agent: clerk, when: long}")
    assert changes("metadata:", "delegate: agent:clerk\nmetadata:")
    assert not changes("  x: y", "  x: z")


def test_a_restore_of_a_wider_version_waits(library, person, agent):
    edit.update_resource(
        library, person, CLERK, "x", files={"AGENT.md": text("tools: Read, Bash\n")}, create=True
    )
    edit.update_resource(library, person, CLERK, "x", files={"AGENT.md": text("tools: Read\n")})

    assert edit.restore_resource(library, agent, CLERK, 1, "back").proposal_id is not None


def test_an_agent_file_that_an_agent_wrote_is_held_and_a_repositorys_new_one_is_served_as_untrusted(
    library, tmp_path
):
    folder = WatchedFolder(1, "user", Kind.AGENT, tmp_path)
    new, wider = (
        {"AGENT.md": File(text(head).encode())} for head in ("tools: Read\n", "tools: Read, Bash\n")
    )

    def held(before, files, principal) -> bool:
        who = Identity(principal, "hook:claude-code")
        return (
            library.gate(IncomingDirectory(folder, "clerk.md", CLERK, None, before, files, who))
            is not None
        )

    assert held({}, new, Principal.AGENT) and held(new, wider, Principal.AGENT)
    assert held(new, wider, Principal.REPOSITORY) and not held({}, new, Principal.REPOSITORY)
    assert not held(wider, new, Principal.AGENT)

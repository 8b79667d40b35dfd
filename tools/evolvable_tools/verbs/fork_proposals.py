"""Proposals of the two lines by which Claude Code's Skill tool has an agent work, where no checkout
may add them.

A folder that a person keeps, or one in a work tree, holds what its versions say and nothing else.
"""

from dataclasses import replace

from evolvable_store import main_path, make_manifest, with_fork
from evolvable_store.errors import EvolvableError
from evolvable_store.resource import Kind
from evolvable_store.storage import WatchedFolder
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.verbs.proposal_inbox import propose


def propose_forks(library: Library, caller: Caller, folder: WatchedFolder) -> dict[str, int]:
    """Propose the two lines for each skill in a folder of Claude Code whose delegate could be
    started by them.

    Return the proposals by ref. What was proposed once, and whatever became of it, is not proposed
    again.
    """
    copies, proposed = library.working_copies, dict[str, int]()
    if folder.is_plugins or folder.kind is not Kind.SKILL:
        return proposed
    powers = copies.copy(folder).status.powers
    bound = [
        binding
        for binding in copies.bindings.of_folder(folder).values()
        if binding.version is not None
    ]
    heads = library.store.backend.heads_by_id({binding.resource for binding in bound})
    for binding in bound:
        head = heads[binding.resource]
        if head.version is None or powers.owns(binding.directory, head.id):
            continue
        agent = library.started_agent(head, folder.path)
        files = library.store.files(head) if agent else {}
        main = main_path(head.kind, head.name, files) if files else ""
        data = with_fork(files[main].data, agent) if main else b""
        if not main or data == files[main].data:
            continue
        changed = {**files, main: replace(files[main], data=data)}
        tree = make_manifest(changed).tree
        earlier = library.store.backend.proposals.about(head.ref)
        if any(proposal.manifest.tree == tree for proposal in earlier):
            continue
        why = f"Claude Code's Skill tool starts its delegate {agent} by these two lines"
        try:
            proposed[str(head.ref)] = propose(library, caller, head.ref, head.version, changed, why)
        except EvolvableError:
            continue  # the scan refuses a text that was there before
    return proposed

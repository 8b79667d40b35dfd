"""The registry of verbs: what each does, who may run it, and under which names MCP and the command line offer it.

Annotations of MCP tools, permissions of tokens, the effects of commands, the sections of the help and the tables of
the manual are made from it. A server reads it before its first answer, so it imports no SDK and no use case: functions
are named as `module:name`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum


class Effect(StrEnum):
    """What a verb does, from the least to the most."""

    READS = "reads"
    """Changes no content; it may log what it showed."""

    WRITES = "writes"
    """Adds to the library, or writes files beside it. What it replaces stays in the history."""

    REMOVES = "removes"
    """Removes, reverts or replaces what others made."""

    RUNS = "runs"
    """Executes commands."""

    SPENDS = "spends"
    """Executes commands, calls models and may spend money."""


class Authority(StrEnum):
    """Who may run a verb: the permission that a token needs, or a person alone."""

    READ = "read"
    """Anyone: it reads the library, or what is around it."""

    REPORT = "report"
    """Anyone: it reports an outcome, or submits an answer that was requested."""

    WRITE = "write"
    """Anyone; the policy decides which changes of an agent or a script apply at once and which wait."""

    APPROVE = "approve"
    """A person, or a script whose token may approve."""

    PERSON = "person"
    """A person alone: it names commands, connects clients or makes tokens, so it decides who may do what."""


READS, WRITES, REMOVES, RUNS, SPENDS = Effect
READ, REPORT, WRITE, APPROVE, PERSON = Authority


@dataclass(frozen=True, slots=True)
class Verb:
    """One thing that can be done with a library.

    name: the command's, with its action, such as `evolve start`. function: `module:name` of the use case, empty where
    only the command line has it. command: the command that does the same, by default the name, empty where there is
    none. section: of the help.
    """

    name: str
    effect: Effect
    authority: Authority
    summary: str
    function: str = ""
    command: str | None = None
    section: str = ""


@dataclass(frozen=True, slots=True)
class Tool:
    """An MCP tool over one verb, or over several between which its argument `action` chooses.

    toolset: the tools that a server adds together. permission: what a token needs over HTTP, by default the verb's.
    """

    name: str
    title: str
    toolset: str
    names: tuple[str, ...]
    permission: Authority | None = None

    @property
    def effect(self) -> Effect:
        """The strongest effect of its verbs."""
        return max((VERBS[name].effect for name in self.names), key=list(Effect).index)

    @property
    def command(self) -> str:
        """The command that does the same, without an action; empty where there is none."""
        verb = VERBS[self.names[0]]
        command = verb.name if verb.command is None else verb.command
        return command if len(self.names) == 1 else command.partition(" ")[0]

    def needs(self, action: object = None) -> Authority:
        """Return the permission that a call with this action needs; without a known action, that of the first verb."""
        chosen = next((name for name in self.names if name.rpartition(" ")[2] == action), self.names[0])
        return self.permission or VERBS[chosen].authority


def _named_commands(role: str) -> tuple[Verb, Verb, Verb]:
    return (
        Verb(f"{role} add", WRITES, PERSON, f"Name a command that may be used as {role}."),
        Verb(f"{role} list", READS, READ, f"List the commands that may be used as {role}."),
        Verb(f"{role} remove", REMOVES, PERSON, f"Remove the name of a command that may be used as {role}."),
    )


_ROLES = ("executor", "scorer", "judge", "reviewer", "proposer")
_REVIEW = "evolvable_tools.review"
_VERBS = "evolvable_tools.verbs"
_EVOLVE = "evolvable_tools.evolve"
_INBOX = f"{_VERBS}.proposal_inbox"
_RUN = f"{_EVOLVE}.run_control"

_SECTIONS: Mapping[str, tuple[Verb, ...]] = {
    "Use": (
        Verb("find", READS, READ, "Find the skills that fit a task.", f"{_VERBS}.search:find_skill"),
        Verb("load", WRITES, READ, "Open a skill to work by it.", f"{_VERBS}.load:load_skill"),
        Verb("report", WRITES, REPORT, "Report the outcome of using a skill.", f"{_VERBS}.load:report_outcome"),
    ),
    "Look": (
        Verb("list", READS, READ, "List what the library holds.", f"{_VERBS}.search:list_resources"),
        Verb("get", READS, READ, "Read any file of any version.", f"{_VERBS}.load:get_resource"),
        Verb("history", READS, READ, "Show versions, or what changed.", f"{_VERBS}.versions:resource_history"),
        Verb("log", READS, READ, "Show the latest operations."),
        Verb("stats", READS, READ, "Show what is used, what helps, what harms and what is dead."),
        Verb("sessions", READS, READ, "List the sessions that clients wrote down."),
    ),
    "Change": (
        Verb("update", WRITES, WRITE, "Change or create a resource.", f"{_VERBS}.edit:update_resource"),
        Verb("restore", WRITES, WRITE, "Bring an old version back.", f"{_VERBS}.edit:restore_resource"),
        Verb("remove", REMOVES, WRITE, "Remove a resource; its versions stay.", f"{_VERBS}.edit:remove_resource"),
        Verb("undo", REMOVES, WRITE, "Take an operation back.", f"{_INBOX}:revert_or_propose"),
        Verb("review", WRITES, WRITE, "Learn from finished sessions.", f"{_REVIEW}.service:review_session"),
        Verb("submit_review", WRITES, WRITE, "Answer a review.", f"{_REVIEW}.service:submit_review", command="review"),
        Verb("inbox list", READS, READ, "List the proposals that wait.", f"{_INBOX}:list_waiting"),
        Verb("inbox show", READS, READ, "Show a proposal with its diff.", f"{_INBOX}:show_proposal"),
        Verb("inbox approve", WRITES, APPROVE, "Publish proposals.", f"{_INBOX}:approve_together"),
        Verb("inbox edit", WRITES, APPROVE, "Edit a proposal and publish it.", f"{_INBOX}:approve"),
        Verb("inbox reject", WRITES, APPROVE, "Reject proposals.", f"{_INBOX}:reject"),
        Verb("approvals status", READS, READ, "Show whether approvals are locked."),
        Verb("approvals lock", WRITES, PERSON, "Lock approvals behind a passphrase."),
        Verb("approvals unlock", REMOVES, PERSON, "Unlock approvals."),
        Verb("memory show", READS, READ, "Show which clients read the memories."),
        Verb("memory on", WRITES, APPROVE, "Write the memories into a client's file."),
        Verb("memory off", REMOVES, APPROVE, "Remove the memories from a client's file."),
        Verb(
            "compress", READS, READ, "Shorten a long conversation.", f"{_REVIEW}.context_compression:compress_history"
        ),
        Verb("publish", WRITES, APPROVE, "Let hosts see what changed.", f"{_VERBS}.release:publish"),
        Verb("channel status", READS, READ, "Show what hosts see.", f"{_VERBS}.release:channel_status"),
        Verb("channel log", READS, READ, "Show what was published and withdrawn.", f"{_VERBS}.release:channel_log"),
        Verb("channel policy", WRITES, APPROVE, "Show or set what is published when.", f"{_VERBS}.release:set_policy"),
        Verb("channel withdraw", REMOVES, APPROVE, "Hide skills from hosts.", f"{_VERBS}.release:withdraw_skills"),
    ),
    "Evolve": (
        Verb("taskset check", RUNS, WRITE, "Check what figures from these tasks can show."),
        Verb("taskset list", READS, READ, "List the task sets of the library, or the tasks of one."),
        Verb("taskset split", WRITES, WRITE, "Show or write how tasks are divided into splits."),
        Verb(
            "taskset import", WRITES, WRITE, "Make a task set of a table.", f"{_EVOLVE}.tasks.table_import:read_table"
        ),
        Verb(
            "taskset classify",
            SPENDS,
            APPROVE,
            "Put tasks into categories by a model.",
            f"{_EVOLVE}.tasks.classify:label_tasks",
        ),
        # Runs the checks of what it found only after a person approved them; what it makes waits in the inbox.
        Verb(
            "taskset from-sessions",
            RUNS,
            WRITE,
            "Propose tasks that were found in finished sessions.",
            f"{_EVOLVE}.tasks.session_import:draft_from_sessions",
        ),
        Verb(
            "evolve start", SPENDS, APPROVE, "Start a run on a task set of the library.", f"{_EVOLVE}.start:start_run"
        ),
        Verb(
            "evolve measure",
            SPENDS,
            APPROVE,
            "Measure whether resources help, and for which model.",
            f"{_EVOLVE}.measure:start_measurement",
        ),
        Verb("evolve plan", SPENDS, APPROVE, "Show what a run would cost and could find.", f"{_EVOLVE}.plan:make_plan"),
        Verb("evolve status", READS, READ, "Show the progress, cost and questions of a run.", f"{_RUN}:get_status"),
        Verb("evolve pending", READS, READ, "Show the questions that a run waits for.", f"{_RUN}:list_pending"),
        Verb("evolve submit", WRITES, REPORT, "Answer a question of a run.", f"{_RUN}:submit_answer"),
        Verb("evolve stop", WRITES, WRITE, "Stop a run.", f"{_RUN}:stop_run"),
        Verb("evolve continue", SPENDS, APPROVE, "Continue a stopped or interrupted run.", f"{_RUN}:resume_run"),
        # The process that drives a run has no terminal. It continues what a person started, never a stopped run.
        Verb("evolve drive", SPENDS, WRITE, "Drive a run in this process.", f"{_EVOLVE}.driver:drive_run"),
        Verb(
            "evolve report",
            WRITES,
            READ,
            "Write and show the report of a run.",
            f"{_EVOLVE}.report.render:write_report",
        ),
        Verb("evolve adopt", REMOVES, APPROVE, "Make live what a run promoted.", f"{_EVOLVE}.deploy:adopt"),
        Verb("evolve allow", RUNS, APPROVE, "Let a candidate run without a sandbox.", f"{_RUN}:decide_held_candidate"),
        Verb(
            "evolve watch",
            WRITES,
            WRITE,
            "Compare adoptions with what they replaced.",
            f"{_EVOLVE}.deploy:monitor_adoptions",
        ),
        Verb(
            "evolve opportunities",
            READS,
            READ,
            "Show what deserves work, and why.",
            f"{_EVOLVE}.start:find_opportunities",
        ),
        *(verb for role in _ROLES for verb in _named_commands(role)),
    ),
    "Start": (
        # Makes a library of copies where there is none; changes nothing in a folder.
        Verb("quickstart", WRITES, WRITE, "Show everything working."),
        # What is imported without a terminal has the trust `local`, and is served with its mark.
        Verb("init", WRITES, WRITE, "Import folders and watch them."),
        Verb("folders", READS, READ, "List the folders that are watched."),
        Verb("folders drop", REMOVES, APPROVE, "Stop watching a folder."),
        Verb("trust", WRITES, PERSON, "Trust what a folder holds.", f"{_VERBS}.scan_import:trust"),
        Verb("sync", WRITES, WRITE, "Bring folders and library in sync."),
        Verb("checkout", WRITES, APPROVE, "Write resources into the folders that clients read."),
        Verb("connect", WRITES, PERSON, "Connect a client to the server."),
        Verb("disconnect", REMOVES, PERSON, "Take the server out of a client."),
        # What a client may do through the server is decided at each call.
        Verb("serve", READS, READ, "Serve the library to an MCP client."),
        Verb("token list", READS, READ, "List the tokens."),
        Verb("token add", WRITES, PERSON, "Make a token and show its secret once."),
        Verb("token revoke", REMOVES, PERSON, "Revoke a token."),
    ),
    "Care": (
        Verb("doctor", READS, READ, "Look for what is wrong."),
        Verb("scan", READS, READ, "Look for what no resource should contain.", f"{_VERBS}.scan_import:scan_resources"),
        Verb("fsck", READS, READ, "Check every stored byte.", "evolvable_store.fsck:check_library"),
        Verb("gc", REMOVES, WRITE, "Remove bytes that nothing refers to.", "evolvable_store.gc:collect"),
        Verb(
            "purge", REMOVES, PERSON, "Remove bytes from every version, permanently.", f"{_VERBS}.purge_content:purge"
        ),
        Verb("trash list", READS, READ, "List the files in the trash."),
        Verb("trash restore", WRITES, APPROVE, "Put files from the trash back into their folder."),
        Verb("trash delete", REMOVES, APPROVE, "Delete files from the trash."),
        Verb("backup", READS, READ, "Copy the whole library.", "evolvable_store.bundle.export:backup"),
        Verb("recover", REMOVES, PERSON, "Replace the library by a backup."),
        Verb("export", READS, READ, "Write resources to a file or folder."),
        # Without a person, what it brings waits in the inbox.
        Verb("import", WRITES, WRITE, "Import an archive or folders.", f"{_VERBS}.scan_import:import_folders"),
        Verb("uninstall", REMOVES, PERSON, "Disconnect all clients and stop watching all folders."),
    ),
    "": (
        # Hooks of clients call it; no model sees it.
        Verb("hook_event", WRITES, WRITE, "Answer a hook of a client.", command=""),
    ),
}

VERBS: Mapping[str, Verb] = {
    verb.name: replace(verb, section=section) for section, verbs in _SECTIONS.items() for verb in verbs
}
"""Name -> verb, in the order of the help."""

GROUPS = {
    "inbox": "Decide on proposed changes.",
    "approvals": "Lock decisions behind a passphrase.",
    "memory": "Write the memories where clients read them.",
    "channel": "Show and steer what hosts see.",
    "taskset": "Check, list and split the tasks of an evolution.",
    "evolve": "Search for better resources with a task set, and promote only what a sealed test carries.",
    **{role: f"Name the commands that may be used as {role}." for role in _ROLES},
    "token": "Make, list and end tokens for HTTP.",
    "trash": "List and restore files that no version holds.",
}
"""Command with several actions -> summary."""

_REASONS = {
    "inbox": "Only a person decides about proposals",
    "memory": "Only a person decides what clients read at their start",
    "publish": "Only a person decides what hosts see",
    "channel": "Only a person decides what hosts see",
    "evolve start": "A run executes commands, may spend money and opens the sealed test, so only a person starts one",
    "evolve measure": "A run executes commands, may spend money and opens the sealed test, so only a person starts one",
    "taskset classify": "It asks a model, which may cost money, so only a person does it",
    "evolve plan": "Three trials of a plan execute commands and may spend money, so only a person starts them",
    "evolve continue": "A run executes commands and may spend money, so only a person continues one",
    "evolve allow": "Only a person lets a candidate run outside of a sandbox",
    "evolve adopt": "Only a person adopts what a run found",
    "folders": "Only a person decides which folders are watched",
    "checkout": "Only a person has resources written into folders",
    "connect": "Only a person changes what clients start",
    "disconnect": "Only a person changes what clients start",
    "approvals": "Only a person locks and unlocks approvals",
    "recover": "Only a person replaces the library",
    "uninstall": "Only a person takes the product off the machine",
    "purge": "Only a person takes bytes out of the library for good",
    "trash": "Only a person puts files back into folders, or deletes them for good",
    "token": "Only a person makes and revokes tokens",
    "trust": "Only a person decides what is trusted",
}


def refusal_reason(name: str) -> str:
    """Return why only a person may run a command, named with or without its action."""
    return (
        _REASONS.get(name) or _REASONS.get(name.partition(" ")[0]) or "Only a person names the commands that run here"
    )


TOOLS: Mapping[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool("find_skill", "Find a skill", "library", ("find",)),
        Tool("load_skill", "Load a skill", "library", ("load",)),
        Tool("report_outcome", "Report an outcome", "library", ("report",)),
        Tool("list_resources", "List resources", "library", ("list",)),
        Tool("get_resource", "Get a resource", "library", ("get",)),
        Tool("resource_history", "History of a resource", "library", ("history",)),
        Tool("update_resource", "Update or create a resource", "library", ("update",)),
        Tool("restore_resource", "Restore a version", "library", ("restore",)),
        Tool("remove_resource", "Remove a resource", "library", ("remove",)),
        Tool("undo", "Undo", "library", ("undo",)),
        Tool("review_session", "Review a session", "review", ("review",)),
        Tool("submit_review", "Submit a review", "review", ("submit_review",)),
        Tool(
            "review_inbox",
            "Inbox of proposals",
            "review",
            ("inbox list", "inbox show", "inbox approve", "inbox reject"),
        ),
        Tool("compress_history", "Compress a history", "review", ("compress",)),
        Tool("evolve_start", "Start an evolution", "evolve", ("evolve start",)),
        Tool("evolve_status", "Status of an evolution", "evolve", ("evolve status",)),
        Tool("evolve_pending", "What an evolution waits for", "evolve", ("evolve pending",)),
        Tool("evolve_submit", "Answer an evolution", "evolve", ("evolve submit",), permission=WRITE),
        Tool("evolve_stop", "Stop an evolution", "evolve", ("evolve stop",)),
        Tool("evolve_continue", "Continue an evolution", "evolve", ("evolve continue",)),
        Tool("evolve_report", "Report of an evolution", "evolve", ("evolve report",)),
        Tool("evolve_adopt", "Adopt what was promoted", "evolve", ("evolve adopt",)),
        Tool("evolve_opportunities", "What deserves work", "evolve", ("evolve opportunities",)),
        Tool("hook_event", "", "hooks", ("hook_event",)),
    )
}
"""Name -> MCP tool, in the order in which a client lists them."""

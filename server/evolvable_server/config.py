"""Read the settings of this process; with `environment` the only reader of environment variables.

They say where the library is, which project is open, and who calls: a person at a terminal or an
agent's shell.
"""

import os
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from evolvable_server.environment import (
    ADDRESSES,
    HOME,
    OFF,
    REVIEWING,
    address_folders,
    client_session,
    hooks_on,
    is_review_process,
    postgres_addresses,
    reviews_on,
)
from evolvable_server.person_config import LEVELS, PersonConfig, read_person_config, stricter_level
from evolvable_server.second_config import read_library_config
from evolvable_store import ADDRESS_FILE, Actor, Identity, Principal
from evolvable_store.errors import InvalidArgument, InvalidRef
from evolvable_store.resource import check_scope

MARKS = {
    "CLAUDECODE": "claude-code",
    "CLAUDE_CODE_ENTRYPOINT": "claude-code",
    "CLAUDE_CODE_SESSION_ID": "claude-code",
    "CLAUDE_CODE_CHILD_SESSION": "claude-code",
    "CODEX_THREAD_ID": "codex",
    "CODEX_SESSION_ID": "codex",
    "CODEX_TOOL_CALL_ID": "codex",
    "CODEX_CI": "codex",
    "CODEX_SANDBOX_NETWORK_DISABLED": "codex",
    "GEMINI_CLI": "gemini",
    "COPILOT_AGENT_SESSION_ID": "copilot",
    "COPILOT_CLI": "copilot",
    "OPENCODE": "opencode",
    "OPENCODE_PID": "opencode",
    "QWEN_CODE": "qwen",
    "QWEN_CODE_PROMPT_ID": "qwen",
    "QWEN_CODE_SESSION_ID": "qwen",
    "FACTORY_EXEC_TARGET_AUTONOMY": "droid",
    "FACTORY_UPSTREAM_CLIENT_TYPE": "droid",
}
"""Variable that a real client sets in the shells of its agents -> the client.

Each was recorded there; tests/data/client_shells names the client. Settings that people export
themselves, such as CLAUDE_CODE_USE_BEDROCK or CODEX_HOME, are not marks. Neither is a name that no
client owns, such as OpenCode's AGENT.
"""


_SESSIONS = ("CLAUDE_CODE_SESSION_ID", "COPILOT_AGENT_SESSION_ID", "QWEN_CODE_SESSION_ID")
"""Variables in which a client gives its servers the name of its session, which its transcript has
too.
"""


def marked_client(environment: Mapping[str, str]) -> str | None:
    """Return the client whose mark is in the environment, None when there is none."""
    return next((client for name, client in MARKS.items() if environment.get(name)), None)


def at_terminal() -> bool:
    """Return whether standard input and standard output of this process are both terminals."""
    try:
        return os.isatty(0) and os.isatty(1)
    # A closed stream is no terminal.
    except OSError:
        return False


def is_person() -> bool:
    """Return whether a person runs this process: at a terminal, and without a client's mark."""
    return cli_identity(os.environ).principal is Principal.PERSON


NO_TERMINAL = "no terminal"
"""The `via` of a command with neither a terminal nor a client's mark.

A script, a service or an agent runs it.
"""


def cli_identity(environment: Mapping[str, str]) -> Identity:
    """Return on whose behalf a command runs: a person's only as `is_person` says.

    A terminal is no proof: an agent with a shell can open one and unset variables; see
    docs/promises.md.
    """
    client = marked_client(environment)
    if client is not None:
        return Identity(Principal.AGENT, f"client:{client}")
    if at_terminal():
        return Identity(Principal.PERSON, "terminal")
    return Identity(Principal.AGENT, NO_TERMINAL)


def actor_of(identity: Identity, *, decides: bool = False) -> Actor:
    """Return the actor that operations of this identity name.

    decides: whether a script with a token that may approve makes a decision.
    """
    is_deciding_script = decides and identity.principal is Principal.SCRIPT
    if identity.principal is Principal.PERSON or is_deciding_script:
        return Actor.HUMAN
    return Actor.AGENT


SELF_CHECK = "evolvable/self-check"
"""The key in the `_meta` of a call by which the program tests itself: no agent sees the answer."""

SCOPE = "EVOLVABLE_SCOPE"
SESSION = "EVOLVABLE_SESSION"
EMBEDDER = "EVOLVABLE_EMBEDDER"
APPROVE = "EVOLVABLE_APPROVE"
REVIEW_POLICY = "EVOLVABLE_REVIEW_POLICY"
REVIEW_BUDGET = "EVOLVABLE_REVIEW_BUDGET"
TOOLSETS = "EVOLVABLE_TOOLSETS"
GROUPS = ("ags", "delegation", "evolve", "rspl", "tools")
"""Groups of tools that are listed only where somebody asks for them."""
SMALL = "small"
"""The group for a client that sends every tool with each request: the five tools a task needs."""
TOOL_PREFIX = "EVOLVABLE_TOOL_PREFIX"
OAUTH_CLIENT = "EVOLVABLE_OAUTH_CLIENT"
OAUTH_SECRET = "EVOLVABLE_OAUTH_SECRET"
SIGN_IN_SECRET = "EVOLVABLE_SIGN_IN_SECRET"


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of one process.

    home: the library's folder. project: the folder of the project that is open. scope: the
    project's scope when it is named outright, else None. session: the client's session when it
    tells one. embedder: auto, off, or onnx or sentence-transformers with an optional model behind a
    colon. judge: auto, off, caller, or models in order, with commas between them: anthropic with an
    optional model, claude, codex, the name of a model or of a judge. api_key: of the Anthropic API,
    api_url: its address, as the person's configuration says it. hooks: whether a client's hooks do
    anything. approve: which changes of an agent a person is asked about: off, guarded or all; the
    stricter of what the person's configuration says and what EVOLVABLE_APPROVE says. person: the
    person's own configuration, as it holds for this library. key_variables: values of the variables
    that its models take keys from. tool_prefix: what stands before the name of each tool, for a
    client that adds no name of its own. review: who reviews finished sessions: handoff (the calling
    agent), off (there are no reviews), anthropic with an optional model, claude, codex, or the name
    of a reviewer. review_policy, review_budget: as the environment sets them, which counts only
    where it is stricter than the person's configuration; see docs/review.md.
    """

    home: Path
    project: Path
    scope: str | None = None
    session: str | None = None
    embedder: str = "auto"
    judge: str = "auto"
    api_key: str | None = None
    api_url: str | None = None
    hooks: bool = True
    approve: str = "guarded"
    review: str = "handoff"
    review_policy: str = ""
    review_budget: str = ""
    toolsets: tuple[str, ...] = ()
    tool_prefix: str = ""
    person: PersonConfig = PersonConfig(None)
    key_variables: Mapping[str, str] = field(default_factory=dict, repr=False)


def read_config(environment: Mapping[str, str] | None = None, home: Path | None = None) -> Config:
    """Return the settings from the environment; `home` overrules EVOLVABLE_HOME (default
    ~/.evolvable).

    Raise Refused or InvalidArgument for the person's configuration, InvalidRef when EVOLVABLE_SCOPE
    is no scope, InvalidArgument when EVOLVABLE_APPROVE, EVOLVABLE_TOOLSETS or EVOLVABLE_TOOL_PREFIX
    is not one of its values.
    """
    env = os.environ if environment is None else environment
    # The place first: it decides whether a second file of settings counts.
    place = library_home(home, env)
    person = read_library_config(place, env)
    return Config(
        home=place,
        # Claude Code names the project; other clients start the server in its folder.
        project=Path(env.get("CLAUDE_PROJECT_DIR") or Path.cwd()),
        scope=_parse_scope(env.get(SCOPE)),
        # A session that is named outright counts before the client's own.
        session=client_session(
            next((env[name] for name in (SESSION, *_SESSIONS) if env.get(name)), None)
        ),
        embedder=_read_setting(env.get(EMBEDDER), "auto", "off"),
        # A process of a reviewer asks no judge, which could start another reviewer.
        judge="off" if is_review_process(env) else _read_role(person, "judge", "auto"),
        api_key=env.get("ANTHROPIC_API_KEY") or None,
        api_url=person.models.get("anthropic"),
        hooks=hooks_on(env),
        approve=stricter_level(person.approve, _parse_approve(env.get(APPROVE))),
        review=_read_role(person, "reviewer", "handoff") if reviews_on(env) else "off",
        review_policy=env.get(REVIEW_POLICY) or "",
        review_budget=env.get(REVIEW_BUDGET) or "",
        toolsets=toolsets_of(env.get(TOOLSETS)),
        tool_prefix=tool_prefix_of(env.get(TOOL_PREFIX)),
        person=person,
        key_variables={
            endpoint.key_env: env[endpoint.key_env]
            for endpoint in person.endpoints.values()
            if endpoint.key_env and env.get(endpoint.key_env)
        },
    )


MEMORY_COPIES = "memory-copies.json"
"""File in the library's folder, of `clients/memory_files`: client -> {path, made}; made: there was
no file before.

Under `projects`, of `clients/project_memory`: path -> {folder, clients, made, git}.
"""

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
"""Variables that name a proxy."""

_ADDRESS = "_BASE_URL"
"""How variables end that name the address of a model."""


ADDRESSED = ("anthropic", "openai", "copilot_provider")
"""Names of addresses in the person's configuration that a child is given: of OPENAI_BASE_URL and so
on.
"""


def names_address(variable: str) -> bool:
    """Return whether a variable says where models are asked, or through which proxy."""
    return variable in PROXIES or variable.endswith(_ADDRESS) or variable == "HF_ENDPOINT"


def model_environment(config: Config, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a child that may ask a model.

    The only addresses in it are those that the person's configuration names.
    """
    variables = {name: value for name, value in environment.items() if not names_address(name)}
    models = config.person.models
    variables |= {f"{name.upper()}{_ADDRESS}": models[name] for name in ADDRESSED if name in models}
    if proxy := models.get("proxy"):
        variables |= dict.fromkeys(PROXIES, proxy)
    return variables


def library_home(home: Path | None, environment: Mapping[str, str] | None = None) -> Path:
    """Return the library's folder: `home`, else EVOLVABLE_HOME, else ~/.evolvable.

    For the address of a library in PostgreSQL, the folder that stands for it here. Raise
    UntrustedHome for an address that the person did not register.
    """
    env = os.environ if environment is None else environment
    if home is None and (env.get(HOME) or "").startswith(ADDRESSES):
        return open_address(env[HOME])
    return (home or Path(env.get(HOME) or "~/.evolvable")).expanduser().absolute()


def open_address(url: str) -> Path:
    """Return the folder that stands for a library in PostgreSQL.

    Raise UntrustedHome, InvalidArgument.
    """
    folders = Path(address_folders())
    home = postgres_addresses().home_of(url, folders, lambda: read_person_config().addresses)
    return Path(home)


def library_names(home: Path) -> tuple[str, ...]:
    """Return the names of a library in the grants of `[sign_in]`: its folder, and in PostgreSQL its
    project too.
    """
    folder = os.path.realpath(home)
    if not (home / ADDRESS_FILE).exists():
        return (folder,)
    address = postgres_addresses().read_home(home).address
    return folder, address.project, address.name


def model_command_environment(config: Config) -> dict[str, str]:
    """Return the environment of a reviewer's or judge's command: ours, marked so that its hooks do
    nothing, with the addresses of models that the person's configuration names.
    """
    return {**model_environment(config, os.environ), REVIEWING: "1"}


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the clients of the person at this machine keep their settings.

    system: as sys.platform names it. user: the home folder. project: the folder that is open.
    programs: PATH. claude, codex, copilot, kimi: the folders that CLAUDE_CONFIG_DIR, CODEX_HOME,
    COPILOT_HOME and KIMI_CODE_HOME name. roaming, local: Windows' folders of settings. settings,
    data: those of Linux, for settings and for data. passed: what the sparsest client passes on of
    the environment to a server.
    """

    system: str
    user: Path
    project: Path
    programs: str
    claude: Path | None
    codex: Path
    copilot: Path
    kimi: Path
    roaming: Path
    local: Path
    settings: Path
    data: Path
    passed: Mapping[str, str]

    @property
    def transcripts(self) -> tuple[Path, ...]:
        """The folders in which the clients keep the transcripts of their sessions."""
        return (
            (self.claude or self.user / ".claude") / "projects",
            self.codex / "sessions",
            self.copilot / "session-state",
            self.data / "opencode",
            self.kimi / "sessions",
            *own_transcripts(self.user),
        )


def own_transcripts(user: Path) -> tuple[Path, ...]:
    """Return the folders of transcripts that no variable moves: of Qwen, Droid, Gemini, Cline and
    Continue.
    """
    names = (
        ".qwen/projects",
        ".factory/sessions",
        ".gemini/tmp",
        ".cline/data/sessions",
        ".continue/sessions",
    )
    return tuple(user / name for name in names)


_PASSED = (
    "HOME",
    "PATH",
    "LANG",
    "TERM",
    "USERPROFILE",
    "SYSTEMROOT",
    "APPDATA",
    "LOCALAPPDATA",
    "TEMP",
    "TMP",
)
"""What Codex passes on to a server, and what Windows needs besides."""


def read_machine(
    project: Path,
    environment: Mapping[str, str] | None = None,
    system: str = sys.platform,
    user: Path | None = None,
) -> Machine:
    """Return the machine from the environment."""
    env = os.environ if environment is None else environment
    user = user or Path.home()

    def folder(variable: str, usual: Path) -> Path:
        return Path(env.get(variable) or usual).expanduser().absolute()

    return Machine(
        system=system,
        user=user,
        project=project.absolute(),
        programs=env.get("PATH", ""),
        # Without the variable, Claude Code has two places: ~/.claude and ~/.claude.json.
        claude=folder("CLAUDE_CONFIG_DIR", user) if env.get("CLAUDE_CONFIG_DIR") else None,
        codex=folder("CODEX_HOME", user / ".codex"),
        copilot=folder("COPILOT_HOME", user / ".copilot"),
        kimi=folder("KIMI_CODE_HOME", user / ".kimi-code"),
        roaming=folder("APPDATA", user / "AppData/Roaming"),
        local=folder("LOCALAPPDATA", user / "AppData/Local"),
        settings=folder("XDG_CONFIG_HOME", user / ".config"),
        data=folder("XDG_DATA_HOME", user / ".local/share"),
        passed={name: env[name] for name in _PASSED if name in env},
    )


def read_oauth_client() -> tuple[str | None, str | None]:
    """Return who asks an authorization server about tokens, and its secret, which belongs on no
    command line.
    """
    return os.environ.get(OAUTH_CLIENT) or None, os.environ.get(OAUTH_SECRET) or None


def read_sign_in_secret() -> str | None:
    """Return the secret of the page's client at its OpenID provider, None for a public client."""
    return os.environ.get(SIGN_IN_SECRET) or None


def process_session() -> str:
    """Return a session for this process, used when its client names none.

    Another process never has the same.
    """
    # With the time, because the number of a process is used again.
    return f"process-{os.getpid()}-{time.time_ns():x}"


def _read_setting(text: str | None, usual: str, *words: str) -> str:
    """Return the value of a variable, `usual` for an empty one; `words` in small letters."""
    value = (text or "").strip() or usual
    small = value.lower()
    if small in OFF:
        return "off"
    return small if small in (usual, *words) else value


def _read_role(person: PersonConfig, role: str, usual: str) -> str:
    """Return the models of a role with commas between them, `usual` where none is configured."""
    return ",".join(person.model_roles.get(role, ())) or usual


def _parse_approve(text: str | None) -> str:
    level = _read_setting(text, "off", *LEVELS)
    if level not in LEVELS:
        raise InvalidArgument(f"{APPROVE} is {level[:40]!r}.", f"It is one of {', '.join(LEVELS)}.")
    return level


def toolsets_of(text: str | None) -> tuple[str, ...]:
    """Return the groups of tools that a text names, with commas between them.

    Raise InvalidArgument.
    """
    names = tuple(
        dict.fromkeys(name.strip().lower() for name in (text or "").split(",") if name.strip())
    )
    unknown = [name for name in names if name not in (*GROUPS, SMALL, *OFF)]
    if unknown:
        hint = f"There is {', '.join((*GROUPS, SMALL))}."
        raise InvalidArgument(f"{ascii(unknown[0][:40])} is no group of tools ({TOOLSETS}).", hint)
    return tuple(name for name in names if name in (*GROUPS, SMALL))


def tool_prefix_of(text: str | None) -> str:
    """Return what stands before the names of tools, '' for nothing. Raise InvalidArgument."""
    prefix = (text or "").strip()
    if prefix and not _PREFIX.fullmatch(prefix):
        hint = "Use up to 32 letters, digits, dashes and underscores, such as evolvable_."
        raise InvalidArgument(
            f"{ascii(prefix[:40])} cannot stand before the name of a tool ({TOOL_PREFIX}).", hint
        )
    return prefix


_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")


def _parse_scope(text: str | None) -> str | None:
    if not text:
        return None
    try:
        return check_scope(text)
    except InvalidRef as error:
        raise InvalidRef(f"{SCOPE}: {error}", error.hint) from None


def file_status(path: Path | None) -> tuple[int, ...]:
    """Return numbers that change when a file does; none where there is no file."""
    try:
        status = os.stat(path) if path is not None else None
    except OSError:
        status = None
    if status is None:
        return ()
    # The inode and the time of change too: a file that replaces another may have its size and date.
    return (
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_mode,
        status.st_uid,
    )

"""Read the person's own configuration, which no environment variable, project or agent can loosen.

It is one TOML file of the operating system's account. The account database says where it lies, not
HOME, which a project's configuration of a client can set. Only commands of a person at a
terminal write it (`config_edits`). It also registers homes that may belong to another account or
lie in a work tree. `second_config` reads the second file that EVOLVABLE_CONFIG names.
"""

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from evolvable_server.config_file import CORRECT, read_config_text
from evolvable_store import is_address
from evolvable_store.errors import InvalidArgument

if sys.platform == "win32":
    import ctypes
else:
    import pwd

if TYPE_CHECKING:
    from evolvable_server.grants import SignIn
    from evolvable_tools.llm import ModelEndpoint

# Start time: functions import tomllib, as many accounts have no file, and the approvals lock, which
# few accounts use. Each takes 5 to 15 ms.

FILE = Path(".config/evolvable/config.toml")
"""Where the file lies below the account's home directory."""

AGENT_TEXTS = ("plain", "marked")
"""How an agent reads what an agent changed, until a person looks."""

CONFIRMS = ("session",)
"""When the client asks about an agent's change: once in a session for each skill, at its load."""

LEVELS = ("off", "guarded", "all")
"""Which changes of an agent wait for a person, from none to every one."""

ROLES = ("executors", "scorers", "judges", "reviewers", "proposers")
"""The tables of commands that a person names."""

CLIENTS = ("claude", "codex")
"""The clients that keep the person's own where `[clients]` says."""

_KEYS = (
    "embedders clients approve agent_text confirm review_policy homes trusted yours remotes "
    "remote_keys models roles sandbox budgets ray sign_in"
)

SIGNED = (*_KEYS.split(), *ROLES)
"""The keys of the file that the signature of the settings covers, where approvals are locked."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command that a person named.

    argv: the argument list. folder: where it runs, '' for the caller's choice. agents: whether an
    executor can be given agents.
    """

    name: str
    argv: tuple[str, ...]
    folder: str = ""
    agents: bool = False


@dataclass(frozen=True, slots=True)
class Trusted:
    """A folder that the person trusts.

    home: the library whose decisions on it count, None for every library. follow: whether the scan
    alone decides on what a pull brings there.
    """

    folder: Path
    home: Path | None = None
    follow: bool = False


@dataclass(frozen=True, slots=True)
class NamedRemote:
    """A git repository of the library in `home`, which a person named.

    scopes: those whose resources go there. parts: the further contents that go there. signed:
    whether the newest commit needs a signature that the person's git verifies, and a push makes
    one.
    """

    name: str
    url: str
    home: str = ""
    branch: str = "main"
    scopes: tuple[str, ...] = ("user",)
    parts: tuple[str, ...] = ()
    signed: bool = False


NOBODY = ("off", "caller")
"""Names for no model in the role judge: nobody judges, or the calling agent alone."""


@dataclass(frozen=True, slots=True)
class PersonConfig:
    """The settings of the person whose account this is.

    path: the file, None when the account has no home directory. approve: one of LEVELS. agent_text:
    `marked` or `plain`, confirm: `session`; '' where the file does not say. homes: libraries that
    may lie in a work tree or belong to another account. addresses: those of `homes` that lie in
    PostgreSQL. commands: by role (see ROLES) and name. trusted: folders whose resources the person
    trusts. yours: folders that are the person's when they are imported, also without a terminal.
    models: addresses of models by provider, and the proxy. endpoints: the models that the person
    named. model_roles: which models answer, by role. sandbox, budgets: tables as they stand in the
    file. review_policy: what becomes of proposals by kind, as EVOLVABLE_REVIEW_POLICY says it.
    remotes: git repositories of libraries. remote_keys: whose approvals count. embedders: folders
    of models that may lie in a work tree. clients: where claude and codex keep the person's own, as
    CLAUDE_CONFIG_DIR and CODEX_HOME say it. sign_in: where people sign in, and what their groups
    give; None where the file does not say. ray_address, ray_token_file: the Ray cluster on which
    trials run, '' without one, and where its token lies. file_keys: the names that stand in the
    file. lock_key: the public key of the approvals lock, '' where approvals are not locked.
    unsigned: whether the lock's signature does not cover the settings; then the strictest apply and
    nothing is named. files: the settings of the account's file and of the second one, where
    EVOLVABLE_CONFIG names one; the other fields are then those of both together. ignored: why
    the names in the second file do not count, '' where they do.
    """

    path: Path | None
    approve: str = "guarded"
    agent_text: str = ""
    homes: tuple[Path, ...] = ()
    commands: Mapping[str, Mapping[str, Command]] = field(default_factory=dict)
    trusted: tuple[Trusted, ...] = ()
    models: Mapping[str, str] = field(default_factory=dict)
    sandbox: Mapping[str, Any] = field(default_factory=dict)
    budgets: Mapping[str, Any] = field(default_factory=dict)
    review_policy: str = ""
    file_keys: frozenset[str] = frozenset()
    lock_key: str = ""
    unsigned: bool = False
    remotes: tuple[NamedRemote, ...] = ()
    remote_keys: frozenset[str] = frozenset()
    endpoints: "Mapping[str, ModelEndpoint]" = field(default_factory=dict)
    model_roles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    addresses: tuple[str, ...] = ()
    ray_address: str = ""
    ray_token_file: Path | None = None
    sign_in: "SignIn | None" = None
    embedders: tuple[str, ...] = ()
    clients: Mapping[str, Path] = field(default_factory=dict)
    confirm: str = ""
    yours: tuple[Path, ...] = ()
    files: "tuple[PersonConfig, ...]" = ()
    ignored: str = ""

    @property
    def parts(self) -> "tuple[PersonConfig, ...]":
        """The settings of each file: of the account's file, then of the second file if any."""
        return self.files or (self,)

    @property
    def editable(self) -> "PersonConfig":
        """The settings of the file that commands of the person change: the last of `parts`."""
        return self.parts[-1]

    def models_of_role(self, role: str) -> tuple[str, ...]:
        """Return the models that answer in a role, in order; none for a name of NOBODY."""
        return tuple(name for name in self.model_roles.get(role, ()) if name not in NOBODY)

    def command(self, role: str, name: str) -> Command | None:
        """Return the command of this role and name, None when the person named none."""
        return self.commands.get(role, {}).get(name)

    def trusted_folders(self, home: Path) -> frozenset[str]:
        """Return the folders that the person trusts in the library in `home`, with `yours`."""
        trusted = {str(entry.folder) for entry in self._list_trusted(home)}
        return frozenset(trusted.union(map(os.path.realpath, self.yours)))

    def followed_folders(self, home: Path) -> frozenset[str]:
        """Return the trusted folders where the scan alone decides on what a pull brings.

        There is none where approvals are locked.
        """
        if self.lock_key:
            return frozenset()
        return frozenset(str(entry.folder) for entry in self._list_trusted(home) if entry.follow)

    def _list_trusted(self, home: Path) -> list[Trusted]:
        place = os.path.realpath(home)
        return [
            entry
            for entry in self.trusted
            if entry.home is None or os.path.realpath(entry.home) == place
        ]

    def is_yours(self, folder: Path) -> bool:
        """Return whether `yours` names this very folder, however its path is spelled."""
        return os.path.realpath(folder) in map(os.path.realpath, self.yours)


def account_home() -> Path | None:
    """Return the home directory of the account that runs this process, None when the account has
    none.
    """
    if sys.platform == "win32":
        # MAX_PATH of Windows: the function writes no more.
        buffer = ctypes.create_unicode_buffer(260)
        # CSIDL_PROFILE: the folder of the account, whatever USERPROFILE says.
        failed = ctypes.windll.shell32.SHGetFolderPathW(None, 0x28, None, 0, buffer)
        return None if failed or not buffer.value else Path(buffer.value)
    try:
        folder = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    # The account is not in the database, as in some containers.
    except KeyError:
        return None
    # A relative path would depend on the working directory.
    return folder if folder.is_absolute() else None


def config_path() -> Path | None:
    """Return the path of the person's configuration, None for an account without a home."""
    home = account_home()
    return home / FILE if home is not None else None


def read_person_config() -> PersonConfig:
    """Return the person's configuration; the defaults when there is no file.

    That is the account's file alone; `second_config.read_library_config` returns the settings for a
    library. Raise Refused when others can write the file, InvalidArgument when it cannot be read as
    settings.
    """
    path = config_path()
    return read_config_file(path) if path is not None else PersonConfig(path)


def read_config_file(path: Path) -> PersonConfig:
    """Return the settings of a file; the defaults when there is none.

    Raise as `read_person_config`.
    """
    text = read_config_text(path)
    return parse_person_config(path, text) if text is not None else PersonConfig(path)


def parse_person_config(path: Path, text: str) -> PersonConfig:
    """Return the configuration in the text of a file.

    Raise InvalidArgument when it is not valid.
    """
    import tomllib

    try:
        return _parse_config(path, tomllib.loads(text))
    except (_Wrong, tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidArgument(f"{path} is not valid: {error}.", CORRECT) from None


def stricter_level(first: str, second: str) -> str:
    """Return the stricter of two levels."""
    return max(first, second, key=LEVELS.index)


# A host name of at most 253 characters (RFC 1035) and a port.
_RAY_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}:[0-9]{1,5}")


class _Wrong(ValueError):
    """A value of the file has the wrong type or is not allowed."""


def _parse_config(path: Path, table: Mapping[str, Any]) -> PersonConfig:
    approve = _parse_choice(table, "approve", LEVELS, "guarded")
    agent_text = _parse_choice(table, "agent_text", AGENT_TEXTS)
    key = _check_type(
        _get_table(table, "approvals").get("public_key", ""), str, "approvals.public_key"
    )
    # Any program could have written settings without the lock's signature: no name in them counts.
    if key and not _is_signed(table, key):
        return PersonConfig(path, LEVELS[-1], lock_key=key, unsigned=True)
    models, (endpoints, roles) = _get_table(table, "models"), _parse_model_tables(table)
    # A home may be the address of a library in PostgreSQL.
    homes = [_check_text(entry, "home", "homes") for entry in _get_list(table, "homes")]
    ray = _get_table(table, "ray")
    return PersonConfig(
        path,
        approve,
        agent_text,
        tuple(Path(entry) for entry in homes if not is_address(entry)),
        {
            role: {
                name: _parse_command(role, name, entry)
                for name, entry in _get_table(table, role).items()
            }
            for role in ROLES
        },
        tuple(_parse_trusted(entry) for entry in _get_list(table, "trusted")),
        {
            name: _check_text(entry, "address", "models")
            for name, entry in models.items()
            if name not in endpoints
        },
        _get_table(table, "sandbox"),
        _get_table(table, "budgets"),
        _get_text(table, "review_policy", "the file"),
        frozenset(table),
        key,
        addresses=tuple(filter(is_address, homes)),
        remotes=tuple(_parse_remote(entry) for entry in _get_list(table, "remotes")),
        remote_keys=frozenset(
            _check_text(entry, "key", "remote_keys") for entry in _get_list(table, "remote_keys")
        ),
        endpoints=endpoints,
        model_roles=roles,
        ray_address=_parse_ray_address(ray) if ray else "",
        ray_token_file=_parse_ray_token_file(ray),
        sign_in=_parse_sign_in(table),
        embedders=tuple(
            _check_text(entry, "folder", "embedders") for entry in _get_list(table, "embedders")
        ),
        clients={
            name: _parse_client_folder(name, entry)
            for name, entry in _get_table(table, "clients").items()
        },
        confirm=_parse_choice(table, "confirm", CONFIRMS),
        yours=tuple(_parse_own_folder(entry) for entry in _get_list(table, "yours")),
    )


def _parse_choice(
    table: Mapping[str, Any], key: str, words: tuple[str, ...], default: str = ""
) -> str:
    value = table.get(key, default)
    if value != default and value not in words:
        raise _Wrong(f"{key} is {value!r}, and must be one of {', '.join(words)}")
    return str(value)


def _parse_sign_in(table: Mapping[str, Any]) -> "SignIn | None":
    if "sign_in" not in table:
        return None
    from evolvable_server.grants import parse_sign_in  # late: few accounts serve other people

    try:
        return parse_sign_in(_get_table(table, "sign_in"))
    except ValueError as error:
        raise _Wrong(str(error)) from None


def _parse_model_tables(
    table: Mapping[str, Any],
) -> "tuple[dict[str, ModelEndpoint], dict[str, tuple[str, ...]]]":
    """Return the models that the person named, and which answer in which role."""
    endpoints = {
        name: entry
        for name, entry in _get_table(table, "models").items()
        if isinstance(entry, dict)
    }
    roles = _get_table(table, "roles")
    if not endpoints and not roles:
        return {}, {}
    # Late: most accounts name no model.
    from evolvable_tools.llm import parse_endpoints, parse_roles

    role_by_name = {name: role for role in ROLES for name in _get_table(table, role)}
    try:
        return parse_endpoints(endpoints, role_by_name), parse_roles(roles)
    except ValueError as error:
        raise _Wrong(str(error)) from None


def signed_settings(table: Mapping[str, Any]) -> bytes:
    """Return the bytes that the signature of a configuration covers."""
    from evolvable_tools import canonical_form

    settings = {key: table[key] for key in SIGNED if key in table}
    return canonical_form(["evolvable settings", 1, settings])


def _is_signed(table: Mapping[str, Any], key: str) -> bool:
    from evolvable_tools import ApprovalsLock  # late: most have no lock

    try:
        signature = bytes.fromhex(_get_table(table, "approvals").get("signature", ""))
        return ApprovalsLock(key).verify(signed_settings(table), signature)
    except (TypeError, ValueError):
        return False


def _parse_ray_token_file(table: Mapping[str, Any]) -> Path | None:
    path = _get_text(table, "token_file", "ray")
    return Path(path) if path else None


def _parse_ray_address(table: Mapping[str, Any]) -> str:
    address = _check_text(table.get("address"), "address", "ray")
    if not _RAY_ADDRESS.fullmatch(address):
        raise _Wrong("ray.address is no HOST:PORT")
    return address


def _parse_client_folder(name: str, value: object) -> Path:
    # A misspelt name must not be without an effect and without a word.
    if name not in CLIENTS:
        raise _Wrong(f"clients names {name!r}, and knows {' and '.join(CLIENTS)}")
    return _parse_absolute(_check_text(value, name, "clients"), f"clients.{name}")


def _parse_own_folder(entry: Any) -> Path:
    fields = _check_type(entry, dict, "an entry of yours")
    return _parse_absolute(
        _check_text(fields.get("folder"), "folder", "yours"), "a folder of yours"
    )


def _parse_absolute(text: str, what: str) -> Path:
    folder = _expand_home(Path(text), account_home())
    if not folder.is_absolute() or "\0" in str(folder):
        raise _Wrong(f"{what} is no absolute path")
    return folder


def _parse_trusted(entry: Any) -> Trusted:
    if not isinstance(entry, dict):
        raise _Wrong("trusted is not a list of tables")
    home = _get_text(entry, "home", "trusted")
    if "\0" in home:
        raise _Wrong("the home of an entry of trusted is no path")
    folder = Path(_check_text(entry.get("folder"), "folder", "trusted"))
    follow = _check_type(entry.get("follow", False), bool, "follow of an entry of trusted")
    return Trusted(folder, Path(home) if home else None, follow)


def _parse_remote(entry: Any) -> NamedRemote:
    fields = _check_type(entry, dict, "an entry of remotes")
    name, url, home, branch = (
        _check_text(fields.get(key), key, "remotes") for key in ("name", "url", "home", "branch")
    )
    scopes, parts = (tuple(_get_list(fields, key)) for key in ("scopes", "with"))
    if not all(isinstance(text, str) for text in (*scopes, *parts)):
        raise _Wrong("scopes and with of a remote are lists of texts")
    signed = _check_type(fields.get("signed", False), bool, "signed of a remote")
    return NamedRemote(name, url, home, branch, scopes, parts, signed)


def _parse_command(role: str, name: str, entry: Any) -> Command:
    where = f"{role}.{name}"
    fields = _check_type(entry, dict, where)
    argv = fields.get("command")
    if not argv or not isinstance(argv, list) or not all(isinstance(part, str) for part in argv):
        raise _Wrong(f"{where}.command is not a list of texts")
    folder = _check_type(fields.get("folder", ""), str, f"{where}.folder")
    agents = _check_type(fields.get("agents", False), bool, f"{where}.agents")
    return Command(name, tuple(argv), folder, agents)


_T = TypeVar("_T")

_FORMS: dict[type, str] = {dict: "a table", list: "a list", str: "a text", bool: "true or false"}


def _check_type(value: object, form: type[_T], name: str) -> _T:
    if not isinstance(value, form):
        raise _Wrong(f"{name} is not {_FORMS[form]}")
    return value


def _get_table(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    return _check_type(table.get(key, {}), dict, key)


def _get_list(table: Mapping[str, Any], key: str) -> list[Any]:
    return _check_type(table.get(key, []), list, key)


def _check_text(value: object, key: str, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise _Wrong(f"an entry of {where} has no {key}")
    return value


def _get_text(table: Mapping[str, Any], key: str, where: str) -> str:
    """Return a text of a table, '' where it has no such key."""
    return _check_text(table[key], key, where) if key in table else ""


USUAL = ".evolvable"
"""The library's folder in the account's home directory, when nothing names another one."""


def registered_homes() -> tuple[Path, ...]:
    """Return the account's usual home, and the homes that the person's configuration lists.

    Raise as `read_person_config`.
    """
    account = account_home()
    usual = (account / USUAL,) if account is not None else ()
    return (*usual, *(_expand_home(home, account) for home in read_person_config().homes))


def _expand_home(home: Path, account: Path | None) -> Path:
    """Return a listed home.

    Its `~` is the account's home directory: an agent's shell can set HOME.
    """
    if account is not None and home.parts[:1] == ("~",):
        return account.joinpath(*home.parts[1:])
    return home.expanduser()

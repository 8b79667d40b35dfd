"""Read from a forge (GitHub, GitLab, Gitea, Forgejo) who merged a commit, over its interface and with a person's token.

A commit can claim anything of itself. Only the forge knows who pressed its button, so nothing but an answer of the
interface counts, and each field of it is compared with what the person's configuration names: the repository by its id,
the branch, the commit, and the merger by login and id. Answers are bounded, and no redirect is followed.
"""

import importlib
import json
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Self
from urllib.parse import quote

from evolvable_store.errors import EvolvableError, RemoteFailed
from evolvable_tools.llm import AnswerTooLarge, check_address, host_of, http_client, is_key, is_loopback, read_key_file

FORGES = {"github": "https://api.github.com", "gitlab": "https://gitlab.com/api/v4", "gitea": ""}
"""The interfaces that are known, with their usual addresses; `gitea` is Forgejo's too."""

MAX_ASKED = 200
"""Commits that one pull asks about."""

MAX_LISTED = 100
"""Merge requests of one commit that are looked at."""

_SECONDS = 30.0
_TOKEN_SECONDS = 60.0
_MAX_TOKEN = 10_000
_REPOSITORY = re.compile(r"[\w.-]{1,100}(/[\w.-]{1,100}){1,20}", re.ASCII)
_LOGIN = re.compile(r"[\w.-]{1,100}", re.ASCII)
_HINT = "Check the address, the token and its rights; no merge counts as an approval meanwhile."


@dataclass(frozen=True, slots=True)
class Forge:
    """The forge behind a remote, as the person's configuration names it.

    repository: its path there. identity: its id there, which a renamed or replaced repository does not have. mergers:
    whose merges count, as (login, id). token_file, token_command: where the token is.
    """

    kind: str
    address: str
    repository: str
    identity: int = 0
    mergers: tuple[tuple[str, int], ...] = ()
    token_file: str = ""
    token_command: tuple[str, ...] = ()

    def to_table(self) -> dict[str, Any]:
        """Return it as the configuration holds it."""
        table = {name: getattr(self, name) for name in ("kind", "address", "repository", "identity")}
        table["mergers"] = [f"{login}:{number}" for login, number in self.mergers]
        if self.token_file:
            return table | {"token_file": self.token_file}
        return table | {"token_command": list(self.token_command)}

    def __str__(self) -> str:
        return f"{self.repository} at {host_of(self.address)}, merged by {', '.join(one for one, _ in self.mergers)}"


def parse_forge(table: Mapping[str, Any]) -> Forge:
    """Return the forge that a table of the configuration describes. Raises ValueError, which says what is wrong."""
    if unknown := sorted(set(table) - {*Forge.__dataclass_fields__}):
        raise ValueError(f"it has no setting {ascii(unknown[0][:40])}")
    kind, address, repository = (str(table.get(name, "")) for name in ("kind", "address", "repository"))
    if kind not in FORGES:
        raise ValueError(f"kind is {ascii(kind[:40])}, and must be one of {', '.join(FORGES)}")
    check_address(address)
    if address.startswith("http://") and not is_loopback(address):
        raise ValueError("address is http:// to another machine, where others can read the token; use https://")
    if not _REPOSITORY.fullmatch(repository) or {".", ".."} & set(repository.split("/")):
        raise ValueError("repository is no path such as OWNER/NAME")
    command = table.get("token_command", ())
    if not isinstance(command, list | tuple) or not all(isinstance(one, str) for one in command):
        raise ValueError("token_command is no list of texts")
    file = str(table.get("token_file", ""))
    if bool(file) == bool(command):
        raise ValueError("it needs a token: either token_file or token_command")
    if not Path(file or command[0]).is_absolute():
        raise ValueError("token_file, or the program of token_command, is no whole path")
    identity = table.get("identity", 0)
    if type(identity) is not int or identity < 0:
        raise ValueError("identity is no number")
    mergers = tuple(_merger(one) for one in table.get("mergers", ()))
    return Forge(kind, address.rstrip("/"), repository, identity, mergers, file, tuple(command))


def _merger(text: object) -> tuple[str, int]:
    login, _, number = str(text).rpartition(":")
    if not _LOGIN.fullmatch(login) or not number.isascii() or not number.isdigit() or len(number) > 18:
        raise ValueError(f"{ascii(str(text)[:40])} is no merger: a login, a colon and an id")
    return login, int(number)


@dataclass(frozen=True, slots=True)
class ForgeMerge:
    """A merge that counts. number: of the pull or merge request. login: who merged it."""

    number: int
    login: str


class ForgeClient:
    """Asks the interface of a forge. A context manager."""

    def __init__(self, forge: Forge, proxy: str | None = None) -> None:
        """Raise InvalidArgument and Refused where the token cannot be read, RemoteFailed where its command fails."""
        self.forge = forge
        proxy = None if is_loopback(forge.address) else proxy
        try:
            self._http = http_client("authorization", _token(forge), proxy, "evolvable")
        except ValueError:
            raise RemoteFailed("The proxy of the forge is none.", "Correct models.proxy.") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._http.close()

    def repository_id(self) -> int:
        """Return the id of the repository. Raises RemoteFailed, also where merges there prove nothing."""
        found = _mapping(self._ask(_REPOSITORIES[self.forge.kind].format(self._path)))
        if self.forge.kind == "gitea" and found.get("autodetect_manual_merge") is not False:
            # Such a repository takes the author that a pushed commit names for the person who merged it.
            text = f"{self.forge.repository} detects manual merges, so whose merge it was is not known there."
            raise RemoteFailed(text, "Its owner turns `Autodetect manual merge` off in its settings.")
        return _number(found.get("id"))

    def user_id(self, login: str) -> int:
        """Return the id of a user. Raises RemoteFailed where there is none of this login."""
        if not _LOGIN.fullmatch(login):
            raise RemoteFailed(f"{ascii(login[:80])} is no login.", "Name a user of the forge.")
        if self.forge.kind == "gitlab":
            listed = self._ask(f"/users?username={quote(login, safe='')}")
            users = [_mapping(one) for one in listed] if isinstance(listed, list) else []
        else:
            users = [_mapping(self._ask(f"/users/{quote(login, safe='')}"))]
        for one in users:
            if str(_login_of(one)).casefold() == login.casefold():
                return _number(one.get("id"))
        raise RemoteFailed(f"{host_of(self.forge.address)} knows no user {login}.", "Name a user of the forge.")

    def merges(self, commits: Iterable[str], branch: str) -> dict[str, ForgeMerge]:
        """Return which of these commits somebody on the person's list merged into the branch. Raises RemoteFailed."""
        if self.repository_id() != self.forge.identity:
            text = f"{self.forge.repository} is another repository now than when it was named."
            raise RemoteFailed(text, "Ask its owner; `evolvable remote forge` names it again.")
        found = {commit: self._merge(commit, branch) for commit in commits}
        return {commit: one for commit, one in found.items() if one is not None}

    def _merge(self, commit: str, branch: str) -> ForgeMerge | None:
        kind, asked = self.forge.kind, _REQUESTS[self.forge.kind].format(self._path, commit)
        listed = self._ask(asked, missing=(404, 422))
        for one in (listed if isinstance(listed, list) else [listed])[:MAX_LISTED]:
            number = _mapping(one).get("iid" if kind == "gitlab" else "number")
            if type(number) is not int or number <= 0:
                continue
            # Lists lack the merger (GitHub), and one request is asked for by its own number.
            whole = _mapping(self._ask(_REQUEST[kind].format(self._path, number)))
            if whole.get("iid" if kind == "gitlab" else "number") == number:
                login = self._merger_of(whole, commit, branch)
                if login:
                    return ForgeMerge(number, login)
        return None

    def _merger_of(self, request: Mapping[str, Any], commit: str, branch: str) -> str:
        """Return the listed person who merged exactly this commit into this branch, '' for anything else."""
        if self.forge.kind == "gitlab":
            merged = request.get("state") == "merged"
            there, into = request.get("target_project_id"), request.get("target_branch")
            made = {request.get("merge_commit_sha"), request.get("squash_commit_sha")}
            who = _mapping(request.get("merge_user") or request.get("merged_by"))
        else:
            base = _mapping(request.get("base"))
            # What merges by itself may have changed after the person said so.
            merged = request.get("merged") is True and not request.get("auto_merge")
            there, into = _mapping(base.get("repo")).get("id"), base.get("ref")
            made = {request.get("merge_commit_sha")}
            who = _mapping(request.get("merged_by"))
        if not merged or there != self.forge.identity or into != branch or commit not in made:
            return ""
        for login, identity in self.forge.mergers:
            if who.get("id") == identity and str(_login_of(who)).casefold() == login.casefold():
                return login
        return ""

    @property
    def _path(self) -> str:
        return quote(self.forge.repository, safe="" if self.forge.kind == "gitlab" else "/")

    def _ask(self, path: str, missing: Sequence[int] = ()) -> Any:
        """Return what the interface answers; [] where it does not know the thing. Raises RemoteFailed."""
        library = importlib.import_module("httpx2")  # 160 ms that only a remote with a forge takes
        where, until, data = host_of(self.forge.address), monotonic() + _SECONDS, b""
        try:
            with self._http.stream("GET", self.forge.address + path, timeout=_SECONDS) as answer:
                if answer.status_code in missing:
                    return []
                if answer.status_code != 200:
                    raise RemoteFailed(f"{where} answered {answer.status_code}.", _HINT)
                for part in answer.iter_bytes():
                    data += part
                    if monotonic() > until:
                        raise RemoteFailed(f"{where} did not end its answer within {_SECONDS:g} s.", _HINT)
            return json.loads(data)
        except library.TimeoutException:
            raise RemoteFailed(f"{where} did not answer within {_SECONDS:g} s.", _HINT) from None
        except (library.HTTPError, library.InvalidURL):
            raise RemoteFailed(f"{where} cannot be reached.", _HINT) from None
        except AnswerTooLarge as error:
            raise RemoteFailed(f"{where} {error}.", _HINT) from None
        except (ValueError, RecursionError):
            raise RemoteFailed(f"{where} answered with something that is no JSON.", _HINT) from None


_REPOSITORIES = {"github": "/repos/{}", "gitea": "/repos/{}", "gitlab": "/projects/{}"}
_REQUESTS = {
    "github": "/repos/{}/commits/{}/pulls?per_page=100",
    "gitea": "/repos/{}/commits/{}/pull",
    "gitlab": "/projects/{}/repository/commits/{}/merge_requests?per_page=100",
}
_REQUEST = {"github": "/repos/{}/pulls/{}", "gitea": "/repos/{}/pulls/{}", "gitlab": "/projects/{}/merge_requests/{}"}


def _token(forge: Forge) -> str:
    if forge.token_file:
        return read_key_file(Path(forge.token_file), f"the forge of {forge.repository}")
    name = Path(forge.token_command[0]).name
    try:
        done = subprocess.run(
            forge.token_command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TOKEN_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        raise RemoteFailed(f"{name}, which prints the token of the forge, failed.", "Run it yourself.") from None
    token = done.stdout[: _MAX_TOKEN + 1].decode("ascii", "replace").strip()
    if not is_key(token) or len(token) > _MAX_TOKEN:
        raise RemoteFailed(f"{name} printed no token.", "It prints the token alone, on one line.")
    return token


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _login_of(user: Mapping[str, Any]) -> object:
    return user.get("username" if "login" not in user else "login", "")


def _number(value: object) -> int:
    if type(value) is not int or value <= 0:
        raise RemoteFailed("The forge answered without an id.", _HINT)
    return value


def named_forge(forge: Forge, logins: Sequence[str], proxy: str | None = None) -> Forge:
    """Return a forge with the ids of its repository and of these users, as it says them now. Raises EvolvableError."""
    with ForgeClient(forge, proxy) as client:
        identity = client.repository_id()
        mergers = tuple((login, client.user_id(login)) for login in logins)
    return Forge(forge.kind, forge.address, forge.repository, identity, mergers, forge.token_file, forge.token_command)


class MergeReader:
    """Tells which commits were merged by a listed person; an error of the forge makes none of them count.

    warning: what went wrong, '' for nothing.
    """

    def __init__(self, forge: Forge, branch: str, proxy: str | None = None) -> None:
        self._forge, self._branch, self._proxy = forge, branch, proxy
        self._known: dict[str, ForgeMerge | None] = {}
        self.warning = ""

    def read(self, commits: Iterable[str]) -> dict[str, ForgeMerge]:
        """Return the merges among these commits. Each commit is asked about once."""
        wanted = list(dict.fromkeys(commits))
        asked = [one for one in wanted if one not in self._known][: MAX_ASKED - len(self._known)]
        if asked and not self.warning:
            try:
                with ForgeClient(self._forge, self._proxy) as client:
                    found = client.merges(asked, self._branch)
                self._known |= {one: found.get(one) for one in asked}
            except EvolvableError as error:
                self.warning = f"No merge counts as an approval: {error.text}"
                self._known.clear()
        if not self.warning and any(one not in self._known for one in wanted):
            self.warning = f"{self._forge.repository} was asked about {MAX_ASKED} commits; other merges do not count."
        return {one: merge for one in wanted if (merge := self._known.get(one)) is not None}

"""Two libraries that meet in a bare git repository, and repositories that somebody hostile made."""

import os
import subprocess
from functools import cache
from pathlib import Path

from evolvable_store.objects import File
from evolvable_store.operation import Actor, Principal
from evolvable_store.resource import Ref, main_file
from evolvable_store.store import Store
from evolvable_teams.remotes.remote import PushResult, Remote, push
from evolvable_teams.remotes.remote_merge import PullResult
from evolvable_teams.remotes.remote_pull import Consent, open_pull
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library

PERSON = Caller(Actor.HUMAN, principal=Principal.PERSON, via="terminal")
AGENT = Caller(Actor.AGENT)

_GIT = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
_WHO = {
    f"GIT_{role}_{key}": value
    for role in ("AUTHOR", "COMMITTER")
    for key, value in (("NAME", "m"), ("EMAIL", "m@x"))
}


def git(folder: Path, *words: str, stdin: bytes = b"") -> str:
    """Run git as its user does, and return what it prints."""
    env = {**os.environ, **_GIT, **_WHO}
    done = subprocess.run(
        ["git", *words], cwd=folder, input=stdin, capture_output=True, env=env, check=True
    )
    return done.stdout.decode().strip()


def skill_text(name: str, text: str) -> bytes:
    return (
        f"---\nname: {name}\ndescription: Works with {name} files when asked.\n---\n{text}".encode()
    )


class Machine:
    """A home with a library, and its remote."""

    def __init__(self, home: Path, url: Path | str, **options: object) -> None:
        self.home = home
        self.remote = Remote("origin", str(url), **options)  # type: ignore[arg-type]
        self.library = Library(Store.open(home, create=True))
        self.store = self.library.store

    def put(
        self, name: str, text: str | bytes | None, reason: str = "change", **more: bytes
    ) -> None:
        """Write a resource as the person, or remove it."""
        ref = Ref.parse(name)
        with self.store.transaction(Actor.HUMAN, reason, identity=PERSON.identity) as tx:
            if text is None:
                tx.remove(ref)
            else:
                data = skill_text(ref.name, text) if isinstance(text, str) else text
                beside = {path.replace("__", "."): File(content) for path, content in more.items()}
                tx.put(ref, {main_file(ref.kind, ref.name): File(data), **beside})

    def rename(self, name: str, new: str) -> None:
        """Give a skill another name, in one operation of the person."""
        text = skill_text(new, self.text(name))
        with self.store.transaction(
            Actor.HUMAN, f"rename to {new}", identity=PERSON.identity
        ) as tx:
            tx.remove(Ref.parse(name))
            tx.put(Ref.parse(new), {"SKILL.md": File(text)})

    def text(self, name: str) -> str:
        """Return the text behind the frontmatter of the head; '' for what is removed or was never
        there.
        """
        head = self.store.head_or_none(Ref.parse(name))
        if head is None or head.version is None:
            return ""
        data = self.store.file(head, main_file(head.kind, head.name), head.version).data.decode()
        return data.partition("---\n")[2].partition("---\n")[2]

    def texts(self) -> dict[str, str]:
        return {str(head.ref): self.text(str(head.ref)) for head in self.store.heads()}

    def push(self) -> PushResult:
        return push(self.library, PERSON, self.remote)

    def pull(self, consent: Consent = Consent.ASKED, caller: Caller = PERSON) -> PullResult:
        with open_pull(self.library, caller, self.remote) as pull:
            return pull.accept(consent)

    def contents(self) -> set[tuple[str, str]]:
        """Return (ref, tree) of every version that the library ever had."""
        backend = self.store.backend
        heads = backend.heads_by_id(backend.resource_ids()).values()
        return {
            (str(head.ref), one.tree) for head in heads for one in backend.versions(head.id, 10_000)
        }


def make_hub(folder: Path) -> Path:
    """Make a bare repository."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "--bare", "-b", "main")
    return folder


def commit_tree(
    hub: Path, entries: list[tuple[str, str, bytes]], message: str, *parent: str
) -> str:
    """Move main to a commit with exactly this tree, whatever git thinks of its names. entries:
    (mode, path, bytes or an id in hexadecimal), by path.
    """
    tree = _tree(hub, [(mode, path.split("/"), data) for mode, path, data in entries])
    parents = [word for one in parent for word in ("-p", one)]
    made = git(hub, "commit-tree", tree, *parents, stdin=message.encode())
    git(hub, "update-ref", "refs/heads/main", made)
    return made


def _tree(hub: Path, entries: list[tuple[str, list[str], bytes]]) -> str:
    data, groups = b"", dict[str, list[tuple[str, list[str], bytes]]]()
    for mode, parts, content in entries:
        groups.setdefault(parts[0], []).append((mode, parts[1:], content))
    for name in sorted(groups, key=lambda one: one + ("/" if groups[one][0][1] else "")):
        mode, rest, content = groups[name][0]
        if rest:
            mode, found = "40000", _tree(hub, groups[name])
        elif mode == "160000":
            found = content.decode()
        else:
            found = _blob(hub, content)
        data += f"{mode} {name}".encode() + b"\0" + bytes.fromhex(found)
    return git(hub, "hash-object", "-t", "tree", "-w", "--stdin", "--literally", stdin=data)


@cache
def _blob(hub: Path, content: bytes) -> str:
    return git(hub, "hash-object", "-w", "--stdin", stdin=content)

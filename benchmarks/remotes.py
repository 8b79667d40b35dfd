"""What a git remote costs: a first push beside `git fast-import` of the same commits, and a pull of
ten operations.
"""

import random
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from support import (
    Row,
    arguments,
    at_most,
    conclude,
    median,
    ms,
    progress,
    ratio,
    skill_text,
    timed,
)

from evolvable_store.objects import File
from evolvable_store.operation import Actor, Identity, Principal
from evolvable_store.resource import Ref
from evolvable_store.storage.remotes import RemoteState
from evolvable_store.store import Store
from evolvable_teams.remotes.commit_writer import CommitStream, _Export
from evolvable_teams.remotes.remote import Remote, push
from evolvable_teams.remotes.remote_pull import Consent, open_pull
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.secret_leaks import leaks

PERSON = Caller(Actor.HUMAN, principal=Principal.PERSON, via="terminal")
IDENTITY = Identity(Principal.PERSON, "terminal")
TOGETHER = 200
"""New skills that one operation makes, as `evolvable init` does; every later change is an operation
of its own.
"""

TEN = 10
PULLS = 5


def fill(store: Store, skills: int, versions: int) -> None:
    """Make a library of so many skills, and versions in all."""
    numbers = random.Random(1)
    names = [f"skill-{number}" for number in range(skills)]
    texts = {name: skill_text(name, 1) for name in names}
    for first in range(0, skills, TOGETHER):
        with store.transaction(Actor.HUMAN, "import", identity=IDENTITY) as tx:
            for name in names[first : first + TOGETHER]:
                tx.put(Ref.parse(name), {"SKILL.md": File(texts[name].encode())})
    for number in range(versions - skills):
        name = numbers.choice(names)
        texts[name] = change(store, name, texts[name], number)
        if number % 10_000 == 0:
            progress(f"{skills + number:,} of {versions:,} versions")


def change(store: Store, name: str, text: str, number: int) -> str:
    """Add a line to a skill in an operation, and return its text."""
    text = f"{text}Step {number}: look again before the next one.\n"
    with store.transaction(Actor.HUMAN, f"step {number}", identity=IDENTITY) as tx:
        tx.put(Ref.parse(name), {"SKILL.md": File(text.encode())})
    return text


def bare(folder: Path) -> Path:
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(folder)], check=True)
    return folder


def fast_import(store: Store, folder: Path) -> tuple[float, float]:
    """Write the stream of a first push into a file, and return what git takes to import it."""
    stream = folder / "stream"
    with stream.open("wb") as file:
        commits = CommitStream(file, "")
        _Export(store, RemoteState("x", "x", "x"), {}, lambda ref: True).write(commits)
        file.write(b"done\n")
    target, words = (
        bare(folder / "alone.git"),
        ["fast-import", "--quiet", "--done", "--force", "--date-format=raw"],
    )
    with stream.open("rb") as file:
        took = measured(
            lambda: subprocess.run(["git", f"--git-dir={target}", *words], stdin=file, check=True)
        )
    stream.unlink()
    shutil.rmtree(target)
    return took


def cpu() -> float:
    """Return the processor time of this process and of those that it started and that ended."""
    mine, theirs = (
        resource.getrusage(resource.RUSAGE_SELF),
        resource.getrusage(resource.RUSAGE_CHILDREN),
    )
    return mine.ru_utime + mine.ru_stime + theirs.ru_utime + theirs.ru_stime


def measured(action: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds that something took, and its processor time."""
    before = cpu()
    return timed(action), cpu() - before


def pull(library: Library, remote: Remote) -> None:
    with open_pull(library, PERSON, remote) as coming:
        coming.accept(Consent.ASKED)


Timed = list[tuple[float, float]]
"""Of each time: seconds, and processor time."""


def ten_operations(ada: Library, ben: Library, remote: Remote, skills: int) -> tuple[Timed, Timed]:
    """Make ten operations, push and pull them, some times; return what each push and each pull
    took.
    """
    pushes, pulls = Timed(), Timed()
    for turn in range(PULLS):
        for number in range(TEN):
            name = f"skill-{(turn * TEN + number) * 7 % skills}"
            text = ada.store.file(ada.store.head(Ref.parse(name)), "SKILL.md").data.decode()
            change(ada.store, name, text, number)
        pushes.append(measured(lambda: push(ada, PERSON, remote)))
        pulls.append(measured(lambda: pull(ben, remote)))
    return pushes, pulls


def another_machine(library: Library, remote: Remote) -> None:
    """Make a copied library one of its own: else the approvals of the other would be taken for its
    own.
    """
    known = library.store.backend.remotes
    known.save(replace(known.state(remote.name, remote.url), library="0" * 16), ())


def large(folder: Path, skills: int, versions: int) -> list[Row]:
    """Measure a first push, and pulls on a second machine that got a copy of the home."""
    ada, remote = (
        Library(Store.open(folder / "ada", create=True)),
        Remote("origin", str(bare(folder / "hub.git"))),
    )
    fill(ada.store, skills, versions)
    looked = measured(lambda: leaks(ada))
    alone = fast_import(ada.store, folder)
    whole = measured(lambda: push(ada, PERSON, remote))
    ada.close()
    shutil.copytree(folder / "ada", folder / "ben")
    ada, ben = (Library(Store.open(folder / name)) for name in ("ada", "ben"))
    another_machine(ben, remote)
    pushes, pulls = ten_operations(ada, ben, remote, skills)
    ada.close()
    ben.close()
    return [
        Row(
            f"git fast-import of the commits of {versions:,} versions of {skills:,} skills",
            f"{alone[0]:.1f} s",
        ),
        Row("its processor time", f"{alone[1]:.1f} s"),
        Row("first push, secrets looked for before", f"{whole[0]:.1f} s"),
        Row("its processor time, that of git included", f"{whole[1]:.1f} s"),
        at_most("first push / fast-import", whole[0] / alone[0], 1.5, ratio),
        at_most("first push / fast-import, processor time", whole[1] / alone[1], 1.5, ratio),
        Row(
            "memory of this process at most",
            f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB",
        ),
        Row(
            "the look for secrets in every version, once",
            f"{looked[0]:.1f} s; processor time {looked[1]:.1f} s",
        ),
        Row(f"push of {TEN} operations, median of {PULLS}", ms(median([one for one, _ in pushes]))),
        Row("its processor time", ms(median([one for _, one in pushes]))),
        at_most(
            f"pull of {TEN} operations, median of {PULLS}",
            median([one for one, _ in pulls]),
            1.0,
            ms,
        ),
        at_most(
            "its processor time, that of git included", median([one for _, one in pulls]), 1.0, ms
        ),
    ]


def clone(folder: Path, skills: int, versions: int) -> list[Row]:
    """Measure a pull into an empty library, in which each resource is scanned."""
    folder.mkdir()
    ada, ben = (Library(Store.open(folder / name, create=True)) for name in ("ada", "ben"))
    remote = Remote("origin", str(bare(folder / "hub.git")))
    fill(ada.store, skills, versions)
    push(ada, PERSON, remote)
    seconds = timed(lambda: pull(ben, remote))
    ada.close()
    ben.close()
    return [
        Row(
            f"clone of {versions:,} versions of {skills:,} skills, each skill scanned",
            f"{seconds:.1f} s",
        )
    ]


def main() -> None:
    options = arguments(__doc__, skills=10_000, versions=50_000)
    with tempfile.TemporaryDirectory(prefix="evolvable-remotes-") as place:
        folder = Path(place)
        skills = options.skills or (500 if options.quick else 10_000)
        rows = large(folder, skills, options.versions or 5 * skills)
        rows += clone(folder / "small", 100, 500)
    conclude("A library in a git remote, over a folder of this machine", rows)


if __name__ == "__main__":
    main()

"""Measure the scan on real edits: commits of public repositories that modify a SKILL.md.

`edits.jsonl` names each edit by repository, commit and path, with the SHA-256 of the file before
and after and the verdict; it holds no text. `--clones DIR` reads the texts from clones
(DIR/owner+name, DIR/owner+name/repo or DIR/owner/name, bare or not), checks the hashes, and scans
each edit again as an agent's update. `--collect` chooses the edits anew. Rules are developed on the
repositories of half A. `edits_apart.jsonl` names edits of further repositories, collected before
the rules were changed, with `--collect --apart`. The weights of the classifier were trained on no
text of half B or of these; but features, training data and limits were compared while the figures
of both were looked at, so that both are too good for edits that nobody looked at.
"""

import argparse
import hashlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from evolvable_store.resource import Kind
from evolvable_tools.scan.scanner import scan

EDITS, APART = (Path(__file__).with_name(name) for name in ("edits.jsonl", "edits_apart.jsonl"))
MOST_HELD = 0.13
MOST_OF_A_REPOSITORY, MOST_OF_A_COMMIT = 40, 2
MAX_COMPANION = 200_000
MAX_COMPANIONS = 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clones", type=Path, required=True, help="folder of clones")
    parser.add_argument(
        "--collect", action="store_true", help="choose the edits anew and write edits.jsonl"
    )
    parser.add_argument(
        "--write", action="store_true", help="write the new verdicts into edits.jsonl"
    )
    parser.add_argument(
        "--apart",
        action="store_true",
        help="the further repositories, on which no weight was trained",
    )
    parser.add_argument("--half", choices=("A", "B"), help="only this half of the repositories")
    parser.add_argument(
        "--show", action="store_true", help="print what was found in each held edit"
    )
    options = parser.parse_args()
    file = APART if options.apart else EDITS
    edits = collected(options.clones, options.apart) if options.collect else recorded(file)
    edits = [edit for edit in edits if options.half in (None, half(edit["repository"]))]
    missing = 0
    for edit in edits:
        texts = read(options.clones, edit)
        if texts is None:
            missing += 1
            continue
        found = scan(*texts, Kind.SKILL)
        edit["verdict"] = "refused" if found.blocks else "held" if found.asks else "live"
        edit["rules"] = sorted({one.rule for one in found.findings if one.severity != "low"})
        if options.show and edit["verdict"] != "live":
            print(f"\n{edit['repository']} {edit['commit'][:10]} {edit['path']}")
            print(*(f"  {one}" for one in found.findings if one.severity != "low"), sep="\n")
    if (options.collect or options.write) and options.half is None and not missing:
        file.write_text("".join(json.dumps(edit) + "\n" for edit in edits), encoding="utf-8")
    return report([edit for edit in edits if "verdict" in edit], missing)


def half(repository: str) -> str:
    return "AB"[hashlib.sha256(repository.lower().encode()).digest()[0] % 2]


def recorded(file: Path = EDITS) -> list[dict]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def report(edits: list[dict], missing: int) -> int:
    """Print the figures of both halves; return 1 when more than MOST_HELD of either is held."""
    failed = 0
    for name in "AB":
        mine = [edit for edit in edits if half(edit["repository"]) == name]
        if not mine:
            continue
        held = sum(edit["verdict"] != "live" for edit in mine)
        repositories = len({edit["repository"] for edit in mine})
        refused = sum(edit["verdict"] == "refused" for edit in mine)
        print(
            f"half {name}: {len(mine)} edits of {repositories} repositories, {held} held "
            f"({held / len(mine):.1%}), {refused} of them refused"
        )
        rules = Counter(rule for edit in mine for rule in edit["rules"])
        print("  " + ", ".join(f"{rule} {number}" for rule, number in rules.most_common(40)))
        failed |= held > MOST_HELD * len(mine)
    if missing:
        print(f"{missing} edits are not in the clones")
    return int(failed)


def read(clones: Path, edit: dict) -> tuple[dict[str, bytes], dict[str, bytes]] | None:
    """Return the files before and after, None when the clones do not hold the recorded texts."""
    where = clone(clones, edit["repository"])
    if where is None:
        return None
    folder = edit["path"].rpartition("/")[0]
    before, after = {}, {}
    for path in [edit["path"], *edit["companions"]]:
        name = path[len(folder) + 1 :] if folder else path
        for side, commit in ((before, f"{edit['commit']}^"), (after, edit["commit"])):
            data = blob(where, f"{commit}:{path}")
            if data is not None:
                side[name] = data
    main_file = edit["path"].rpartition("/")[2]
    texts = (before.get(main_file), after.get(main_file))
    if None in texts or [sha256(text) for text in texts] != [edit["before"], edit["after"]]:
        return None
    return before, after


def clone(clones: Path, repository: str) -> Path | None:
    flat = clones / repository.replace("/", "+")
    return next((at for at in (flat / "repo", flat, clones / repository) if at.is_dir()), None)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def git(where: Path, *arguments: str) -> bytes:
    command = ["git", "-C", str(where), "-c", "safe.directory=*", *arguments]
    return subprocess.run(command, check=True, capture_output=True).stdout


def blob(where: Path, name: str) -> bytes | None:
    try:
        return git(where, "cat-file", "blob", name)
    except subprocess.CalledProcessError:
        return None


def collected(clones: Path, apart: bool) -> list[dict]:
    """Return the edits: for each repository those whose hash comes first, a few of a commit at
    most.
    """
    edits = []
    chosen = {edit["repository"] for edit in recorded()} if apart else set()
    for folder in sorted(clones.iterdir()):
        repository = folder.name.replace("+", "/", 1)
        where = clone(clones, repository)
        if where is None or "/" not in repository or repository in chosen:
            continue
        of_commit: Counter[str] = Counter()
        taken = 0
        order = sorted(
            changes(where), key=lambda one: sha256(":".join((repository, *one)).encode())
        )
        for commit, path in order:
            if taken == MOST_OF_A_REPOSITORY:
                break
            before, after = blob(where, f"{commit}^:{path}"), blob(where, f"{commit}:{path}")
            if (
                before is None
                or after is None
                or before == after
                or of_commit[commit] == MOST_OF_A_COMMIT
            ):
                continue
            of_commit[commit] += 1
            taken += 1
            edits.append(
                {
                    "repository": repository,
                    "commit": commit,
                    "path": path,
                    "before": sha256(before),
                    "after": sha256(after),
                    "companions": companions(where, commit, path),
                }
            )
    return edits


def changes(where: Path) -> Iterator[tuple[str, str]]:
    """Yield commit and path of every modification of a SKILL.md in the history of HEAD, merges left
    out.
    """
    text = git(
        where,
        "log",
        "--no-merges",
        "--no-renames",
        "--diff-filter=M",
        "--format=%x00%H",
        "--name-only",
        "-z",
        "HEAD",
        "--",
        "*SKILL.md",
    ).decode("utf-8", "replace")
    commit = ""
    for part in text.replace("\n", "\0").split("\0"):
        if len(part) == 40 and "/" not in part and "." not in part:
            commit = part
        elif part.rpartition("/")[2] == "SKILL.md":
            yield commit, part


def companions(where: Path, commit: str, path: str) -> list[str]:
    """Return the other files of the skill's folder that the commit changed."""
    folder = path.rpartition("/")[0]
    if not folder:
        return []
    text = git(
        where,
        "diff-tree",
        "-r",
        "-z",
        "--no-commit-id",
        "--no-renames",
        "--name-only",
        commit,
        "--",
        folder,
    )
    names = [name for name in text.decode("utf-8", "replace").split("\0") if name and name != path]
    nested = {name.rpartition("/")[0] for name in names if name.endswith("/SKILL.md")}
    names = [name for name in names if not any(name.startswith(f"{one}/") for one in nested)]
    return [name for name in names if fits(where, f"{commit}:{name}")][:MAX_COMPANIONS]


def fits(where: Path, name: str) -> bool:
    try:
        return int(git(where, "cat-file", "-s", name)) <= MAX_COMPANION
    except subprocess.CalledProcessError:
        return True


if __name__ == "__main__":
    sys.exit(main())

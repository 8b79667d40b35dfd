"""Takes in a whole corpus of real skills, broken ones included, as a person would who names the
folder.

CORPUS.jsonl[.gz]: one skill a line with `id` (owner/repository:path), `name`, `description`,
`body`, and `spec_errors`: the ways in which the original breaks the specification, which its folder
here breaks again.
"""

import argparse
import gzip
import hashlib
import json
import re
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from support import Row, conclude, none_of, progress

from evolvable_store import fsck
from evolvable_store.store import Store
from evolvable_store.workingcopy.incoming import DirectoryIssue, SyncReport
from evolvable_store.workingcopy.registry import WorkingCopies

QUICK = 1000


def read_corpus(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of the corpus."""
    with (
        gzip.open(path, "rt", encoding="utf-8")
        if path.suffix == ".gz"
        else path.open(encoding="utf-8") as lines
    ):
        for line in lines:
            yield json.loads(line)


def document(record: dict[str, Any]) -> bytes:
    """Return a SKILL.md with the fields of the record and each of its faults."""
    faults, body = set(record["spec_errors"]), record["body"]
    text = body if "no_frontmatter" in faults else f"{frontmatter(record, faults)}{body}"
    if "leading_whitespace_before_frontmatter" in faults:
        text = f"\n  {text}"
    if "crlf" in faults:
        text = text.replace("\r\n", "\n").replace("\n", "\r\n")
    data = text.encode("utf-8", errors="surrogatepass")
    return b"\xef\xbb\xbf" + data if "bom" in faults else data


def frontmatter(record: dict[str, Any], faults: set[str]) -> str:
    """Return the frontmatter, fences included, broken in the recorded ways."""
    lines = ["---"]
    if "name_missing" not in faults:
        lines.append(f"name: {quoted(record['name'])}")
    if "description_missing" not in faults:
        lines.append(f"description: {quoted(record['description'])}")
    if "yaml_error" in faults:
        lines.append(f"note: [{record['description'][:40]}: {{ not: closed")
    if "metadata_not_map" in faults:
        lines.append("metadata: a text")
    elif "metadata_values_not_strings" in faults:
        lines.append("metadata:\n  version: 1.0\n  tags: [one, two]\n  nested:\n    deep: true")
    if "allowed_tools_not_string" in faults:
        lines.append("allowed-tools: [Read, Bash]")
    if "compatibility_too_long" in faults:
        lines.append(f"compatibility: {'any system, ' * 60}")
    if "unknown_keys" in faults:
        lines.append("version: 2.1.0\nauthor: somebody\nmodel: any")
    return "\n".join([*lines, "" if "unterminated_frontmatter" in faults else "---\n"])


def quoted(text: str) -> str:
    """Return the text as YAML reads it back; every JSON string is one."""
    return json.dumps(text, ensure_ascii=False)


def place_of(record: dict[str, Any], taken: set[str]) -> str:
    """Return a directory named from the id: the repository's, and below it the skill's own as far
    as that is free.
    """
    repository, _, inside = record["id"].partition(":")
    parts = [part for part in inside.split("/") if part not in ("", ".", "..")] or [
        repository.split("/")[-1]
    ]
    above = repository.replace("/", "-").lstrip(".")
    for start in range(len(parts) - 1, -1, -1):
        place = f"{above}/{'-'.join(parts[start:])[-200:].lstrip('.')}"
        if place.casefold() not in taken:
            break
    else:
        place += "-" + hashlib.sha256(record["id"].encode()).hexdigest()[:8]
    taken.add(place.casefold())
    return place


def rebuild(records: Iterable[dict[str, Any]], folder: Path) -> int:
    """Write the folders of all skills; return how many."""
    taken: set[str] = set()
    for record in records:
        place = folder / place_of(record, taken)
        place.mkdir(parents=True)
        odd = "filename_case" in record["spec_errors"]
        (place / ("Skill.md" if odd else "SKILL.md")).write_bytes(document(record))
    return len(taken)


def read_all(folder: Path) -> None:
    """Read and hashes every file: the least that taking in can be."""
    for path in folder.rglob("*"):
        if path.is_file():
            hashlib.sha256(path.read_bytes()).hexdigest()


def kinds(refusals: Iterable[DirectoryIssue]) -> list[tuple[str, int]]:
    """Return how often each sort of problem was told, most often first; what differs by skill is
    left out.
    """
    counts: Counter[str] = Counter()
    for refusal in refusals:
        counts.update({kind_of(problem) for problem in refusal.problems})
    return counts.most_common()


def kind_of(problem: str) -> str:
    text = re.sub(r"^SKILL\.md: |^skill\.md: ", "", problem)
    text = re.sub(r"its name is .*, its folder's is .*", "its name is not its folder's", text)
    text = re.sub(r"(does not know|are not texts): .*", r"\1", text)
    text = re.sub(r"is kept as .*", "is kept under another", text)
    return re.sub(r"\([^()]*\)|'[^']*'|\"[^\"]*\"|[\d,]*\d", "..", text)[:90]


def report(sync: SyncReport, count: int, seconds: float, bare: float, faults: int) -> list[Row]:
    return [
        Row("reading and hashing the same files", f"{bare:.1f} s"),
        Row("taking them in", f"{seconds:.1f} s"),
        Row("skills a second", f"{count / seconds:,.0f}"),
        Row("taken in", f"{len(sync.taken):,}"),
        Row("refused", f"{len(sync.refused):,}"),
        *(Row(f"  {kind}", f"{number:,}") for kind, number in kinds(sync.refused)),
        Row(
            "taken in with a warning", f"{len({refusal.directory for refusal in sync.warnings}):,}"
        ),
        *(Row(f"  {kind}", f"{number:,}") for kind, number in kinds(sync.warnings)[:25]),
        none_of("neither taken in nor refused", count - len(sync.taken) - len(sync.refused)),
        none_of("faults that fsck finds", faults),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path, metavar="CORPUS.jsonl[.gz]")
    parser.add_argument("--quick", action="store_true", help=f"only the first {QUICK:,} skills")
    options = parser.parse_args()
    records = (
        r
        for number, r in enumerate(read_corpus(options.corpus))
        if not options.quick or number < QUICK
    )
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "skills"
        count = rebuild(records, folder)
        started = time.perf_counter()
        read_all(folder)
        bare = time.perf_counter() - started
        with Store.open(Path(place) / "home", create=True) as store:
            started = time.perf_counter()
            try:
                sync = WorkingCopies(store).add(
                    folder, progress=lambda done, of: progress(f"{done:,} of {of:,}")
                )
            except Exception:
                traceback.print_exc()
                sys.exit("crashed")
            seconds = time.perf_counter() - started
            faults = len(fsck.check_library(store).faults)
    conclude(f"Taking in {count:,} real skills", report(sync, count, seconds, bare, faults))


if __name__ == "__main__":
    main()

"""Measures the scan on real skills and on the hostile set of the tests: what it says, and how long
it takes.

The corpus is JSON lines with name, description and body, plain or gzipped. No other process is
needed; times are of the processor.
"""

import argparse
import gzip
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from evolvable_store.resource import Kind
from evolvable_tools.scan.scan_findings import FindingSeverity, Scan
from evolvable_tools.scan.scanner import scan

HOSTILE = Path(__file__).parents[1] / "tests" / "data" / "hostile_skills.json"

MOST_ASKED, MOST_MS = 0.05, 15.0
"""The targets: the share of real skills that are asked about, and the milliseconds of a
median one.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--quick", action="store_true", help="every tenth skill")
    options = parser.parse_args()
    asked, blocked, number, median = real(options.corpus, 10 if options.quick else 1)
    missed = hostile()
    missed_targets = blocked > 0 or asked > MOST_ASKED * number or median > MOST_MS or missed > 0
    return int(missed_targets)


def real(corpus: Path, step: int) -> tuple[int, int, int, float]:
    """Print what the scan says of real skills, new and as they grow; return asked, blocked, all,
    median ms.
    """
    rules: dict[FindingSeverity, Counter[str]] = {
        severity: Counter() for severity in FindingSeverity
    }
    asked, blocked, grown, times, sizes = 0, 0, 0, [], []
    for text in list(texts(corpus))[::step]:
        begin = time.process_time()
        found = scan(None, files(text), Kind.SKILL)
        times.append((time.process_time() - begin) * 1e3)
        sizes.append(len(text))
        asked, blocked = asked + found.asks, blocked + found.blocks
        for rule, severity in {(one.rule, one.severity) for one in found.findings}:
            rules[severity][rule] += 1
        cut = text.rfind("\n", 0, len(text) * 4 // 5)
        more = scan(files(text[: max(cut, 0)]), files(text), Kind.SKILL)
        grown += more.asks or more.blocks
    count = len(times)
    for severity, found_rules in rules.items():
        for rule, times_found in found_rules.most_common():
            print(f"{severity:8}{rule:32}{times_found:7,}{times_found / count:9.2%}")
    median, late = statistics.median(times), sorted(times)[int(count * 0.95)]
    print(
        f"\n{count:,} real skills of {statistics.median(sizes):,.0f} characters: {blocked} "
        f"refused, {asked} asked about"
    )
    print(
        f"({asked / count:.2%}); as an update with their last fifth new: {grown} asked about "
        f"({grown / count:.2%})"
    )
    print(f"p50 {median:.1f} ms, p95 {late:.1f} ms, longest {max(times):.1f} ms of the processor")
    return asked, blocked, count, median


def texts(corpus: Path) -> Iterator[str]:
    """Yield the SKILL.md of each skill."""
    with (
        gzip.open(corpus, "rt", encoding="utf-8")
        if corpus.suffix == ".gz"
        else corpus.open("rt") as stream
    ):
        for line in stream:
            one = json.loads(line)
            head = (
                f"name: {one['name']}\ndescription: "
                f"{json.dumps(one['description'], ensure_ascii=False)}"
            )
            yield f"---\n{head}\n---\n{one['body']}"


def files(text: str) -> dict[str, bytes]:
    return {"SKILL.md": text.encode("utf-8", "replace")}


def hostile() -> int:
    """Print how many of the hostile cases are found, by category; return how many are judged
    wrongly.
    """
    right: Counter[str] = Counter()
    every: Counter[str] = Counter()
    for case in json.loads(HOSTILE.read_text(encoding="utf-8"))["cases"]:
        every[case["category"]] += 1
        right[case["category"]] += judged(case) == case["expect"]
    for category, number in every.items():
        print(f"{category:12}{right[category]:4} of {number}")
    return every.total() - right.total()


def judged(case: dict[str, str]) -> str:
    text = case["input"] if "input" in case else "".join(case["input_parts"])
    before = {case["path"]: case["before"].encode()} if case.get("before") else None
    if case.get("before") == "":
        before = {"SKILL.md": b"Steps.\n"}
    found: Scan = scan(before, {**(before or {}), case["path"]: text.encode()}, Kind(case["kind"]))
    return "high" if found.blocks else "medium" if found.asks else "pass"


if __name__ == "__main__":
    sys.exit(main())

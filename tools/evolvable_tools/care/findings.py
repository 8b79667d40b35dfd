"""Find what is alike and what is secret in a library, as doctor, an import and a purge name it."""

from collections.abc import Sequence

from evolvable_store.resource import Ref
from evolvable_tools import secret_leaks
from evolvable_tools.library import Library
from evolvable_tools.reporting import Step
from evolvable_tools.secret_leaks import LeakedSecret
from evolvable_tools.verbs import near_duplicates_of

COMPARED_ON_ARRIVAL = 1_000
"""Resources that are compared when they arrive together; of more `evolvable doctor` names the
pairs.
"""


def near_duplicate_lines(
    library: Library, refs: Sequence[Ref], step: Step, most: int = COMPARED_ON_ARRIVAL
) -> list[str]:
    """Return a line for each pair of near duplicates, and a last one with their number.

    Return [] where there is no pair, and for more than `most` refs.
    """
    if not 0 < len(refs) <= most:
        return []
    with step("Comparing descriptions") as progress:
        report = near_duplicates_of(library, refs, progress=progress)
    lines = [pair.line for pair in report.pairs]
    return [*lines, report.summary] if lines else []


def scan_for_secrets(library: Library, step: Step) -> None:
    """Scan what is new in the library for secrets."""
    with step("Scanning for secrets") as progress:
        secret_leaks.found_secrets(library).scan_new(progress)


def open_secrets(library: Library, step: Step) -> list[LeakedSecret]:
    """Return each secret in the library that nobody dealt with, after a scan of what is new."""
    with step("Scanning for secrets") as progress:
        return secret_leaks.leaks(library, progress)


def secret_lines(library: Library, step: Step) -> list[str]:
    """Return a line for each secret in the library that nobody dealt with, without the secret
    itself.
    """
    return [f"{line}." for line in secret_leaks.leak_messages(open_secrets(library, step))]

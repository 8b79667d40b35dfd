"""Environment variables that are no longer read, and what takes their place.

Those of experiments have no successor; those that named a model have a role of the person's configuration. A variable
that makes the policy stricter is still read: `EVOLVABLE_REVIEW` with one of OFF.
"""

import sys
from collections.abc import Iterator, Mapping

from evolvable_server.environment import OFF, REVIEW, reviews_on

_INSTEAD = {
    "EVOLVABLE_FITS": "the threshold follows the size of the library, see docs/lookup.md",
    "EVOLVABLE_RERANKER": "with an embedder (EVOLVABLE_EMBEDDER), late interaction orders the first matches",
    "EVOLVABLE_PROGRESS": "progress is drawn only where stderr is a terminal: `2>&1 | cat` has none",
    "EVOLVABLE_JUDGE": "`evolvable model role judge NAME` says who judges; `off` and `caller` are names too",
    REVIEW: f"`evolvable model role reviewer NAME` says who reviews; only {', '.join(OFF)} count here",
}


def removed_variables(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each variable that is set and no longer read: its name, and what takes its place."""
    for name, instead in _INSTEAD.items():
        switches_off = name == REVIEW and not reviews_on({name: environment.get(name, "")})
        if environment.get(name) and not switches_off:
            yield f"Hint: {name} is no longer read: {instead}."


def hint_at_removed_variables(environment: Mapping[str, str]) -> None:
    """Write these lines to stderr."""
    for line in removed_variables(environment):
        print(line, file=sys.stderr)

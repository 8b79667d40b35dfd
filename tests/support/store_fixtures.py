"""A library in a temporary folder, over every implementation of the storage, with a clock that the
test moves.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from postgres_place import open_later, open_postgres
from processes import Children, started
from samples import Clock, skill

from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.search.index import Index
from evolvable_store.store import Store
from evolvable_store.transaction import WriteResult


@pytest.fixture
def clock() -> Clock:
    return Clock()


OPENERS = {"sqlite": Store.open, "postgres": open_postgres, "later": open_later}
"""How a library is opened, by implementation of the storage; `later` has columns that this program
does not know.
"""


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgres", marks=pytest.mark.process),
        pytest.param("later", marks=pytest.mark.nightly),
    ]
)
def open_store(request: pytest.FixtureRequest) -> Callable[..., Store]:
    """Opens a library in a folder, over each implementation."""
    return OPENERS[request.param]


@pytest.fixture
def reopen(open_store: Callable[..., Store], tmp_path: Path, clock: Clock) -> Callable[[], Store]:
    """Opens the test's library, as often as it is called; each is to be closed by the caller."""
    return lambda: open_store(tmp_path / "home", create=True, clock=clock)


@pytest.fixture
def store(reopen: Callable[[], Store]) -> Iterator[Store]:
    """An empty library."""
    with reopen() as store:
        yield store


@pytest.fixture
def other(open_store: Callable[..., Store], tmp_path: Path) -> Iterator[Store]:
    """A second library."""
    with open_store(tmp_path / "other", create=True) as store:
        yield store


@pytest.fixture
def index(store: Store) -> Iterator[Index]:
    with Index.open(store) as index:
        yield index


@pytest.fixture
def children() -> Iterator[Children]:
    """Starts processes; none is left when the test ends."""
    with started() as children:
        yield children


Put = Callable[..., WriteResult]


@pytest.fixture
def put(store: Store) -> Put:
    """Writes one skill in an operation of its own: `put("pdf", "text", expected_version=1)`."""

    def put_one(name: str, text: str, actor: Actor = Actor.AGENT, **options: object) -> WriteResult:
        with store.transaction(actor, f"write {name}") as tx:
            tx.put(Ref.parse(name), skill(text), **options)  # type: ignore[arg-type]
        return tx.written[0]

    return put_one

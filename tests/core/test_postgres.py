"""PostgreSQL as the storage: the server separates projects, commits are announced, and its death
loses nothing.
"""

import hashlib
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest
from postgres_place import address_home, administer, as_role, own_server, server_url
from processes import Children, Gate, poll
from samples import skill
from soundness import assert_sound

from evolvable_store.bundle.export import export_json
from evolvable_store.bundle.import_ import import_json
from evolvable_store.errors import (
    InvalidArgument,
    LibraryError,
    LibraryReadOnly,
    LibraryTooNew,
    NoLibrary,
    Refused,
)
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.storage import connection, migrations
from evolvable_store.storage.observations import Impression, IngestedSession
from evolvable_store.storage.protocol import SharedVector
from evolvable_store.store import Store

if TYPE_CHECKING:
    from evolvable_teams.postgres.connection import PostgresConnection
    from evolvable_teams.postgres.storage import PostgresStorage

process = pytest.mark.process

PDF = Ref.parse("pdf")
AT = "2026-11-20T12:00:00.000000Z"


def write(store: Store, text: str = "one", ref: Ref = PDF) -> None:
    with store.transaction(Actor.AGENT, f"write {text}") as tx:
        tx.put(ref, skill(text))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home whose library lies in a project of its own."""
    address_home(tmp_path / "home")
    return tmp_path / "home"


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[str]:
    """A login role of the server that is a member of no project."""
    role = f"r{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:16]}"
    administer(f"CREATE ROLE {role} LOGIN")
    yield role
    administer(
        f"DROP OWNED BY {role}; DELETE FROM evolvable.member WHERE role = '{role}'; DROP "
        f"ROLE {role}"
    )


@process
def test_a_role_that_is_no_member_sees_no_row_of_any_table_and_can_write_none(
    home: Path, tmp_path: Path, stranger: str
) -> None:
    """It chooses the project itself, as any client of the server can."""
    import psycopg

    from evolvable_store.storage.address import read_home

    with Store.open(home, create=True) as store:
        write(store, "secret")
        as_role(home, tmp_path / "other", stranger)
        with pytest.raises(NoLibrary):
            Store.open(tmp_path / "other")
        # Even a role that may read the tables, as a member of another project, sees only that one.
        administer(f"SELECT evolvable.add_member('elsewhere', '{stranger}', true)")
        with pytest.raises(NoLibrary):
            Store.open(tmp_path / "other")
        address = read_home(tmp_path / "other").address
        with psycopg.connect(address.url, autocommit=True) as theirs:
            theirs.execute("SET search_path = evolvable")
            for name in ("evolvable.project", "evolvable.home"):
                value = address.project if name == "evolvable.project" else read_home(home).name
                theirs.execute("SELECT set_config(%s, %s, false)", [name, value])
            tables = theirs.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'evolvable'"
            ).fetchall()
            assert len(tables) > 30
            for (table,) in tables:
                if table in ("project", "member"):
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        theirs.execute(f'SELECT * FROM "{table}"')  # type: ignore[arg-type]
                elif table != "schema_version":
                    assert theirs.execute(f'SELECT * FROM "{table}"').fetchall() == []  # type: ignore[arg-type]
            assert theirs.execute("SELECT * FROM lock_project()").fetchall() == []
            number = "(SELECT 1)"
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                theirs.execute(f"INSERT INTO looked VALUES ('x', 1, '', {number})")  # type: ignore[arg-type]
            assert theirs.execute("DELETE FROM change").rowcount == 0
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                theirs.execute("SELECT add_member('library', session_user::text, true)")
        assert_sound(store)


@process
def test_a_member_who_may_only_read_reads_and_writes_nothing(
    home: Path, tmp_path: Path, stranger: str
) -> None:
    from evolvable_store.storage.address import read_home

    with Store.open(home, create=True) as store:
        write(store)
        administer(
            f"SELECT evolvable.add_member('{read_home(home).address.project}', '{stranger}', false)"
        )
        as_role(home, tmp_path / "other", stranger)
        with Store.open(tmp_path / "other") as theirs:
            assert theirs.read_only and theirs.head(PDF).version == 1
            with pytest.raises(LibraryReadOnly):
                write(theirs, "two")
            assert theirs.backend.bindings.folders() == []
        assert store.sequence() == 1


@process
def test_variables_that_a_project_sets_choose_no_other_server(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PGHOSTADDR", "PGHOST", "PGPORT", "PGUSER", "PGDATABASE"):
        monkeypatch.setenv(name, "127.0.0.2" if "HOST" in name else "1")
    with Store.open(home, create=True) as store:
        write(store)
        assert store.sequence() == 1


@process
def test_a_superuser_is_refused_because_projects_would_not_be_separated_for_it(
    home: Path, tmp_path: Path
) -> None:
    as_role(home, tmp_path / "other", "evolvable_admin")
    with pytest.raises(LibraryError, match="superuser"):
        Store.open(tmp_path / "other", create=True)


@process
def test_folders_and_what_a_person_trusts_belong_to_one_home(home: Path, tmp_path: Path) -> None:
    from evolvable_store.operation import Identity, Principal

    as_role(home, tmp_path / "other", "evolvable")
    with Store.open(home, create=True) as mine, Store.open(tmp_path / "other") as theirs:
        write(mine)
        head = theirs.head(PDF)
        folder = mine.backend.bindings.add_folder(tmp_path / "skills", "user", head.kind)
        mine.backend.attestations.vouch(
            [(head.id, head.tree)], mine.now(), Identity(Principal.PERSON)
        )
        assert (
            theirs.backend.bindings.folders() == []
            and theirs.backend.authorship.attestations_of([head.id]) == []
        )
        same = theirs.backend.bindings.add_folder(tmp_path / "skills", "user", head.kind)
        assert (same.id, same.path) == (folder.id, folder.path)
        assert len(mine.backend.authorship.attestations_of([head.id])) == 1


@process
def test_a_commit_elsewhere_is_noticed_without_waiting_for_the_next_look(
    home: Path, tmp_path: Path
) -> None:
    as_role(home, tmp_path / "other", "evolvable")
    mine, theirs = Store.open(home, create=True), Store.open(tmp_path / "other")
    with mine, theirs, theirs.backend.watching() as commits:
        write(mine)
        poll(lambda: commits() > 0, "the first commit to be seen")
        seen, waits = commits(), []
        for number in range(5):
            write(mine, f"text {number}")
            started = time.perf_counter()
            poll(lambda seen=seen: commits() > seen, "the commit to be seen")  # type: ignore[misc]
            waits.append(time.perf_counter() - started)
            seen = commits()
    assert (tmp_path / "other/postgres.changed").exists(), (
        "it wakes a server that waits for events of files"
    )
    assert sorted(waits)[2] < 0.5, "an announcement comes before the look that happens every second"


@process
def test_a_commit_is_noticed_after_the_connection_for_announcements_was_cut(
    home: Path, tmp_path: Path
) -> None:
    as_role(home, tmp_path / "other", "evolvable")
    mine, theirs = Store.open(home, create=True), Store.open(tmp_path / "other")
    with mine, theirs, theirs.backend.watching() as commits:
        write(mine)
        poll(lambda: commits() > 0, "the first commit to be seen")
        seen = commits()
        administer(
            "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity "
            "WHERE application_name = 'evolvable' "
            "AND state = 'idle'"  # returns when they have ended
        )
        write(mine, "two")  # nobody hears its announcement
        poll(lambda: commits() > seen, "the commit to be seen without it")


@process
def test_commits_are_announced_on_a_channel_whose_name_only_members_can_read(
    home: Path, tmp_path: Path, stranger: str
) -> None:
    """PostgreSQL lets every role listen to a channel whose name it knows."""
    import psycopg

    from evolvable_store.storage.address import read_home

    with Store.open(home, create=True) as store:
        write(store)
        name = cast("PostgresStorage", store.backend).notifies
        administer(f"SELECT evolvable.add_member('elsewhere', '{stranger}', true)")
        as_role(home, tmp_path / "other", stranger)
        address = read_home(tmp_path / "other").address
        with psycopg.connect(address.url, autocommit=True) as theirs:
            theirs.execute("SET search_path = evolvable")
            for channel in ("evolvable", "evolvable_0", address.project):
                theirs.execute(f'LISTEN "{channel}"')
            theirs.execute("SELECT set_config('evolvable.project', %s, false)", [address.project])
            assert theirs.execute("SELECT * FROM counter").fetchall() == []
            with psycopg.connect(server_url(), autocommit=True) as member:
                member.execute(f"LISTEN {name}")
                write(store, "two")
                assert [one.payload for one in member.notifies(timeout=10, stop_after=1)] == [""]
            assert list(theirs.notifies(timeout=0)) == []


@process
def test_the_embedded_server_is_reached_through_a_role_without_rights_and_a_private_socket(
    tmp_path: Path,
) -> None:
    import psycopg

    with own_server(tmp_path / "home") as server:
        Store.open(tmp_path / "home", create=True).close()
        with psycopg.connect(server.url, autocommit=True) as role:
            rights = "rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls"
            query = f"SELECT session_user, {rights} FROM pg_roles WHERE rolname = session_user"
            assert role.execute(query).fetchone() == ("evolvable", *[False] * 5)  # type: ignore[arg-type]
            shown = [
                role.execute(f"SHOW {name}").fetchone() for name in ("listen_addresses", "fsync")
            ]  # type: ignore[arg-type]
            assert shown[0] == ("",)
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                role.execute("COPY (SELECT 1) TO PROGRAM 'true'")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                role.execute("SELECT pg_read_file('postgresql.conf')")
        sockets = Path(parse_qs(urlsplit(server.url).query)["host"][0])
        assert sockets.stat().st_mode & 0o777 == 0o700
        assert all(one.stat().st_mode & 0o077 == 0 for one in sockets.iterdir() if one.is_socket())


def count_commits(store: Store) -> int:
    storage = cast("PostgresStorage", store.backend)
    with storage.reading() as db:
        return storage.count_commits(cast("PostgresConnection", db))


def vector(*numbers: float) -> SharedVector:
    return SharedVector(numbers, bytes(range(2)))


@process
def test_vectors_are_shared_in_a_project_with_exactly_the_numbers_that_were_given(
    home: Path, tmp_path: Path
) -> None:
    """They are no commit: nobody is woken up by one."""
    address = address_home(home)
    one, other = b"1" * 32, b"2" * 32
    with Store.open(home, create=True) as store:
        shared = store.backend.shared_vectors()
        assert shared is not None
        write(store)
        before = count_commits(store)
        shared.add("m", {one: vector(0.1001, -1.0, 6e-8), other: vector(1.0, 2.0)})
        shared.add("n", {one: vector(3.0)})
        again = SharedVector((0.5, -1.0, 0.25))
        shared.add("m", {one: again})

        address_home(tmp_path / "same", address.rpartition("=")[2])
        address_home(tmp_path / "elsewhere", "another")
        with (
            Store.open(tmp_path / "same") as theirs,
            Store.open(tmp_path / "elsewhere", create=True) as others,
        ):
            same, elsewhere = theirs.backend.shared_vectors(), others.backend.shared_vectors()
            assert same is not None and elsewhere is not None
            assert same.find("m", [one, b"3"]) == {
                one: SharedVector(again.numbers, vector().tokens)
            }
            assert same.find("n", [one, other]) == {one: vector(3.0)}
            assert elsewhere.find("m", [one, other]) == {}
            elsewhere.remove_others([])
            same.remove([one])
            assert shared.find("n", [one]) == {}
            assert shared.find("m", [one, other]) == {other: vector(1.0, 2.0)}
            same.remove_others([other])
            assert shared.find("m", [other])
            same.remove_others([])
            assert shared.find("m", [other]) == {}
        assert count_commits(store) == before == 1


@process
def test_a_member_who_may_only_read_uses_the_vectors_and_adds_none(
    home: Path, tmp_path: Path, stranger: str
) -> None:
    from evolvable_store.storage.address import read_home

    with Store.open(home, create=True) as store:
        ours = store.backend.shared_vectors()
        assert ours is not None
        ours.add("m", {b"1": vector(1.0)})
        administer(
            f"SELECT evolvable.add_member('{read_home(home).address.project}', '{stranger}', false)"
        )
        as_role(home, tmp_path / "other", stranger)
        with Store.open(tmp_path / "other") as reader:
            theirs = reader.backend.shared_vectors()
            assert theirs is not None
            theirs.add("m", {b"2": vector(1.0)})
            theirs.remove([b"1"])
            theirs.remove_others([])
            assert theirs.find("m", [b"1", b"2"]) == {b"1": vector(1.0)}


def own_database(home: Path, name: str, project: str = "library") -> None:
    """Make a home whose library lies in a project of another database of the server."""
    from evolvable_store.storage.address import Address, save_address

    home.mkdir(mode=0o700)
    url = server_url().replace("@/evolvable?", f"@/{name}?")
    save_address(home, Address.parse(f"{url}&project={project}"))


@process
def test_a_database_without_pgvector_shares_no_vectors_until_it_has_it(tmp_path: Path) -> None:

    name, home = f"bare_{hashlib.sha256(bytes(tmp_path)).hexdigest()[:16]}", tmp_path / "home"
    administer(f"CREATE DATABASE {name} OWNER evolvable")
    own_database(home, name)
    try:
        with Store.open(home, create=True) as store:
            write(store)
            assert store.backend.shared_vectors() is None
        administer("CREATE SCHEMA extensions; GRANT USAGE ON SCHEMA extensions TO PUBLIC", name)
        administer("CREATE EXTENSION vector SCHEMA extensions", name)
        with Store.open(home) as store:
            shared = store.backend.shared_vectors()
            assert shared is not None
            shared.add("m", {b"1": vector(1.0, 0.5)})
            assert shared.find("m", [b"1"]) == {b"1": vector(1.0, 0.5)}
            assert_sound(store)
    finally:
        administer(f"DROP DATABASE {name} WITH (FORCE)")


@process
@pytest.mark.parametrize("statement", ["SEQUENCE", "_STATE", "_NAMED_HEAD", "_HEADS_BY_ID"])
def test_the_newest_change_is_found_without_a_look_at_the_others(
    home: Path, statement: str
) -> None:
    """The planner must be able to read an index in its order, through row-level security."""
    from evolvable_store.storage import sql
    from evolvable_teams.postgres.dialect import translate

    given = {
        "_STATE": [1, "skill", "user", "other-0"],
        "_NAMED_HEAD": ["pdf", "skill", "user"],
        "_HEADS_BY_ID": ["[1]"],
    }
    values = given.get(statement, [])
    text, _ = translate(getattr(sql, statement), len(values), 0)
    with Store.open(home, create=True) as store:
        with store.transaction(Actor.AGENT, "others") as tx:
            for number in range(300):
                tx.put(Ref.parse(f"other-{number}"), skill("other"))
        for number in range(60):
            write(store, str(number))
        administer("ANALYZE evolvable.change; ANALYZE evolvable.resource")
        with store.backend.reading() as db:
            query = cast("PostgresConnection", db).query
            (plan,) = query(b"EXPLAIN (ANALYZE, FORMAT JSON) " + text, values).fetchone()
        assert 0 < max(_scanned(plan[0]["Plan"])) <= 2


def _scanned(plan: dict[str, Any]) -> Iterator[int]:
    """Yield how many rows each scan of the log read."""
    if plan.get("Relation Name") == "change":
        yield plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
    for inner in plan.get("Plans", ()):
        yield from _scanned(inner)


@process
def test_the_policies_of_an_earlier_version_are_replaced_when_the_owner_opens_the_library(
    tmp_path: Path,
) -> None:
    name, home = f"older_{hashlib.sha256(bytes(tmp_path)).hexdigest()[:16]}", tmp_path / "home"
    administer(f"CREATE DATABASE {name} OWNER evolvable")
    own_database(home, name)
    try:
        with Store.open(home, create=True) as store:
            write(store)
            now = policies(store)
        for table in ("change", "folder"):
            mine = (
                " AND home = (SELECT current_setting('evolvable.home'))"
                if table == "folder"
                else ""
            )
            drops = "; ".join(
                f'DROP POLICY {policy} ON evolvable."{table}"' for policy in now[table]
            )
            administer(
                f"{drops}; CREATE POLICY reading ON evolvable.{table} FOR SELECT"
                f" USING (project = (SELECT evolvable.visible_project()){mine});"
                f" CREATE POLICY writing ON evolvable.{table}"
                f" USING (project = (SELECT evolvable.writable_project()){mine})",
                name,
            )
        with Store.open(home) as store:
            assert policies(store) == now
            write(store, "two")
            assert_sound(store)
    finally:
        administer(f"DROP DATABASE {name} WITH (FORCE)")


@process
def test_impressions_of_nobodys_search_count_no_longer_in_any_project_of_an_older_database(
    tmp_path: Path,
) -> None:
    name, homes = (
        f"older_{hashlib.sha256(bytes(tmp_path)).hexdigest()[:16]}",
        (tmp_path / "one", tmp_path / "two"),
    )
    administer(f"CREATE DATABASE {name} OWNER evolvable")
    try:
        for number, home in enumerate(homes):
            own_database(home, name, f"project-{number}")
            with Store.open(home, create=True) as store:
                write(store)
                rows = [
                    Impression(f"search-{session}", store.head(PDF).id, 1, AT, session)
                    for session in ("s1", None)
                ]
                store.backend.observations.add_impressions(rows, ())
                if number == 0:
                    store.backend.observations.take(
                        IngestedSession("s1", "codex", "d", 9, AT, None), []
                    )
        before = migrations.NAMES.index("m024_shown")
        administer(f"UPDATE evolvable.schema_version SET version = {before}", name)

        counted = []
        for home in homes:
            with Store.open(home) as store:
                counted.append(
                    store.backend.evidence.count_impressions("")[store.head(PDF).id].times
                )
                forced = (
                    b"SELECT count(*) FROM pg_class WHERE relrowsecurity "
                    b"AND NOT relforcerowsecurity"
                )
                with store.backend.reading() as db:
                    assert cast("PostgresConnection", db).query(forced).fetchone() == (0,)
    finally:
        administer(f"DROP DATABASE {name} WITH (FORCE)")

    assert counted == [1, 2], "the second project has read no session"


def policies(store: Store) -> dict[str, dict[str, tuple[str, str | None, str | None]]]:
    """Return the policies of each table by their names: for which statement, and their
    conditions.
    """
    query = (
        b"SELECT tablename, policyname, cmd, qual, with_check FROM pg_policies "
        b"WHERE schemaname = 'evolvable'"
    )
    found: dict[str, dict[str, tuple[str, str | None, str | None]]] = {}
    with store.backend.reading() as db:
        for table, policy, *rest in cast("PostgresConnection", db).query(query).fetchall():
            found.setdefault(table, {})[policy] = tuple(rest)
    return found


@process
def test_three_writers_leave_a_log_without_gaps_or_forks(
    home: Path, tmp_path: Path, children: Children
) -> None:
    gate = Gate(tmp_path / "gate")
    with Store.open(home, create=True) as store:
        with store.transaction(Actor.AGENT, "start") as tx:
            from evolvable_store.objects import File

            tx.put(Ref.parse("counted"), {"SKILL.md": File(b"{}")})
        writers = [
            children.start("update", home, gate.folder, f"w{n}", "counted", "0.4") for n in range(3)
        ]
        gate.wait_for(*writers)
        gate.open()
        done = [line for writer in writers for line in writer.lines()]
        assert done
        assert_sound(store)


@process
@pytest.mark.parametrize("kills", [1, pytest.param(30, marks=pytest.mark.nightly)])
def test_no_acknowledged_change_is_lost_when_postgresql_is_killed(
    children: Children, tmp_path: Path, kills: int
) -> None:
    acknowledged: list[str] = []
    with own_server(tmp_path / "home") as server:
        Store.open(tmp_path / "home", create=True).close()
        for round_ in range(kills):
            gate = Gate(tmp_path / f"gate{round_}")
            writers = [
                children.start("acknowledge", tmp_path / "home", gate.folder, f"w{round_}-{n}")
                for n in range(2)
            ]
            gate.wait_for(*writers)
            with Store.open(tmp_path / "home") as store:
                before = store.sequence()
                poll(lambda: store.sequence() > before + 10, "the writers to write")  # noqa: B023
            server.stop(kill=True)
            acknowledged += [line for writer in writers for line in writer.end()]
            server.start()
            with Store.open(tmp_path / "home") as store:
                reasons = [one.reason for one in store.operations(10**6)]
                assert set(reasons) >= set(acknowledged) and len(set(reasons)) == len(reasons)
                assert_sound(store)
    assert len(acknowledged) > kills


@process
def test_a_store_goes_on_after_its_idle_connections_broke(home: Path) -> None:
    with Store.open(home, create=True) as store:
        write(store)
        administer(
            "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity "
            "WHERE application_name = 'evolvable' "
            "AND state = 'idle'"  # returns when they have ended
        )
        assert store.head(PDF).version == 1
        write(store, "two")
        assert store.head(PDF).version == 2


@process
def test_what_postgresql_cannot_keep_or_promise_is_refused(home: Path, tmp_path: Path) -> None:
    with Store.open(home, create=True) as store:
        with (
            pytest.raises(InvalidArgument, match="cannot be kept"),
            store.transaction(Actor.AGENT, "a\0b") as tx,
        ):
            tx.put(PDF, skill("one"))
        with pytest.raises(Refused, match="cannot be promised"):
            store.backend.purges.begin(store.now(), "human", "why", "key", [b"x"], [])
        with pytest.raises(Refused, match="not copied as a file"):
            store.backend.maintenance.copy_to(tmp_path / "copy.db", lambda done, total: None)
        assert store.sequence() == 0


@process
def test_a_database_of_a_newer_version_is_refused_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    address_home(home)
    Store.open(home, create=True).close()
    for name in ("connection", "schema", "storage"):
        monkeypatch.setattr(f"evolvable_teams.postgres.{name}.LATEST", migrations.LATEST - 1)
    with pytest.raises(LibraryTooNew):
        Store.open(home)


@process
def test_what_arrived_counts_from_its_arrival_in_this_library(home: Path, tmp_path: Path) -> None:
    moment = datetime(2026, 11, 20, tzinfo=UTC)
    archive = BytesIO()
    with Store.open(tmp_path / "other", create=True, clock=lambda: moment) as other:
        write(other, "one")
        export_json(other, archive)
    archive.seek(0)
    with Store.open(home, create=True, clock=lambda: moment + timedelta(days=3)) as store:
        import_json(store, archive)
        log, pdf = store.backend.observations, store.head(PDF).id
        assert [log.version_at(pdf, f"2026-11-2{day}T12:00:00.000000Z") for day in (1, 2, 3)] == [
            None,
            None,
            1,
        ]


@process
def test_a_program_that_is_older_than_the_tables_writes_nothing_and_reads_on(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(home, create=True) as store:
        write(store, "one")
        monkeypatch.setattr(migrations, "LATEST", migrations.LATEST - 1)
        for attempt in range(2):
            with pytest.raises(LibraryTooNew, match="no longer writes") as refusal:
                write(store, f"two {attempt}")
            assert "Restart this window" in refusal.value.hint
            with pytest.raises(LibraryTooNew), store.backend.writing() as db:
                db.execute("INSERT INTO of_another_version (x) VALUES (1)").fetchall()
        assert store.files(store.head(PDF)) == skill("one") and store.sequence() == 1


def test_an_address_never_shows_its_password_and_takes_no_unknown_option() -> None:
    from evolvable_store.storage.address import Address

    address = Address.parse(
        "postgresql://me:hunter2@db.example:5433/team?sslmode=verify-full&project=web"
    )
    assert address.project == "web" and "hunter2" in address.url
    assert address.name == "postgresql://me@db.example:5433/team?sslmode=verify-full&project=web"
    for wrong in (
        "postgresql://me:hunter2@db/team?options=-csearch_path%3Devil",
        "postgresql://me:hunter2@db/team?project=../other",
        "postgresql://me:hunter2@db",
        "postgresql://me:hunter2@db:port/team",
        "postgresql://me:hunter2@db/team#x",
    ):
        with pytest.raises(InvalidArgument) as refused:
            Address.parse(wrong)
        assert "hunter2" not in f"{refused.value} {refused.value.hint}"


def test_steps_of_the_schema_that_postgresql_takes_over_change_no_rows() -> None:
    """Its tables are made of SQLite's steps; one that changes rows needs a statement of its own
    there.
    """
    schema = pytest.importorskip("evolvable_teams.postgres.schema")
    for number, name in enumerate(migrations.NAMES, 1):
        words = {line.split()[0] for line in _statements(connection.read_script(f"{name}.sql"))}
        if number > schema.FIRST and not words <= {"CREATE", "ALTER"}:
            assert number in schema._ROWS, f"{name} changes rows: say in _ROWS how PostgreSQL does"


def _statements(script: str) -> list[str]:
    lines = [line for line in script.splitlines() if not line.lstrip().startswith("--")]
    return [one.strip() for one in "\n".join(lines).split(";") if one.strip()]

"""The attacks on a server's connections and its home that worked at commit fac0cda; see
test_attacks.py.
"""

import os
import shutil
import stat
import sys
from pathlib import Path

import pytest
from machine import INITIALIZE, Machine, skill_text

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform not in ("linux", "darwin"), reason="modes as on POSIX"),
]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def standing(machine: Machine, name: str = "bread") -> tuple[str, str]:
    (found,) = [one for one in machine.json("list")["resources"] if one["ref"] == f"skill:{name}"]
    return found["author"], found["maturity"]


@pytest.fixture
def bread(machine: Machine) -> Machine:
    """A skill that an agent wrote, so that only evidence can vouch for it."""
    machine.run("init", "--yes")
    with machine.client() as client:
        client.call(
            "update_resource",
            ref="bread",
            create=True,
            files={"SKILL.md": skill_text("bread")},
            reason="first",
        )
    return machine


# T6: evidence


def test_t6_ten_reports_with_a_token_that_may_only_read_change_nothing(bread: Machine) -> None:
    secret = bread.token("reader")
    with bread.http() as server:
        assert server is not None
        session = server.session(secret)
        for _ in range(10):
            server.call(secret, session, "report_outcome", ref="skill:bread", outcome="succeeded")

    assert standing(bread) == ("agent", "Budding")


def test_t6_six_handshake_sessions_of_one_token_prove_nothing(bread: Machine) -> None:
    secret = bread.token("reader")
    with bread.http() as server:
        assert server is not None
        for _ in range(6):
            session = server.session(secret)
            server.call(secret, session, "load_skill", ref="bread")
            server.call(secret, session, "report_outcome", ref="skill:bread@1", outcome="succeeded")

    assert standing(bread)[0] == "agent" and standing(bread)[1] in ("Budding", "Growing")


def test_t6_four_starts_under_other_sessions_names_prove_nothing(bread: Machine) -> None:
    for number in range(4):
        with bread.client(
            EVOLVABLE_SESSION=f"{number}0000000-0000-4000-8000-000000000000"
        ) as client:
            use = client.text("load_skill", ref="bread").rsplit("use_id: ")[1].split()[0]
            client.call("report_outcome", use_id=use, outcome="succeeded")

    assert standing(bread)[0] == "agent" and standing(bread)[1] in ("Budding", "Growing")


def test_t6_an_archive_made_elsewhere_starts_at_zero(tmp_path: Path) -> None:
    for name in ("elsewhere", "here"):
        (tmp_path / name).mkdir()
    elsewhere, here = Machine(tmp_path / "elsewhere"), Machine(tmp_path / "here")
    elsewhere.own("pdf")
    for number in range(12):
        use = elsewhere.json("load", "pdf", EVOLVABLE_SESSION=f"s{number}")["use_id"]
        elsewhere.run("report", use, "succeeded", EVOLVABLE_SESSION=f"s{number}")
    elsewhere.run("export", tmp_path / "all.json")
    here.run("init", "--yes")
    here.run("import", tmp_path / "all.json", stdin="y\n")

    assert standing(here, "pdf") == ("import", "Budding")


# T9: what one bearer may take


def test_t9_eleven_hundred_sessions_of_one_token_leave_room_for_another(machine: Machine) -> None:
    machine.run("init", "--yes")
    greedy, other = machine.token("greedy"), machine.token("other")
    with machine.http() as server:
        assert server is not None
        opened = [bool(server.session(greedy)) for _ in range(1_100)]

        assert any(opened)
        assert server.session(other)


def test_t9_a_request_of_14000_headers_is_refused(machine: Machine) -> None:
    machine.run("init", "--yes")
    secret = machine.token("greedy")
    with machine.http() as server:
        assert server is not None
        try:
            status, _, _ = server.post(
                "initialize", INITIALIZE, secret, **{f"a{n}": "1" for n in range(14_000)}
            )
        except OSError:
            status = 431  # The connection ended while the rest was sent.

        assert status in (400, 431)
        assert server.session(secret)


# T13: homes


def test_t13_planted_tokens_in_a_home_that_others_can_write_let_nobody_in(
    machine: Machine, tmp_path: Path
) -> None:
    (tmp_path / "attacker").mkdir()
    attacker = Machine(tmp_path / "attacker")
    attacker.run("init", "--yes")
    secret = attacker.token("planted", "--write", "--approve")
    machine.home.mkdir()
    machine.home.chmod(0o777)
    shutil.copy(attacker.home / "tokens.json", machine.home / "tokens.json")
    (machine.home / "tokens.json").chmod(0o666)
    machine.run("init", "--yes")
    with machine.http() as server:
        assert server is None or not server.session(secret)


@pytest.mark.skipif(
    os.name == "posix" and os.geteuid() != 0, reason="only root gives directories away"
)
def test_t13_a_home_of_another_account_is_refused(machine: Machine) -> None:
    machine.home.mkdir()
    os.chown(machine.home, 65534, 65534)
    machine.run("init", "--yes")

    assert list(machine.home.iterdir()) == []


def test_t13_a_home_that_is_there_already_is_made_private(machine: Machine) -> None:
    machine.home.mkdir()
    machine.home.chmod(0o755)
    machine.run("init", "--yes")

    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in (machine.home, machine.home / "library.db")
    }
    assert modes == {machine.home.name: 0o700, "library.db": 0o600}

"""Evidence that is earned: what a token, a session's name, a transcript or an archive claims alone
counts nothing.
"""

import json
import lzma
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from command_line import CommandLine, skill_text
from earned import without
from http_place import HttpServer, http_server, made_token
from mcp import Client
from mcp_place import Place
from mcp_place import skill_text as text_of
from transcripts import LoadSkill, Mcp, User, session_id, write_claude_code

from evolvable_server.cli.command_line import cli
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_tools.authors import authorships
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.trust import proven_resources
from evolvable_tools.verbs import edit

pytestmark = pytest.mark.process

OLD = Path(__file__).parents[1] / "data/library_schema_9.db.xz"
"""A library made at commit fac0cda: skill:pdf is proven and Proficient by 12 sessions' own words,
skill:csv is Proficient by ten reports of a client that never loaded it, skill:letters has one
failure, and a proposal waits.
"""

CLIENT = Path(__file__).parents[1] / "support/stdio_client.py"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A library with a skill that an agent wrote, so that only evidence can vouch for it."""
    place = Place(tmp_path)
    with Library.open(place.home) as library:
        files = {"SKILL.md": text_of("bread", "Bakes bread from flour and water.")}
        caller = Caller(Actor.AGENT, "writer")
        edit.update_resource(library, caller, Ref.parse("bread"), "first", files=files, create=True)
    return place


def standing(home: Path, name: str = "bread") -> tuple[str, str, int, int]:
    """Returns the maturity and the author of a skill, and how many of its ends are reported and
    verified.
    """
    from evolvable_tools.verbs.search import list_resources

    with Library.open(home) as library:
        (one,) = list_resources(library, Caller(Actor.HUMAN), query=name).resources
    return one.maturity, one.author, one.reported, one.verified


def structured(answer: Any) -> dict[str, Any]:
    return answer.json["result"]["structuredContent"]


# A token


@pytest.fixture
def server(place: Place) -> Iterator[HttpServer]:
    with http_server(place, secret=made_token(place, "reader")) as server:
        yield server


@pytest.mark.nightly  # as in tests/teams/test_attacks_http.py
def test_ten_reports_with_a_token_that_may_only_read_change_nothing(
    place: Place, server: HttpServer
) -> None:
    for _ in range(10):
        server.tool("report_outcome", {"ref": "skill:bread", "outcome": "succeeded"})
    refused = server.tool("report_outcome", {"ref": "skill:bread", "outcome": "succeeded"}).json[
        "result"
    ]

    assert standing(place.home) == ("Budding", "agent", 0, 0)
    assert refused["isError"]
    assert "needs report" in refused["content"][0]["text"]
    assert "a token that may report" in refused["content"][0]["text"]


def test_a_token_that_may_report_counts_once_in_its_session_and_only_for_what_it_was_served(
    place: Place, server: HttpServer
) -> None:
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "evolvable_server", "token", "add", "reporter", "--report"],
        env=place.environment | {"EVOLVABLE_TEST_TERMINAL": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    secret = ran.stdout.strip()
    report = {"ref": "skill:bread", "outcome": "succeeded"}

    kept = structured(server.tool("report_outcome", report, secret))
    assert (kept["counted"], kept["not_counted"], kept["maturity"]) == (False, 1, "Budding")
    assert "not counted" in kept["note"] and "skill:bread@1" in kept["note"]
    server.tool("load_skill", {"ref": "bread"}, secret)
    told = [structured(server.tool("report_outcome", report, secret)) for _ in range(10)][-1]
    assert (told["counted"], told["succeeded"], told["reported"], told["verified"]) == (
        True,
        1,
        1,
        0,
    )
    assert standing(place.home) == ("Growing", "agent", 1, 0)


def test_what_one_token_was_served_another_cannot_report_of(
    place: Place, server: HttpServer
) -> None:
    secrets = [made_token(place, name, *_report()) for name in ("one", "two")]
    document = server.tool("load_skill", {"ref": "bread"}, secrets[0]).json["result"]["content"][0][
        "text"
    ]
    use = document.rsplit("use_id: ")[1].split()[0]

    kept = structured(
        server.tool("report_outcome", {"use_id": use, "outcome": "succeeded"}, secrets[1])
    )
    assert not kept["counted"]
    assert structured(
        server.tool("report_outcome", {"use_id": use, "outcome": "failed"}, secrets[0])
    )["counted"]


def _report() -> tuple[Any, ...]:
    from evolvable_server.grants import Permission

    return (Permission("report"),) if "report" in set(Permission) else ()


@pytest.mark.nightly  # as in tests/teams/test_attacks_http.py
@pytest.mark.anyio
async def test_six_handshake_sessions_of_one_client_prove_nothing(
    place: Place, server: HttpServer
) -> None:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    headers = {"Authorization": f"Bearer {made_token(place, 'ci', *_report())}"}
    for _ in range(6):
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            Client(streamable_http_client(server.url, http_client=http), mode="legacy") as client,
        ):
            await client.call_tool("load_skill", {"ref": "bread"})
            arguments = {"ref": "skill:bread@1", "outcome": "succeeded"}
            told = await client.call_tool("report_outcome", arguments)
            assert told.structured_content["counted"]

    assert standing(place.home) == ("Growing", "agent", 6, 0)


# A session's name


def starts(place: Place, *sessions: str, program: str = sys.executable) -> list[str]:
    """Starts a client process and a server below it for each session; each loads the skill and
    reports success.

    program: what the client process runs as. Returns the use of each.
    """
    uses = []
    for session in sessions:
        environment = {**place.environment, "EVOLVABLE_SESSION": session_id(session)}
        command = [program, "-I", str(CLIENT), sys.executable, "bread"]
        ran = subprocess.run(
            command, env=environment, cwd=place.root, capture_output=True, text=True, check=True
        )
        uses.append(json.loads(ran.stdout)["use"])
    return uses


def transcribed(place: Place, session: str, use: str) -> None:
    """Writes a transcript in the client's folder that says the session loaded, used and succeeded;
    has it taken in.
    """
    said = f"...\nuse_id: {use} (report_outcome with it when the task is done)"
    events = [
        User("Bake bread"),
        Mcp("evolvable", "load_skill", {"ref": "bread"}, said),
        Mcp("evolvable", "load_skill", {"ref": "bread", "path": "notes.md"}, said),
        User("It works now."),
    ]
    path = write_claude_code(place.root, events, session=session, start=datetime.now(UTC))
    reviewed(place, path)


def reviewed(place: Place, path: Path) -> None:
    ran = CliRunner().invoke(
        cli, ["review", str(path)], env={"EVOLVABLE_SESSION": None, **place.environment}
    )
    assert ran.exit_code == 0, ran.output


@pytest.mark.nightly  # as in tests/teams/test_attacks_http.py
def test_four_starts_under_other_sessions_names_prove_nothing(place: Place) -> None:
    starts(place, "a", "b", "c", "d")

    assert standing(place.home) == ("Growing", "agent", 4, 0)


def test_transcripts_written_for_sessions_that_one_client_named_are_one_verified_vote(
    place: Place,
) -> None:
    sessions = ("a", "b", "c", "d")
    for session, use in zip(sessions, starts(place, *sessions), strict=True):
        transcribed(place, session, use)

    maturity, trust, _, verified = standing(place.home)
    assert (maturity, trust, verified) == ("Growing", "agent", 1)


@pytest.mark.skipif(sys.platform == "win32", reason="no connection is named there")
def test_sessions_of_clients_of_their_own_that_the_server_served_and_transcripts_show_prove(
    place: Place, tmp_path: Path
) -> None:
    """The client is no interpreter here but a program of its own name, as real clients are."""
    program = tmp_path / "claude"
    program.symlink_to(Path(sys.executable).resolve())
    sessions = [f"s{number}" for number in range(4)]
    for session, use in zip(sessions, starts(place, *sessions, program=str(program)), strict=True):
        assert standing(place.home)[1] == "agent"
        transcribed(place, session, use)

    assert standing(place.home) == ("Mature", "agent", 0, 4)
    with Library.open(place.home) as library:
        bread = library.store.head(Ref.parse("bread")).id
        without(library, "without", "failed")
        assert proven_resources(library, [bread]) == {bread}


# A transcript


def test_transcripts_of_sessions_that_the_server_never_saw_count_nothing(place: Place) -> None:
    with Library.open(place.home) as library:
        library.working_copies.check_out(place.root / ".claude/skills")
    for number in range(10):
        events = [User("Bake bread"), LoadSkill("bread", "..."), User("It works now.")]
        reviewed(
            place,
            write_claude_code(
                place.root, events, session=f"forged-{number}", start=datetime.now(UTC)
            ),
        )

    assert standing(place.home) == ("Budding", "agent", 0, 0)
    with Library.open(place.home) as library:
        assert library.evidence.tally(library.store.head(Ref.parse("bread")).id).not_counted == 10


def test_a_transcript_that_was_there_before_the_server_saw_its_session_stays_unseen(
    place: Place,
) -> None:
    transcribed(place, "early", "use-000000000000")
    (use,) = starts(place, "early")
    transcribed(place, "early", use)

    assert standing(place.home)[2:] == (1, 0)


# An archive


@pytest.mark.nightly  # as in tests/teams/test_attacks_http.py
def test_an_archive_made_elsewhere_starts_at_zero(tmp_path: Path) -> None:
    for name in ("elsewhere", "here"):
        (tmp_path / name).mkdir()
    elsewhere, here = CommandLine(tmp_path / "elsewhere"), CommandLine(tmp_path / "here")
    elsewhere("init", elsewhere.save(elsewhere.user / "skills", "pdf", skill_text("pdf")).parent)
    for number in range(12):
        use = elsewhere("load", "pdf", "--json", EVOLVABLE_SESSION=f"s{number}").json["use_id"]
        elsewhere("report", use, "succeeded", EVOLVABLE_SESSION=f"s{number}")
    elsewhere("export", tmp_path / "all.json")
    here("init")
    here("import", tmp_path / "all.json", "--yes")

    (pdf,) = here("list", "--json").json["resources"]
    assert (pdf["author"], pdf["maturity"], pdf["uses"], pdf["success"]) == (
        "import",
        "Budding",
        0,
        None,
    )
    (line,) = here("stats", "--json").json["resources"]
    assert (line["helped"]["n"], line["loaded"], line["used"], line["not_counted"]) == (0, 0, 0, 12)


# An older library


@pytest.fixture
def older(tmp_path: Path) -> CommandLine:
    run = CommandLine(tmp_path)
    run.home.mkdir(mode=0o700)
    (run.home / "library.db").write_bytes(lzma.decompress(OLD.read_bytes()))
    return run


def test_an_older_library_is_read_again_and_says_once_what_fell(older: CommandLine) -> None:
    first, second = older("list", "--json"), older("list", "--json")

    csv, pdf = first.err.splitlines()[1:]
    assert csv.startswith("skill:csv: 10 ends") and csv.endswith("0 are verified")
    assert pdf.startswith("skill:pdf: 12 ends") and pdf.endswith("0 are verified, proven -> agent")
    assert "2 resources stand lower" in first.err.splitlines()[0]
    assert second.err == ""
    assert first.json == second.json
    assert {one["ref"]: one["uses"] for one in first.json["resources"]} == {
        "skill:csv": 0,
        "skill:letters": 1,
        "skill:pdf": 12,
    }
    notes = older("doctor", "--json", code=None).json["notes"]
    assert [note for note in notes if note.startswith("skill:")] == first.err.splitlines()[1:]


def test_an_older_library_opens_otherwise_unchanged(older: CommandLine) -> None:
    assert older("get", "pdf").out.startswith("---\nname: pdf\n")
    assert older("fsck").code == 0
    assert [one["proposal_id"] for one in older("inbox", "--json").json["proposals"]] == [1]
    assert older("stats", "--json").json["resources"][0]["not_counted"] == 0
    with Library.open(older.home) as library:
        heads = [head.id for head in library.store.heads()]
        assert sorted(one.kind for one in authorships(library, heads).values()) == [
            "agent",
            "agent",
            "you",
        ]


def test_what_a_person_says_at_a_terminal_is_verified(tmp_path: Path) -> None:
    run = CommandLine(tmp_path)
    run("init", run.save(run.user / "skills", "pdf", skill_text("pdf")).parent)
    said = run.on_terminal("report", "pdf", "succeeded")
    again = run.on_terminal("report", "pdf", "failed")

    assert "1 verified, 0 reported" in said and "Growing" not in said
    assert "1 failed" in again and "succeeded" not in again

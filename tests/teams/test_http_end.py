"""How a server over HTTP ends, and that a slow sender has its time and no more."""

import signal
import subprocess
import sys
import time

import pytest
from http_place import http_server, modern, received
from mcp_place import Place
from processes import poll

from evolvable_store.errors import InvalidArgument
from evolvable_teams.http.http_auth import HttpSettings, check_reach
from evolvable_teams.tokens import Tokens


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def holding(server, seconds: float) -> bytes:
    frame, headers = modern("tools/call", {"name": "hold", "arguments": {"seconds": seconds}})
    return server.request(frame, headers)


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="no signals there")
def test_what_is_in_flight_is_finished_and_what_comes_is_sent_away(place):
    with http_server(place, tools=True) as server:
        frame, headers = modern(
            "subscriptions/listen", {"notifications": {"resourcesListChanged": True}}
        )
        with (
            server.connect(server.request(frame, headers)) as listening,
            server.connect(holding(server, 1.5)) as connection,
        ):
            server.said("holding")
            server.process.send_signal(signal.SIGTERM)
            poll(
                lambda: server.post(b"", method="GET", path="/readyz").status == 503,
                "the end to begin",
                5,
            )
            sent_away = server.call("tools/list", {})
            alive = server.post(b"", method="GET", path="/healthz")
            answer = received(connection)
            received(listening)  # a stream would go on for ever: it is ended

        assert server.process.wait(10) == 0

    assert answer.json["result"]["content"][0]["text"] == "held"
    assert (sent_away.status, sent_away.headers["retry-after"]) == (503, "5")
    assert alive.status == 200


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="no signals there")
def test_what_takes_longer_than_the_grace_is_cut(place):
    with (
        http_server(place, "--grace", "0.5", tools=True) as server,
        server.connect(holding(server, 60)) as connection,
    ):
        server.said("holding")
        server.process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        assert received(connection).status == 0
        assert server.process.wait(10) == 0
        assert time.monotonic() - began < 8


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="no signals there")
def test_a_second_signal_ends_it_at_once(place):
    with http_server(place, tools=True) as server, server.connect(holding(server, 60)):
        server.said("holding")
        server.process.send_signal(signal.SIGINT)
        poll(
            lambda: server.post(b"", method="GET", path="/readyz").status == 503,
            "the end to begin",
            5,
        )
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(2) == 128 + signal.SIGTERM
        server.process.returncode = 0  # as it should be


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.1", "example.org", "::"])
def test_an_address_that_others_could_reach_is_refused_without_a_token(tmp_path, host):
    with pytest.raises(InvalidArgument):
        check_reach(HttpSettings(host), Tokens(tmp_path))


@pytest.mark.process
def test_the_command_says_what_to_do_about_an_address_that_others_could_reach(place):
    command = [sys.executable, "-P", "-m", "evolvable_server", "serve", "--http", "[::]:8000"]

    done = subprocess.run(
        command, env=place.environment, capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 1
    assert "no token to ask for" in done.stderr
    assert "evolvable team token add" in done.stderr

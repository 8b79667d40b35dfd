"""The wire: what there is room for is written at once, and the rest when the reader has
made room.
"""

import os
import sys
from pathlib import Path

import pytest

from evolvable_server.mcp.fast_start import is_pollable, write_nonblocking

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="nothing can be polled there")

MUCH = bytes(range(256)) * 4_096
"""More than a pipe holds."""


@pytest.fixture
def pipe():
    source, sink = os.pipe()
    yield source, sink
    for end in (source, sink):
        try:
            os.close(end)
        except OSError:
            assert end == source  # the reader of one test is gone


def test_pipes_can_be_polled_and_files_cannot(pipe: tuple[int, int], tmp_path: Path) -> None:
    with (tmp_path / "a file").open("wb") as file:
        assert [is_pollable(fd) for fd in (*pipe, file.fileno())] == [True, True, False]


def test_what_there_is_room_for_is_written_and_nothing_waits(pipe: tuple[int, int]) -> None:
    source, sink = pipe

    written = write_nonblocking(sink, MUCH)

    assert 0 < written < len(MUCH)
    assert write_nonblocking(sink, MUCH[written:]) == 0
    assert os.read(source, written) == MUCH[:written]


def test_a_reader_that_goes_on_gets_every_byte_in_order(pipe: tuple[int, int]) -> None:
    source, sink = pipe
    got, written = b"", 0
    while len(got) < len(MUCH):
        written += write_nonblocking(sink, MUCH[written:])
        got += os.read(source, 10_000)

    assert got == MUCH


def test_a_reader_that_is_gone_is_an_error(pipe: tuple[int, int]) -> None:
    source, sink = pipe
    os.close(source)

    with pytest.raises(BrokenPipeError):
        write_nonblocking(sink, b"x")

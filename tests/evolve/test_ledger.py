"""The ledger: what was appended is there whatever happens, and what was changed is noticed."""

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evolvable_evolve.evolution.ledger.run_directory import (
    Ledger,
    LedgerBusy,
    LedgerDamaged,
    LedgerError,
    read_ledger,
)

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def written(path: Path, count: int = 3) -> list[bytes]:
    """Writes a ledger of so many records, and returns its lines."""
    with Ledger.open(path, clock=lambda: NOON) as ledger:
        for number in range(count):
            ledger.append("step", {"number": number})
    return path.read_bytes().splitlines(keepends=True)


def numbers(path: Path) -> list[int]:
    return [record["number"] for record in read_ledger(path)]


def test_what_was_appended_is_there_when_the_ledger_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    written(path)
    with Ledger.open(path) as ledger:
        assert ledger.records == read_ledger(path)
        assert ledger.records[0] == {
            "type": "step",
            "at": "2026-01-02T12:00:00.000+00:00",
            "number": 0,
        }


@pytest.mark.process
def test_a_file_that_ends_anywhere_holds_its_whole_lines_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    data = b"".join(written(path, 2))
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        whole = data[:size].count(b"\n")
        assert numbers(path) == list(range(whole))
        with Ledger.open(path, durable=False) as ledger:
            assert len(ledger.records) == whole
            ledger.append("step", {"number": 99})
        assert numbers(path) == [*range(whole), 99]


def test_a_last_line_with_other_bytes_than_were_written_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    lines = written(path)
    path.write_bytes(b"".join(lines[:2]) + b"\0" * len(lines[2]) + b"\n")
    with Ledger.open(path):
        assert path.read_bytes() == b"".join(lines[:2])


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [lines[0], lines[1].replace(b'"number":1', b'"number":7'), *lines[2:]],
        lambda lines: [lines[0], *lines[2:]],
        lambda lines: [lines[1], lines[0], *lines[2:]],
        lambda lines: [lines[0], lines[0], *lines[1:]],
        lambda lines: [lines[0], lines[1][:20] + b"\n", *lines[2:]],
        lambda lines: [lines[0], b"\n", *lines[1:]],
    ],
    ids=["changed", "left out", "moved", "twice", "cut", "empty"],
)
def test_damage_in_the_middle_is_said_and_nothing_is_dropped(
    tmp_path: Path, change: object
) -> None:
    path = tmp_path / "ledger.jsonl"
    lines = change(written(path, 5))  # type: ignore[operator]
    path.write_bytes(b"".join(lines))
    with pytest.raises(LedgerDamaged, match=r"Line [12] of .*ledger\.jsonl is damaged"):
        read_ledger(path)
    with pytest.raises(LedgerDamaged):
        Ledger.open(path)
    assert path.read_bytes() == b"".join(lines)
    path.unlink()
    Ledger.open(path).close()  # nobody holds its lock


def test_a_second_writer_is_refused_until_the_first_has_closed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger.open(path) as ledger:
        ledger.append("step", {"number": 0})
        with pytest.raises(LedgerBusy, match="Another process writes"):
            Ledger.open(path)
        assert numbers(path) == [0]
    with Ledger.open(path) as ledger:
        ledger.append("step", {"number": 1})
    assert numbers(path) == [0, 1]


def test_reading_does_not_see_half_a_record_that_is_being_written(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    lines = written(path)
    path.write_bytes(b"".join(lines[:2]) + lines[2][:30])
    assert numbers(path) == [0, 1]
    assert path.read_bytes().endswith(lines[2][:30])
    assert read_ledger(tmp_path / "none.jsonl") == []


@pytest.mark.skipif(sys.platform == "win32", reason="the size of files is limited with setrlimit")
def test_a_full_disk_is_said_and_the_ledger_goes_on_when_there_is_room(tmp_path: Path) -> None:
    import resource

    path = tmp_path / "ledger.jsonl"
    size = len(b"".join(written(path)))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Ledger.open(path) as ledger:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50, before[1]))
            with pytest.raises(LedgerError, match="File too large"):
                ledger.append("step", {"number": 3})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert numbers(path) == [0, 1, 2]
        ledger.append("step", {"number": 4})
    assert numbers(path) == [0, 1, 2, 4]


def test_what_is_no_json_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger.open(path) as ledger:
        for value in (float("nan"), float("inf"), {1, 2}, b"bytes"):
            with pytest.raises((ValueError, TypeError)):
                ledger.append_all([("step", {"number": 1}), ("step", {"number": value})])
        assert ledger.records == []
        ledger.append("step", {"number": 2})
    assert numbers(path) == [2]


@pytest.mark.process
@settings(max_examples=40)
@given(st.lists(st.dictionaries(st.text(), st.text() | st.integers() | st.none()), max_size=4))
def test_any_text_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, fields: list[dict[str, object]]
) -> None:
    path = tmp_path_factory.mktemp("ledger") / "ledger.jsonl"
    expected = [{"value": one, "lone": "\ud83d \x00 \u2028"} for one in fields]
    with Ledger.open(path, durable=False) as ledger:
        ledger.append_all(("step", one) for one in expected)
    assert [
        {name: record[name] for name in ("value", "lone")} for record in read_ledger(path)
    ] == expected

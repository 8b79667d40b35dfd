"""The key that servers behind one address share: made once, private, and refused where others can
read it.
"""

import os
from pathlib import Path

import pytest

from evolvable_store.errors import LibraryCorrupt, Refused
from evolvable_teams.http.state_key import FILE, read_state_key

posix = pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")


def test_all_servers_of_a_home_get_one_key_and_another_home_another(tmp_path: Path) -> None:
    homes = [tmp_path / "one", tmp_path / "two"]
    for home in homes:
        home.mkdir(mode=0o700)
    keys = [read_state_key(home) for home in (homes[0], homes[0], homes[1])]
    assert keys[0] == keys[1] != keys[2] and {len(key) for key in keys} == {32}
    assert [one.name for one in homes[0].iterdir()] == [FILE]


@posix
def test_a_key_that_others_can_read_or_a_link_to_one_is_not_believed(tmp_path: Path) -> None:
    read_state_key(tmp_path)
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    (tmp_path / FILE).chmod(0o644)
    with pytest.raises(Refused, match="not believed"):
        read_state_key(tmp_path)
    (tmp_path / FILE).chmod(0o600)
    (tmp_path / FILE).rename(tmp_path / "elsewhere")
    (tmp_path / FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused, match="link"):
        read_state_key(tmp_path)


@pytest.mark.parametrize("text", ["", "short", "0" * 62, "z" * 64, "0" * 64 + "ff", "\x00" * 64])
def test_a_damaged_key_is_refused_with_what_to_do(tmp_path: Path, text: str) -> None:
    read_state_key(tmp_path)
    (tmp_path / FILE).write_text(text, encoding="utf-8")
    with pytest.raises(LibraryCorrupt) as refused:
        read_state_key(tmp_path)
    assert "Delete it" in str(refused.value.hint)

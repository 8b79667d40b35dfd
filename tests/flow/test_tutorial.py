"""The tutorial is true: each of its commands is run, as a person at a terminal."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.process
@pytest.mark.skipif(os.name != "posix", reason="needs a terminal")
def test_every_command_of_the_tutorial_runs():
    done = subprocess.run(
        [sys.executable, DOCS / "make_pictures.py", "--check"], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr


def test_each_picture_of_a_page_exists_and_loads_nothing_from_elsewhere():
    named = {
        name for page in DOCS.rglob("*.md") for name in re.findall(r"pictures/([a-z-]+\.svg)", page.read_text("utf-8"))
    }
    assert named == {path.name for path in (DOCS / "pictures").glob("*.svg")}
    assert [name for name in sorted(named) if "url(http" in (DOCS / "pictures" / name).read_text("utf-8")] == []

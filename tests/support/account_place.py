"""Gives this process, and all that it starts, an account and a terminal of their own; see
account/sitecustomize.py.
"""

import importlib.util
import os
from pathlib import Path

FOLDER = Path(__file__).parent / "account"


def install() -> None:
    """Replace the answers of the operating system here, and put the folder on the path of every
    child.
    """
    path = os.environ.get("PYTHONPATH", "")
    if str(FOLDER) not in path.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(FOLDER), path)))
        spec = importlib.util.spec_from_file_location(
            "account_of_tests", FOLDER / "sitecustomize.py"
        )
        assert spec is not None and spec.loader is not None
        spec.loader.exec_module(importlib.util.module_from_spec(spec))

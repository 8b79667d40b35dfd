"""The core without its annexes: an installed copy in which their folders are deleted runs the core's commands and tools."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import evolvable_server
import evolvable_store
import evolvable_tools
from evolvable_server import plugins
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_tools.library import Caller, Library
from evolvable_tools.verbs import edit
from evolvable_tools.verbs.registry import VERBS

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
CORE = (evolvable_store, evolvable_tools, evolvable_server)
ANNEXES = (plugins.EVOLVE, plugins.TEAMS, plugins.PAGE)

SITE = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {annexes}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.path.insert(0, {place!r})
"""

"""The resources that ship with the product: real folders, so that a new library is of use from its first minute."""

from pathlib import Path


def seed_folder() -> Path:
    """Returns the folder of the seed resources; those of a kind are below it, such as skills/<name>/SKILL.md.

    An installer may have left __pycache__ folders beside the scripts; they are no part of a resource.
    """
    return Path(__file__).resolve().parent

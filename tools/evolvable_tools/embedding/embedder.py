"""Embedding: the protocol of an embedder, how one is named, and the results of the
shared embedder.

One process for each library computes and keeps the vectors, and every server asks it. Each server
imports this module, so it imports no model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from evolvable_store.errors import EvolvableError, InvalidArgument

if TYPE_CHECKING:
    from evolvable_tools.embedding.token_vectors import Floats, TokenVectors


@dataclass(frozen=True, slots=True)
class SimilarResources:
    """How near resources are to a task, by their ids.

    cosines: of name and description, for the ids asked that have vectors and for the nearest.
    nearest: ids, best first. said: one line on the model, or on why nothing is known. available:
    whether anything is known. late: late interaction, for the first CLOSEST ids asked whose token
    vectors are known. learned: for the same ids the cosine of the nearest learned task, times how
    much that counts.
    """

    cosines: Mapping[int, float] = field(default_factory=dict)
    nearest: tuple[int, ...] = ()
    said: str = ""
    available: bool = False
    late: Mapping[int, float] = field(default_factory=dict)
    learned: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NearestDescription:
    """The resource whose description alone is nearest to a task, as id and cosine; None when no
    cosine is above 0.
    """

    best: tuple[int, float] | None = None
    said: str = ""
    available: bool = False


CLOSEST = 10
"""Resources that are compared with the task token by token: the first of those asked."""

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"

# The length that the default model was trained for.
MAX_TOKENS = 256
"""Tokens of a text that are looked at; what comes after them is cut off."""

# The light one first: `installed_spec` takes the first whose packages are all there.
_NEEDS = {
    "onnx": ("onnxruntime", "tokenizers", "numpy", "huggingface_hub"),
    "sentence-transformers": ("sentence_transformers", "numpy"),
}


class EmbedderUnavailable(EvolvableError):
    """The embedder has no package or no model, or the model is broken or cannot be fetched."""


class Embedder(Protocol):
    """An embedder turns texts into vectors. `encode` may be called by several threads at once.

    model: the kind of embedder with the model, and for a folder a hash of its weights. Vectors of
    one name can be compared with each other. dimension: numbers of a vector.
    """

    model: str
    dimension: int

    def encode(self, texts: Sequence[str]) -> "Floats":
        """Return a float32 array of shape (len(texts), dimension), each row of length 1, in the
        order of the texts.
        """
        ...

    def encode_tokens(self, texts: Sequence[str]) -> "tuple[Floats, list[TokenVectors]]":
        """Return what `encode` returns, and for each text the vectors of its first KEPT_TOKENS
        tokens.

        A model that pools by itself gives no vectors of tokens: an array without rows.
        """
        ...


def parse_spec(spec: str) -> tuple[str, str]:
    """Return the kind of embedder and the model that "onnx", "onnx:MODEL" or
    "sentence-transformers:MODEL" name.

    MODEL is an id of the Hugging Face hub or a folder. Raises InvalidArgument.
    """
    kind, _, model = spec.partition(":")
    # A spec comes from the environment and goes into a command line; no path is longer.
    if kind not in _NEEDS or len(spec) > 4096:
        raise InvalidArgument(
            f"{spec[:80]!r} is no embedder.",
            f"Write {' or '.join(_NEEDS)}, with :MODEL after it for another than {DEFAULT_MODEL}.",
        )
    return kind, model or DEFAULT_MODEL


def absolute_spec(spec: str) -> str:
    """Return the spec so that it means the same from any working directory.

    Raises InvalidArgument.
    """
    kind, model = parse_spec(spec)
    return f"{kind}:{model_folder(spec) or model}"


def model_folder(spec: str) -> Path | None:
    """Return the folder that a spec names, None for a model of the hub. Raises InvalidArgument.

    The default model is no folder: a project could have one of that name.
    """
    model = parse_spec(spec)[1]
    return Path(model).absolute() if model != DEFAULT_MODEL and Path(model).is_dir() else None


def installed_spec() -> str | None:
    """Return the spec of the embedder whose packages are installed, the light one first; None
    without any.
    """
    return next((kind for kind in _NEEDS if not missing_packages(kind)), None)


def missing_packages(kind: str) -> list[str]:
    """Return the packages that a kind of embedder needs and that are not installed."""
    # Finds packages without importing them: importing torch takes seconds.
    return [package for package in _NEEDS[kind] if find_spec(package) is None]

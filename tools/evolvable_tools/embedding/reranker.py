"""The reranker: a cross-encoder that reads a task together with a text, run by the process that embeds.

It is slower than vectors by far, so only the first few matches are read, and only where the words are not sure.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from evolvable_store.errors import EvolvableError
from evolvable_tools.embedding import EmbedderUnavailable, missing_packages, parse_spec
from evolvable_tools.embedding.local_models import find_model, open_session, open_tokenizer, replace_surrogates

MAX_TEXTS = 16
"""Texts that are read for one task."""


class OnnxReranker:
    """Runs a cross-encoder on the thread that asks. `model` names it."""

    def __init__(self, name: str, session: Any, tokenizer: Any) -> None:
        self.model = f"onnx:{name}"
        self._session, self._tokenizer = session, tokenizer
        self._inputs = {given.name for given in session.get_inputs()}
        self.scores("a", ["a"])

    @classmethod
    def open(cls, model: str) -> Self:
        """Return the cross-encoder of a folder or of the hub. Raises EmbedderUnavailable."""
        files = find_model(model)
        try:
            return cls(files.name, open_session(files.weights), open_tokenizer(files.tokenizer))
        except Exception as error:  # the libraries raise classes of their own, or plain Exception, for a bad file
            raise EmbedderUnavailable(
                f"The reranker {model} cannot be loaded: {str(error)[:300]}",
                "Name a cross-encoder for sequence classification, exported to ONNX, with its tokenizer.json.",
            ) from error

    def scores(self, task: str, texts: Sequence[str]) -> list[float]:
        """Return for each text how well it answers the task, as a logit: any number, larger is better.

        Of a model with two labels that is the second less the first. Raises ValueError for any other output.
        """
        pairs = [(replace_surrogates(task), replace_surrogates(text)) for text in texts]
        encoded = self._tokenizer.encode_batch(pairs)
        ids = np.zeros((len(texts), max(len(one.ids) for one in encoded)), np.int64)
        mask, types = np.zeros_like(ids), np.zeros_like(ids)
        for row, one in enumerate(encoded):
            ids[row, : len(one.ids)], types[row, : len(one.ids)] = one.ids, one.type_ids
            mask[row, : len(one.ids)] = 1
        every = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        logits = np.asarray(self._session.run(None, {name: every[name] for name in self._inputs})[0], np.float64)
        labels = logits.shape[1] if logits.ndim == 2 and len(logits) == len(texts) else 0
        if labels not in (1, 2):
            raise ValueError(f"its output has the shape {logits.shape}, not one or two numbers for each text")
        found = logits[:, 1] - logits[:, 0] if labels == 2 else logits[:, 0]
        return [float(number) for number in np.nan_to_num(found, nan=-50.0, posinf=50.0, neginf=-50.0)]


class WaitingReranker:
    """A reranker that a thread of its own opens. Safe to share between threads."""

    def __init__(self, spec: str, say: Callable[[str], object]) -> None:
        """say: writes a line to the log."""
        self._spec, self._say = spec, say
        self._model: OnnxReranker | None = None
        self._said = "the reranker is warming up"
        threading.Thread(target=self._open, name="reranker", daemon=True).start()

    def _open(self) -> None:
        kind, model = parse_spec(self._spec)
        try:
            if missing := missing_packages(kind):
                raise EmbedderUnavailable(f"The reranker needs {', '.join(missing)}, which is not installed.")
            self._model = OnnxReranker.open(model)
            self._say(f"{self._model.model} reranks")
        except EvolvableError as error:
            self._said = f"the reranker cannot start: {error}"
            self._say(error.text)

    def rank(self, task: str, texts: Sequence[str]) -> dict[str, Any]:
        """Return `scores` of these texts, None where there are none, and `said`: the model, or why there are none."""
        model = self._model
        if model is None or not texts:
            return {"scores": None, "said": self._said}
        try:
            return {"scores": [round(score, 4) for score in model.scores(task, texts[:MAX_TEXTS])], "said": model.model}
        except Exception as error:  # of the runtime: there is no common class
            return {"scores": None, "said": f"the reranker failed: {str(error)[:200]}"}

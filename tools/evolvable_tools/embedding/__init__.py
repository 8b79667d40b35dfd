"""Embedding: the protocol of an embedder, how one is named, and the results of the shared embedder."""

from typing import TYPE_CHECKING

from evolvable_store import late_names

if TYPE_CHECKING:
    from evolvable_tools.embedding.embedder import (
        DEFAULT_MODEL,
        NearestDescription,
        SimilarResources,
        installed_spec,
        model_folder,
        parse_spec,
    )
    from evolvable_tools.embedding.embedder_client import SharedEmbedder
else:
    __getattr__ = late_names(
        __name__,
        {
            "embedder": "DEFAULT_MODEL NearestDescription SimilarResources installed_spec model_folder parse_spec",
            "embedder_client": "SharedEmbedder",
        },
    )

__all__ = [
    "DEFAULT_MODEL",
    "NearestDescription",
    "SharedEmbedder",
    "SimilarResources",
    "installed_spec",
    "model_folder",
    "parse_spec",
]

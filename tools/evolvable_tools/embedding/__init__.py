"""Embedding: the vectors of descriptions, computed by one process for each library.

Begin with `SharedEmbedder`, the client of that process; without it a search uses words alone.
`parse_spec` reads the name of a model. No model is imported here: `python -m
evolvable_tools.embedding` is the process that does.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

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
            "embedder": (
                "DEFAULT_MODEL NearestDescription SimilarResources installed_spec "
                "model_folder parse_spec"
            ),
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

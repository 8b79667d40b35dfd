"""Serve a library over HTTP, and pass one on to a client over stdio.

Begin with `serve`; `run_bridge` is the client's side.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_teams.http.bridge import run_bridge
    from evolvable_teams.http.http_options import serve
else:
    __getattr__ = late_names(__name__, {"bridge": "run_bridge", "http_options": "serve"})

__all__ = ["run_bridge", "serve"]

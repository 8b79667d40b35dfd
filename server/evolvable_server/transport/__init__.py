"""Transports: stdio for one client, and the checks and limits of HTTP.

Begin with `run_stdio`. `HostCheck` refuses foreign Host and Origin headers, `BodyLimit` large
bodies; the annex for teams serves HTTP with them.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_server.transport.host_check import HostCheck
    from evolvable_server.transport.request_limits import (
        MAX_BODY,
        REQUESTS,
        BodyLimit,
        Drain,
        Full,
        StreamEnd,
        limit_at_work,
        limit_in_flight,
        limit_response,
        replay_body,
    )
    from evolvable_server.transport.stdio import run_stdio
else:
    __getattr__ = late_names(
        __name__,
        {
            "host_check": "HostCheck",
            "request_limits": (
                "BodyLimit Drain Full MAX_BODY REQUESTS StreamEnd limit_at_work limit_in_flight "
                "limit_response replay_body"
            ),
            "stdio": "run_stdio",
        },
    )

__all__ = [
    "BodyLimit",
    "Drain",
    "Full",
    "HostCheck",
    "MAX_BODY",
    "REQUESTS",
    "StreamEnd",
    "limit_at_work",
    "limit_in_flight",
    "limit_response",
    "replay_body",
    "run_stdio",
]

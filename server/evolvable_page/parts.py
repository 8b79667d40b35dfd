"""What other parts of the program add to the page: views, actions, a section, and what waits in the
inbox.
"""

from collections.abc import Sequence
from functools import cache

from evolvable_page import kit
from evolvable_server import plugins
from evolvable_server.page_kit import PageParts


@cache
def page_parts() -> Sequence[PageParts]:
    """Return the page parts of all plugins, of other distributions too."""
    parts: list[PageParts] = plugins.all_hooks().pages(page=kit)
    return parts

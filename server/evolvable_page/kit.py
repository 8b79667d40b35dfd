"""The face of the page: what parts of the program draw their pages with, as `PageKit` says."""

from evolvable_page.decision_notes import operation_note
from evolvable_page.diff_view import draw_diff
from evolvable_page.layout import PageBody, form, passphrase_field, table, tag, when, with_code
from evolvable_page.site import PageAction, PageView, action_path
from evolvable_page.text import make_visible

__all__ = [
    "PageAction",
    "PageBody",
    "PageView",
    "action_path",
    "draw_diff",
    "form",
    "make_visible",
    "operation_note",
    "passphrase_field",
    "table",
    "tag",
    "when",
    "with_code",
]

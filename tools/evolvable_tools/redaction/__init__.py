"""Redaction of secrets: gitleaks' rules as data (MIT, see gitleaks.LICENSE), and detectors of our
own.

Begin with `Redactor`, which replaces the secrets of a text, and `StreamRedactor` for text that
comes in pieces. `read_patterns` reads a person's own patterns.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_tools.redaction.redactor import Redactor, StreamRedactor
    from evolvable_tools.redaction.secret_patterns import (
        FORMS,
        SecretForm,
        UserPatterns,
        blocks,
        read_patterns,
    )
    from evolvable_tools.redaction.token_detection import certain_runs, find_certain
else:
    __getattr__ = late_names(
        __name__,
        {
            "redactor": "Redactor StreamRedactor",
            "secret_patterns": "FORMS SecretForm UserPatterns blocks read_patterns",
            "token_detection": "certain_runs find_certain",
        },
    )

__all__ = [
    "FORMS",
    "Redactor",
    "SecretForm",
    "StreamRedactor",
    "UserPatterns",
    "blocks",
    "certain_runs",
    "find_certain",
    "read_patterns",
]

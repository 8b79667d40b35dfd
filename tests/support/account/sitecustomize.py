"""Give every Python process of the tests an account and a terminal of its own.

The product finds the person's configuration by the account database and a person by the terminal,
and has no variable that changes either. So the tests change what the operating system answers: this
folder stands on PYTHONPATH.

EVOLVABLE_TEST_ACCOUNT: the home directory of the account; without it, one that does not exist.
EVOLVABLE_TEST_TERMINAL: when it is 1, standard input and output count as terminals.
"""

import os

_NOWHERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "no-home")


def install() -> None:
    """Replace what the account database and isatty answer, in this process."""
    try:
        import pwd
    except ImportError:
        return
    real, isatty = pwd.getpwuid, os.isatty

    def getpwuid(uid):
        entry = (
            list(real(uid))
            if uid == 0 or _known(real, uid)
            else ["test", "x", uid, uid, "", "", ""]
        )
        entry[5] = os.environ.get("EVOLVABLE_TEST_ACCOUNT") or _NOWHERE
        return pwd.struct_passwd(entry)

    def answered(fd):
        return (
            True
            if fd in (0, 1) and os.environ.get("EVOLVABLE_TEST_TERMINAL") == "1"
            else isatty(fd)
        )

    pwd.getpwuid, os.isatty = getpwuid, answered


def _known(real, uid):
    try:
        real(uid)
    except KeyError:
        return False
    return True


install()

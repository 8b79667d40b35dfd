"""The two lines in the head of a skill by which Claude Code's Skill tool has an agent do the work.

They belong to a copy and to no version: a checkout adds them, and each read of the copy takes them
away again.
"""

from evolvable_store.frontmatter import find_frontmatter, top_level

_KEYS = ("context", "agent")


def forked_agent(data: bytes) -> str:
    """Return the agent that the Skill tool starts for a main file.

    '' where it starts none, or the client's own one.
    """
    values = _read_values(data)
    agent = values.get("agent")
    return agent if values.get("context") == "fork" and isinstance(agent, str) else ""


def with_fork(data: bytes, agent: str, lying: bytes = b"") -> bytes:
    """Return a main file with the two lines at the end of its head.

    lying: the copy on disk; where its lines stand elsewhere, they stay there. A file that has one
    of the keys already, or whose head cannot be read for certain, stays as it is.
    """
    place, before = find_frontmatter(data), _read_values(data)
    # Changing a head that a client reads otherwise than this parser could change more than the two
    # lines.
    if place is None or not place.closed or not before or any(key in before for key in _KEYS):
        return data
    expected_values = {**before, "context": "fork", "agent": agent}
    # A client may have moved the two lines in the copy: writing them elsewhere would count as a
    # change on disk.
    if _read_values(lying) == expected_values and without_fork(lying, agent) == data:
        return lying
    # The file's own line ends, so that the rest of the head keeps its bytes.
    end = b"\r\n" if data[: place.start].endswith(b"\r\n") else b"\n"
    head = data[: place.end]
    head = head if head.endswith(b"\n") else head + end
    changed = head + b"".join(line + end for line in _make_lines(agent)) + data[place.end :]
    # The last key may be an open block scalar that swallows the lines; then the file stays as it
    # is.
    return changed if _read_values(changed) == expected_values else data


def without_fork(data: bytes, agent: str) -> bytes:
    """Return a main file without the two lines, or without the one that is there.

    Where a key has another value, a person wrote it, and both lines stay.
    """
    place, values = find_frontmatter(data), _read_values(data)
    is_ours = values.get("context", "fork") == "fork" and values.get("agent", agent) == agent
    if place is None or not is_ours:
        return data
    lines = data[place.start : place.end].splitlines(keepends=True)
    # Compared by line, not parsed and rewritten: comments, quotes and order of the person's keys
    # stay.
    remaining_lines = [line for line in lines if line.rstrip(b"\r\n") not in _make_lines(agent)]
    return data[: place.start] + b"".join(remaining_lines) + data[place.end :]


def _make_lines(agent: str) -> tuple[bytes, bytes]:
    return b"context: fork", f"agent: {agent}".encode()


def _read_values(data: bytes) -> dict[str, object]:
    """Return the top-level keys and values of a head, {} where it cannot be read for certain."""
    place = find_frontmatter(data)
    if place is None:
        return {}
    try:
        entries = top_level(data[place.start : place.end].decode())
    except UnicodeDecodeError:
        return {}
    return {entry.key: entry.value for entry in entries or ()}

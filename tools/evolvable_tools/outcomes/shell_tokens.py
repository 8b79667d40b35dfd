"""The words and operators of a line of shell: quotes, comments, redirections and here-documents are
read here.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# In order: blanks and comments, operators with the longest first, and words of plain, escaped and
# quoted pieces.
_TOKEN = re.compile(
    r"""[ \t\r]+|\#[^\n]*
    |(?P<sign>&&|\|\||;;|\|&|&>>?|<<<|<<-?|>>|[<>]&|<>|>\||[()<>|&;\n])
    |(?P<word>(?:[^ \t\r\n();<>|&'"\\]+|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+)""",
    re.DOTALL | re.VERBOSE,
)
# The three kinds of quotes; only within double ones a backslash escapes just some characters.
_QUOTED = re.compile(r"""'([^']*)'|"((?:[^"\\]|\\.)*)"|\\(.)""", re.DOTALL)
_KEYWORDS = frozenset(
    ("{", "}", "!", "if", "then", "elif", "else", "fi", "while", "until", "do", "done")
)


@dataclass(frozen=True, slots=True)
class Words:
    """The words of one simple command in a line.

    hidden: it runs within a word of another one, as in `$(…)`.
    """

    words: tuple[str, ...]
    writes: bool
    hidden: bool = False


LineItem = Words | str


def line_items(
    tokens: Sequence[tuple[str, bool, bool]], *, hidden: bool = False
) -> Iterator[LineItem]:
    """Yield the commands of a line, and the operators and keywords between them.

    tokens: each with whether it is a sign, and whether it follows the token before without a blank.
    """
    words: list[str] = []
    writes = skipping = False
    place = 0
    while place < len(tokens):
        token, is_sign, follows = tokens[place]
        place += 1
        opens = is_sign and token == "(" and follows
        is_substituted = skipping or (words and words[-1].endswith("$"))
        # `$(…)`, and `<(…)` after a redirection: the commands within run too.
        if not hidden and opens and is_substituted:
            inner, place = _split_at_closing(tokens, place)
            yield from (item for item in line_items(inner, hidden=True) if isinstance(item, Words))
            skipping = False
        elif is_sign and ("<" in token or ">" in token):
            # A number before it is the stream; the next word is the file, or the other stream.
            if follows and words and words[-1].isdigit():
                words.pop()
            writes, skipping = writes or token in (">", ">>", ">|", "&>", "&>>"), True
        elif is_sign:
            if words:
                yield Words(tuple(words), writes, hidden)
            words, writes, skipping = [], False, False
            yield token
        elif skipping:
            # Output into /dev/null is thrown away and changes no file.
            writes, skipping = writes and token != "/dev/null", False
        # A keyword counts only where a command may begin.
        elif not words and token in _KEYWORDS:
            yield token
        else:
            words.append(token)
    if words:
        yield Words(tuple(words), writes, hidden)


def _split_at_closing(
    tokens: Sequence[tuple[str, bool, bool]], place: int
) -> tuple[Sequence[tuple[str, bool, bool]], int]:
    """Return the tokens up to the parenthesis that closes, and the place after it."""
    depth = 1
    for end in range(place, len(tokens)):
        token, is_sign, _ = tokens[end]
        depth += is_sign * ((token == "(") - (token == ")"))
        if not depth:
            return tokens[place:end], end + 1
    return tokens[place:], len(tokens)


def read_tokens(line: str) -> Iterator[tuple[str, bool, bool]]:
    """Yield the words of a line without their quotes, and the signs between them.

    Each with whether it is a sign, and whether it follows the token before without a blank. Raises
    ValueError for a quote without an end.
    """
    at = last = 0
    opens, documents = False, list[str]()
    while at < len(line):
        match = _TOKEN.match(line, at)
        if match is None:
            raise ValueError
        begun, at = at, match.end()
        if (sign := match["sign"]) is not None:
            yield sign, True, begun == last
            if sign == "\n":
                # The texts of here-documents are data and no commands.
                at = _skip_documents(line, at, documents)
            opens = sign in ("<<", "<<-")
            last = at
        elif (word := match["word"]) is not None:
            is_quoted = "'" in word or '"' in word or "\\" in word
            plain = _QUOTED.sub(_unquote, word) if is_quoted else word
            documents += [plain] if opens else []
            yield plain, False, begun == last
            opens, last = False, at


def _skip_documents(line: str, at: int, ends: list[str]) -> int:
    """Return the place after the here-documents that begin there.

    ends: the line that ends each; emptied.
    """
    for end in ends:
        while at < len(line):
            text, _, _ = line[at:].partition("\n")
            at = min(len(line), at + len(text) + 1)
            if text.strip(" \t") == end:
                break
    ends.clear()
    return at


def _unquote(match: re.Match[str]) -> str:
    single, double, escaped = match.groups()
    if double is not None:
        return re.sub(r'\\(["\\])', r"\1", double)
    return single if single is not None else escaped

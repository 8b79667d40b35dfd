"""Build HTML from the inside out: an element with its children is escaped text at once.

`import elements as h`, then `h.p(".none", id="x")["a < b"]`: the notation of htpy, which other
parts of the program use. htpy makes a tree and writes it later, each text through one generator for
each element around it. A long list takes several times the processor time that way. Elements of
htpy may stand among the children. The text of an element may stand in one of htpy;
an element without its children may not, as htpy calls what it can call.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Protocol, TypeAlias

from markupsafe import Markup, escape


class HasHtml(Protocol):
    """What knows its own HTML: an element, an element of htpy, Markup."""

    def __html__(self) -> str:
        """Return the HTML, escaped."""


Node: TypeAlias = "None | bool | str | int | HasHtml | Iterable[Node]"
"""A child of an element. None, True and False write nothing."""

Attribute: TypeAlias = "None | bool | str | int"
"""The value of an attribute. None and False leave it out; True writes its name alone."""

_VOID = frozenset(("br", "hr", "img", "input", "link", "meta"))
"""Elements without children and without an end tag."""


class Element:
    """An element without its children; `element[children]` is its text."""

    __slots__ = ("_begin", "_name")

    def __init__(self, name: str, attributes: str = "") -> None:
        """name: as HTML spells it. attributes: their text, escaped."""
        self._name, self._begin = name, f"<{name}{attributes}>"

    def __call__(
        self, identity: str = "", /, *mappings: Mapping[str, Attribute], **attributes: Attribute
    ) -> "Element":
        """Return the element with these attributes.

        identity: `#id.class.class`. mappings: attributes whose names are no Python names. An
        underscore of a keyword is a hyphen, and one at its end is left out: class_.
        """
        text = _write_identity(identity) if identity else ""
        for mapping in mappings:
            text += "".join([_write_attribute(name, value) for name, value in mapping.items()])
        named = [_write_attribute(_spell_keyword(key), attributes[key]) for key in attributes]
        return Element(self._name, text + "".join(named))

    __iter__ = None  # `for` would ask for the items 0, 1, 2 ... without end

    def __getitem__(self, children: Node) -> Markup:
        """Return the whole element as text. Raise TypeError for a child that is no node."""
        if self._name in _VOID:
            raise TypeError(f"<{self._name}> has no children.")
        return Markup(f"{self._begin}{write(children)}</{self._name}>")

    def __html__(self) -> str:
        return self._begin if self._name in _VOID else f"{self._begin}</{self._name}>"

    __str__ = __html__


def write(node: Node) -> str:
    """Return a node as escaped HTML. Raise TypeError for any other object."""
    if isinstance(node, Markup):
        return node
    if isinstance(node, str):
        return escape(node)
    if node is None or isinstance(node, bool):
        return ""
    if isinstance(node, list | tuple):
        return "".join([write(child) for child in node])
    if hasattr(node, "__html__"):
        return str(node.__html__())
    if isinstance(node, int):
        return str(node)
    if isinstance(node, Iterable) and not isinstance(node, bytes | bytearray | memoryview):
        return "".join([write(child) for child in node])
    raise TypeError(f"{type(node).__name__} is no node of HTML.")


def _write_attribute(name: str, value: Attribute) -> str:
    if value is None or value is False or (name == "class" and not value):
        return ""
    if value is True:
        return f" {_escape_name(name)}"
    if not isinstance(value, str | int):
        raise TypeError(
            f"The attribute {name} is a {type(value).__name__}, and neither a text nor an integer."
        )
    # str() first: in an attribute, Markup is text as well.
    return f' {_escape_name(name)}="{escape(str(value))}"'


@lru_cache(1024)
def _escape_name(name: str) -> str:
    return str(escape(name))


@lru_cache(1024)
def _spell_keyword(keyword: str) -> str:
    return keyword.removesuffix("_").replace("_", "-")


@lru_cache(1024)
def _write_identity(text: str) -> str:
    first, *classes = text.split(".")
    if text[0] not in "#." or "#" in text[1:] or any(character.isspace() for character in text):
        raise ValueError(f"{text!r} is not #id.class.class.")
    id_attribute = _write_attribute("id", first[1:]) if first else ""
    return id_attribute + _write_attribute("class", " ".join(classes))


@lru_cache(256)
def _make_element(name: str) -> Element:
    if not name.islower() or name.startswith("_"):
        raise AttributeError(f"There is no element {name}.")
    return Element(_spell_keyword(name))


def __getattr__(name: str) -> Element:
    """Return the element of this name: `h.div`, `h.del_`."""
    return _make_element(name)

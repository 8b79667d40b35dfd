"""HTML that the page builds: the same text as htpy makes of it, and nothing of a value gets out of
its place.
"""

from html.parser import HTMLParser
from typing import Any

import htpy
import pytest
from hostile_strings import OWN
from markupsafe import Markup

from evolvable_page import elements as h
from evolvable_page.layout import form
from evolvable_page.text import make_visible

NODES: list[Any] = [
    lambda n: n.p,
    lambda n: n.p[""],
    lambda n: n.p[None, True, False, 0, 12, "a < b & c"],
    lambda n: n.div("#one.two.three", data_live=True)[
        n.span(".x")["1"], [n.b["2"], ("3", [n.i["4"]])]
    ],
    lambda n: n.ul[(n.li[str(number)] for number in range(3))],
    lambda n: n.input(type="text", value='"><script>', required=True, disabled=False, title=None),
    lambda n: n.label(".pick")[n.input(type="checkbox"), " a"],
    lambda n: n.div(
        "#x", {"hx-get": "/x?a=1&b=2", "hx-swap": None}, class_="a b", aria_label="it's"
    )["x"],
    lambda n: n.a(".grow", {"data-x": "1"}, href="javascript:'")[
        Markup("<b>kept</b>"), "<b>escaped</b>"
    ],
    lambda n: n.span(class_="")["x"],
    lambda n: n.del_(class_=None)["x"],
    lambda n: n.p(title=Markup("<b>"))["x"],
    lambda n: n.h1[n.br, n.meta(charset="utf-8")],
]


@pytest.mark.parametrize("make", NODES)
def test_an_element_is_the_text_that_htpy_makes_of_it(make: Any) -> None:
    assert str(make(h)) == str(make(htpy))


def test_elements_of_htpy_stand_among_the_children() -> None:
    assert h.p[htpy.b["a & b"], [htpy.br]] == "<p><b>a &amp; b</b><br></p>"
    assert str(htpy.p[h.b["a & b"], h.i[""]]) == "<p><b>a &amp; b</b><i></i></p>"


class _Reader(HTMLParser):
    """Reads what a browser reads."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize(
    "text", [*OWN, "'\"><img src=x onerror=alert(1)>", "&lt;", "</p><script>alert(1)</script>"]
)
def test_a_hostile_text_stays_where_it_was_put(text: str) -> None:
    reader = _Reader()
    reader.feed(str(h.p("#one", title=text)[text, h.b[[text]]]))
    reader.close()
    assert [tag for tag, _ in reader.tags] == ["p", "b"]
    assert reader.tags[0][1] == {"id": "one", "title": text}
    assert reader.text == text * 2


@pytest.mark.parametrize("child", [b"bytes", 1.5, object(), {"a": b"x"}.values()])
def test_what_is_no_node_is_refused(child: Any) -> None:
    with pytest.raises(TypeError):
        h.p[child]


def test_an_attribute_that_is_no_text_and_no_number_is_refused() -> None:
    with pytest.raises(TypeError):
        h.p(title=b"bytes")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        h.br["x"]
    with pytest.raises(ValueError, match=r"#id\.class"):
        h.p("x y")


def test_each_form_differs_from_every_other_one() -> None:
    drawn = {str(form("csrf", "/do/undo", "x")) for _ in range(100)}
    assert len(drawn) == 100


def test_each_character_that_hides_is_written_out_in_a_long_text_too() -> None:
    assert (
        make_visible("a\nb\u202e\tc\u202e" + "d" * 1_000) == "a\nb⟦U+202E⟧\tc⟦U+202E⟧" + "d" * 1_000
    )
    assert make_visible("é\x00") == "é⟦U+0000⟧"

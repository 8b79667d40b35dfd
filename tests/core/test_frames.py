"""Every line that a client can send is a message, a refusal with a reason, or nothing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from evolvable_server.transport.json_rpc import JsonRpcRefusal, Lines, LongLine, read_frame


def test_a_request_a_notification_and_a_response_pass():
    """JSON-RPC 2.0, sections 4 and 5."""
    request = read_frame(b'{"jsonrpc":"2.0","id":"a","method":"ping","params":{"x":1},"more":1}\r')
    assert request == JSONRPCRequest(jsonrpc="2.0", id="a", method="ping", params={"x": 1})
    assert isinstance(
        read_frame(b'{"jsonrpc":"2.0","method":"notifications/initialized"}'), JSONRPCNotification
    )
    assert isinstance(read_frame(b'{"jsonrpc":"2.0","id":3,"result":{}}'), JSONRPCResponse)
    assert isinstance(
        read_frame(b'{"jsonrpc":"2.0","id":3,"error":{"code":1,"message":"no"}}'), JSONRPCError
    )


@pytest.mark.parametrize(
    ("line", "request_id", "code"),
    [
        (b"hello", None, -32700),
        (b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}', None, -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', None, -32700),
        (b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}', None, -32700),
        (b'{"jsonrpc":"2.0","id":%s,"method":"ping"}' % (b"9" * 5000), None, -32700),
        (b"[" * 200_000, None, -32700),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', None, -32600),
        (b"{}", None, -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', None, -32600),
        (b'{"jsonrpc":"2.0","id":1.0,"method":"ping"}', None, -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', None, -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', None, -32600),
        (b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}', None, -32600),
        (b'{"jsonrpc":"2.0","id":7}', 7, -32600),
        (b'{"jsonrpc":"2.0","id":7,"method":5}', 7, -32600),
        (b'{"jsonrpc":"2.0","id":7,"method":"\\udfff"}', 7, -32600),
        (b'{"id":7,"method":"ping"}', 7, -32600),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":[1]}', 7, -32602),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"\\ud800":1}}', 7, -32602),
        (
            b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":%s%s}}'
            % (b"[" * 300, b"]" * 300),
            7,
            -32602,
        ),
    ],
    ids=lambda value: ascii(value[:60]) if isinstance(value, bytes) else None,
)
def test_a_broken_request_is_refused_with_its_id_when_it_has_a_usable_one(line, request_id, code):
    """The SDK answers none of these."""
    refusal = read_frame(line)
    assert isinstance(refusal, JsonRpcRefusal)
    assert (refusal.id, refusal.code) == (request_id, code)
    assert refusal.reply.error.message == refusal.reason
    assert len(refusal.reason) < 200


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b" \t\r",
        b"Content-Length: 46\r",
        b'{"jsonrpc":"2.0","method":"notifications/x","params":"x"}',
        b'{"jsonrpc":"2.0","method":"notifications/x","params":{"x":"\\ud800"}}',
        b'{"jsonrpc":"2.0","id":[],"result":{}}',
    ],
)
def test_what_is_no_request_is_never_answered(line):
    """JSON-RPC 2.0, section 4.1."""
    assert read_frame(line) is None


@pytest.mark.parametrize(
    "rest", [b'"result":"no object"', b'"result":{"x":"\\ud800"}', b'"error":7']
)
def test_a_broken_response_ends_the_wait_for_it(rest):
    """A tool that asked the client something gets an error, not silence."""
    message = read_frame(b'{"jsonrpc":"2.0","id":3,' + rest + b"}")
    assert isinstance(message, JSONRPCError)
    assert message.id == 3


@pytest.mark.process
@given(
    st.binary(max_size=200).map(lambda data: data.replace(b"x", b"\n")),
    st.lists(st.integers(0, 200), max_size=9),
)
def test_lines_are_the_same_however_the_stream_is_cut(data, cuts):
    lines = Lines()
    points = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    chunks = [data[start:end] for start, end in zip(points, points[1:], strict=False)]
    assert [line for chunk in chunks for line in lines.feed(chunk)] == data.split(b"\n")[:-1]


@pytest.mark.parametrize("size", [1, 7, 600, 5000])
def test_a_long_line_keeps_only_its_ends(size):
    lines = Lines(limit=1000)
    text = b"".join(b"%04d" % number for number in range(1000))
    stream = text + b"\nshort\n"
    found = [
        line for at in range(0, len(stream), size) for line in lines.feed(stream[at : at + size])
    ]
    assert found == [LongLine(text[:512], text[-512:]), b"short"]


@pytest.mark.parametrize(
    ("first", "last", "request_id"),
    [
        (b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"x":"', b'"}}', 5),
        (b'{"method":"tools/call","jsonrpc":"2.0","id":"a-1","params":{"x":"', b'"}}', "a-1"),
        (b'{"method": "tools/call", "params": {"x": "', b'"}, "jsonrpc": "2.0", "id": 12}\r', 12),
        (b'{"jsonrpc":"2.0","id":5,"result":{"x":"', b'"}}', None),
        (b'{"method":"tools/call","params":{"id":4,"x":"', b'"},"jsonrpc":"2.0"}', None),
        (b'{"method":"tools/call","params":{"x":"', b',\\"id\\":4}"},"id":true}', None),
    ],
)
def test_a_request_that_is_too_long_is_refused_under_its_id(first, last, request_id):
    """The orders of members that Claude Code, Codex and the SDKs write; of a long response nothing
    can be said.
    """
    lines = Lines(limit=2000)
    [line] = lines.feed(first + b"x" * 4000 + last + b"\n")
    refusal = read_frame(line)
    assert isinstance(refusal, JsonRpcRefusal)
    assert (refusal.id, refusal.code) == (request_id, -32600)


@pytest.mark.process
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers() | st.text(), st.lists
    )
)
def test_no_value_in_the_place_of_a_member_breaks_the_reader(value):
    for member in ("jsonrpc", "id", "method", "params"):
        frame = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {}} | {member: value}
        assert read_frame(json.dumps(frame).encode()) is not None

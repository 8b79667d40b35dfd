"""An MCP server on stdio over the tools of one program; a script of its own, which imports nothing
of ours.

A client starts it in the sandbox of a trial, with the path of a JSON file: a list of {name,
description, schema, argv, seconds}. It is copied to where it runs, so that a container without this
package can run it too.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
from typing import Any

# The limits of `tool_runs`, which this script cannot import.
MAX_OUTPUT = 200_000
MAX_ERROR = 600  # characters
_PROTOCOL = "2025-06-18"  # answered to a client that names no version
# Nothing of the client's, such as its key.
_ENVIRONMENT = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL")
# Guards stdout: lines of two threads must not mix.
_WRITING = threading.Lock()
_TYPES: "dict[str, tuple[type, ...]]" = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def main(path: str) -> None:
    """Answer requests until stdin ends."""
    with open(path, encoding="utf-8") as file:
        tools = {tool["name"]: tool for tool in json.load(file)}
    for line in sys.stdin.buffer:
        try:
            message = json.loads(line)
        except ValueError:
            continue
        # Only a request with an id is answered; a notification is not.
        if isinstance(message, dict) and "id" in message and "method" in message:
            # A thread for each, so that a tool that takes long does not keep the others, or a ping,
            # from an answer.
            threading.Thread(target=answer, args=(tools, message), daemon=True).start()


def answer(tools: "dict[str, Any]", message: "dict[str, Any]") -> None:
    """Write the answer to one request."""
    params = message.get("params")
    params = params if isinstance(params, dict) else {}
    method = message["method"]
    reply: dict[str, Any]
    if method == "initialize":
        version = params.get("protocolVersion")
        server = {"name": "library", "version": "1"}
        # The client's own version, because these methods are the same in all of them.
        protocol = version if isinstance(version, str) else _PROTOCOL
        reply = {
            "result": {
                "protocolVersion": protocol,
                "capabilities": {"tools": {}},
                "serverInfo": server,
            }
        }
    elif method == "tools/list":
        reply = {"result": {"tools": [describe_tool(tool) for tool in tools.values()]}}
    elif method == "tools/call" and params.get("name") in tools:
        text, wrong = call_tool(
            tools[params["name"]],
            params.get("arguments") or {},
        )
        reply = {"result": {"content": [{"type": "text", "text": text}], "isError": wrong}}
    elif method == "ping":
        reply = {"result": {}}
    else:
        reply = {"error": {"code": -32601, "message": "there is no such method or tool"}}
    line = json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply})
    with _WRITING:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def describe_tool(tool: "dict[str, Any]") -> "dict[str, Any]":
    """Return a tool as `tools/list` names it."""
    hints = {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False}
    return {
        "name": tool["name"],
        "description": tool["description"],
        "inputSchema": tool["schema"],
        "annotations": hints,
    }


def input_problem(schema: "dict[str, Any]", arguments: object) -> str:
    """Return what is wrong with an input: a missing, unknown or mistyped argument; '' for none.

    Deeper rules of a schema are left to the tool itself.
    """
    if not isinstance(arguments, dict):
        return "the input is no object"
    properties = schema.get("properties", {})
    if missing := [name for name in schema.get("required", []) if name not in arguments]:
        return f"{missing[0]} is missing"
    if schema.get("additionalProperties") is False and (
        more := [name for name in arguments if name not in properties]
    ):
        return f"there is no argument {more[0][:60]}"
    for name, value in arguments.items():
        kind = (
            properties.get(name, {}).get("type") if isinstance(properties.get(name), dict) else None
        )
        kinds = kind if isinstance(kind, list) else [kind] if kind else []
        if kinds and not any(
            isinstance(value, _TYPES[json_type]) and is_plain(json_type, value)
            for json_type in kinds
        ):
            return f"{name} is not of type {', '.join(kinds)}"
    return ""


def is_plain(kind: str, value: object) -> bool:
    """Return whether a value is of a JSON type, which for Python's bool is boolean alone."""
    return kind == "boolean" or not isinstance(value, bool)


def call_tool(tool: "dict[str, Any]", arguments: object) -> "tuple[str, bool]":
    """Run a tool; return its output, or what went wrong, and whether it went wrong."""
    if wrong := input_problem(tool["schema"], arguments):
        return f"{tool['name']}: {wrong}.", True
    argv = [sys.executable if word == "{python}" else word for word in tool["argv"]]
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        try:
            # In our process group: what a trial leaves is stopped with it.
            process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=out, stderr=err, cwd=work, env=environment
            )
        except OSError as error:
            return f"{tool['name']} could not be started: {error.strerror}.", True
        try:
            process.communicate(json.dumps(arguments).encode(), timeout=tool["seconds"])
        except subprocess.TimeoutExpired:
            return f"{tool['name']} took longer than {tool['seconds']:g} s.", True
        finally:
            process.kill()
            process.wait()
        return read_end(tool["name"], process.returncode, out, err)


def read_end(name: str, code: int, out: Any, err: Any) -> "tuple[str, bool]":
    """Return the output of a tool, or how it failed, and whether it failed."""
    out.seek(0)
    # One byte more than the limit shows that it was exceeded.
    text = out.read(MAX_OUTPUT + 1)
    if len(text) > MAX_OUTPUT:
        return f"{name} wrote more than {MAX_OUTPUT:,} bytes.", True
    if code:
        err.seek(max(0, err.seek(0, os.SEEK_END) - MAX_ERROR))
        message = " ".join(err.read().decode("utf-8", "replace").split())
        return f"{name} ended with exit code {code}: {message}", True
    return text.decode("utf-8", "replace"), False


if __name__ == "__main__":
    main(sys.argv[1])

"""Chat messages: checked, and brought to the one shape that templates know."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.api.schema.reader import Fields, shown
from services.common.errors import InvalidRequest

ROLES = ("system", "developer", "user", "assistant", "tool")


def read_messages(fields: Fields, *, most: int) -> list[dict[str, Any]]:
    """The conversation. Text parts become one string, `developer` becomes `system`, empty tool_calls go."""
    given = fields.array("messages")
    if not given:
        raise InvalidRequest("messages must be an array with at least one message", field="messages")
    if len(given) > most:
        raise InvalidRequest(f"messages may have {most} entries, it has {len(given)}", field="messages")
    return [_message(item, f"messages[{place}]") for place, item in enumerate(given)]


def _message(item: Any, where: str) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise InvalidRequest(f"{where} must be an object, not {shown(item)}", field=where)
    fields = Fields(item, where)
    role = fields.string("role")
    if role not in ROLES:
        raise InvalidRequest(f"{where}.role must be one of {', '.join(ROLES)}, not {shown(item.get('role'))}", field=f"{where}.role")
    made: dict[str, Any] = {"role": "system" if role == "developer" else role}
    calls = _tool_calls(fields) if role == "assistant" else []
    content = _content(fields, required=role != "assistant" or not calls)
    made["content"] = content
    if calls:
        made["tool_calls"] = calls
    if role == "assistant" and fields.has("reasoning_content"):
        made["reasoning_content"] = fields.string("reasoning_content")
    if role == "tool":
        made["tool_call_id"] = fields.string("tool_call_id")
    if fields.has("name"):
        made["name"] = fields.string("name")
    if fields.has("refusal") and content == "":
        made["content"] = fields.string("refusal")
    return made


def _content(fields: Fields, *, required: bool) -> str:
    value = fields.values.get("content")
    name = fields.path("content")
    if value is None:
        if required and not fields.has("refusal"):
            raise InvalidRequest(f"{name} must be a string or an array of text parts", field=name)
        return ""
    if isinstance(value, str):
        return fields.check_text("content", value)
    if not isinstance(value, list):
        raise fields.bad("content", "a string or an array of text parts")
    return "".join(_part(part, f"{name}[{place}]") for place, part in enumerate(value))


def _part(part: Any, where: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in ("text", "refusal"):
        text = part.get(kind)
        if not isinstance(text, str):
            raise InvalidRequest(f"{where}.{kind} must be a string", field=f"{where}.{kind}")
        return Fields(part, where).check_text(kind, text)
    message = f"{where}: only text parts are served, not {shown(kind if kind is not None else part)}"
    raise InvalidRequest(message, field=f"{where}.type")


def _tool_calls(fields: Fields) -> list[dict[str, Any]]:
    calls = []
    for place, item in enumerate(fields.array("tool_calls") or ()):
        where = f"{fields.path('tool_calls')}[{place}]"
        function = item.get("function") if isinstance(item, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise InvalidRequest(f"{where}.function must be an object with a name", field=f"{where}.function")
        calls.append({"id": str(item.get("id") or ""), "type": "function", "function": _called(function, where)})
    return calls


def _called(function: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Templates want arguments as an object; clients send them as JSON text."""
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError) as error:
            field = f"{where}.function.arguments"
            raise InvalidRequest(f"{field} is not JSON: {error}", field=field) from error
    return {"name": function["name"], "arguments": {} if arguments is None else arguments}


def read_tools(fields: Fields, *, most: int) -> list[dict[str, Any]]:
    """Function tools, checked for what a template and a grammar need."""
    tools = fields.array("tools") or ()
    if len(tools) > most:
        raise InvalidRequest(f"tools may have {most} entries, it has {len(tools)}", field="tools")
    return [_tool(item, f"tools[{place}]") for place, item in enumerate(tools)]


def _tool(item: Any, where: str) -> dict[str, Any]:
    if not isinstance(item, dict) or item.get("type", "function") != "function":
        raise InvalidRequest(f'{where}.type must be "function"', field=f"{where}.type")
    function = item.get("function")
    if not isinstance(function, dict):
        raise InvalidRequest(f"{where}.function must be an object", field=f"{where}.function")
    inner = Fields(function, f"{where}.function")
    name = inner.string("name", longest=64)
    if not name or not all(c.isalnum() or c in "_-." for c in name):
        raise inner.bad("name", "a name of letters, digits, _ . and -")
    inner.string("description")
    inner.boolean("strict", False)
    parameters = inner.object("parameters")
    made: dict[str, Any] = {"name": name}
    if "description" in function:
        made["description"] = function["description"] or ""
    made["parameters"] = parameters if parameters is not None else {"type": "object", "properties": {}}
    if function.get("strict"):
        made["strict"] = True
    return {"type": "function", "function": made}


def tool_names(tools: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of the tools, in order."""
    return [tool["function"]["name"] for tool in tools]

"""Chat messages in the OpenAI shape, checked and brought into the one form that templates expect.

Text parts become one string, joined by line breaks; missing or null content becomes an empty string; arguments of tool
calls become objects; empty tool call lists vanish; `developer` becomes `system` for a template that does not know it.
"""

from __future__ import annotations

import json
from typing import Any

from services.common.errors import InvalidRequest

Message = dict[str, Any]


def parse_messages(text: str, *, knows_developer: bool) -> list[Message]:
    """Messages from their JSON. Raises InvalidRequest naming the place."""
    loaded = _load(text, "messages", list)
    if not loaded:
        raise InvalidRequest("messages: at least one message is needed", field="messages")
    return [_message(entry, f"messages[{index}]", knows_developer) for index, entry in enumerate(loaded)]


def parse_tools(text: str) -> list[dict[str, Any]] | None:
    """Tool definitions from their JSON; None if there are none."""
    tools = _load(text, "tools", list) if text else []
    for index, tool in enumerate(tools):
        if not isinstance(tool, dict):
            raise InvalidRequest(f"tools[{index}]: expected an object", field=f"tools[{index}]")
    return tools or None


def parse_object(text: str, field: str) -> dict[str, Any]:
    """A JSON object; empty text is an empty one."""
    loaded: dict[str, Any] = _load(text, field, dict) if text else {}
    return loaded


def _load(text: str, field: str, kind: type) -> Any:
    try:
        loaded = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{field}: not valid JSON: {error}", field=field) from error
    if not isinstance(loaded, kind):
        raise InvalidRequest(f"{field}: expected a JSON {'array' if kind is list else 'object'}", field=field)
    return loaded


def _message(entry: Any, field: str, knows_developer: bool) -> Message:
    if not isinstance(entry, dict):
        raise InvalidRequest(f"{field}: expected an object", field=field)
    role = entry.get("role")
    if not isinstance(role, str) or not role:
        raise InvalidRequest(f"{field}.role: expected a role such as 'user'", field=f"{field}.role")
    message = {**entry, "content": _content(entry.get("content"), f"{field}.content")}
    if role == "developer" and not knows_developer:
        message["role"] = "system"
    calls = message.pop("tool_calls", None)
    if calls:
        message["tool_calls"] = _tool_calls(calls, f"{field}.tool_calls")
    return message


def _content(content: Any, field: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InvalidRequest(f"{field}: expected text or a list of parts", field=field)
    return "\n".join(_text_of(part, f"{field}[{index}]") for index, part in enumerate(content))


def _text_of(part: Any, field: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind not in ("text", "input_text", "output_text", "refusal"):
        raise InvalidRequest(f"{field}.type: {kind!r} is not supported, only text parts are", field=f"{field}.type")
    text = part.get("refusal" if kind == "refusal" else "text")
    if not isinstance(text, str):
        raise InvalidRequest(f"{field}.text: expected text", field=f"{field}.text")
    return text


def _tool_calls(calls: Any, field: str) -> list[Message]:
    if not isinstance(calls, list):
        raise InvalidRequest(f"{field}: expected a list", field=field)
    return [_tool_call(call, f"{field}[{index}]") for index, call in enumerate(calls)]


def _tool_call(call: Any, field: str) -> Message:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise InvalidRequest(f"{field}.function: expected an object with a name", field=f"{field}.function")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            parsed = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            parsed = arguments
        arguments = parsed if isinstance(parsed, dict) else arguments
    return {**call, "function": {**function, "arguments": {} if arguments is None else arguments}}

"""`response_format` of the OpenAI doors as a grammar."""

from __future__ import annotations

import json

from gateway.api.schema.limits import Defaults
from gateway.api.schema.reader import Fields, shown
from gateway.api.schema.sampling import check_grammar, read_constraint
from gateway.flight.spec import Constraint
from services.common.errors import InvalidRequest

_SCHEMA = "response_format.json_schema.schema"
_ANY_OBJECT = '{"type": "object"}'


def read_response_format(fields: Fields, defaults: Defaults) -> Constraint | None:
    """text is no grammar; json_object any object; json_schema and structural_tag what they hold."""
    given = fields.object("response_format")
    if given is None:
        return None
    inner = Fields(given, "response_format")
    kind = given.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return Constraint("json_schema", _ANY_OBJECT, field="response_format")
    if kind == "json_schema":
        schema = _schema(inner)
        check_grammar(schema, _SCHEMA, defaults.limits.max_grammar_chars)
        return Constraint("json_schema", schema, field=_SCHEMA)
    if kind == "structural_tag":
        text = json.dumps(given, ensure_ascii=False)
        check_grammar(text, "response_format", defaults.limits.max_grammar_chars)
        return Constraint("structural_tag", text, field="response_format")
    message = f"response_format.type must be text, json_object, json_schema or structural_tag, not {shown(kind)}"
    raise InvalidRequest(message, field="response_format.type")


def read_one_grammar(fields: Fields, defaults: Defaults) -> Constraint | None:
    """The grammar of `response_format`, or the one given beside it; both exclude each other."""
    wanted, direct = read_response_format(fields, defaults), read_constraint(fields, defaults)
    if wanted is not None and direct is not None:
        raise InvalidRequest(f"response_format and {direct.field} exclude each other", field=direct.field)
    return wanted or direct


def _schema(inner: Fields) -> str:
    wrapper = inner.object("json_schema")
    where = "response_format.json_schema"
    if wrapper is None:
        raise InvalidRequest(f"{where} must be an object with a schema", field=where)
    schema = wrapper.get("schema")
    if not isinstance(schema, dict | bool):
        raise InvalidRequest(f"{where}.schema must be a JSON schema object, not {shown(schema)}", field=f"{where}.schema")
    return json.dumps(schema, ensure_ascii=False)

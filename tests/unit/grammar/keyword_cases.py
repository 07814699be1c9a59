"""For each keyword a schema, texts it allows and texts it forbids: the request that tries to break it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

STRING, INTEGER = {"type": "string"}, {"type": "integer"}


@dataclass(frozen=True)
class Case:
    """`good` must be allowed where the schema is accepted; `bad` must never be."""

    name: str
    schema: Any
    good: tuple[str, ...] = ()
    bad: tuple[str, ...] = ()


def obj(properties: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **others}


def text(**keywords: Any) -> dict[str, Any]:
    return {"type": "string", **keywords}


def array(**keywords: Any) -> dict[str, Any]:
    return {"type": "array", **keywords}


def integer(**keywords: Any) -> dict[str, Any]:
    return {"type": "integer", **keywords}


def number(**keywords: Any) -> dict[str, Any]:
    return {"type": "number", **keywords}


A_B = {"a": INTEGER, "b": INTEGER}
ESCAPED = ["Sjöfart", "éa", r"\xe9a"]
NODE = obj({"v": INTEGER, "n": {"$ref": "#/$defs/n"}}, required=["v"], additionalProperties=False)
TAGGED = [obj({"k": {"const": kind}}, required=["k"]) for kind in "ab"]

CASES = (
    Case("type", STRING, ('"a"',), ("1", "null")),
    Case("type", INTEGER, ("1", "-3"), ("1.5", '"1"')),
    Case("type", {"type": ["string", "null"]}, ('"a"', "null"), ("1",)),
    Case("type", {"type": ["string", "integer"], "minLength": 3, "minimum": 5}, ('"abc"', "5"), ('"ab"', "4")),
    Case("type", {"type": "strng"}),
    Case("type", {"type": 5}),
    Case("enum", {"enum": ["a", "b", 3, None]}, ('"a"', "3", "null"), ('"c"', "4")),
    Case("enum", {"type": "string", "enum": ["a", 3]}, ('"a"',), ("3",)),
    Case("enum", {"enum": ["在线", "Sjöfart", "🐙"]}, ('"在线"', '"Sjöfart"', '"🐙"'), ('"x"',)),
    Case("enum maxLength", {"anyOf": [{"enum": ESCAPED}, text(maxLength=1)]}, ('"Sjöfart"', '"éa"', r'"\\xe9a"'), ('"ab"', '"\t"')),
    Case("enum", {"enum": []}, (), ("1", '"a"')),
    Case("enum", {"enum": ["aa", "b"], "minLength": 2}, (), ('"b"',)),
    Case("const", {"const": {"a": 1}}, (), ('{"a":2}', "1")),
    Case("const", {"type": "string", "const": 3}, (), ("3",)),
    Case("$ref", {"$ref": "#/$defs/x", "$defs": {"x": INTEGER}}, ("1",), ('"a"',)),
    Case("$ref", {"$ref": "#/definitions/x", "definitions": {"x": INTEGER}}, ("1",), ('"a"',)),
    Case("$ref", {"$ref": "#/$defs/n", "$defs": {"n": NODE}}, ('{"v":1,"n":{"v":2}}',), ('{"v":1,"n":{"v":"x"}}', '{"v":1,"n":{}}')),
    Case("$ref", {"$ref": "#/$defs/x", "minimum": 5, "$defs": {"x": INTEGER}}, (), ("1",)),
    Case("$ref", {"$ref": "#/nope"}, (), ("1",)),
    Case("$ref", {"$ref": "http://a/b"}, (), ("1",)),
    Case("$ref", {"$ref": "#foo", "$defs": {"x": {"$anchor": "foo", "type": "integer"}}}, (), ('"a"',)),
    Case("$ref", {"$ref": "#/$defs/x", "$defs": {"x": {"$ref": "#/$defs/x"}}}, (), ("1",)),
    Case("$defs", {"$ref": "#/$defs/x", "$defs": {"x": {"not": {}}}}, (), ("1",)),
    Case("definitions", {"$ref": "#/definitions/x", "definitions": {"x": {"type": "nope"}}}, (), ("1",)),
    Case("anyOf", {"anyOf": [STRING, INTEGER]}, ('"a"', "1"), ("null", "1.5")),
    Case("anyOf", obj({"a": INTEGER}, required=["a"], anyOf=[{"required": ["b"]}, {"required": ["c"]}]), (), ('{"a":1}',)),
    Case("anyOf", {"type": "string", "anyOf": [{"minLength": 5}, {"const": "a"}]}, (), ('"bb"', "1")),
    Case("oneOf", {"oneOf": [integer(minimum=0), integer(maximum=10)]}, (), ("5",)),
    Case("oneOf", {"oneOf": [STRING, INTEGER]}, ('"a"', "1"), ("null",)),
    Case("oneOf", {"oneOf": TAGGED}, ('{"k":"a"}',), ('{"k":"c"}',)),
    Case("oneOf", {"oneOf": [{"$ref": f"#/$defs/{k}"} for k in "ab"], "$defs": dict(zip("ab", TAGGED, strict=True))}, ('{"k":"b"}',)),
    Case("allOf", {"allOf": [integer(minimum=3)]}, ("3",), ("2",)),
    Case("allOf", {"allOf": [{"const": None}], "enum": [False]}, (), ("null", "false")),
    Case("allOf", {"allOf": [{"enum": [None, 1]}], "const": 1}, (), ("null",)),
    Case("allOf", {"allOf": [integer(minimum=3), {"maximum": 5}]}, (), ("2", "6", '"a"')),
    Case("allOf", {"allOf": [obj({"a": INTEGER}, required=["a"]), obj({"b": INTEGER}, required=["b"])]}, (), ('{"a":1}', '{"b":1}')),
    Case("allOf", obj({"a": INTEGER}, required=["a"], allOf=[{"properties": {"a": {"minimum": 5}}}]), (), ('{"a":1}',)),
    Case("not", text(**{"not": {"const": "a"}}), (), ('"a"',)),
    Case("if", obj(A_B, **{"if": {"required": ["a"]}, "then": {"required": ["b"]}}), (), ('{"a":1}',)),
    Case("then", obj(A_B, then={"required": ["b"]}), (), ('{"a":"x"}',)),
    Case("else", obj(A_B, **{"if": {"required": ["a"]}, "else": {"required": ["b"]}}), (), ("{}",)),
    Case("minLength", text(minLength=3), ('"abc"', '"éé🐙"'), ('"ab"', '""', '"é🐙"', r'"\n\n"', r'"\u0041b"', '"a\nb"')),
    Case("minLength", {"minLength": 3}, (), ('"a"',)),
    Case("maxLength", text(maxLength=3), ('"abc"', '"日本語"'), ('"abcd"', r'"abc\n"', '"\n"', '"\x01"')),
    Case("minLength pattern", text(pattern="^a*$", minLength=3), (), ('"aa"',)),
    Case("maxLength pattern", text(pattern="^a*$", maxLength=2), (), ('"aaa"',)),
    Case("minLength maxLength", text(minLength=2, maxLength=3), ('"ab"',), ('"a"', '"abcd"')),
    Case("minLength maxLength pattern", text(pattern="^[A-Z]{2}$", minLength=2, maxLength=2), ('"AB"',), ('"A"', '"ABC"')),
    Case("minLength format", text(format="uri", minLength=1), ('"http://a.b"',), ('""',)),
    Case("pattern", text(pattern="^a+$"), ('"aa"',), ('"b"', '"ab"', '""')),
    Case("pattern", text(pattern="a+"), ('"a"', '"bab"'), ('"b"', '""')),
    Case("pattern", text(pattern="^a|b$"), ('"ax"', '"xb"'), ('"c"', '"xa"')),
    Case("pattern", text(pattern=r"^a\b.c$"), (), ('"abc"',)),
    Case("pattern", text(pattern="^(?i)abc$"), ('"ABC"',), ('"xyz"',)),
    Case("pattern", text(pattern="^(?=a)..$"), (), ('"bb"',)),
    Case("pattern", text(pattern="^(?!a)..$"), (), ('"ab"',)),
    Case("pattern", text(pattern=r"^(a|b)\1$"), (), ('"ab"',)),
    Case("pattern", text(pattern=r"^\p{Lu}+$"), ('"É"',), ('"abc"',)),
    Case("pattern", text(pattern="^[^a]$"), ('"b"', '"é"'), ('"a"', '"bb"', '"""', '"\n"', '"\\"')),
    Case("pattern", text(pattern='^a/b"c$'), (), ('"a/b"c"',)),
    Case("pattern", text(pattern="^a$b$"), (), ('"ab"',)),
    Case("pattern", text(pattern="^[[:alpha:]]$"), ('"b"',), ('":"', '"[]"')),
    Case("pattern", text(pattern=r"\Aab\z"), ('"ab"',), ('"Aabz"',)),
    Case("pattern", text(pattern="["), (), ('"a"',)),
    Case("pattern", text(pattern=r"^a\!$"), ('"a!"',), ('"a"',)),
    Case("format", text(format="date"), ('"2024-01-31"',), ('"x"', '"2024-13-01"', '"2024-02-31"', '"2024-04-31"', '"0000-01-01"')),
    Case("format", text(format="time"), ('"10:20:30Z"',), ('"x"', '"25:00:00Z"', '"10:20:30"', '"10:20:30+25:00"')),
    Case("format", text(format="date-time"), ('"2024-01-31T10:20:30Z"',), ('"x"', '"2024-01-31"', '"2024-02-30T10:20:30Z"')),
    Case("format", text(format="duration"), ('"P1D"', '"P1Y2M3DT4H5M6S"', '"PT5S"'), ('"P"', '"PT"', '"x"', '"P1S"')),
    Case("format", text(format="email"), ('"a@b.co"',), ('"x"', '"a@"', '"@b.c"', '"a b@c.de"', '"a@b@c.d"', '"a..b@c.de"')),
    Case("format", text(format="hostname"), ('"a.b"',), ('"-"', '"a b"', '"a..b"', '"a-"', '"a_b"', '"' + "a" * 70 + '"')),
    Case("format", text(format="ipv4"), ('"1.2.3.4"',), ('"256.1.1.1"', '"1.2.3"', '"01.2.3.4"', '"1.2.3.4.5"')),
    Case("format", text(format="ipv6"), ('"::1"', '"1:2:3:4:5:6:7:8"'), ('"x"', '"1::2::3"', '"12345::"', '":::"')),
    Case("format", text(format="uuid"), ('"123e4567-e89b-12d3-a456-426614174000"',), ('"123e4567e89b12d3a456426614174000"',)),
    Case("format", text(format="uri"), ('"http://a.b/c"',), ('"x y"', '"a"', '"://a"', '"http://a b"')),
    Case("format", text(format="idn-email"), (), ('"x"',)),
    Case("format", text(format="nonsense"), (), ('"x"',)),
    Case("format maxLength", text(format="email", maxLength=6), (), ('"aaaaaa@bbbbb.com"',)),
    Case("format pattern", text(format="email", pattern="^x"), (), ('"aaa@bbb.com"',)),
    Case("contentEncoding", text(contentEncoding="base64"), (), ('"###"',)),
    Case("contentMediaType", text(contentMediaType="application/json"), (), ('"{"',)),
    Case("contentSchema", text(contentSchema=INTEGER), (), ('"x"',)),
    Case("minimum", integer(minimum=5), ("5", "17"), ("4", "-5")),
    Case("minimum", number(minimum=1.5), ("1.5", "2"), ("1.4", "1", "-2", "1.49999")),
    Case("minimum", integer(minimum=1.5), ("2",), ("1",)),
    Case("minimum", {"minimum": 3}, (), ("2",)),
    Case("maximum", integer(maximum=5), ("5", "-17"), ("6",)),
    Case("maximum", number(maximum=1.5), ("1.5", "-2"), ("1.6", "1.50001", "2", "1e5", "1E+5", "1e1")),
    Case("minimum maximum", integer(minimum=0, maximum=150), ("0", "150"), ("151", "-1", "999")),
    Case("minimum maximum", number(minimum=0, maximum=1), ("0", "0.5", "1"), ("1.1", "-0.1", "2", "1.0001")),
    Case("exclusiveMinimum", integer(exclusiveMinimum=5), ("6",), ("5",)),
    Case("exclusiveMinimum", number(exclusiveMinimum=1.5), ("1.6",), ("1.5", "1.50", "1")),
    Case("exclusiveMinimum minimum", integer(exclusiveMinimum=5, minimum=3), ("6",), ("5", "3")),
    Case("exclusiveMaximum", number(exclusiveMaximum=1.5), ("1.4",), ("1.5", "1.50", "2")),
    Case("exclusiveMaximum", integer(exclusiveMaximum=True), (), ("5",)),
    Case("multipleOf", integer(multipleOf=7), ("0", "14", "-7"), ("15", "8")),
    Case("multipleOf", number(multipleOf=0.5), (), ("0.3",)),
    Case("multipleOf minimum", integer(multipleOf=7, minimum=10), (), ("7", "15")),
    Case("items", array(items=INTEGER), ("[1,2]", "[]"), ('["a"]',)),
    Case("items", array(items=False), ("[]",), ("[1]",)),
    Case("items", array(items=[INTEGER, STRING]), ('[1,"a"]',), ('["a","b"]',)),
    Case("prefixItems", array(prefixItems=[INTEGER, STRING]), ('[1,"a"]',), ('["a","b"]',)),
    Case("prefixItems items", array(prefixItems=[INTEGER], items=STRING), ('[1,"a"]',), ("[1,2]", '["a"]')),
    Case("prefixItems items", array(prefixItems=[INTEGER], items=False), ("[1]",), ("[1,2]",)),
    Case("prefixItems minItems", array(prefixItems=[INTEGER, INTEGER], minItems=2), ("[1,2]",), ("[1]",)),
    Case("prefixItems maxItems", array(prefixItems=[INTEGER] * 3, maxItems=2), ("[1,2]",), ("[1,2,3]",)),
    Case("additionalItems", array(items=[INTEGER], additionalItems=False), ("[1]",), ("[1,2]",)),
    Case("minItems", array(items=INTEGER, minItems=2), ("[1,2]",), ("[1]", "[]")),
    Case("maxItems", array(items=INTEGER, maxItems=2), ("[1,2]",), ("[1,2,3]",)),
    Case("minItems maxItems", array(items=INTEGER, minItems=3, maxItems=2), (), ("[1,2]", "[1,2,3]")),
    Case("unevaluatedItems", array(prefixItems=[INTEGER], unevaluatedItems=False), ("[1]",), ("[1,2]",)),
    Case("uniqueItems", array(items={"enum": [1, 2]}, uniqueItems=True), (), ("[1,1]",)),
    Case("contains", array(contains={"const": 5}), (), ("[1]", "[]")),
    Case("minContains", array(contains={"const": 5}, minContains=2), (), ("[5]",)),
    Case("maxContains", array(contains={"const": 5}, maxContains=1), (), ("[5,5]",)),
    Case("properties", obj({"a": INTEGER}), ('{"a":1}',), ('{"a":"x"}', '{"a":1,"a":"x"}')),
    Case("properties", obj({"姓名": STRING}, required=["姓名"]), ('{"姓名":"a"}',), ('{"x":1}',)),
    Case("required", obj(A_B, required=["b"]), ('{"a":1,"b":2}', '{"b":1}'), ('{"a":1}', "{}")),
    Case("required", obj({"a": INTEGER}, required=["z"]), ('{"a":1,"z":2}',), ('{"a":1}', "{}")),
    Case("required additionalProperties", {"type": "object", "required": ["z"], "additionalProperties": INTEGER}, (), ("{}", '{"a":1}')),
    Case("additionalProperties", obj({"a": INTEGER}, additionalProperties=False), ('{"a":1}',), ('{"a":1,"b":2}',)),
    Case("additionalProperties", obj({"a": INTEGER}, additionalProperties=STRING), ('{"a":1,"b":"x"}',), ('{"a":1,"b":2}', '{"a":"x"}')),
    Case("additionalProperties", obj({"a": INTEGER}, additionalProperties=True), ('{"a":1,"b":2}',), ('{"a":"x"}', '{"b":1,"a":"x"}')),
    Case("patternProperties", {"type": "object", "patternProperties": {"^x": INTEGER}}, ('{"x1":1}',), ('{"x1":"a"}',)),
    Case("patternProperties", obj({"xa": STRING}, patternProperties={"^x": INTEGER}), (), ('{"xa":"q"}', '{"xb":"a"}')),
    Case("patternProperties", {"type": "object", "patternProperties": {"a": INTEGER, "b": STRING}}, (), ('{"ab":1}', '{"ab":"x"}')),
    Case("propertyNames", {"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}}, (), ('{"A1":1}',)),
    Case("propertyNames", obj({"A": INTEGER}, propertyNames={"pattern": "^[a-z]+$"}), (), ('{"A":1}',)),
    Case("minProperties", {"type": "object", "minProperties": 2}, (), ('{"a":1}', "{}", '{"a":1,"a":2}')),
    Case("minProperties", obj(A_B, minProperties=2), (), ('{"a":1}',)),
    Case("maxProperties", obj(A_B, maxProperties=1), (), ('{"a":1,"b":2}',)),
    Case("unevaluatedProperties", obj({"a": INTEGER}, unevaluatedProperties=False), ('{"a":1}',), ('{"a":1,"b":2}',)),
    Case("dependentRequired", obj(A_B, dependentRequired={"a": ["b"]}), (), ('{"a":1}',)),
    Case("dependentSchemas", obj(A_B, dependentSchemas={"a": {"required": ["b"]}}), (), ('{"a":1}',)),
    Case("dependencies", obj(A_B, dependencies={"a": ["b"]}), (), ('{"a":1}',)),
    Case("$dynamicRef", {"$dynamicRef": "#x", "$defs": {"x": {"$dynamicAnchor": "x", "type": "integer"}}}, (), ('"a"',)),
    Case("$recursiveRef", obj({"a": {"$recursiveRef": "#"}}), (), ('{"a":1}',)),
    Case("nullable", text(nullable=True), (), ("1",)),
    Case("nullable", text(nullable=False), ('"a"',), ("null",)),
    Case("title", text(title="t", description="d", default="x", examples=[1]), ('"a"',), ("1",)),
)

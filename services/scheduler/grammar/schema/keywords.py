"""Every JSON Schema keyword and what becomes of it. `docs/json-schema.md` is made from this table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Handling(StrEnum):
    """What becomes of a keyword."""

    ENFORCED = "enforced"
    LIMITED = "enforced within limits"
    REFUSED = "refused"
    ANNOTATION = "no effect"


@dataclass(frozen=True, slots=True)
class Keyword:
    """One row of the table. `types` are the JSON types it is about, empty for any."""

    name: str
    types: tuple[str, ...]
    xgrammar: Handling
    llguidance: Handling
    note: str = ""


E, L, R, A = Handling.ENFORCED, Handling.LIMITED, Handling.REFUSED, Handling.ANNOTATION
_STRING, _NUMBER, _ARRAY, _OBJECT = ("string",), ("number", "integer"), ("array",), ("object",)
_APART = "they exclude each other by type, or by a required property with different constants"
_BESIDE = "xgrammar: alone, with annotations beside it"

KEYWORDS: tuple[Keyword, ...] = (
    Keyword("type", (), E, E),
    Keyword("enum", (), L, E, "xgrammar: beside `type` only"),
    Keyword("const", (), L, E, "xgrammar: beside `type` only"),
    Keyword("$ref", (), L, E, f"to a place in the same schema, `#` or `#/…`; {_BESIDE}"),
    Keyword("$defs", (), E, E),
    Keyword("definitions", (), E, E),
    Keyword("anyOf", (), L, E, _BESIDE),
    Keyword("oneOf", (), L, L, f"up to 64 members, if {_APART}; {_BESIDE}"),
    Keyword("allOf", (), L, E, f"xgrammar: with one member; {_BESIDE}"),
    Keyword("not", (), R, R),
    Keyword("if", (), R, R),
    Keyword("then", (), R, R),
    Keyword("else", (), R, R),
    Keyword("minLength", _STRING, L, E, "xgrammar: beside `pattern` or `format` only what these imply"),
    Keyword("maxLength", _STRING, L, E, "xgrammar: beside `pattern` or `format` only what these imply"),
    Keyword("pattern", _STRING, L, L, "RE2 syntax, anchors at the ends, not beside `format`; xgrammar: no characters that JSON escapes"),
    Keyword("format", _STRING, L, L, "the formats below; others are refused"),
    Keyword("contentEncoding", _STRING, R, R),
    Keyword("contentMediaType", _STRING, R, R),
    Keyword("contentSchema", _STRING, R, R),
    Keyword("minimum", _NUMBER, E, E),
    Keyword("maximum", _NUMBER, E, E),
    Keyword("exclusiveMinimum", _NUMBER, E, E),
    Keyword("exclusiveMaximum", _NUMBER, E, E),
    Keyword("multipleOf", _NUMBER, L, E, "xgrammar: whole numbers up to 1000 on type integer, without bounds"),
    Keyword("items", _ARRAY, E, E),
    Keyword("prefixItems", _ARRAY, E, E),
    Keyword("additionalItems", _ARRAY, E, E, "beside a list in `items`"),
    Keyword("minItems", _ARRAY, E, E),
    Keyword("maxItems", _ARRAY, E, E),
    Keyword("unevaluatedItems", _ARRAY, L, L, "without `$ref`, `anyOf`, `oneOf`, `allOf` beside it"),
    Keyword("uniqueItems", _ARRAY, R, R, "`false` is accepted"),
    Keyword("contains", _ARRAY, R, R),
    Keyword("minContains", _ARRAY, R, R),
    Keyword("maxContains", _ARRAY, R, R),
    Keyword("properties", _OBJECT, E, E, "in the order of the schema; no others unless `additionalProperties` allows them"),
    Keyword("required", _OBJECT, E, E),
    Keyword("additionalProperties", _OBJECT, E, E),
    Keyword("patternProperties", _OBJECT, L, L, "one pattern that matches no declared name, no others beside it"),
    Keyword("propertyNames", _OBJECT, L, R, "xgrammar: where no property is declared"),
    Keyword("minProperties", _OBJECT, L, R, "xgrammar: where only declared properties are allowed"),
    Keyword("maxProperties", _OBJECT, L, R, "xgrammar: where only declared properties are allowed"),
    Keyword("unevaluatedProperties", _OBJECT, L, L, "without `$ref`, `anyOf`, `oneOf`, `allOf` beside it"),
    Keyword("dependentRequired", _OBJECT, R, R),
    Keyword("dependentSchemas", _OBJECT, R, R),
    Keyword("dependencies", _OBJECT, R, R),
    Keyword("$dynamicRef", (), R, R),
    Keyword("$recursiveRef", (), R, R),
    Keyword("nullable", (), R, R, "`false` is accepted; write the type as a list with `null`"),
    *(
        Keyword(name, (), A, A)
        for name in (
            "$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$comment", "$vocabulary", "title", "description",
            "default", "example", "examples", "deprecated", "readOnly", "writeOnly", "discriminator", "externalDocs", "xml",
            "propertyOrdering",
        )
    ),
)  # fmt: skip

BY_NAME = {keyword.name: keyword for keyword in KEYWORDS}
ANNOTATIONS = frozenset(keyword.name for keyword in KEYWORDS if keyword.xgrammar is A)
HARMLESS_IF_FALSE = frozenset(("uniqueItems", "nullable"))


def always_refused(name: str, backend: str) -> bool:
    """Whether a backend has no use for the keyword whatever its value."""
    row = BY_NAME[name]
    return (row.xgrammar if backend == "xgrammar" else row.llguidance) is R

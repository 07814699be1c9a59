"""What a backend can be trusted with, as found by asking it (tests/unit/grammar/test_keywords.py asks again)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Profile:
    """Abilities of a backend.

    siblings: constraints beside `$ref`, `anyOf`, `oneOf`, `enum` and `const` hold as well. all_of: several members of
    `allOf` hold together. length_with_pattern: `minLength` and `maxLength` hold beside `pattern` or `format`.
    free_multiples: `multipleOf` holds for fractions and beside bounds. property_names: `propertyNames` is known.
    string_escapes: a pattern may need characters that JSON escapes. count_properties: `minProperties` and `maxProperties`
    hold for declared properties. closes_objects: an object that declares properties and is silent about others admits
    none, which costs answers nothing and keeps models to the point; not where `allOf` combines objects.
    """

    name: str
    siblings: bool
    all_of: bool
    length_with_pattern: bool
    free_multiples: bool
    property_names: bool
    string_escapes: bool
    count_properties: bool
    closes_objects: bool


XGRAMMAR = Profile(
    name="xgrammar",
    siblings=False,
    all_of=False,
    length_with_pattern=False,
    free_multiples=False,
    property_names=True,
    string_escapes=False,
    count_properties=True,
    closes_objects=True,
)
LLGUIDANCE = Profile(
    name="llguidance",
    siblings=True,
    all_of=True,
    length_with_pattern=True,
    free_multiples=True,
    property_names=False,
    string_escapes=True,
    count_properties=False,
    closes_objects=False,
)

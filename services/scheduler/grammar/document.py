"""The keyword table as a page: `python -m services.scheduler.grammar.document > docs/json-schema.md`."""

from __future__ import annotations

from services.scheduler.grammar.formats import FORMATS
from services.scheduler.grammar.schema.keywords import ANNOTATIONS, KEYWORDS, Keyword

_HEAD = """# JSON Schema in constrained answers

<!-- made by `python -m services.scheduler.grammar.document`; change the table in services/scheduler/grammar/schema/keywords.py -->

A schema given as `json_schema`, `response_format` or a strict tool is either enforced in full or refused with a 400 that
names the keyword and its place, such as `#/properties/age: minLength beside pattern is not enforced by xgrammar`. No
keyword is dropped silently. `tests/unit/grammar/` tries to break every row of this table.

What is enforced may be stricter than what was written, never laxer: properties come in the order of the schema, an
object that declares properties admits no others unless it says so (xgrammar), a `date` is never a 29th of February, and
with xgrammar a string with a length or a pattern contains no characters that JSON would have to escape. A keyword about
one type, in a schema without `type`, makes it that type.

| keyword | about | xgrammar | llguidance | |
|---|---|---|---|---|
"""

_TAIL = """
Formats: {formats}.

Accepted and without effect: {annotations}, and everything that begins with `x-`. Any other keyword is refused.

Patterns are RE2 expressions, as are `regex` constraints. A pattern matches anywhere in the string unless it is anchored;
a `regex` constraint describes the whole answer. Anchors are understood at the ends of the expression and of its
alternatives; word boundaries, look-around and back-references are refused.
"""


def document() -> str:
    """The whole page."""
    rows = "".join(_row(keyword) for keyword in KEYWORDS if keyword.name not in ANNOTATIONS)
    annotations = ", ".join(f"`{keyword.name}`" for keyword in KEYWORDS if keyword.name in ANNOTATIONS)
    return _HEAD + rows + _TAIL.format(formats=", ".join(f"`{name}`" for name in FORMATS), annotations=annotations)


def _row(keyword: Keyword) -> str:
    about = ", ".join(keyword.types) or "any"
    return f"| `{keyword.name}` | {about} | {keyword.xgrammar} | {keyword.llguidance} | {keyword.note} |\n"


if __name__ == "__main__":
    print(document(), end="")

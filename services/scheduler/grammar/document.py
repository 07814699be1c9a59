"""The keyword table as a page: `python -m services.scheduler.grammar.document > docs/json-schema.md`."""

from __future__ import annotations

from services.scheduler.grammar.formats import FORMATS
from services.scheduler.grammar.schema.keywords import ANNOTATIONS, KEYWORDS, Keyword

_HEAD = """# JSON Schema in constrained answers

<!-- made by `python -m services.scheduler.grammar.document`; change the table in services/scheduler/grammar/schema/keywords.py -->

A schema given as `json_schema`, `response_format` or a strict tool is either enforced in full or refused with a 400 that
names the keyword and its place, such as `#/properties/age: minLength beside pattern is not enforced by xgrammar`. No
keyword is dropped silently. `tests/unit/grammar/` tries to break every row of this table.

A client that wants the refused ones as well sends `schema_check: "after"`: the grammar then enforces what it can, and the
gateway checks the whole answer against all of the schema; see "Checked afterwards" below.

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

## Checked afterwards

`"schema_check": "after"` beside `response_format`, `json_schema`, `guided_json` or tools (in `sampling_params` of `/generate`
and of the gRPC door; `extra_body={{"schema_check": "after"}}` with the `openai` client). `before`, the default, is what is
said above. With `after`:

- Keywords marked as refused, or enforced within limits that a schema exceeds, are left out of the grammar, never more than
  that; the answer can only be wider. A `oneOf` whose members may hold together becomes an `anyOf`.
- When the answer is whole, all of it is checked against all of the schema, with expressions in RE2 and formats asserted.
  Arguments of tool calls are checked against the parameters of their function, forced by a grammar or not.
- The answer is sent as it is, with its usual `finish_reason`. A whole answer has the verdict in `choices[i].schema_check`
  (`meta_info.schema_check` natively), a stream in an event of its own after the last choice: `"choices": []` and
  `"schema_check": [{{"index": 0, …}}]`; over gRPC in `schema_check_json` of a last message per choice.
- A verdict is `{{"valid": true}}`; or `{{"valid": false, "errors": […]}}` with at most 16 errors, each with `path` (into the
  answer), `keyword`, `schema_path`, `message`, and `tool_call` where it is about a call; or `{{"valid": null, "reason": "…"}}`
  where the check took over a second of processor time or too much memory. An answer cut by a limit is not JSON, so not valid.
- A schema with something that would still be overlooked is refused with a 400 before anything is generated: references out
  of the document, `contentEncoding` and its like, `nullable`, formats beyond those above and `uri-reference`,
  `json-pointer`, `relative-json-pointer` and `regex`, expressions that RE2 does not take, a `$schema` other than 2020-12,
  2019-09, draft-07 or draft-06, and keywords of other dialects than that. Without `$schema` the newest dialect that knows
  all keywords counts.
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

"""Finds EBNF grammars of which a text can be read in boundlessly many ways: a matcher keeps all of them, step by step.

Two kinds are found, each by counting over the rules once: a rule that derives itself and nothing besides
(`a ::= a a | "x" | ""`, as one of the two may be empty), and a rule that derives itself twice in a row
(`a ::= a a | "x"`). Whoever means a repetition can write one.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""\s+ | \#[^\n]*
    | (?P<head>[A-Za-z_][\w.-]*)\s*::=
    | (?P<name>[A-Za-z_][\w.-]*)
    | (?P<empty>"") | (?P<terminal>"(?:\\.|[^"\\])*" | \[(?:\\.|[^\]\\])*\])
    | (?P<ahead>\(=) | (?P<open>\() | (?P<close>\)) | (?P<bar>\|)
    | (?P<times>[*+?] | \{\s*\d{1,9}\s*(?:,\s*\d{0,9}\s*)?\})""",
    re.VERBOSE | re.DOTALL,
)
_EMPTY, _TERMINAL = 0, -1
_MOST_LOOKS = 1_000_000


@dataclass
class _Rules:
    """Numbered rules, groups and repetitions among them; a rule is a list of alternatives, these of numbers of rules."""

    names: dict[int, str] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    alternatives: list[list[list[int]]] = field(default_factory=lambda: [[[]]])

    def new(self, *alternatives: list[int]) -> int:
        self.alternatives.append(list(alternatives))
        return len(self.alternatives) - 1

    def named(self, name: str) -> int:
        if name not in self.numbers:
            self.numbers[name] = self.new()
            self.names[self.numbers[name]] = name
        return self.numbers[name]

    def repeated(self, inner: int, times: str) -> int:
        low, _, high = times.strip("{} ").partition(",") if times[0] == "{" else ("1" if times == "+" else "0", ",", "")
        most = 1 if times == "?" else int(high.strip() or 2) if "," in times or times in "*+" else int(low)
        counts = [count for count in (0, 1, 2) if int(low) <= count <= most]
        return self.new(*([inner] * count for count in counts or [2]))


def ambiguity(text: str) -> str | None:
    """Why the grammar is refused, or None. A text that is no EBNF is none of its business."""
    rules = _parsed(text)
    if rules is None:
        return None
    nullable = _nullable(rules)
    units = [_units(alternatives, nullable) for alternatives in rules.alternatives]
    if (circle := _in_a_circle(units)) is not None:
        return f"{_name(rules, circle)} derives itself and nothing besides, so that a text can be read in boundlessly many ways"
    return _twice(rules, nullable, units)


def _name(rules: _Rules, number: int) -> str:
    return f"rule {rules.names[number]}" if number in rules.names else "a group"


def _parsed(text: str) -> _Rules | None:
    rules = _Rules()
    open_rules: list[int] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            return None
        at, kind = found.end(), found.lastgroup
        if kind is None:
            continue
        if kind == "head":
            open_rules = [rules.named(found["head"])]
            rules.alternatives[open_rules[0]].append([])
        elif not open_rules or not _take(rules, open_rules, kind, found[kind]):
            return None
    return rules


def _take(rules: _Rules, open_rules: list[int], kind: str, text: str) -> bool:
    """Add one token to the innermost rule or group; false where it cannot stand there."""
    alternatives = rules.alternatives[open_rules[-1]]
    if kind == "bar":
        alternatives.append([])
    elif kind == "close":
        open_rules.pop()
    elif kind in ("open", "ahead"):
        group = rules.new([])
        alternatives[-1].append(group if kind == "open" else _EMPTY)
        open_rules.append(group)
    elif kind == "times":
        if not alternatives[-1]:
            return False
        alternatives[-1].append(rules.repeated(alternatives[-1].pop(), text))
    else:
        alternatives[-1].append(rules.named(text) if kind == "name" else _EMPTY if kind == "empty" else _TERMINAL)
    return bool(open_rules)


def _nullable(rules: _Rules) -> list[bool]:
    """Which rules may be empty."""
    nullable = [False] * len(rules.alternatives)
    missing: list[int] = []
    owners: list[int] = []
    users: list[list[int]] = [[] for _ in rules.alternatives]
    ready: deque[int] = deque()
    for rule, alternatives in enumerate(rules.alternatives):
        for alternative in alternatives:
            for symbol in alternative:
                if symbol != _TERMINAL:
                    users[symbol].append(len(missing))
            missing.append(len(alternative))
            owners.append(rule)
            if not alternative:
                ready.append(rule)
    while ready:
        rule = ready.popleft()
        if nullable[rule]:
            continue
        nullable[rule] = True
        for user in users[rule]:
            missing[user] -= 1
            if not missing[user]:
                ready.append(owners[user])
    return nullable


def _needed(alternative: list[int], nullable: list[bool]) -> list[int]:
    return [symbol for symbol in alternative if symbol == _TERMINAL or not nullable[symbol]]


def _units(alternatives: list[list[int]], nullable: list[bool]) -> set[int]:
    """The rules one of these alternatives may consist of, all besides being empty."""
    found: set[int] = set()
    for alternative in alternatives:
        needed = _needed(alternative, nullable)
        if len(needed) <= 1:
            found.update(needed or alternative)
    return found - {_TERMINAL}


def _in_a_circle(units: list[set[int]]) -> int | None:
    """A rule that reaches itself: what is left when all that lead nowhere are taken away."""
    users: list[list[int]] = [[] for _ in units]
    for rule, targets in enumerate(units):
        for target in targets:
            users[target].append(rule)
    left = [len(targets) for targets in units]
    ends = deque(rule for rule, count in enumerate(left) if not count)
    while ends:
        for user in users[ends.popleft()]:
            left[user] -= 1
            if not left[user]:
                ends.append(user)
    return next((_cycle_from(rule, units, left) for rule, count in enumerate(left) if count), None)


def _cycle_from(rule: int, units: list[set[int]], left: list[int]) -> int:
    """A rule on the circle that `rule` leads to."""
    seen: set[int] = set()
    while rule not in seen:
        seen.add(rule)
        rule = next(target for target in units[rule] if left[target])
    return rule


def _twice(rules: _Rules, nullable: list[bool], units: list[set[int]]) -> str | None:
    """Whether a rule has an alternative of two parts, all besides being empty, both of which may be just that rule."""
    looks = 0
    for rule, alternatives in enumerate(rules.alternatives):
        for alternative in alternatives:
            needed = _needed(alternative, nullable)
            if len(needed) != 2 or _TERMINAL in needed:
                continue
            reached = [_reached(part, units) for part in set(needed)]
            if all(rule in seen for seen in reached):
                return f"{_name(rules, rule)} derives itself twice in a row; a repetition (* or +) says the same and can be followed"
            looks += sum(map(len, reached))
            if looks > _MOST_LOOKS:
                return "too many rules that stand for nothing but another rule"
    return None


def _reached(rule: int, units: list[set[int]]) -> set[int]:
    seen, todo = {rule}, [rule]
    while todo:
        new = units[todo.pop()] - seen
        seen |= new
        todo += new
    return seen

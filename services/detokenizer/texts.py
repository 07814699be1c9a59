"""The choices of one Session: opened, fed column-wise, closed; what is due is collected per handle until it can be sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from services.common.errors import FailedPrecondition, HeadraceError, Internal, InvalidRequest, Overloaded
from services.common.text.stop_set import compile_stops
from services.common.text.token_bytes import OutputBytes, TokenBytes
from services.detokenizer.hold_back import HoldBack
from services.detokenizer.incremental import ChoiceText


@dataclass(frozen=True, slots=True)
class OpenSpec:
    """How one choice's ids become text; field meanings as in the contract's Open."""

    handle: int
    context_ids: Sequence[int] = ()
    prior_output_ids: Sequence[int] = ()
    total_prior_tokens: int = 0
    delivered_bytes: int = 0
    skip_special: bool = False
    keep_special_ids: Sequence[int] = ()
    spaces_between_special: bool = False
    stop_strings: Sequence[str] = ()
    stop_regexes: Sequence[str] = ()
    keep_stop: bool = False
    want_pieces: bool = False
    tokenizer_digest: str = ""


class StateBudget:
    """Choices open in the whole process, and how many may be."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def take(self) -> None:
        """Count one more. Raises Overloaded at the limit."""
        if self.used >= self.limit:
            raise Overloaded(f"{self.used} texts are open in this detokenizer, the limit set by --max-states")
        self.used += 1

    def give_back(self, count: int = 1) -> None:
        """Count some less."""
        self.used -= count


@dataclass(slots=True)
class _Entry:
    """One open choice. `missing` prior ids are still to come; `starts` if its output begins a text."""

    spec: OpenSpec
    text: ChoiceText
    missing: int
    starts: bool


class Rows(Protocol):
    """Where `SessionTexts.take_due` puts what is to be sent."""

    def text(self, handle: int, piece: str, raw_bytes: int, text: ChoiceText) -> None:
        """New text of a handle, which is `raw_bytes` of raw output; empty if only `text.through` moved."""

    def pieces(self, handle: int, first_position: int, pieces: list[bytes]) -> None:
        """Bytes of tokens, from an output position on, of the handle whose text came last."""

    def closed(self, handle: int, tail: str, text: ChoiceText) -> None:
        """The end of a handle."""


class ProtocolViolation(Exception):
    """The peer broke the Session's rules in a way that has no single victim; the Session ends."""


class SessionTexts:
    """All choices of one Session. Every opened handle ends in exactly one closed `Due` or one entry of `failed`."""

    def __init__(self, tokens: TokenBytes, digest: str, budget: StateBudget) -> None:
        self._tokens = tokens
        self._digest = digest
        self._budget = budget
        self._open: dict[int, _Entry] = {}
        self._due: dict[int, _Entry] = {}
        self.failed: list[tuple[int, HeadraceError]] = []

    def __len__(self) -> int:
        return len(self._open)

    @property
    def waiting_bytes(self) -> int:
        """Raw bytes received for handles that have something to say."""
        return sum(entry.text.waiting_bytes for entry in self._due.values())

    @property
    def has_due(self) -> bool:
        """Whether anything is to be sent."""
        return bool(self._due or self.failed)

    def drop_all(self) -> None:
        """The Session ended."""
        self._budget.give_back(len(self._open))
        self._open.clear()
        self._due.clear()

    def open(self, spec: OpenSpec) -> None:
        """Begin a choice, or report it as failed. Raises ProtocolViolation for a handle in use."""
        if spec.handle in self._open:
            raise ProtocolViolation(f"handle {spec.handle} is open already")
        try:
            entry = self._entry(spec)
            self._budget.take()
        except HeadraceError as error:
            self.failed.append((spec.handle, error))
            return
        self._open[spec.handle] = entry
        self._add_prior(entry, spec.prior_output_ids)

    def _entry(self, spec: OpenSpec) -> _Entry:
        if spec.tokenizer_digest not in ("", self._digest):
            raise FailedPrecondition(f"tokenizer {spec.tokenizer_digest} is wanted, this detokenizer has {self._digest}")
        stops = compile_stops(spec.stop_strings, spec.stop_regexes, strings_field="stop_strings", regexes_field="stop_regexes")
        output = OutputBytes(
            self._tokens,
            context_ids=spec.context_ids,
            skip_special=spec.skip_special,
            keep_special_ids=spec.keep_special_ids,
            spaces_between_special=spec.spaces_between_special,
        )
        hold = HoldBack(stops, keep_stop=spec.keep_stop) if stops else None
        starts = self._tokens.starts_text(spec.context_ids)
        text = ChoiceText(self._tokens, output, hold, want_pieces=spec.want_pieces, starts_text=starts)
        return _Entry(spec, text, max(spec.total_prior_tokens, len(spec.prior_output_ids)), starts)

    def add_prior(self, handle: int, offset: int, ids: Sequence[int]) -> None:
        """A further part of a choice's prior output."""
        entry = self._open.get(handle)
        if entry is None:
            return
        if entry.missing < len(ids) or offset != entry.text.position:
            self._fail(handle, InvalidRequest(f"prior output part at {offset}, expected {entry.text.position}", field="open_part.offset"))
            return
        self._add_prior(entry, ids)

    def _add_prior(self, entry: _Entry, ids: Sequence[int]) -> None:
        entry.text.push(ids)
        entry.missing -= len(ids)
        if entry.missing:
            return
        try:
            entry.text.skip_delivered(entry.spec.delivered_bytes)
        except InvalidRequest as error:
            self._fail(entry.spec.handle, error)
            return
        if entry.text.position:
            self._due[entry.spec.handle] = entry

    def add_tokens(self, handles: Sequence[int], firsts: Sequence[int], counts: Sequence[int], ids: Sequence[int]) -> None:
        """One step's tokens, column-wise. A repeated part is dropped, a gap fails its handle; unknown handles are stale.

        Raises ProtocolViolation if the columns do not fit together.
        """
        if not len(handles) == len(firsts) == len(counts) or sum(counts) != len(ids):
            raise ProtocolViolation("the columns of a tokens frame differ in length")
        at = 0
        entries, due = self._open, self._due
        for handle, first, count in zip(handles, firsts, counts, strict=True):
            begin, at = at, at + count
            entry = entries.get(handle)
            if entry is None:
                continue
            text = entry.text
            if first != text.position:
                if entry.missing or text.closing or first > text.position:
                    self._fail(handle, _gap(entry, first))
                    continue
                begin += text.position - first
                if begin >= at:
                    continue
            elif entry.missing or text.closing:
                self._fail(handle, _gap(entry, first))
                continue
            text.push(ids[begin:at])
            due[handle] = entry

    def close(self, handle: int, *, flush: bool, keep_bytes: int | None) -> None:
        """No more tokens for this choice. A handle that has ended already is left alone."""
        entry = self._open.get(handle)
        if entry is None or entry.text.closing:
            return
        if flush and entry.missing:
            self._fail(handle, InvalidRequest("closed before its prior output was complete", field="total_prior_tokens"))
            return
        entry.text.close(flush=flush, keep_bytes=keep_bytes)
        self._due[handle] = entry

    def pieces(self, handle: int, first_position: int, ids: Sequence[int]) -> list[bytes]:
        """Bytes of each id as if it stood at `first_position` of the choice's output; hidden ids included."""
        entry = self._open.get(handle)
        at_start = first_position == 0 and entry is not None and entry.starts
        return [self._tokens.piece(token_id, at_start=at_start) for token_id in ids]

    def take_due(self, rows: Rows) -> None:
        """Hand over everything that may be sent now, handle by handle; a handle with more stays due."""
        waiting, self._due = self._due, {}
        for handle, entry in waiting.items():
            text = entry.text
            end, through = text.end_byte, text.through
            piece = text.take()
            if text.closing and text.finished:
                self._end(handle)
                self._last_rows(handle, entry, piece, text.end_byte - end, rows)
                continue
            if text.more:
                self._due[handle] = entry
            if piece or text.through != through or text.end_byte != end:
                rows.text(handle, piece, text.end_byte - end, text)
                if entry.spec.want_pieces and (pieces := text.take_pieces()):
                    rows.pieces(handle, through, pieces)

    def _last_rows(self, handle: int, entry: _Entry, piece: str, raw_bytes: int, rows: Rows) -> None:
        """The tail goes with the close, unless token pieces go with it."""
        text = entry.text
        pieces = text.take_pieces()
        if pieces:
            rows.text(handle, piece, raw_bytes, text)
            rows.pieces(handle, text.position - len(pieces), pieces)
            piece = ""
        rows.closed(handle, piece, text)

    def _fail(self, handle: int, error: HeadraceError) -> None:
        self._end(handle)
        self._due.pop(handle, None)
        self.failed.append((handle, error))

    def _end(self, handle: int) -> None:
        del self._open[handle]
        self._budget.give_back()


def _gap(entry: _Entry, first: int) -> Internal:
    text = entry.text
    if entry.missing:
        return Internal(f"tokens came before {entry.missing} ids of the prior output", safe_to_resume=True)
    if text.closing:
        return Internal("tokens came after the close", safe_to_resume=True)
    return Internal(f"gap in the output: position {first} came, {text.position} was expected", safe_to_resume=True)

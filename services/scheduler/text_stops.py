"""Stop strings and regexes of a request, matched on the bytes of its output."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from services.common.errors import InvalidRequest
from services.common.text.errors import TokenizerUnavailable
from services.common.text.stop_matcher import StopMatcher
from services.common.text.stop_set import compile_stops
from services.common.text.token_bytes import OutputBytes, TokenBytes
from services.common.text.tokenizer_files import find_tokenizer, load_token_bytes, tokenizer_digest
from services.scheduler.core.plan import IntArray

log = logging.getLogger(__name__)


class TextStops:
    """Makes matchers. Without a tokenizer, requests with stop texts are refused."""

    def __init__(self, tokens: TokenBytes | None, digest: str) -> None:
        self.tokens = tokens
        self.tokenizer_digest = digest

    @classmethod
    def load(cls, folder: Path) -> TextStops:
        """From a model folder; a folder without a usable tokenizer serves token ids only."""
        try:
            files = find_tokenizer(folder)
            return cls(load_token_bytes(files), tokenizer_digest(files))
        except TokenizerUnavailable as error:
            log.warning("no tokenizer: requests with stop strings or regexes will be refused", extra={"reason": str(error)})
            return cls(None, "")

    def factory(
        self,
        strings: Sequence[str],
        regexes: Sequence[str],
        prompt_ids: IntArray,
        *,
        skip_special: bool,
        keep_special_ids: Collection[int] = (),
        spaces_between_special: bool = False,
    ) -> Callable[[], StopMatcher] | None:
        """Makes one matcher per choice; None where nothing is to be matched. Raises InvalidRequest.

        The flags about special ids are the detokenizer's: `keep_bytes` counts the bytes that it makes.
        """
        stops = compile_stops(strings, regexes, strings_field="stops.strings", regexes_field="stops.regexes")
        if not stops:
            return None
        tokens = self.tokens
        if tokens is None:
            raise InvalidRequest("stop strings need a tokenizer, which this worker has not", field="stops.strings")
        context = prompt_ids[:2].tolist()  # enough to tell a lone begin-of-text token from a text

        def make() -> StopMatcher:
            output = OutputBytes(
                tokens,
                context_ids=context,
                skip_special=skip_special,
                keep_special_ids=keep_special_ids,
                spaces_between_special=spaces_between_special,
            )
            return StopMatcher(stops, output)

        return make

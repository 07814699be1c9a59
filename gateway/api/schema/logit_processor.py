"""`custom_logit_processor` and `custom_params`: a processor that the worker's operator registered, by name."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from gateway.api.schema.reader import Fields
from gateway.flight.spec import LogitProcessor, Sampling
from services.common.errors import InvalidRequest

MAX_PARAMS_BYTES = 16_384
_NAME = re.compile("[A-Za-z0-9_.-]{1,64}")
_FIELD, _PARAMS = "custom_logit_processor", "custom_params"


def with_processor(sampling: Sampling, named: Fields, params: Fields) -> Sampling:
    """The sampling with the processor that `named` names and `params` has the parameters for. Raises InvalidRequest.

    SGLang's /generate has the name beside sampling_params and the parameters in them; elsewhere both are one object.
    """
    if not named.values.get(_FIELD):
        named = params
    name, given = named.string(_FIELD), params.object(_PARAMS)
    if not name:
        if given:
            raise InvalidRequest(f"{params.path(_PARAMS)} is for a processor: give custom_logit_processor", field=params.path(_PARAMS))
        return sampling
    if _NAME.fullmatch(name) is None:
        message = f"{named.path(_FIELD)} must be the name of a processor of the worker; code that comes with a request is not run"
        raise InvalidRequest(message, field=named.path(_FIELD))
    return replace(sampling, processor=LogitProcessor(name, _text(params) if given else "", named.path(_FIELD), params.path(_PARAMS)))


def _text(params: Fields) -> str:
    try:
        text = json.dumps(params.values[_PARAMS], allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{params.path(_PARAMS)} is not JSON: {error}", field=params.path(_PARAMS)) from error
    if len(text) > MAX_PARAMS_BYTES:
        message = f"{params.path(_PARAMS)} may have {MAX_PARAMS_BYTES} bytes, it has {len(text)}"
        raise InvalidRequest(message, field=params.path(_PARAMS))
    return text

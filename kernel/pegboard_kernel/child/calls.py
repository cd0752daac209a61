"""Calls by name: what both kinds of children answer the same way."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from pegboard_contracts.errors import ApiError, error_to_wire, server_error

from pegboard_kernel.engines.frames import Answer, Call

logger = logging.getLogger(__name__)

Functions = Mapping[str, Callable[[dict[str, Any]], Any]]


def answer_call(call: Call, functions: Functions) -> Answer:
    """Run the function that a call names; a fault of it is the answer, never a raise."""
    function = functions.get(call.name)
    if function is None:
        error = ApiError(501, f"This model knows no '{call.name}'.", code="not_supported")
        return Answer(call.call_id, error=error_to_wire(error))
    try:
        return Answer(call.call_id, value=function(call.arguments))
    except ApiError as error:
        return Answer(call.call_id, error=error_to_wire(error))
    except Exception:
        logger.exception("the call '%s' fails", call.name)
        return Answer(call.call_id, error=error_to_wire(server_error()))

"""The options of a conversion that mean the same everywhere, and their limits."""

from __future__ import annotations

from pegboard_contracts.converters import ConversionOrder
from pegboard_contracts.errors import invalid_request

WEIGHT_FORMATS = ("int4", "int8", "fp16")
"""The words of `weight_format`; nothing is int8."""

_MOST_CHANNELS = 1 << 16


def check_options(order: ConversionOrder) -> None:
    """Refuse options that make no sense; raises `ApiError` 400 that names the first."""
    words = ", ".join(WEIGHT_FORMATS)
    if order.weight_format not in (None, *WEIGHT_FORMATS):
        message = f"This 'weight_format' is not known; known are {words}."
        raise invalid_request(message, param="weight_format")
    of_int4 = {"group_size": order.group_size, "ratio": order.ratio, "sym": order.sym}
    given = [name for name, value in of_int4.items() if value is not None]
    if given and order.weight_format != "int4":
        message = f"'{given[0]}' belongs to the weight_format int4; ask for that or leave it out."
        raise invalid_request(message, param=given[0])
    size = order.group_size
    if size is not None and size != -1 and not 1 <= size <= _MOST_CHANNELS:
        message = f"'group_size' is -1 (one group a channel) or 1 to {_MOST_CHANNELS} channels."
        raise invalid_request(message, param="group_size")
    if order.ratio is not None and not 0 <= order.ratio <= 1:
        raise invalid_request("'ratio' is a share from 0 to 1.", param="ratio")

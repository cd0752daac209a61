"""Pages of items, as every list of this family is cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pegboard_contracts.errors import invalid_request

from pegboard_routes._responses.response_object import ItemList

if TYPE_CHECKING:
    from starlette.requests import Request

_MOST = 100
_USUAL = 20


def page_of(items: Sequence[dict[str, Any]], request: Request) -> ItemList:
    """Cut the page that `after`, `limit` and `order` ask for; newest first unless told.

    Raises `ApiError` 400 for a limit out of bounds, an unknown order or an unknown item.
    """
    query = request.query_params
    order = query.get("order") or "desc"
    if order not in ("asc", "desc"):
        raise invalid_request("'order' is 'asc' or 'desc'.", param="order")
    limit = whole_number(request, "limit", _USUAL)
    if not 1 <= limit <= _MOST:
        raise invalid_request(f"'limit' lies between 1 and {_MOST}.", param="limit")
    ordered = list(items) if order == "asc" else list(reversed(items))
    after = query.get("after")
    if after:
        places = [index for index, item in enumerate(ordered) if item.get("id") == after]
        if not places:
            raise invalid_request("'after' names no item of this list.", param="after")
        ordered = ordered[places[0] + 1 :]
    page = ordered[:limit]
    return ItemList(
        data=page,
        first_id=page[0].get("id") if page else None,
        last_id=page[-1].get("id") if page else None,
        has_more=len(ordered) > limit,
    )


def whole_number(request: Request, name: str, otherwise: int) -> int:
    """Read a whole number of the query; raises `ApiError` 400 for anything else."""
    text = request.query_params.get(name)
    if not text:
        return otherwise
    try:
        return int(text)
    except ValueError:
        raise invalid_request(f"'{name}' is a whole number.", param=name) from None

"""How long the prompts and answers of a model may be, and changing it."""

# No `from __future__ import annotations`: FastAPI evaluates the annotations of endpoints, and
# the types they name are imported inside the function.

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from pegboard_contracts.http import read_body
from pegboard_contracts.lifecycle import ContextBudget, ModelLifecycle
from pegboard_contracts.plugin import Plugin, hookimpl
from pegboard_contracts.server import ServerInfo
from pegboard_contracts.services import Services
from pydantic import Field

from pegboard_routes._native import ModelName, ModelRequest, add_route, fresh_response

if TYPE_CHECKING:
    from fastapi import APIRouter


class ContextRequest(ModelRequest):
    """Change a context from the expected value to another one."""

    context_tokens: int = Field(description="The wanted context in tokens.")
    expected_context_tokens: int = Field(
        description="The context as the caller last saw it; another one is answered 409."
    )


class ContextList(msgspec.Struct, frozen=True, kw_only=True):
    """List the context of every registered model, loaded or not, by id."""

    object: Literal["list"] = "list"
    data: list[ContextBudget]


class ChangedContext(ContextBudget, frozen=True, kw_only=True):
    """Show a context that holds: at once, or from the next load on."""

    status: Literal["applied", "saved"]
    message: str


class ModelContexts(Plugin):
    """Serve `GET /v1/models/contexts` and `GET` and `POST /v1/models/context`."""

    summary = "GET /v1/models/contexts, GET and POST /v1/models/context"

    @hookimpl
    def pegboard_provide_routers(self, services: Services) -> "Sequence[APIRouter]":
        """Provide the routes."""
        from fastapi import APIRouter, Query, Request  # noqa: PLC0415 - heavy
        from starlette.responses import Response  # noqa: PLC0415 - heavy

        lifecycle = services.get(ModelLifecycle)
        status = services.get(ServerInfo).schema_error_status.get("native", 422)

        async def list_contexts() -> Response:
            return fresh_response(ContextList(data=lifecycle.budgets()))

        async def show_context(model: Annotated[ModelName, Query()]) -> Response:
            return fresh_response(lifecycle.budget(model))

        async def change_context(request: Request) -> Response:
            body = await read_body(request, ContextRequest, schema_status=status)
            budget = await lifecycle.change_context(
                body.model, body.context_tokens, body.expected_context_tokens
            )
            return fresh_response(_changed(budget))

        router = APIRouter(prefix="/v1/models", tags=["models"])
        summary = "List the context of every model"
        add_route(router, "GET", "/contexts", list_contexts, summary=summary, answer=ContextList)
        summary = "Show the context of a model, what it may become and what that would cost"
        add_route(router, "GET", "/context", show_context, summary=summary, answer=ContextBudget)
        add_route(
            router,
            "POST",
            "/context",
            change_context,
            summary="Change the context of a model; answers when it holds",
            body=ContextRequest,
            answer=ChangedContext,
        )
        return [router]


def _changed(budget: ContextBudget) -> ChangedContext:
    fields = msgspec.structs.asdict(budget)
    tokens = budget.configured_context_tokens
    if budget.loaded:
        message = f"'{budget.model}' now has a context of {tokens} tokens."
        return ChangedContext(status="applied", message=message, **fields)
    message = f"'{budget.model}' has a context of {tokens} tokens from its next load on."
    return ChangedContext(status="saved", message=message, **fields)


plugin = ModelContexts

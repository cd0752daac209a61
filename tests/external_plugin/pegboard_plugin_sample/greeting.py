"""Answer `GET /sample/greeting`."""

from typing import TYPE_CHECKING

from pegboard_contracts.plugin import Plugin, hookimpl

if TYPE_CHECKING:
    from fastapi import APIRouter


class Greeting(Plugin):
    """Greet whoever asks."""

    summary = "GET /sample/greeting"

    @hookimpl
    def pegboard_provide_routers(self) -> "list[APIRouter]":
        from fastapi import APIRouter  # noqa: PLC0415 - heavy, and only a server needs it

        router = APIRouter()
        router.add_api_route("/sample/greeting", lambda: {"greeting": "Hello from outside"})
        return [router]


plugin = Greeting

"""The registry of services: one provider per contract, frozen before the app is built."""

from __future__ import annotations

from typing import Any, TypeVar, cast

T = TypeVar("T")


class Services:
    """Hold one object per contract type.

    Filled by `pegboard_provide_services` in plugin order, then frozen. Tests build their
    own. Not thread-safe: used on the event loop.
    """

    def __init__(self) -> None:
        """Start empty and open."""
        self._providers: dict[type[Any], object] = {}
        self._frozen = False

    def add(self, contract: type[T], provider: T) -> None:
        """Register `provider` for `contract`.

        Raises `LookupError` when the contract has a provider or the registry is frozen.
        """
        if self._frozen:
            raise LookupError(f"services are frozen; {contract.__name__} comes too late")
        if contract in self._providers:
            raise LookupError(f"{contract.__name__} has a provider already: disable one of the two")
        self._providers[contract] = provider

    def get(self, contract: type[T]) -> T:
        """Return the provider of `contract`; raises `LookupError` naming it when there is none."""
        provider = self.find(contract)
        if provider is None:
            raise LookupError(f"no active plugin provides {contract.__name__}")
        return provider

    def find(self, contract: type[T]) -> T | None:
        """Return the provider of `contract`, or nothing."""
        return cast("T | None", self._providers.get(contract))

    def freeze(self) -> None:
        """Refuse every further `add`."""
        self._frozen = True

"""The laws of model sources, as a test class to subclass."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pegboard_contracts.errors import ApiError
from pegboard_contracts.sources import MODEL_ID, ModelSource

# What hypothesis says about a law that several classes inherit; replaying works anyway.
SUBCLASSED = [HealthCheck.differing_executors]


class SourceLaws:
    """Hold what every source must do; no law needs a network."""

    @pytest.fixture(scope="class")
    @classmethod
    def source(cls) -> ModelSource:
        """Return the source, configured; override."""
        raise NotImplementedError

    @pytest.fixture
    def good_address(self) -> str:
        """Return an address that leads somewhere; override."""
        raise NotImplementedError

    @pytest.fixture
    def missing_address(self) -> str:
        """Return a well-formed address that leads nowhere; override."""
        raise NotImplementedError

    def test_schemes_are_words(self, source: ModelSource) -> None:
        """A source has a scheme, and a scheme fits before a colon."""
        assert source.schemes
        assert all(scheme == "" or scheme.isidentifier() for scheme in source.schemes)

    def test_a_good_address_leads_somewhere(self, source: ModelSource, good_address: str) -> None:
        """The path is absolute, exists, and is the same the second time."""
        path = source.resolve(good_address)
        assert path.is_absolute()
        assert path.exists()
        assert source.resolve(good_address) == path

    def test_a_missing_model_is_told_so(self, source: ModelSource, missing_address: str) -> None:
        """It is a 404 whose message names the address."""
        with pytest.raises(ApiError) as refused:
            source.resolve(missing_address)
        assert refused.value.status == 404
        assert refused.value.param == "source_model"

    @settings(max_examples=200, deadline=None, suppress_health_check=SUBCLASSED)
    @given(st.text(max_size=80))
    def test_any_text_is_answered(self, source: ModelSource, address: str) -> None:
        """Nonsense gives an `ApiError` of the client's, and an id is always usable."""
        try:
            assert source.resolve(address).exists()
        except ApiError as error:
            assert error.status in {400, 404, 409}  # noqa: PT017 - a path is as good an answer
        assert MODEL_ID.fullmatch(source.default_id(address))

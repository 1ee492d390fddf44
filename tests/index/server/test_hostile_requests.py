"""Whatever is sent, the answer is no fault of the server's, memory does not grow, and it still answers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import schemathesis

from vicinal.index import Index
from vicinal.index.server import ServerSettings, create_app

sys.path.insert(0, str(Path(__file__).parents[3] / "campaign"))
import hostile_uploads
import server_soak

TOKEN = "a-token-of-the-tests"


def fault(reply: Any) -> bool:
    """A 5xx that is not a request to come back later."""
    return reply.status_code >= 500 and not (reply.status_code == 503 and "retry-after" in reply.headers)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Do not use the")  # what schemathesis does inside its own strategies
def test_what_the_description_allows_is_never_a_fault(vectors: Index) -> None:
    app = create_app(vectors, ServerSettings(writable=True, token=TOKEN, names=("testserver",)))
    presented = {"Authorization": f"Bearer {TOKEN}"}
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers=presented)
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 20
    seen = set()
    for operation in operations:

        @hypothesis.given(case=operation.as_strategy())
        @hypothesis.settings(
            max_examples=12,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        def ask(case: Any) -> None:
            reply = case.call(headers=presented)
            seen.add(reply.status_code)
            assert not fault(reply), (reply.status_code, reply.text)
            assert "content-security-policy" in reply.headers

        ask()
    assert 200 in seen
    assert 421 not in seen  # the requests got past the check of the header Host
    assert 401 not in seen


@pytest.mark.slow
def test_hostile_uploads() -> None:
    told: list[str] = []
    (tally,) = hostile_uploads.every(400, seed=0, tell=told.append)
    assert tally.faults == []
    counts = tally.total()
    assert counts["sound"] > 50
    assert counts["refused in words"] > 200
    assert set(hostile_uploads.HOSTILE) | {"a good one between", "no growth"} == set(tally.counts)
    assert "memory, MiB" in told[0]


@pytest.mark.slow
def test_a_soak() -> None:
    told: list[str] = []
    (tally,) = server_soak.every(12, seed=0, items=500, tell=told.append)
    assert tally.faults == []
    assert tally.counts["vectors"]["sound"] > 5
    assert "writers killed" in told[0]

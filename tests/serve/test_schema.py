"""The server against its own OpenAPI: whatever fits the schema, or does not, no answer is a 5xx."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from regard.serve.schemas import BATCHED, STREAMED, LookRequest
from tests.serve.live import Server

EXAMPLES = 6  # of each operation and kind


def numbers(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every number of a JSON schema, with its place."""
    if isinstance(schema, dict):
        if schema.get("type") in ("integer", "number"):
            yield path, schema
        for key, value in schema.items():
            yield from numbers(value, f"{path}.{key}")
    elif isinstance(schema, list):
        for n, value in enumerate(schema):
            yield from numbers(value, f"{path}.{n}")


def test_every_number_has_its_bounds() -> None:
    bounds = ({"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"})
    count = 0
    for body in (*BATCHED, *STREAMED, LookRequest):
        for path, number in numbers(body.model_json_schema()):
            assert all(number.keys() & names for names in bounds), f"{body.op}{path}"
            count += 1
    assert count > 10


def test_no_request_makes_it_fail(models: list[str]) -> None:
    schemathesis = pytest.importorskip("schemathesis")
    statuses: dict[int, int] = {}
    with Server(*models, "--max-tokens", 8) as server:
        schema = schemathesis.openapi.from_dict(server.client.get("/openapi.json").json())
        schema.config.update(base_url=server.url)
        for found in schema.get_all_operations():
            for mode in schemathesis.GenerationMode:
                operation = found.ok()
                if not operation.body and mode == schemathesis.GenerationMode.NEGATIVE:
                    continue  # where nothing is asked, nothing can be wrong
                cases = operation.as_strategy(generation_mode=mode)
                quiet = settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
                                 suppress_health_check=list(HealthCheck))  # fmt: skip

                @quiet
                @given(case=cases)
                def fuzz(case: Any) -> None:
                    answer = case.call()
                    statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
                    assert answer.status_code < 500, answer.content

                fuzz()
    assert statuses[200] > 20
    assert statuses[422] > 20

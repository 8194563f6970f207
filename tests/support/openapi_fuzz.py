"""Requests that are drawn from the OpenAPI description of an agent."""

from collections.abc import Callable
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from openapi_spec_validator import OpenAPIV31SpecValidator
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance
from support.http_process import PATIENCE_S


def fuzz_described(url: str, chosen: Callable[[str], bool], verify: str | bool = True, **path_parameters: str) -> int:
    """Fuzz each operation with a chosen path, and return their number.

    The description is valid. No answer is a 5xx, or has a status or media type that the description lacks. Bodies,
    headers and parameters are drawn from it, except for ``path_parameters``. ``verify`` is a file of authorities.
    """
    document = requests.get(f"{url}/openapi.json", verify=verify, timeout=PATIENCE_S).json()
    OpenAPIV31SpecValidator(document).validate()
    document["paths"] = {path: item for path, item in document["paths"].items() if chosen(path)}
    found = list(schemathesis.openapi.from_dict(document).get_all_operations())
    for each in found:
        assert isinstance(each, Ok), "the description of an operation cannot be read"
        operation = each.ok()

        @given(case=operation.as_strategy())
        @settings(
            max_examples=10,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def fuzz(case: schemathesis.Case[Any]) -> None:
            case.path_parameters.update(
                {name: value for name, value in path_parameters.items() if name in case.path_parameters}
            )
            reply = case.call(base_url=url, verify=verify)
            checks = [not_a_server_error, status_code_conformance, content_type_conformance]
            case.validate_response(reply, checks=checks)

        fuzz()
    return len(found)

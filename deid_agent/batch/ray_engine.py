"""Ray: units as remote tasks. ray is imported when it is first used."""

import os
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from deid_agent.batch.engine_units import UnitResult, UnitWork
from deid_agent.batch.running import UnitTask
from deid_agent.batch.systems import refuse_key
from deid_agent.model import ConfigurationError, UnsafeError, describe_exception


def load_ray() -> Any:
    """The module. Raises ``ConfigurationError`` with the command that installs it."""
    try:
        return import_module("ray")
    except ImportError:
        raise ConfigurationError(
            "Ray needs ray, which is not installed; run: pip install 'deid-agent[batch-ray]'"
        ) from None


def _run_task(work: UnitWork, task: UnitTask) -> UnitResult:
    return work(task)


class RayUnits:
    """Runs each unit as a task of one CPU."""

    def __init__(self) -> None:
        """Join the cluster of ``ray job submit`` or ``$RAY_ADDRESS``, or start Ray on this machine.

        Raises ``ConfigurationError`` without ray, and for a key in the settings.
        """
        self._ray = load_ray()
        refuse_key(os.environ.items(), "the environment")
        self._joined = bool(self._ray.is_initialized())
        if not self._joined:
            self._ray.init(log_to_driver=False)
        variables = self._ray.get_runtime_context().runtime_env.get("env_vars") or {}
        refuse_key(variables.items(), "the runtime environment of Ray")

    def run(self, work: UnitWork, tasks: Sequence[UnitTask]) -> Iterator[UnitResult]:
        """See ``UnitEngine``."""
        remote = self._ray.remote(num_cpus=1, max_retries=3, retry_exceptions=[UnsafeError])(_run_task)
        shared = self._ray.put(work)
        waiting = [remote.remote(shared, task) for task in tasks]
        while waiting:
            done, waiting = self._ray.wait(waiting, num_returns=1)
            for each in done:
                fault = ""
                try:
                    result: UnitResult = self._ray.get(each)
                except Exception as error:  # noqa: BLE001 - its text may hold that of others
                    cause = getattr(error, "cause", None)
                    fault = str(cause) if isinstance(cause, UnsafeError) else describe_exception(error)
                if fault:
                    for left in waiting:
                        self._ray.cancel(left, force=True)
                    raise UnsafeError(f"Ray gave up a task: {fault}: run it again")
                yield result

    def close(self) -> None:
        """End Ray, unless it was there before."""
        if not self._joined:
            self._ray.shutdown()

"""``PYTHONPATH=tests python -m support.oracle --cases 10_000_000 --seed 1 --jobs 4``: the nightly run.

Prints the cases and survivors of each class, then the survivors with their coordinates. Exit code 1 if any survives.
``--show SEED/NUMBER/PLANT`` prints the smallest message of a case, its output, and nothing else.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from pathlib import Path

from support.oracle.carriers import PLANTS, make_message
from support.oracle.judge import Case, Judge, Sanitize, Tally, group_kind

from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import SecretKey
from deid_agent.model.errors import MessageError
from deid_agent.pipeline import Deidentifier, MessagePlan, load_policy

RULES = Path(__file__).resolve().parents[3] / "rules"
KEYS = (bytes(range(7, 39)), bytes(range(101, 133)), bytes(range(151, 183)))
_CHUNK = 50  # messages


@lru_cache(maxsize=4)
def load_sanitizer(key: int = 0, policy: str = "pseudonymised") -> Sanitize:
    """The default de-identifier under one of two keys. It takes several messages at once, as a worker does."""
    deidentifier = WorkerFactory(RULES, SecretKey(KEYS[key]), load_policy(policy, RULES)).deidentifier()
    return lambda messages: sanitize_batch(deidentifier, messages)


def sanitize_batch(deidentifier: Deidentifier, messages: Sequence[bytes]) -> list[bytes | str]:
    """The output of each message, or the reason for its refusal."""
    results: list[bytes | str] = []
    plans: list[MessagePlan | str] = []
    for raw in messages:
        try:
            plans.append(deidentifier.plan(raw))
        except MessageError as problem:
            plans.append(f"{problem.reason}")
    recognitions = iter(deidentifier.recognize([plan for plan in plans if isinstance(plan, MessagePlan)]))
    for plan in plans:
        try:
            results.append(plan if isinstance(plan, str) else deidentifier.apply(plan, next(recognitions)).payload)
        except MessageError as problem:
            results.append(f"{problem.reason}")
    return results


def judge(seed: int, first: int, last: int) -> Tally:
    """The tally of the messages ``first`` to ``last``."""
    return Judge(load_sanitizer(0), lambda: (load_sanitizer(1), load_sanitizer(2)), seed).run(range(first, last))


def messages_of(cases: int) -> int:
    """The number of messages that have at least ``cases`` cases."""
    return -(-cases // (PLANTS + 15))


def survivor_lines(survivors: list[Case]) -> Iterator[str]:
    """One line for each class of survivors, the largest first: its size, its carriers, and one case."""
    classes: dict[tuple[str, str, str], list[Case]] = {}
    for case in survivors:
        writing = "any" if case.encoding != "none" else f"{group_kind(case.kind)} {case.writing}"
        classes.setdefault((case.form, case.encoding, writing), []).append(case)
    for (form, encoding, writing), cases in sorted(classes.items(), key=lambda item: -len(item[1])):
        carriers = ", ".join(f"{name} {n}" for name, n in Counter(c.carrier for c in cases).most_common(6))
        one = cases[0]
        yield f"{len(cases):>5} {form} | {writing} | {encoding} | {carriers}\n      {one.coordinates}  {one.names}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="oracle", description="Plants identifiers and searches the output for them.")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first message")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--most", type=int, default=60, help="survivors to list")
    parser.add_argument("--show", help="SEED/NUMBER/PLANT")
    options = parser.parse_args()
    if options.show:
        return _show(*map(int, options.show.split("/")))
    first, last = options.first, options.first + messages_of(options.cases)
    starts = range(first, last, _CHUNK)
    tally = Tally()
    with ProcessPoolExecutor(options.jobs) as pool:
        for each in pool.map(judge, [options.seed] * len(starts), starts, [min(s + _CHUNK, last) for s in starts]):
            tally.merge(each)
    print(tally.table())  # noqa: T201
    for line in list(survivor_lines(tally.survivors))[: options.most]:
        print(line)  # noqa: T201
    return 1 if tally.survivors else 0


def _show(seed: int, number: int, plant: int) -> int:
    message = make_message(seed, number)
    raw = message.render(() if plant < 0 else (plant,))
    for part in (raw, *load_sanitizer()([raw])):
        text = part if isinstance(part, str) else part.decode(message.charset, "replace")
        print(text.replace("\r", "\n"), "\n---")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())

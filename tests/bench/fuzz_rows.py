"""Random rows through ``batch``: ``PYTHONPATH=.:tests python tests/bench/fuzz_rows.py [--rows 100_000] [--seed 1]``.

Prints the seconds of the processor and the number of rows; an exception or a wrong row ends it with the seed.
"""

import argparse
import time

from support.row_fuzz import check_rows, make_rows


def main() -> None:
    """Check the rows."""
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=100_000)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    begin, done = time.process_time(), 0
    for number, fuzzed in enumerate(make_rows(given.seed, given.rows)):
        try:
            check_rows(fuzzed)
        except BaseException:
            print(f"seed {given.seed}, batch {number}, table {fuzzed.maker.table.name}")  # noqa: T201
            raise
        done += fuzzed.rows.batch.num_rows
    print(f"{done} rows without a fault, {time.process_time() - begin:.1f} s of the processor")  # noqa: T201


if __name__ == "__main__":
    main()

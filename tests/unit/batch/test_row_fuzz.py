"""Random rows: no exception leaves the function, and each row has an outcome and an audit."""

import pytest

pytest.importorskip("pyarrow")

from support.row_fuzz import check_rows, make_rows


@pytest.mark.parametrize("seed", [2, 4471902])
def test_random_rows_have_an_outcome_each(seed: int) -> None:
    for fuzzed in make_rows(seed, 1000):
        check_rows(fuzzed)

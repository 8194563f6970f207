"""A million identifiers of every format: no two share a surrogate, none is its own.

    python tests/bench/collide.py [--count 1000000] [--only PART_OF_NAME] [--skip PART_OF_NAME]

The originals of a format: consecutive values, in which a weak Feistel network fails first, and as many spread over its
range; or all values if there are fewer. One line per format: originals, repeated surrogates, surrogates equal to their
original, seconds. The exit code is 1 if a one-to-one format has a collision. Telephone numbers and network addresses
map to the few that are reserved for fiction; their collisions are counted only.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.id_formats import FORMATS, meets

from deid_agent.surrogate import Surrogates


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--only", default="")
    parser.add_argument("--skip", default="\n")
    args = parser.parse_args()
    made, faults = Surrogates(b"the secret of the collision search alone"), 0
    for form in FORMATS:
        if args.only not in form.name or args.skip in form.name:
            continue
        begin = time.perf_counter()
        total, again, own = meets(made, form, args.count)
        line = f"{form.name:34} {total:9,} originals {again:9,} met {own:3} own {time.perf_counter() - begin:6.0f} s"
        sys.stdout.write(f"{line}{'' if form.one_to_one else '  reserved numbers'}\n")
        sys.stdout.flush()
        faults += own + again * form.one_to_one
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

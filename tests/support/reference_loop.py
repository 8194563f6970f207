"""A fixed amount of work, beside which benchmarks are timed."""

import time


def reference_loop() -> float:
    """Seconds of CPU for a fixed amount of work in the manner of a tagger: words, dictionaries, sums."""
    begin = time.process_time()
    words = [f"w{number % 977}" for number in range(2_000)]
    total = 0.0
    for turn in range(10):
        counts: dict[str, int] = {}
        for at, word in enumerate(words):
            counts[word] = counts.get(word, 0) + at + turn
            if word.endswith("7"):
                total += len(word) * 0.5
        total += sum(sorted(counts.values())[:50])
    assert total > 0
    return time.process_time() - begin

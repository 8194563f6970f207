"""Compares the outputs of a feed with the audit trail of the agent that made them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from deid_agent.audit import entry_build, read_entries, verify_trail
from deid_agent.model import ConfigurationError, counted

_NAMES = ("version", "rules", "site", "models", "policy", "configuration", "key", "generation")


def check_origin(folder: Path, digests: Sequence[str]) -> Mapping[str, object]:
    """The builds that made the outputs, by their entries in the trail. ``digests`` are the SHA-256 of the outputs.

    Raises ``ConfigurationError`` if the trail is not sound, if it has no entry about an output, or if the outputs were
    made under several keys.
    """
    if not folder.is_dir():
        raise ConfigurationError(f"--audit {folder}: no such folder")
    report = verify_trail(folder)
    if report.faults:
        raise ConfigurationError(
            f"--audit {folder}: {counted(len(report.faults), 'fault')}: run `deid-agent audit verify` on it"
        )
    wanted = set(digests)
    found: dict[str, Mapping[str, object]] = {}
    outcomes = Counter[str]()
    for item in read_entries(folder):
        outcomes[str(item.get("outcome"))] += 1
        digest = item.get("output_sha256")
        if isinstance(digest, str) and digest in wanted:
            found[digest] = entry_build(item)
    if missing := len(wanted - found.keys()):
        raise ConfigurationError(
            f"--audit {folder}: has no entry about {missing} of {counted(len(wanted), 'output')}: they are of another "
            "feed, were made under another key, or were changed"
        )
    builds = Counter(tuple((name, str(build[name])) for name in _NAMES if name in build) for build in found.values())
    keys = sorted({str(build.get("key")) for build in found.values()})
    if len(keys) > 1:
        raise ConfigurationError(
            f"--audit {folder}: the outputs were made under {len(keys)} keys ({', '.join(keys)}): report about one key"
        )
    return {
        "trail": report.trail,
        # The trail was verified with the keys that it names: a reader compares this one with the key that was kept.
        "first_key": report.first_key,
        "key": keys[0],
        "entries": dict(sorted(outcomes.items())),
        "builds": [{**dict(build), "outputs": count} for build, count in sorted(builds.items())],
    }

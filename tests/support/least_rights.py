"""A process as a container runs it: an unknown user, a root file system that cannot be written."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

_READ_ONLY = """
set -e
mount --bind "$1" "$1"
for place in /dev/shm /run /tmp /var/tmp; do if mountpoint -q "$place"; then mount -o remount,ro,bind "$place"; fi; done
mount -o remount,ro,bind /
! touch /tmp/deid-can-write 2> /dev/null
shift
exec "$@"
"""


def can_unshare() -> bool:
    """True if a process can have its own mounts, which needs root rights."""
    tools = all(map(shutil.which, ("unshare", "mount", "mountpoint", "setpriv")))
    return tools and os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], check=False).returncode == 0


def as_user(command: Sequence[str], user: int) -> list[str]:
    """``command`` run as that user if the test may choose, with read access to all files (the interpreter may be
    root's).
    """
    if os.geteuid() != 0:
        return list(command)
    rights = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search", "--no-new-privs"]
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *rights, *command]


def read_only(command: Sequence[str], writable: Path) -> list[str]:
    """``command`` run so that only the paths below ``writable`` are writable."""
    return ["unshare", "-m", "sh", "-c", _READ_ONLY, "sh", str(writable), *command]

"""``python -m deid_agent.probe``: is the agent alive? What a container's health check runs in place of curl.

The standard library alone: the command line with all its parts would take a second of CPU, every time.
"""

import argparse
import os
import sys
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

_ANY = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}  # noqa: S104 - what the agent listens on, not we
_MOST = 4096


def ask(url: str, timeout_s: float) -> tuple[bool, str]:
    """True where ``url`` answers 200, and one line of what it said.

    Never raises for what the other side does. Goes there directly: a proxy that the environment names would be asked
    for its own loopback address, and the answer would be about another machine.
    """
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
    try:
        connection.request("GET", f"{parts.path or '/'}{parts.query and '?'}{parts.query}")
        answer = connection.getresponse()
        said = answer.read(_MOST).decode("utf-8", "replace")
    except (OSError, HTTPException) as problem:
        return False, f"{url}: no answer ({type(problem).__name__})"
    finally:
        connection.close()
    return answer.status == 200, f"{answer.status} {' '.join(said.split())}"


def main(arguments: list[str] | None = None) -> int:
    """The command; 0 where the answer is 200, 1 where it is not or there is none, 2 where the call is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m deid_agent.probe",
        description="Ask a running agent whether it is alive. Exit code 0: yes, 1: no or no answer, 2: a wrong call.",
    )
    host = os.environ.get("DEID_HTTP__HOST", "")
    port = os.environ.get("DEID_HTTP__PORT", "9464")
    base = f"http://{_ANY.get(host, f'[{host}]' if ':' in host else host)}:{port}"
    parser.add_argument("--ready", action="store_true", help="ask /readyz: is it at work, too?")
    parser.add_argument("--url", help=f"ask this; else {base}/healthz (DEID_HTTP__HOST and DEID_HTTP__PORT count)")
    parser.add_argument("--timeout", type=float, default=4.0, metavar="S", help="seconds to wait for an answer (4)")
    given = parser.parse_args(arguments)
    url = given.url or f"{base}/{'readyz' if given.ready else 'healthz'}"
    try:
        parts = urlsplit(url)
        sound = parts.scheme == "http" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound or not 0 < given.timeout <= 3600:
        parser.error(f"{url}: give --url http://HOST:PORT/PATH, and --timeout in seconds above 0")
    ok, said = ask(url, given.timeout)
    print(said, file=sys.stdout if ok else sys.stderr)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())

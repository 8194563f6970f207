"""``python -m deid_agent.probe``: checks a running agent, for the health check of a container without curl.

It uses the standard library only, because it runs every few seconds.
"""

import argparse
import os
import sys
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

_ANY = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}  # noqa: S104 - the agent listens there, not this program
_MAX_BYTES = 4096


def request_status(url: str, timeout_s: float) -> tuple[bool, str]:
    """True if ``url`` answers 200, and the answer as one line. Raises nothing for a fault of the other side.

    It ignores proxies of the environment: a proxy would connect to its own loopback address, and the answer would come
    from another machine.
    """
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
    try:
        connection.request("GET", f"{parts.path or '/'}{parts.query and '?'}{parts.query}")
        answer = connection.getresponse()
        body = answer.read(_MAX_BYTES).decode("utf-8", "replace")
    except (OSError, HTTPException) as problem:
        return False, f"{url}: no answer ({type(problem).__name__})"
    finally:
        connection.close()
    return answer.status == 200, f"{answer.status} {' '.join(body.split())}"


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Returns 0 if the answer is 200, else 1; argparse exits with 2 for a wrong call."""
    parser = argparse.ArgumentParser(
        prog="python -m deid_agent.probe",
        description="Check whether a running agent is alive. Exit code 0: yes, 1: no or no answer, 2: a wrong call.",
    )
    host = os.environ.get("DEID_HTTP__HOST", "")
    port = os.environ.get("DEID_HTTP__PORT", "9464")
    base = f"http://{_ANY.get(host, f'[{host}]' if ':' in host else host)}:{port}"
    parser.add_argument("--ready", action="store_true", help="request /readyz: check whether it is ready, too")
    parser.add_argument(
        "--url", help=f"request this URL (default: {base}/healthz; see DEID_HTTP__HOST, DEID_HTTP__PORT)"
    )
    parser.add_argument("--timeout", type=float, default=4.0, metavar="S", help="seconds to wait for an answer (4)")
    given = parser.parse_args(arguments)
    url = given.url or f"{base}/{'readyz' if given.ready else 'healthz'}"
    try:
        parts = urlsplit(url)
        valid = parts.scheme == "http" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or not 0 < given.timeout <= 3600:
        parser.error(f"{url}: give --url http://HOST:PORT/PATH, and --timeout in seconds above 0")
    ok, line = request_status(url, given.timeout)
    print(line, file=sys.stdout if ok else sys.stderr)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())

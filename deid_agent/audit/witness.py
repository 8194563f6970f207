"""Publishes the signed heads of a trail to places outside its folder: a file on another disk, or an HTTP server.

A head that a witness keeps shows later whether the end of the trail was cut off or rewritten. No record waits for a
witness: a thread of its own publishes the newest head, and a failure is only reported.
"""

import os
import threading
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Protocol
from urllib.error import HTTPError

from deid_agent.audit.storage import write_all

_TIMEOUT_S = 5.0
_CLOSE_S = 7.0

WitnessReport = Callable[[str, str], None]
"""Receives the name of a place and what is wrong with it, "" if nothing is. Called in the witness's thread."""


class WitnessPlace(Protocol):
    """A place that keeps heads."""

    @property
    def name(self) -> str:
        """The name of the place in events and metrics."""

    def keep(self, head: bytes) -> None:
        """Keep one head. Raises ``OSError`` or ``HTTPException`` if that is not certain."""


@dataclass(frozen=True, slots=True)
class WitnessFile:
    """Appends heads to a file, one a line."""

    path: Path
    name: str = "file"

    def keep(self, head: bytes) -> None:
        """See ``WitnessPlace.keep``."""
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            write_all(file, head + b"\n")
            os.fsync(file)
        finally:
            os.close(file)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is a failure: the head would go to a place that nobody configured."""

    def redirect_request(self, *_: object) -> None:
        return None


@dataclass(frozen=True, slots=True)
class WitnessServer:
    """Sends heads to a URL by POST, as JSON. Any status but 2xx is a failure, and proxies are not used."""

    url: str
    name: str = "http"

    def keep(self, head: bytes) -> None:
        """See ``WitnessPlace.keep``."""
        request = urllib.request.Request(self.url, head + b"\n", {"Content-Type": "application/json"})  # noqa: S310 - the settings allow http and https only
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)
        with opener.open(request, timeout=_TIMEOUT_S):
            pass


class Witness:
    """Publishes the newest head to each place, at most once in ``interval_s``; ``close`` publishes the last one.

    A head that a place does not accept is offered again after the interval, or a newer one in its stead.
    """

    def __init__(self, places: Sequence[WitnessPlace], interval_s: float, report: WitnessReport) -> None:
        self._places = places
        self._interval_s = interval_s
        self._report = report
        self._newest = b""
        self._kept: dict[str, bytes] = {}
        self._offered = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def offer(self, head: bytes) -> None:
        """Publish this head with the next turn. Never blocks. Called from one thread."""
        self._newest = head
        self._offered.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="witness", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Publish the last head, within a few seconds, and end."""
        self._closed.set()
        self._offered.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        while not self._closed.is_set():
            self._offered.wait()
            self._offered.clear()
            if not self._publish() and not self._closed.is_set():
                self._offered.set()
            self._closed.wait(self._interval_s)
        self._publish()

    def _publish(self) -> bool:
        """Publish the newest head where it is not kept yet. True if every place has it."""
        head, whole = self._newest, True
        for place in self._places:
            if not head or self._kept.get(place.name) == head:
                continue
            problem = _problem(place, head)
            if not problem:
                self._kept[place.name] = head
            whole = whole and not problem
            self._report(place.name, problem)
        return whole


def _problem(place: WitnessPlace, head: bytes) -> str:
    """Keep the head; return why that failed, in words without the address."""
    try:
        place.keep(head)
    except HTTPError as error:
        error.close()
        return f"HTTP status {error.code}"
    except (OSError, HTTPException, ValueError) as error:
        return getattr(error, "strerror", None) or type(error).__name__
    return ""

"""Sessions of the console: few, in memory, and in two halves that only the browser that logged in has together.

Cookies know no ports (RFC 6265, 8.5): every other server of this host gets ours from a browser that looks at it. So a
cookie alone opens no data. The other half is kept by the pages, for their origin, which has the port; they say it in a
header.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

SESSION_S = 8 * 3600
_SESSIONS = 32
_TICKET_S = 60.0


@dataclass(frozen=True, slots=True)
class Opened:
    """What a browser gets: ``cookie`` for the host, ``page`` for the pages of this origin."""

    cookie: str = field(repr=False)
    page: str = field(repr=False)


@dataclass(slots=True)
class _Session:
    """Digests, and until when they count."""

    end: float
    page: str = field(repr=False)
    ticket: str = field(default="", repr=False)
    ticket_end: float = 0.0


class Sessions:
    """Those that go on. A restart ends them all."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._open: dict[str, _Session] = {}

    def open(self) -> Opened:
        """A new one; where there are too many the oldest ends."""
        now = self._clock()
        self._open = {name: session for name, session in self._open.items() if session.end > now}
        while len(self._open) >= _SESSIONS:
            self._open.pop(next(iter(self._open)))
        opened = Opened(secrets.token_urlsafe(32), secrets.token_urlsafe(32))
        self._open[digest(opened.cookie)] = _Session(now + SESSION_S, digest(opened.page))
        return opened

    def entered(self, cookie: str) -> bool:
        """True for the cookie of a session: enough for what holds nothing, and no more."""
        return self._of(cookie) is not None

    def known(self, cookie: str, page: str) -> bool:
        """True for both halves of a session."""
        session = self._of(cookie)
        return session is not None and hmac.compare_digest(digest(page), session.page)

    def ticket(self, cookie: str) -> str:
        """In place of the page's half where no header can be sent: for a minute, for one use. Empty without a session.

        Only for who is ``known``.
        """
        session = self._of(cookie)
        if session is None:
            return ""
        ticket = secrets.token_urlsafe(32)
        session.ticket, session.ticket_end = digest(ticket), self._clock() + _TICKET_S
        return ticket

    def spend(self, cookie: str, ticket: str) -> bool:
        """True once for a ticket of the session."""
        session = self._of(cookie)
        if session is None or session.ticket_end <= self._clock():
            return False
        fits = hmac.compare_digest(digest(ticket), session.ticket)
        if fits:
            session.ticket_end = 0.0
        return fits

    def close(self, cookie: str) -> None:
        """End one."""
        self._open.pop(digest(cookie), None)

    def _of(self, cookie: str) -> _Session | None:
        # A digest is looked up, not the cookie: how long that takes tells nothing of it.
        session = self._open.get(digest(cookie))
        return session if session is not None and session.end > self._clock() else None


def digest(text: str) -> str:
    """What is kept of a secret, and compared."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

"""The sessions of the console. Secrets are stored and compared as digests."""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

SESSION_S = 8 * 3600
_MAX_SESSIONS = 32
"""The most sessions of one person. There are few people, so this bounds the memory too."""
_TICKET_S = 60.0


@dataclass(frozen=True, slots=True)
class SessionKeys:
    """The two keys of a new session: ``cookie`` is sent to the host, ``page`` is kept by the pages of this origin.

    ``reviewer`` is the name of the reviewer who has logged in, empty for an operator.
    """

    cookie: str = field(repr=False)
    page: str = field(repr=False)
    reviewer: str = ""


@dataclass(slots=True)
class _Session:
    """Digests of the page key and of a ticket, the times at which session and ticket expire, and the reviewer."""

    end: float
    page: str = field(repr=False)
    reviewer: str = ""
    ticket: str = field(default="", repr=False)
    ticket_end: float = 0.0


class Sessions:
    """The open sessions, in memory. A restart of the agent ends them all.

    Browsers send a cookie to every port of a host (RFC 6265, 8.5), so another server on this host can receive ours.
    Therefore the cookie alone gives no access to data. The pages keep a second key in the storage of their origin,
    which includes the port, and send it in ``PAGE_HEADER``.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._sessions: dict[str, _Session] = {}

    def open(self, reviewer: str = "") -> SessionKeys:
        """Start a session, of an operator if ``reviewer`` is empty.

        If the same person has too many, the oldest of them ends: the owner of one token must not log out others.
        """
        now = self._clock()
        self._sessions = {name: session for name, session in self._sessions.items() if session.end > now}
        same = [name for name, session in self._sessions.items() if session.reviewer == reviewer]
        if len(same) >= _MAX_SESSIONS:
            self._sessions.pop(same[0])
        keys = SessionKeys(secrets.token_urlsafe(32), secrets.token_urlsafe(32), reviewer)
        self._sessions[digest(keys.cookie)] = _Session(now + SESSION_S, digest(keys.page), reviewer)
        return keys

    def cookie_owner(self, cookie: str) -> str | None:
        """The reviewer of the session of this cookie, empty for an operator, None without a session.

        This suffices for pages that contain no data.
        """
        session = self._find(cookie)
        return None if session is None else session.reviewer

    def owner(self, cookie: str, page: str) -> str | None:
        """The same for a cookie and a page key, which must belong to the same session."""
        session = self._find(cookie)
        if session is None or not hmac.compare_digest(digest(page), session.page):
            return None
        return session.reviewer

    def issue_ticket(self, cookie: str) -> str:
        """A key that replaces the page key in an address, valid once and for a minute. Empty without a session.

        The caller checks the request first (``owner``).
        """
        session = self._find(cookie)
        if session is None:
            return ""
        ticket = secrets.token_urlsafe(32)
        session.ticket, session.ticket_end = digest(ticket), self._clock() + _TICKET_S
        return ticket

    def redeem_ticket(self, cookie: str, ticket: str) -> bool:
        """True the first time that the ticket of this session is presented, False from then on."""
        session = self._find(cookie)
        if session is None or session.ticket_end <= self._clock():
            return False
        matches = hmac.compare_digest(digest(ticket), session.ticket)
        if matches:
            session.ticket_end = 0.0
        return matches

    def close(self, cookie: str) -> None:
        """End the session of a cookie."""
        self._sessions.pop(digest(cookie), None)

    def _find(self, cookie: str) -> _Session | None:
        # The lookup uses a digest of the cookie, so its duration reveals nothing about valid cookies.
        session = self._sessions.get(digest(cookie))
        return session if session is not None and session.end > self._clock() else None


def digest(text: str) -> str:
    """SHA-256 (hex). Secrets are stored and compared in this form."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

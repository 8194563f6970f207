"""The dead letters of the MLLP listener: stored in a folder, and replayed by sending them to the running agent."""

import ssl

from deid_agent.agent import FoundDeadLetter, ReplayChooser, ReplayReport
from deid_agent.config import MllpOutSettings, MllpSettings
from deid_agent.model import ConfigurationError, DeadLetterError, TransientError, UncertainCommitError, UnsafeError
from deid_agent.transport.folder.dead_letters import FolderDeadLetters
from deid_agent.transport.mllp.connection import TOPIC
from deid_agent.transport.mllp.protocol import AckResult, expects_no_answer, read_head
from deid_agent.transport.mllp.sender import Sender


class MllpDeadLetters(FolderDeadLetters):
    """A ``DeadLetterStore``. A replayed message is a new message for the agent; it is marked once it is acknowledged.

    If a replay is interrupted between the acknowledgment and the mark, the next replay sends that message again.
    """

    _setting = "mllp"

    def __init__(self, settings: MllpSettings, max_bytes: int) -> None:
        super().__init__(settings.dead_letters, settings.dead_letters, max_bytes, topic=TOPIC)
        self._settings = settings

    async def replay(self, choose: ReplayChooser, report: ReplayReport) -> None:
        """See ``DeadLetterStore.replay``. Raises ``ConfigurationError`` if the agent is not listening."""
        if not self._settings.port:
            raise ConfigurationError("mllp.port: 0 takes any free port; name the port of the running agent")
        with self._exclusive():
            sender = Sender(MllpOutSettings(host=self._settings.host, port=self._settings.port), self._context())
            try:
                for found in self._iterate():
                    record = choose(found)
                    if record is not None and isinstance(found, FoundDeadLetter):
                        report(found, await self._send_back(sender, found, record.payload))
            finally:
                await sender.close()

    async def _send_back(self, sender: Sender, found: FoundDeadLetter, payload: bytes) -> str:
        """Why the message could not be replayed; an empty string if it was."""
        at = found.head.at
        head = read_head(payload)
        if head is not None and expects_no_answer(head):
            return (
                "it asks for no answer, so its delivery cannot be checked; write it to a file with `dead-letters open` "
                "and send that file"
            )
        try:
            verdict = await sender.send(payload)
            if verdict is not AckResult.ACCEPT:
                return "the agent did not accept it: look at its log"
            self._mark_replayed(found)
        except DeadLetterError as problem:
            return str(problem)
        except UncertainCommitError:
            raise UnsafeError(
                f"{at}: no answer from the agent; it may have the message, so check before you send it again"
            ) from None
        except TransientError as problem:
            raise ConfigurationError(f"{problem}; the agent must be running to receive replayed messages") from None
        except OSError as problem:
            raise UnsafeError(
                f"{at}: writing to a folder failed ({problem.strerror}): fix it; the message was sent, "
                "but its dead letter is not marked"
            ) from None
        return ""

    def _context(self) -> ssl.SSLContext | None:
        """TLS to the agent's own listener. Accepts the certificate of the settings under any host name."""
        if self._settings.tls_certfile is None:
            return None
        if self._settings.tls_client_cafile is not None:
            raise ConfigurationError(
                "mllp.tls_client_cafile: the listener requires a client certificate; write dead letters to files with "
                "`dead-letters open` and send them with a sender that has one"
            )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(self._settings.tls_certfile)
        return context

"""The dead letters of the MLLP listener: a folder, and a replay that sends them to the running agent again."""

import ssl
from pathlib import Path

from deid_agent.agent.letterbox import Found, Pick, Told
from deid_agent.errors import ConfigurationError, DoubtError, LetterError, TransientError, UnsafeError
from deid_agent.transport.folder_letters import FolderLetters
from deid_agent.transport.mllp_ack import Verdict, read_head, silent
from deid_agent.transport.mllp_lane import TOPIC
from deid_agent.transport.mllp_sender import Sender
from deid_agent.transport.mllp_settings import ListenSettings, SendSettings


class MllpLetters(FolderLetters):
    """Implements ``LetterBox``. What is put back is a new message for the agent, and marked once it was answered.

    A replay that is cut off between the answer and the mark sends that one message again when it is run again.
    """

    _setting = "mllp"

    def __init__(self, listening: ListenSettings, letters: Path, most: int) -> None:
        super().__init__(letters, letters, most, topic=TOPIC)
        self._listening = listening

    async def replay(self, pick: Pick, told: Told) -> None:
        """See ``LetterBox.replay``. Raises ``ConfigurationError`` where the agent does not listen."""
        with self._alone():
            sender = Sender(SendSettings(host=self._listening.host, port=self._listening.port), self._context())
            try:
                for found in self._walk():
                    record = pick(found)
                    if record is not None and isinstance(found, Found):
                        told(found, await self._send_back(sender, found, record.payload))
            finally:
                await sender.close()

    async def _send_back(self, sender: Sender, found: Found, payload: bytes) -> str:
        """Why the message could not be put back; nothing where it was."""
        at = found.head.at
        head = read_head(payload)
        if head is not None and silent(head):
            return "it asks for no answer, so nobody would know; write it to a file with `letters open` and send that"
        try:
            verdict = await sender.send(payload)
            if verdict is not Verdict.ACCEPT:
                return "the agent did not take it: look at its log"
            self._mark(found)
        except LetterError as problem:
            return str(problem)
        except DoubtError:
            raise UnsafeError(
                f"{at}: no answer of the agent; it may have it, so look before it is sent again"
            ) from None
        except TransientError as problem:
            raise ConfigurationError(f"{problem}; the agent must run to take letters back") from None
        except OSError as problem:
            raise UnsafeError(
                f"{at}: a folder fails ({problem.strerror}): mend it; the message was sent, its letter is not marked"
            ) from None
        return ""

    def _context(self) -> ssl.SSLContext | None:
        """TLS to our own listener: whoever shows the certificate of the settings is it, under whatever name."""
        tls = self._listening.tls
        if tls is None or tls.certificate is None:
            return None
        if tls.authority is not None:
            raise ConfigurationError(
                "mllp.tls_client_cafile: the listener wants a sender's certificate; write letters to files with "
                "`letters open` and send them with a sender that has one"
            )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(tls.certificate)
        return context

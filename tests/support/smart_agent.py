"""An agent that gives tokens to clients for their signatures, on the loop of the test."""

import json
from pathlib import Path

from support.http_agent import HttpAgent, Reply
from support.smart_clients import FORM, SmartClient

from deid_agent.telemetry.transport_events import ServiceDenied

CANARY = "Zyblorqvist"
LAB = SmartClient("lab")
WARD = SmartClient("ward")


def settings_of(folder: Path, *clients: SmartClient, **more: object) -> dict[str, object]:
    """The section of an agent that gives tokens to these clients."""
    listed = {each.name: {"jwks_file": str(each.write(folder))} for each in clients}
    return {"mode": "self", "url": "https://deid.example", "clients": listed, "attempts_per_s": 1000, **more}


class SmartAgent:
    """An agent with clients ``lab`` and ``ward``; denials are answered at once."""

    def __init__(self, agent: HttpAgent) -> None:
        self.agent = agent
        self.slept: list[float] = []
        assert agent.smart is not None
        agent.smart.sleep = self._sleep

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    async def post(self, body: bytes, media: str = FORM, **headers: str) -> Reply:
        return await self.agent.ask("/token", body, media, **headers)

    async def token(self, client: SmartClient = LAB, **changes: str) -> str:
        reply = await self.post(client.form(**changes))
        assert reply.status == 200, reply
        return str(json.loads(reply.body)["access_token"])

    def denials(self) -> list[str]:
        return [str(each) for each in self.agent.telemetry.names(ServiceDenied, "why")]


def error_of(reply: Reply) -> str:
    """The code of a refusal (RFC 6749, 5.2), which nobody may keep."""
    assert reply.headers["cache-control"] == "no-store"
    assert reply.headers["content-type"] == "application/json"
    return str(json.loads(reply.body)["error"])

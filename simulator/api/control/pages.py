"""The simulator's own pages beside the Kubernetes API: faults and counters over HTTP, for game days and other processes.

GET|POST|DELETE /simulator/faults, DELETE /simulator/faults/<id>, GET|DELETE /simulator/requests
"""

from __future__ import annotations

from typing import Any

import orjson
from aiohttp import web

from simulator.api.control.faults import Faults, read_fault
from simulator.api.control.request_log import RequestLog


class Control:
    """Answers below /simulator; there is no token to it, since the server listens on the loopback only."""

    def __init__(self, faults: Faults, requests: RequestLog) -> None:
        self._faults = faults
        self._requests = requests

    async def answer(self, request: web.BaseRequest, parts: list[str]) -> web.Response:
        match (request.method, parts):
            case ("GET", ["requests"]):
                return _json(200, self._requests.document())
            case ("DELETE", ["requests"]):
                self._requests.reset()
                return _json(200, self._requests.document())
            case ("GET", ["faults"]):
                return _json(200, self._listed())
            case ("POST", ["faults"]):
                return self._add(await request.read())
            case ("DELETE", ["faults"]):
                self._faults.clear()
                return _json(200, self._listed())
            case ("DELETE", ["faults", identity]):
                known = self._faults.remove(identity)
                return _json(200 if known else 404, {"id": identity, "known": known})
        return _json(404, {"error": "known pages: /simulator/faults, /simulator/requests"})

    def _add(self, body: bytes) -> web.Response:
        try:
            sent = orjson.loads(body)
            if not isinstance(sent, dict):
                raise ValueError("a fault is a JSON object")
            identity = self._faults.add(read_fault(sent))
        except ValueError as error:
            return _json(400, {"error": str(error)})
        return _json(201, {"id": identity, "hits": self._faults.hits(identity)})

    def _listed(self) -> dict[str, Any]:
        faults = [
            {"id": active.id, "hits": active.hits, "left": active.left, **active.fault.document()} for active in self._faults
        ]
        return {"faults": faults}


def _json(status: int, document: dict[str, Any]) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(document), headers={"Content-Type": "application/json"})

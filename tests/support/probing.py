"""Asks a worker how it is, as a probe does."""

import contextlib
import http.client
import json


def probe(address: str, path: str) -> tuple[int, list[str]]:
    """Return the status and the problems that a probe gets."""
    with contextlib.closing(http.client.HTTPConnection(address, timeout=30)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = json.loads(answer.read())
    assert body["ok"] is (answer.status == 200)
    return answer.status, body["problems"]


def is_ready(address: str) -> bool:
    """Whether it works."""
    return probe(address, "/ready")[0] == 200

"""An OpenAI-compatible model service that keeps a bill: what it received, what it charged, before it answers.

In a test: ``with ModelStub(log, script=[Behaviour(content="…")]) as stub: … stub.url``. As a process of its own, for
tests that kill others: ``python -m tests.support.model_stub --log bill.jsonl --behaviours behaviours.json``; it prints
its address.
"""

import argparse
import json
import os
import re
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from schemas.texts import estimate_tokens
from tests.support.model_bill import read_bill

ERRORS: dict[str, tuple[int, dict[str, str]]] = {
    "rate_limited": (
        429,
        {"message": "Rate limit reached, slow down", "type": "requests", "code": "rate_limit_exceeded"},
    ),
    "quota": (
        429,
        {"message": "You exceeded your current quota", "type": "insufficient_quota", "code": "insufficient_quota"},
    ),
    "server_error": (500, {"message": "The server had an error", "type": "server_error"}),
    "unauthorized": (401, {"message": "Incorrect API key provided: {key}", "type": "invalid_request_error"}),
    "context": (
        400,
        {"message": "This model's maximum context length is 8192 tokens", "code": "context_length_exceeded"},
    ),
}


@dataclass(frozen=True)
class Behaviour:
    """What the stub does with one request."""

    kind: str = "reply"
    """reply, one of ``ERRORS``, error (``status`` and ``message``), stall, reset, malformed, empty_choices."""
    content: str | None = '{"reason": "nothing seen", "citation": null, "result": false}'
    reasoning: str | None = None
    finish_reason: str = "stop"
    usage: dict[str, Any] | None = field(default_factory=dict)
    """Overrides of the counted usage; None sends none (the request is billed all the same)."""
    tool_calls: list[dict[str, Any]] | None = None
    status: int = 400
    message: str = "bad request"
    code: str | None = None
    retry_after: str | None = None
    seconds: float = 0.0
    """Waits before answering; with ``stall`` it never answers."""
    content_repeat: int = 1
    """Repeats the content: a huge reply without a huge script."""

    charge: bool | None = None
    """Whether it is billed; None: all but refusals are."""

    @property
    def billed(self) -> bool:
        """Whether a provider charges for it."""
        billed = self.kind in {"reply", "stall", "reset", "malformed", "empty_choices", "server_error"}
        return billed if self.charge is None else self.charge


@dataclass(frozen=True)
class Asked:
    """One request as it came."""

    number: int
    """From 1."""
    key: str
    """The idempotency header: the effect id."""
    authorization: str
    body: dict[str, Any]

    @property
    def prompt(self) -> str:
        """All messages as one text."""
        return "\n".join(str(message.get("content", "")) for message in self.body.get("messages", []))


Script = Callable[[Asked], Behaviour]


def from_json(text: str) -> Script:
    """Return the script of a behaviour file: ``{"rules": [{"when": regex, "times": n, …behaviour}], "then": {…}}``.

    The first rule whose ``when`` is found in the prompt and that has not been used up decides.
    """
    data = json.loads(text)
    names = {item.name for item in fields(Behaviour)}
    left = [rule.get("times", sys.maxsize) for rule in data.get("rules", [])]
    lock = threading.Lock()

    def script(asked: Asked) -> Behaviour:
        with lock:
            for index, rule in enumerate(data.get("rules", [])):
                if left[index] and re.search(rule.get("when", ""), asked.prompt):
                    left[index] -= 1
                    return Behaviour(**{name: value for name, value in rule.items() if name in names})
        return Behaviour(**data.get("then", {}))

    return script


def queued(behaviours: Iterable[Behaviour]) -> Script:
    """Return a script that uses each behaviour once, in order; the last one stays."""
    rest = list(behaviours) or [Behaviour()]
    lock = threading.Lock()

    def script(asked: Asked) -> Behaviour:
        with lock:
            return rest.pop(0) if len(rest) > 1 else rest[0]

    return script


class ModelStub:
    """The service, on a port of its own, in threads of this process."""

    def __init__(self, log: Path, script: Script | Iterable[Behaviour] = (), port: int = 0) -> None:
        """Bill to ``log`` (JSON lines, appended), and do as ``script`` says."""
        self.log = log
        self.script = script if callable(script) else queued(script)
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self.count = len(self.bill())
        self.server = ThreadingHTTPServer(("127.0.0.1", port), type("Handler", (_Handler,), {"stub": self}))
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        """The ``api_base``."""
        return f"http://127.0.0.1:{self.server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        """Start serving."""
        self.thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop, stalled requests included."""
        self.stopping.set()
        self.server.shutdown()
        self.thread.join(10)
        self.server.server_close()

    def bill(self) -> list[dict[str, Any]]:
        """Return the log, one entry for each request."""
        return read_bill(self.log)

    def wait_for(self, count: int, seconds: float = 20) -> None:
        """Wait until ``count`` requests have come; raises TimeoutError."""
        until = time.monotonic() + seconds
        while len(self.bill()) < count:
            if time.monotonic() > until:
                raise TimeoutError(f"{len(self.bill())} requests in {seconds} s, not {count}")
            time.sleep(0.01)

    def write(self, asked: Asked, behaviour: Behaviour) -> dict[str, Any]:
        """Append the request and what it costs to the log; return the usage."""
        usage = {
            "prompt_tokens": estimate_tokens(asked.prompt),
            "completion_tokens": estimate_tokens((behaviour.content or "") + (behaviour.reasoning or "")),
            **(behaviour.usage or {}),
        }
        usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
        entry = {
            "number": asked.number,
            "at": time.time(),
            "key": asked.key,
            "authorization": asked.authorization,
            "behaviour": behaviour.kind,
            "body": asked.body,
            "billed": usage if behaviour.billed else None,
        }
        with self.lock, self.log.open("a") as out:
            out.write(json.dumps(entry) + "\n")
            out.flush()
            os.fsync(out.fileno())
        return usage

    def number(self) -> int:
        """Return the next request's number."""
        with self.lock:
            self.count += 1
            return self.count


class _Handler(BaseHTTPRequestHandler):
    stub: ModelStub  # set by the subclass of each stub

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the bill is the log."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        asked = Asked(
            self.stub.number(), self.headers.get("Idempotency-Key", ""), self.headers.get("Authorization", ""), body
        )
        behaviour = self.stub.script(asked)
        usage = self.stub.write(asked, behaviour)
        self.stub.stopping.wait(3600 if behaviour.kind == "stall" else behaviour.seconds)
        if self.stub.stopping.is_set() and behaviour.kind == "stall":
            return
        if behaviour.kind == "reset":
            self.reset()
        elif behaviour.kind == "malformed":
            self.send(200, b'{"id": "half a bo')
        elif behaviour.kind in ERRORS or behaviour.kind == "error":
            self.fail(asked, behaviour)
        else:
            self.send(200, json.dumps(_completion(asked, behaviour, usage)).encode())

    def reset(self) -> None:
        """Close with a TCP reset: linger 0 drops what is unsent."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.wfile = open(os.devnull, "wb")  # noqa: PTH123, SIM115 - the base class closes it
        self.rfile.close()

    def fail(self, asked: Asked, behaviour: Behaviour) -> None:
        status, error = ERRORS.get(
            behaviour.kind, (behaviour.status, {"message": behaviour.message, "code": behaviour.code or ""})
        )
        key = asked.authorization.removeprefix("Bearer ")
        error = {name: value.replace("{key}", key) for name, value in error.items()}
        headers = {"Retry-After": behaviour.retry_after} if behaviour.retry_after is not None else {}
        self.send(status, json.dumps({"error": error}).encode(), headers)

    def send(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        extra = {"Content-Type": "application/json", "Content-Length": str(len(data)), **(headers or {})}
        try:
            self.send_response(status)
            for name, value in extra.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the caller was killed or gave up: that is what some tests do


def _completion(asked: Asked, behaviour: Behaviour, usage: dict[str, Any]) -> dict[str, Any]:
    content = None if behaviour.content is None else behaviour.content * behaviour.content_repeat
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if behaviour.reasoning is not None:
        message["reasoning_content"] = behaviour.reasoning
    if behaviour.tool_calls is not None:
        message["tool_calls"] = behaviour.tool_calls
    choices = [{"index": 0, "message": message, "finish_reason": behaviour.finish_reason}]
    reply: dict[str, Any] = {
        "id": f"stub-{asked.number}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": asked.body.get("model", ""),
        "choices": [] if behaviour.kind == "empty_choices" else choices,
    }
    if behaviour.usage is not None:
        reply["usage"] = usage
    return reply


def main() -> None:
    """Serve until killed; print the address first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--behaviours", type=Path)
    options = parser.parse_args()
    script = from_json(options.behaviours.read_text() if options.behaviours else "{}")
    with ModelStub(options.log, script, options.port) as stub:
        sys.stdout.write(stub.url + "\n")
        sys.stdout.flush()
        stub.thread.join()


if __name__ == "__main__":
    main()

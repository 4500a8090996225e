"""Settings and limits of a server, and the error of a refused request. Knows no model and no HTTP library."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from regard.serve.messages import WorkerConfig


@dataclass(frozen=True)
class ServerSettings:
    """Settings of one server; times are in seconds."""

    runs: dict[str, Path] = field(default_factory=dict)  # by the name that clients use
    host: str = "127.0.0.1"
    port: int = 8000
    engine: str = "own"
    precision: str | None = None
    shortlist: bool = False
    device: str = "auto"
    workers: int = 1  # processes of each model
    threads: int = 1  # of each process
    slots: int = 64  # sentences that a worker translates at once
    keys: tuple[str, ...] = ()  # API keys; none: everybody may call
    admin_keys: tuple[str, ...] = ()  # for /admin/; none: nobody may
    open: bool = False  # whether others may call a server without keys
    max_length: int = 5_000  # characters of a text
    max_texts: int = 256  # of a request
    max_body: int = 1 << 20  # bytes
    max_tokens: int = 1_024  # of a generated text
    queue: int = 1_024  # texts of a model that wait or are computed
    connections: int = 1_024  # open at once; further ones are told to come again
    timeout: float = 60.0  # of a request
    start_timeout: float = 300.0  # of a worker that loads its model
    heartbeat_timeout: float = 5.0  # of a worker that gives no sign of life; then it is killed
    step_timeout: float = 30.0  # of one step of a worker, such as one token of all texts; then it is killed
    client_timeout: float = 10.0  # for a client that sends its request, or reads its response, slowly
    drain_delay: float = 0.0  # from SIGTERM until no new connections are taken, for load balancers
    drain: float = 30.0  # after that, for requests that are running and connections that are kept
    log_text: bool = False  # whether texts of users may be logged

    def worker_config(self, run: Path) -> WorkerConfig:
        return {
            "engine": self.engine,
            "precision": self.precision,
            "shortlist": self.shortlist,
            "device": self.device,
            "threads": self.threads,
            "slots": self.slots,
            "run": str(run),
            "server": os.getpid(),
        }


class RequestError(Exception):
    """A request that gets no result: HTTP status, one sentence, and a short code for programs."""

    def __init__(self, status: int, code: str, message: str, retry: int | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.headers = {} if retry is None else {"Retry-After": str(retry)}

    def body(self) -> dict[str, dict[str, str]]:
        return {"error": {"message": self.message, "code": self.code}}


def loading() -> RequestError:
    return RequestError(503, "loading", "the models are being loaded; try again soon", retry=5)


def shutting_down() -> RequestError:
    return RequestError(503, "ending", "the server is ending; ask another", retry=1)

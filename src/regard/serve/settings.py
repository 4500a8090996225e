"""Settings and limits of a server, and the error of a refused request. Knows no model and no HTTP library."""

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
    device: str = "auto"
    workers: int = 1  # processes of each model
    threads: int = 1  # of each process
    slots: int = 64  # sentences that a worker translates at once
    keys: tuple[str, ...] = ()  # API keys; none: everybody may call
    max_length: int = 5_000  # characters of a text
    max_texts: int = 256  # of a request
    max_body: int = 1 << 20  # bytes
    max_tokens: int = 1_024  # of a generated text
    queue: int = 1_024  # texts of a model that wait or are computed
    timeout: float = 60.0  # of a request
    client_timeout: float = 10.0  # for a client that sends its request, or reads its response, slowly
    drain: float = 30.0  # for requests that are running when the server shuts down
    log_text: bool = False  # whether texts of users may be logged

    def worker_config(self, run: Path) -> WorkerConfig:
        return {
            "engine": self.engine,
            "precision": self.precision,
            "device": self.device,
            "threads": self.threads,
            "slots": self.slots,
            "run": str(run),
        }


class RequestError(Exception):
    """A request that gets no result: HTTP status, one sentence, and a short code for programs."""

    def __init__(self, status: int, code: str, message: str, retry: int | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.headers = {} if retry is None else {"Retry-After": str(retry)}

    def body(self) -> dict[str, dict[str, str]]:
        return {"error": {"message": self.message, "code": self.code}}

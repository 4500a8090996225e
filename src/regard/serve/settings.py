"""What a server allows, and what it tells its callers when that is not enough. Knows no model and no HTTP library."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Settings:
    """Limits of one server; times are in seconds."""

    runs: dict[str, Path] = field(default_factory=dict)  # by the name that callers use
    host: str = "127.0.0.1"
    port: int = 8000
    engine: str = "own"
    precision: str | None = None
    device: str = "auto"
    workers: int = 1  # processes of each model
    threads: int = 1  # of each process
    places: int = 64  # sentences that a worker translates at once
    keys: tuple[str, ...] = ()  # one of which a caller must show; none: everybody may call
    max_length: int = 5_000  # characters of a text
    max_texts: int = 256  # of a request
    max_body: int = 1 << 20  # bytes
    max_tokens: int = 1_024  # of a story
    queue: int = 1_024  # texts of a model that wait or are worked on
    timeout: float = 60.0  # of a request
    patience: float = 10.0  # with a client that sends its request, or reads its answer, slowly
    drain: float = 30.0  # for requests that are running when the server is told to end
    log_text: bool = False  # whether what users write may stand in the log

    def worker(self, run: Path) -> dict[str, Any]:
        """What a worker process is told."""
        told = {name: getattr(self, name) for name in ("engine", "precision", "device", "threads", "places")}
        return told | {"run": str(run)}


class Refused(Exception):
    """A request that gets no result: status, one sentence, and a short code for programs."""

    def __init__(self, status: int, code: str, message: str, retry: int | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.headers = {} if retry is None else {"Retry-After": str(retry)}

    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "code": self.code}}


def letters(item: Any) -> int:
    """Characters of a text, or of all that belong together."""
    return len(item) if isinstance(item, str) else sum(map(letters, item))

"""Schedulers of a worker: each holds the requests of some operations and computes a little at every step, in turn.

Texts to translate join a running batch (`translation_scheduler.py`), and so do texts that are generated, a token of
each at a time (`stream_scheduler.py`); other requests that wait together are computed together (`batch_scheduler.py`).
Knows no sockets and no HTTP.
"""

from regard.look.attention import has_attention
from regard.predict.translation import Translator
from regard.serve.batch_scheduler import BATCHED, LOOK, BatchScheduler
from regard.serve.messages import Capabilities
from regard.serve.scheduler import LoadedModel, Scheduler, Send
from regard.serve.stream_scheduler import STREAMS, StreamScheduler
from regard.serve.translation_scheduler import TranslationScheduler


def build_schedulers(model: LoadedModel, send: Send, slots: int) -> list[Scheduler]:
    """For all operations of a model."""
    schedulers: list[Scheduler] = []
    if type(model) is Translator:
        schedulers.append(TranslationScheduler(model, send, slots))
    if streams := {op: stream for op, (method, stream) in STREAMS.items() if hasattr(model, method)}:
        schedulers.append(StreamScheduler(model, send, streams, slots))
    taken = {op for scheduler in schedulers for op in scheduler.ops}
    batched = {op: compute for op, compute in BATCHED.items() if hasattr(model, op) and op not in taken}
    if has_attention(model):
        batched |= LOOK
    return [*schedulers, BatchScheduler(model, send, batched)]


def capabilities(model: LoadedModel, schedulers: list[Scheduler]) -> Capabilities:
    """Facts about a model that clients may know."""
    task = model.recipe.task
    facts: Capabilities = {"kind": task.kind, "title": task.title, "can": [op for s in schedulers for op in s.ops]}
    if hasattr(model, "languages"):
        facts["languages"] = list(model.languages)
    return facts

"""What the service counts, for Prometheus."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counters of one service, in a registry of its own."""

    def __init__(self) -> None:
        own = self.registry = CollectorRegistry()
        self.predictions = Counter("openradial_predictions", "Inputs by answer.", ["answer"], registry=own)
        self.requests = Counter("openradial_requests", "Requests by path and status.", ["path", "status"], registry=own)
        self.seconds = Histogram(
            "openradial_request_seconds", "Time from request to answer.", ["path"], buckets=SECONDS, registry=own
        )
        self.batch_rows = Histogram("openradial_batch_rows", "Inputs of a batch.", buckets=ROWS, registry=own)
        self.batch_seconds = Histogram("openradial_batch_seconds", "Time of a batch.", buckets=SECONDS, registry=own)
        self.queue = Gauge("openradial_queue_rows", "Inputs that wait for the model.", registry=own)
        self.vanished = Counter("openradial_vanished", "Clients that did not wait for their answer.", registry=own)
        self.known, self.unknown, self.errors = map(self.predictions.labels, ("known", "unknown", "error"))

    def watch_queue(self, length: Callable[[], float]) -> None:
        """Ask ``length`` whenever the metrics are read."""
        self.queue.set_function(length)

    def count_batch(self, rows: int, seconds: float) -> None:
        self.batch_rows.observe(rows)
        self.batch_seconds.observe(seconds)

    def count_request(self, path: str, status: int, seconds: float) -> None:
        self.requests.labels(path, str(status)).inc()
        self.seconds.labels(path).observe(seconds)

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self.registry)

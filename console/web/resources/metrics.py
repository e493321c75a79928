"""`/metrics`: for Prometheus."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ..metrics.exposition import OPENMETRICS, PLAIN, block, end, wanted_format
from ..metrics.samples import MetricsSnapshot, families, take_snapshot
from ..operation import StreamOperation, WebContext

#: Seconds. Requests within this time of another get the same text; nodes send new values once per second.
SHARED_S: Final = 0.5


async def get_metrics(context: WebContext, request: Request) -> Response:
    """Latest values of all metrics, in the requested format."""
    media = wanted_format(request.headers.get("accept", ""))
    return StreamingResponse(_stream(context, media), media_type=None, headers={"content-type": media})


async def _stream(context: WebContext, media: str) -> AsyncIterator[bytes]:
    async with context.scrapes.sending:
        for part in await _parts(context, media):
            yield part


async def _parts(context: WebContext, media: str) -> list[bytes]:
    scrapes = context.scrapes
    async with scrapes.making:
        made_s, parts = scrapes.texts.get(media, (0.0, []))
        if parts and time.monotonic() - made_s < SHARED_S:
            return parts
        scrapes.texts.clear()  # one text of a large fleet is enough
        recordings = context.control.recordings
        snapshot = take_snapshot(context.store, recordings.active() if recordings is not None else (), time.time_ns())
        parts = await asyncio.to_thread(exposition, snapshot, media)
        scrapes.texts[media] = (time.monotonic(), parts)
        return parts


def exposition(snapshot: MetricsSnapshot, media: str) -> list[bytes]:
    """The text in format `media`, one part per metric family."""
    parts = [block(family, samples, media) for family, samples in families(snapshot)]
    return [part for part in (*parts, end(media)) if part]


OPERATIONS: Final = (
    StreamOperation(
        "/metrics",
        "Latest values of all metrics for Prometheus, in OpenMetrics or the older text format.",
        get_metrics,
        (PLAIN, OPENMETRICS),
        headers=(("Accept", "application/openmetrics-text for OpenMetrics"),),
    ),
)

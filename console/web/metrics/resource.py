"""`/metrics`: for Prometheus."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ..context import WebContext
from ..operation import StreamOperation
from .exposition import OPENMETRICS, PLAIN, block, end, wanted_format
from .samples import MetricsSnapshot, families, take_snapshot

#: Whoever asks within so long of another gets the same figures: nodes say new ones once a second.
SHARED_S: Final = 0.5


async def get_metrics(context: WebContext, request: Request) -> Response:
    """Every figure of now, in the format that is asked for."""
    media = wanted_format(request.headers.get("accept", ""))
    return StreamingResponse(_sent(context, media), media_type=None, headers={"content-type": media})


async def _sent(context: WebContext, media: str) -> AsyncIterator[bytes]:
    async with context.scrapes.sending:
        for part in await _text(context, media):
            yield part


async def _text(context: WebContext, media: str) -> list[bytes]:
    scrapes = context.scrapes
    async with scrapes.making:
        made_s, parts = scrapes.texts.get(media, (0.0, []))
        if parts and time.monotonic() - made_s < SHARED_S:
            return parts
        scrapes.texts.clear()  # one text of a large fleet is enough
        recordings = context.control.recordings
        seen = take_snapshot(context.store, recordings.now() if recordings is not None else (), time.time_ns())
        parts = await asyncio.to_thread(written, seen, media)
        scrapes.texts[media] = (time.monotonic(), parts)
        return parts


def written(seen: MetricsSnapshot, media: str) -> list[bytes]:
    """The text, a part a family."""
    parts = [block(family, samples, media) for family, samples in families(seen)]
    return [part for part in (*parts, end(media)) if part]


OPERATIONS: Final = (
    StreamOperation(
        "/metrics",
        "Every figure of now, for Prometheus: OpenMetrics, or the older text format.",
        get_metrics,
        (PLAIN, OPENMETRICS),
        headers=(("Accept", "application/openmetrics-text for OpenMetrics"),),
    ),
)

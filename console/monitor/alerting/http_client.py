"""One HTTP request with a deadline over asyncio: TLS is verified, redirects are refused, the answer is bounded.

The proxy of the environment (HTTPS_PROXY, NO_PROXY) is used. Texts of errors never contain the path of a URL.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import urllib.request
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

import h11
import msgspec

from ... import __version__
from ...text.sanitize import printable

#: Seconds for one request, from the name lookup to the end of the answer.
DEADLINE_S: Final = 20.0
#: Bytes of an answer that are read, and characters of it in an error.
_MOST_BYTES, _MOST_SHOWN = 65_536, 200
#: Statuses beside 5xx after which a request is worth repeating: timeout, too early, too many requests.
_TRANSIENT: Final = frozenset({408, 425, 429})


class HttpError(Exception):
    """A request that did not succeed. `is_transient`: it may succeed later, in `retry_after_s` if the server knows."""

    def __init__(self, text: str, *, is_transient: bool, retry_after_s: float | None = None) -> None:
        super().__init__(printable(text))
        self.is_transient, self.retry_after_s = is_transient, retry_after_s


class Response(msgspec.Struct, frozen=True):
    """Status, headers by lower-case name, and the beginning of the body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def request(
    url: str, body: bytes | None = None, *, content_type: str = "application/json", deadline_s: float = DEADLINE_S
) -> Response:
    """POST `body`, or GET without one. Returns a 2xx response; raises HttpError."""
    parts = _split(url)
    host = parts.hostname or ""
    try:
        async with asyncio.timeout(deadline_s):
            response = await _exchange(parts, body, content_type)
    except TimeoutError as error:
        raise HttpError(f"{host}: no answer within {deadline_s:g} s", is_transient=True) from error
    except ssl.SSLCertVerificationError as error:
        text = f"{host}: TLS certificate is not valid: {error.verify_message}"
        raise HttpError(text, is_transient=False) from error
    except ssl.SSLError as error:
        raise HttpError(f"{host}: TLS failed: {error.reason or 'unknown reason'}", is_transient=True) from error
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or "connection closed"
        raise HttpError(f"{host}: {reason}", is_transient=True) from error
    except (h11.ProtocolError, UnicodeError) as error:
        raise HttpError(f"{host}: the answer is not HTTP", is_transient=True) from error
    _check(host, response)
    return response


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise HttpError("the URL is not valid", is_transient=False) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise HttpError("the URL is not valid", is_transient=False)
    return parts


def _check(host: str, response: Response) -> None:
    """Raises HttpError for every status but 2xx."""
    status = response.status
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        raise HttpError(f"{host}: answered {status}, a redirect, which is not followed", is_transient=False)
    retry = response.headers.get("retry-after", "")
    retry_after_s = float(retry) if retry.isascii() and retry.isdigit() and len(retry) < 6 else None
    shown = response.body[:_MOST_SHOWN].decode(errors="replace").strip()
    text = f"{host}: answered {status}" + (f": {shown}" if shown else "")
    raise HttpError(text, is_transient=status >= 500 or status in _TRANSIENT, retry_after_s=retry_after_s)


async def _exchange(parts: SplitResult, body: bytes | None, content_type: str) -> Response:
    reader, writer = await _connect(parts)
    try:
        host = parts.netloc.rpartition("@")[2]
        headers = [("Host", host), ("User-Agent", f"gconsole/{__version__}"), ("Connection", "close")]
        if parts.username:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            headers.append(("Authorization", f"Basic {base64.b64encode(user.encode()).decode()}"))
        if body is not None:
            headers += [("Content-Type", content_type), ("Content-Length", str(len(body)))]
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        head = h11.Request(method="GET" if body is None else "POST", target=target, headers=headers)
        return await _talk(reader, writer, head, body)
    finally:
        writer.close()


async def _talk(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: h11.Request, body: bytes | None
) -> Response:
    """Send one request and read its response up to the bound, or up to the end of its head for CONNECT."""
    connection = h11.Connection(h11.CLIENT)
    writer.write(connection.send(head) or b"")
    if body:
        writer.write(connection.send(h11.Data(data=body)) or b"")
    writer.write(connection.send(h11.EndOfMessage()) or b"")
    await writer.drain()
    response: h11.Response | None = None
    received = b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(16_384))
        elif isinstance(event, h11.Response):
            response = event
            if head.method == b"CONNECT":
                break
        elif isinstance(event, h11.Data):
            received += bytes(event.data)
            if len(received) >= _MOST_BYTES:
                break
        elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed | type(h11.PAUSED)):
            break
    if response is None:
        raise EOFError
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in response.headers}
    return Response(response.status_code, headers, received)


async def _connect(parts: SplitResult) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host = parts.hostname or ""
    is_tls = parts.scheme == "https"
    port = parts.port or (443 if is_tls else 80)
    context = ssl.create_default_context() if is_tls else None
    proxy = _proxy(parts)
    if proxy is None:
        return await asyncio.open_connection(host, port, ssl=context)
    reader, writer = await asyncio.open_connection(proxy.hostname or "", proxy.port or 3128)
    try:
        authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        headers = [("Host", authority)]
        if proxy.username:
            user = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
            headers.append(("Proxy-Authorization", f"Basic {base64.b64encode(user.encode()).decode()}"))
        head = h11.Request(method="CONNECT", target=authority, headers=headers)
        response = await _talk(reader, writer, head, None)
        if response.status != 200:
            raise HttpError(f"the proxy {proxy.hostname} answered {response.status}", is_transient=True)
        if context is not None:
            await writer.start_tls(context, server_hostname=host)
    except BaseException:
        writer.close()
        raise
    return reader, writer


def _proxy(parts: SplitResult) -> SplitResult | None:
    """The HTTP proxy that the environment names for a URL; None: none."""
    host = parts.hostname or ""
    text = urllib.request.getproxies_environment().get(parts.scheme)
    if not text or urllib.request.proxy_bypass(host) or host in ("localhost", "127.0.0.1", "::1"):
        return None
    proxy = urlsplit(text if "://" in text else f"http://{text}")
    return proxy if proxy.scheme == "http" and proxy.hostname else None

"""Where the server listens, and what that takes: TLS for anything but this machine."""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_ADDRESS: Final = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:]+)\]|(?P<name>[A-Za-z0-9_.-]+)):(?P<port>[0-9]{1,5})")


class ListenError(ValueError):
    """The server cannot listen like that; the text is one line that says what to try."""


@dataclass(frozen=True)
class Listen:
    """An address, and the files for TLS where there are some."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return ipaddress.ip_address(self.host).is_loopback

    @property
    def scheme(self) -> str:
        """URL scheme: https with a certificate, else http."""
        return "https" if self.certificate is not None else "http"

    def url(self, port: int) -> str:
        """The address to print; `port` is the one that was really taken."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        if ipaddress.ip_address(self.host).is_unspecified:
            host = socket.gethostname()
        return f"{self.scheme}://{host}:{port}"


def listen_at(text: str, certificate: Path | None = None, key: Path | None = None) -> Listen:
    """What HOST:PORT means. Raises BadListen: for an address that others reach, without TLS files."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > 65535:
        raise ListenError(f"{text!r} is not HOST:PORT; use 127.0.0.1:8091 or [::1]:8091")
    host = match["six"] or match["name"]
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise ListenError(f"{host} is a name, and a name may mean any address; write the address itself") from None
    if (certificate is None) != (key is None):
        raise ListenError("--tls-cert and --tls-key belong together")
    if not address.is_loopback and certificate is None:
        raise ListenError(
            f"{address} can be reached by others, and without TLS they can read the token; give --tls-cert "
            "and --tls-key, or listen on 127.0.0.1 and reach it with ssh -L"
        )
    return Listen(str(address), int(match["port"]), certificate, key)


def opened(listen: Listen) -> socket.socket:
    """The socket, listening. Raises OSError where the address is taken, or not of this machine."""
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    return socket.create_server((listen.host, listen.port), family=family, backlog=256)


def names_of(listen: Listen) -> frozenset[str]:
    """Names under which clients may ask for this server: of this machine, and those in its certificate.

    Raises BadListen for a certificate that is none.
    """
    if listen.certificate is None:
        return frozenset({"localhost"})
    own = {"localhost", socket.gethostname().lower(), socket.getfqdn().lower()}
    return frozenset(own | _certified(listen.certificate))


def check_files(listen: Listen) -> None:
    """Raises BadListen where the TLS files cannot be used: better now than at the first client."""
    if listen.certificate is None or listen.key is None:
        return
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(listen.certificate, listen.key)
    except (OSError, ssl.SSLError) as error:
        raise ListenError(f"{listen.certificate}, {listen.key}: {error.strerror or error}") from error


def _certified(path: Path) -> set[str]:
    from cryptography import x509  # asyncssh has it

    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    except (OSError, ValueError) as error:
        raise ListenError(f"{path}: {error}") from error
    return {name.lower() for name in names.get_values_for_type(x509.DNSName)}

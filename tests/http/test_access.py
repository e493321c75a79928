"""Authentication, and the addresses on which the server listens."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

import pytest
from api_client import Api, running_api
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from program import gconsole
from rig import Rig


def test_every_operation_requires_the_token(api: Api) -> None:
    paths = api.get("/openapi.json")["paths"]
    requests = [(method.upper(), path.replace("{name}", "x").replace("{id}", "x"))
             for path, methods in paths.items() for method in methods]  # fmt: skip
    assert len(requests) > 20
    for method, path in requests:
        for token in (None, "wrong", api.token[:-1], f"{api.token}x", api.token.swapcase(), "\xe9"):
            response = api.request(method, path, token=token)
            assert response.status == 401, (method, path, token)
            assert response.json["name"] == "no_token"
            assert response.headers["www-authenticate"].startswith("Bearer")


def test_request_with_a_foreign_host_header_is_rejected(api: Api) -> None:
    for host in ("evil.example", f"evil.example:{api.port}", "127.0.0.1.evil.example", "192.0.2.1", "", "localhost@x"):
        assert api.request("GET", "/status", Host=host).status in (400, 403), host
    for host in ("localhost", f"127.0.0.1:{api.port}", "[::1]:1", "LOCALHOST"):
        assert api.request("GET", "/status", Host=host).status == 200, host


def test_cross_origin_request_is_rejected_without_cors_headers(api: Api) -> None:
    response = api.request("GET", "/status", Origin="http://evil.example")
    assert response.status == 403
    preflight = api.request("OPTIONS", "/jobs", token=None, Origin="http://evil.example",
                         Access_Control_Request_Method="POST")  # fmt: skip
    assert preflight.status in (401, 403)
    for rejection in (response, preflight, api.request("GET", "/status", Origin=api.url)):
        assert not [name for name in rejection.headers if name.startswith("access-control")]


def test_page_of_an_allowed_site_may_send_requests_with_the_token_and_no_other_site(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=["node1"])
    site, other = "https://grafana.example:3000", "https://grafana.example"
    with running_api(hosts, tmp_path, "--allow-origin", site) as api:
        preflight = api.request("OPTIONS", "/query", token=None, Origin=site, Access_Control_Request_Method="POST",
                                Access_Control_Request_Headers="authorization,content-type")  # fmt: skip
        assert preflight.status == 204
        assert preflight.headers["access-control-allow-origin"] == site
        assert "authorization" in preflight.headers["access-control-allow-headers"]
        assert "access-control-allow-credentials" not in preflight.headers
        response = api.request("GET", "/status", Origin=site)
        assert (response.status, response.headers["access-control-allow-origin"]) == (200, site)
        assert "Origin" in response.headers["vary"]
        assert api.request("GET", "/status", token=None, Origin=site).status == 401
        assert api.request("OPTIONS", "/query", token=None, Origin=site).status == 401, "not a preflight"
        foreign = api.request("OPTIONS", "/query", token=None, Origin=site, Host="evil.example",
                              Access_Control_Request_Method="POST")  # fmt: skip
        assert foreign.status == 403
        for origin in (other, "null", "https://grafana.example:3000.evil.example"):
            response = api.request("GET", "/status", Origin=origin)
            assert response.status == 403
            assert "access-control-allow-origin" not in response.headers
        assert "access-control-allow-origin" not in api.request("GET", "/status").headers


def test_origin_with_a_path_or_a_wildcard_is_a_usage_error(tmp_path: Path) -> None:
    for origin in ("*", "grafana.example", "https://grafana.example/", "https://*.example", "file://x"):
        run = gconsole("api", "local", "--allow-origin", origin)
        assert run.status == 2
        assert "is not SCHEME://HOST[:PORT]" in run.stderr


def test_unsupported_method_and_unknown_path_get_descriptive_errors(api: Api) -> None:
    response = api.request("DELETE", "/nodes")
    assert response.status == 405 and response.headers["allow"] == "GET, POST"
    assert api.request("GET", "/nope").json["name"] == "no_such_path"


def test_rate_limited_requests_get_429_with_retry_after(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
    with running_api(hosts, tmp_path, "--rate", "1") as api:
        answers = [api.request("GET", "/") for _ in range(40)]
        late = [response for response in answers if response.status == 429]
        assert late and late[0].headers["retry-after"] == "1"
        assert {response.status for response in answers} == {200, 429}


@pytest.mark.parametrize("where", ["0.0.0.0:0", "10.99.0.1:0", "[::]:0"])
def test_non_loopback_listen_address_requires_tls(tmp_path: Path, where: str) -> None:
    hosts = tmp_path / "hosts.toml"
    hosts.write_text('[[nodes]]\nhosts = "here"\ntransport = "local"\n')
    result = gconsole("api", hosts, "--listen", where)
    assert result.status == 2
    assert "--tls-cert" in result.stderr and "ssh -L" in result.stderr


def test_a_token_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    hosts, token = tmp_path / "hosts.toml", tmp_path / "token"
    hosts.write_text('[[nodes]]\nhosts = "here"\ntransport = "local"\n')
    token.write_text("a" * 40)
    token.chmod(0o640)
    result = gconsole("api", hosts, "--token-file", token)
    assert result.status == 2 and f"chmod 600 {token}" in result.stderr


def test_server_with_tls_files_accepts_only_tls(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
    certificate, key = write_certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=str(certificate))
    tls = ("--tls-cert", str(certificate), "--tls-key", str(key))
    with running_api(hosts, tmp_path, *tls, listen="0.0.0.0:0", tls=trusting) as api:
        assert api.get("/")["message"] == "gconsole HTTP API"
        assert api.request("GET", "/", Host=f"api.rig.example:{api.port}").status == 200, "a name of the certificate"
        assert api.request("GET", "/", Host="evil.example").status == 403
        assert api.request("GET", "/", token="wrong").status == 401
        plain = Api(api.port, api.token, api.pid)
        with pytest.raises(OSError):
            plain.request("GET", "/")
        distrusting = Api(api.port, api.token, api.pid, ssl.create_default_context())
        with pytest.raises(ssl.SSLCertVerificationError):
            distrusting.request("GET", "/")


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1 and a name, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gconsole test")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("api.rig.example")]
    signed = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    certificate, private = folder / "cert.pem", folder / "key.pem"
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate, private

"""A certificate authority that lives as long as the server does.

kubectl sends its token over TLS only, so a simulated API server that people can talk to needs a certificate.
"""

from __future__ import annotations

import ipaddress
import ssl
import tempfile
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from simulator.api import moments

_LIFETIME = timedelta(days=365)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """What the server shows, and the authority that clients must trust. server_pem: key and certificate, for other processes."""

    authority_pem: bytes
    server_pem: bytes = field(repr=False)

    @property
    def context(self) -> ssl.SSLContext:
        """For a server in this process."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # The ssl module reads certificates from files only; this one is gone before the server answers anybody.
        with tempfile.TemporaryDirectory() as folder:
            chain = Path(folder) / "server.pem"
            chain.touch(mode=0o600)
            chain.write_bytes(self.server_pem)
            context.load_cert_chain(chain)
        return context


def issue(host: str) -> Certificates:
    """A new authority and a server certificate for this address, for `localhost` and for nothing else."""
    authority_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority_name = _name("simulated cluster authority")
    identifier = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    authority = (
        _begin(authority_name, authority_name, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(host))]
    server = (
        _begin(_name("simulated API server"), authority_name, server_key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    return Certificates(authority_pem=_pem(authority), server_pem=_key(server_key) + _pem(server))


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _begin(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = moments.now()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _LIFETIME)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())

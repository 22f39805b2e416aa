"""TLS of what a command serves: a certificate that is renewed on disk is shown from the next connection on."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path

from workers.configuration.setting_sources import SettingsError

log = logging.getLogger(__name__)

Stamp = tuple[tuple[int, int], ...]


def tls_of(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """By these PEM files, which are looked at again at each handshake; None where neither is given.

    Raises SettingsError for one of them, and for files that hold no certificate and its key.
    """
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise SettingsError("--tls-cert and --tls-key: expected both or neither")
    try:
        return _Pair(certificate, key).begun()
    except OSError as error:
        raise SettingsError(f"--tls-cert and --tls-key: expected a certificate and its key, as PEM files: {error}") from error


@dataclass(slots=True)
class _Pair:
    certificate: Path
    key: Path
    seen: Stamp = ()
    newest: ssl.SSLContext | None = None

    def begun(self) -> ssl.SSLContext:
        """Raises OSError."""
        self.seen = self._stamp()
        self.newest = first = self._loaded()
        first.sni_callback = self._before_it_is_shown
        return first

    def _before_it_is_shown(self, connection: ssl.SSLObject, _name: str | None, _first: ssl.SSLContext) -> None:
        """OpenSSL asks at each handshake, whether or not a name is asked for."""
        try:
            if (now := self._stamp()) != self.seen:
                self.newest, self.seen = self._loaded(), now
                log.info("shows the certificate that is in %s now", self.certificate)
        except OSError as error:
            # They may be half written. The old one is as good as it was.
            log.warning("%s, %s: %s; goes on with the certificate from before", self.certificate, self.key, error)
        if self.newest is not None:
            connection.context = self.newest

    def _loaded(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate, self.key)
        return context

    def _stamp(self) -> Stamp:
        return tuple((found.st_ino, found.st_mtime_ns) for found in (self.certificate.stat(), self.key.stat()))

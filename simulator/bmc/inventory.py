"""What a simulated machine says about itself: system UUID, serial number, and the inventory (FRU) image that carries it."""

from __future__ import annotations

from uuid import NAMESPACE_DNS, UUID, uuid5

MANUFACTURER, PRODUCT = "nodewarden", "simulated server"
END_OF_FIELDS = b"\xc1"
LATIN_TEXT = 0xC0


def system_uuid_of(machine: str) -> UUID:
    """The system UUID of a machine that got none from its maker: always the same for the same name."""
    return uuid5(NAMESPACE_DNS, f"{machine}.machines.nodewarden.example")


def serial_of(machine: str) -> str:
    """The serial number of a machine, likewise."""
    return f"SIM{system_uuid_of(machine).hex[:12].upper()}"


def inventory_area(serial: str) -> bytes:
    """A FRU image with a product area alone, as the IPMI FRU storage definition lays it out."""
    fields = b"".join(_text(value) for value in (MANUFACTURER, PRODUCT, "", "", serial, "", ""))
    area = b"\x19" + fields + END_OF_FIELDS
    eights = (2 + len(area) + 1 + 7) // 8
    area = bytes([1, eights]) + area
    area = _summed(area.ljust(eights * 8 - 1, b"\x00"))
    header = _summed(bytes([1, 0, 0, 0, 1, 0, 0]))
    return header + area


def _text(value: str) -> bytes:
    return bytes([LATIN_TEXT | len(value)]) + value.encode("latin-1") if value else b"\xc0"


def _summed(content: bytes) -> bytes:
    return content + bytes([-sum(content) & 0xFF])

"""What a worker knows of a notice's node, for those who want to hear of some nodes only (`policy/episode/notices.py`)."""

from __future__ import annotations

from dataclasses import replace

from activities.notification_sender import Notify
from policy.episode.notices import Notice
from policy.scan.ledger import Ledger


def knowing(ledger: Ledger, notify: Notify) -> Notify:
    """Tells the same, with what the ledger knows of the node at that moment."""

    def tell(notice: Notice) -> None:
        notify(replace(notice, known=ledger.described(notice.node)))

    return tell

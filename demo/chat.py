"""A chat room for trying things out: prints each message that is posted to it as JSON, as Apprise's `json://` does."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer


class Room(BaseHTTPRequestHandler):
    """Takes whatever comes, and prints its title and its text."""

    def do_POST(self) -> None:
        """One message."""
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        print(message["title"], message["message"], sep="\n  ", flush=True)
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name for it
        """Requests are not logged here."""


if __name__ == "__main__":
    # python -m demo.chat 18990
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Room).serve_forever()

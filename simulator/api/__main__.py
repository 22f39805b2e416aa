"""`python -m simulator.api`: the API server alone, until it is interrupted."""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path

from simulator.api.server import ApiServer


def _token(text: str) -> tuple[str, str]:
    token, separator, user = text.partition("=")
    if not token or not separator or not user:
        raise argparse.ArgumentTypeError(f"{text!r} is not TOKEN=USER")
    return token, user


async def _run(arguments: argparse.Namespace) -> None:
    tokens = dict(arguments.token) if arguments.token else None
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    server = ApiServer(host=arguments.host, port=arguments.port, secure_port=arguments.secure_port, tokens=tokens)
    async with server as api:
        if arguments.kubeconfig_out is not None:
            arguments.kubeconfig_out.write_text(api.kubeconfig())
        print(f"Kubernetes API at {api.url} and {api.secure_url}", flush=True)
        await stopped.wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m simulator.api", description="A simulated Kubernetes API server.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one")
    parser.add_argument("--secure-port", type=int, default=0, help="port for TLS; 0 takes a free one")
    parser.add_argument("--kubeconfig-out", type=Path, help="write a kubeconfig with the administrator's token here")
    parser.add_argument("--token", type=_token, action="append", help="TOKEN=USER, repeatable; admin may do everything")
    asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()

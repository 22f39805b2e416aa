"""`helm` as far as our pages use it, where no helm is installed: the same words, carried out by Helm's own library.

`python -m tests.deploy.helm_command upgrade --install nodewarden CHART …`; the cluster is KUBECONFIG's.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import helm_python
import yaml


def _words() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="helm")
    commands = parser.add_subparsers(dest="command", required=True)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("name")
    shared.add_argument("--namespace", required=True)
    upgrade = commands.add_parser("upgrade", parents=[shared])
    upgrade.add_argument("chart")
    upgrade.add_argument("--install", action="store_true")
    upgrade.add_argument("--create-namespace", action="store_true")
    upgrade.add_argument("--values")
    upgrade.add_argument("--set", action="append", default=[])
    commands.add_parser("rollback", parents=[shared]).add_argument("revision", nargs="?", type=int)
    commands.add_parser("history", parents=[shared])
    commands.add_parser("uninstall", parents=[shared])
    return parser


def _merged(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    both = {key: _merged(base[key], more[key]) for key in base.keys() & more.keys() if isinstance(base[key], dict)}
    return {**base, **more, **both}


def _values(asked: argparse.Namespace) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if asked.values:
        values = yaml.safe_load(Path(asked.values).read_text(encoding="utf-8"))
    for text in asked.set:
        values = _merged(values, helm_python.parse_set_string(text))
    return values


def _carry_out(asked: argparse.Namespace, config: helm_python.Config) -> Any:
    match asked.command:
        case "upgrade":
            missing = asked.install and not any(each["name"] == asked.name for each in config.list(all_states=True))
            if missing:
                more = {"create_namespace": asked.create_namespace}
                return config.install(asked.chart, asked.name, _values(asked), namespace=asked.namespace, timeout=30, **more)
            return config.upgrade(asked.chart, asked.name, _values(asked), namespace=asked.namespace, timeout=30)
        case "rollback":
            return config.rollback(asked.name, version=asked.revision, timeout=30)
        case "uninstall":
            return config.uninstall(asked.name, timeout=30)
        case _:
            return config.history(asked.name)


def put_into(folder: Path) -> None:
    """Have it found there under its own name."""
    (folder / "helm").write_text(f'#!/bin/sh\nexec {sys.executable} -m {__spec__.name} "$@"\n', encoding="utf-8")
    (folder / "helm").chmod(0o755)


def main() -> None:
    asked = _words().parse_args()
    config = helm_python.Config(kubeconfig_path=os.environ["KUBECONFIG"], namespace=asked.namespace)
    answer = _carry_out(asked, config)
    if isinstance(answer, dict):
        answer.pop("manifest", None)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()

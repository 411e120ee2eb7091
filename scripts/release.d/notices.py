#!/usr/bin/env python3
"""Prints the licences of all crates that are compiled into the program, with the texts that the crates contain.

    cargo metadata --format-version 1 --locked --offline --filter-platform TARGET | scripts/release.d/notices.py

Most licences require their text beside the program. Equal texts are printed once.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path

ROOT = "rolltap"
NAMES = ("license", "licence", "copying", "copyright", "notice", "unlicense")


def compiled(metadata):
    """Returns the packages that the program needs by normal dependencies, without the workspace's own."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    packages = {package["id"]: package for package in metadata["packages"]}
    pending = [identity for identity, package in packages.items() if package["name"] == ROOT]
    seen = set(pending)
    while pending:
        for dependency in nodes[pending.pop()]["deps"]:
            is_normal = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            if is_normal and dependency["pkg"] not in seen:
                seen.add(dependency["pkg"])
                pending.append(dependency["pkg"])
    foreign = [packages[identity] for identity in seen if packages[identity]["source"]]
    return sorted(foreign, key=lambda package: (package["name"], package["version"]))


def texts(package):
    """Returns the files with licences in the package's folder, in the order of their names."""
    files = Path(package["manifest_path"]).parent.iterdir()
    found = sorted(file for file in files if file.is_file() and file.name.lower().startswith(NAMES))
    return [file.read_text(encoding="utf-8", errors="replace").strip() for file in found]


def main():
    packages = compiled(json.load(sys.stdin))
    users = defaultdict(list)
    for package in packages:
        print(f"{package['name']} {package['version']}: {package['license'] or 'see its text below'}")
        for text in texts(package):
            users[text].append(f"{package['name']} {package['version']}")
    for text, names in users.items():
        print(f"\n{'-' * 100}\n{', '.join(names)}\n\n{text}")


if __name__ == "__main__":
    main()

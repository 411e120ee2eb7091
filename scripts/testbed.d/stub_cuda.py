"""Replaces the CUDA libraries that PyPI's torch links to by tiny stubs.

PyPI's x86_64 build of torch loads only where libcudart, libcublas and a dozen
more are found: 2.2 GB that a machine without an NVIDIA GPU never calls. Each
stub library exports exactly the symbols that torch looks for, at the versions
it asks for, as functions that return 100 (cudaErrorNoDevice). Then torch loads
and reports that there is no CUDA device.

usage: python stub_cuda.py      (the Python that torch is installed for; needs cc, nm and readelf)
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

NO_DEVICE = 100

# Libraries that every Linux system has.
SYSTEM = re.compile(
    r"(libc|libm|libdl|librt|libpthread|libutil|libgcc_s|libstdc\+\+|libgomp|libnuma|ld-linux.*)\."
)

# The driver's own library is opened at run time, and its absence is how torch
# learns that there is no driver: a stub would tell it otherwise.
OPENED_AT_RUN_TIME = {"libcuda.so.1"}

# Which library an unversioned symbol belongs to: nothing else tells.
PREFIXES = {
    "libcublas": "cublas(?!L)",
    "libcublasLt": "cublasLt",
    "libcudart": "(__)?cuda",
    "libcudnn": "cudnn",
    "libcufft": "cufft",
    "libcufile": "cuFile",
    "libcupti": "cupti|CUpti",
    "libcurand": "curand",
    "libcusolver": "cusolver",
    "libcusparse": "cusparse(?!L)",
    "libcusparseLt": "cusparseLt",
    "libnccl": "p?nccl",
    "libnvJitLink": "nvJitLink",
    "libnvrtc": "nvrtc",
    "libnvshmem_host": "nvshmem",
}


@dataclass
class Links:
    """What torch's libraries, taken together, ask of other libraries."""

    needed: set[str] = field(default_factory=set)
    """File names of the libraries they are linked to."""
    defined: set[str] = field(default_factory=set)
    """Symbols that one of them defines itself."""
    wanted: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Undefined symbols by symbol version ("" for none)."""
    provider: dict[str, str] = field(default_factory=dict)
    """The library that each symbol version is expected from."""


def output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def read_links(libraries: list[Path]) -> Links:
    links = Links()
    for path in map(str, libraries):
        links.needed |= set(re.findall(r"NEEDED.*\[(.*)\]", output_of("readelf", "-d", path)))
        provider = ""
        for line in output_of("readelf", "-V", "-W", path).splitlines():
            if match := re.search(r"File: (\S+)", line):
                provider = match[1]
            elif (match := re.search(r"Name: (\S+)\s+Flags", line)) and provider:
                links.provider[match[1]] = provider
        for line in output_of("nm", "-D", path).splitlines():
            *_, kind, symbol = line.split()
            name, _, version = symbol.partition("@")
            if kind in "Uwv":
                links.wanted[version.lstrip("@")].add(name)
            else:
                links.defined.add(name)
    return links


def symbols_of(library: str, links: Links) -> dict[str, list[str]]:
    """The symbols that the stub of `library` must export, by symbol version."""
    prefix = PREFIXES.get(library.split(".so")[0])
    found: dict[str, list[str]] = {}
    for version, names in links.wanted.items():
        if version:
            mine = names if links.provider.get(version) == library else set()
        else:
            mine = {n for n in names if prefix and re.match(prefix, n)}
        if mine - links.defined:
            found[version] = sorted(mine - links.defined)
    return found


def compile_stub(target: Path, symbols: dict[str, list[str]], scratch: Path) -> None:
    names = dict.fromkeys(name for group in symbols.values() for name in group)
    source = "".join(f"int {name}(void) {{ return {NO_DEVICE}; }}\n" for name in names)
    command = ["cc", "-shared", "-fPIC", "-w", "-s", "-x", "c", "-", "-o", str(target)]
    command.append(f"-Wl,-soname,{target.name}")
    if versions := [version for version in symbols if version]:
        script = scratch / "versions.map"
        script.write_text("".join(f"{version} {{ global: *; }};\n" for version in versions))
        command.append(f"-Wl,--version-script={script}")
    # An empty translation unit is not valid C.
    subprocess.run(command, input=source or "int rolltap_stub;\n", text=True, check=True)


def main(site_packages: Path) -> None:
    # torch's libraries look for each other in their own folder ($ORIGIN).
    folder = site_packages / "torch" / "lib"
    libraries = sorted(folder.glob("lib*.so*"))
    if not libraries:
        sys.exit(f"stub_cuda: no libraries in {folder}: is torch installed there?")
    links = read_links(libraries)
    present = {path.name for path in libraries}
    missing = sorted(
        name for name in links.needed - present - OPENED_AT_RUN_TIME if not SYSTEM.match(name)
    )
    total = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name in missing:
            symbols = symbols_of(name, links)
            compile_stub(folder / name, symbols, Path(scratch))
            total += sum(map(len, symbols.values()))
    print(f"stub_cuda: {len(missing)} stub libraries with {total} symbols in {folder}")


if __name__ == "__main__":
    main(Path(sysconfig.get_path("purelib")))

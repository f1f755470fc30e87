"""Generates typed Python code from the `.proto` files, and checks that it is up to date.

Runs in its own environment, made from `requirements/generate.txt`. The generator is deliberately old, because generated
code refuses every runtime older than its generator.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "generate.txt"
PROTO_ROOT = ROOT / "proto"
PATTERNS = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")


class GenerationError(Exception):
    """The code could not be generated; the message has the reason."""


def main() -> int:
    """Write the generated code, or with `--check` only name outdated files (exit status 1)."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if anything would change")
    parser.add_argument("--proto-root", type=Path, default=PROTO_ROOT, help="folder that imports are relative to")
    arguments = parser.parse_args()
    root: Path = arguments.proto_root.resolve()
    try:
        check_generator()
        with tempfile.TemporaryDirectory(prefix="generated-") as scratch:
            generate(root, Path(scratch))
            changes = differences(root, Path(scratch))
            if arguments.check:
                return report(changes)
            apply(changes, root, Path(scratch))
    except GenerationError as failure:
        print(failure, file=sys.stderr)
        return 1
    return 0


def check_generator() -> None:
    """Refuse any generator but the locked one: another one would raise the oldest supported runtime."""
    for name, wanted in re.findall(r"^([\w-]+)==([\w.]+)", LOCK.read_text(), re.MULTILINE):
        try:
            found = version(name)
        except PackageNotFoundError:
            if name in {"grpcio-tools", "mypy-protobuf"}:
                raise GenerationError(f"{name} is not installed here: run `make generate`") from None
            continue  # Locked for another Python or system.
        if found != wanted:
            raise GenerationError(f"{name} is {found}, the lock says {wanted}: run `make generate`")


def generate(root: Path, target: Path) -> None:
    """Write the code of every `.proto` below `root` to the same relative path below `target`."""
    sources = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.proto"))
    if not sources:
        raise GenerationError(f"no .proto file below {root}")
    descriptors = target / "descriptors.bin"
    messages = [f"--python_out={target}", f"--mypy_out=quiet:{target}", f"--descriptor_set_out={descriptors}"]
    protoc(root, [*messages, *sources])
    with_services = services(descriptors)
    descriptors.unlink()
    if with_services:
        protoc(root, [f"--grpc_python_out={target}", f"--mypy_grpc_out=quiet:{target}", *with_services])


def protoc(root: Path, arguments: list[str]) -> None:
    """Run the locked protobuf compiler, which prints errors in a `.proto` itself."""
    import grpc_tools
    from grpc_tools import protoc as compiler

    programs = Path(sys.executable).parent
    plugins = [f"--plugin=protoc-gen-{name}={programs / f'protoc-gen-{name}'}" for name in ("mypy", "mypy_grpc")]
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    if compiler.main(["protoc", f"-I{root}", f"-I{well_known}", *plugins, *arguments]) != 0:
        raise GenerationError("the protobuf compiler failed, see above")


def services(descriptors: Path) -> list[str]:
    """Return the files that define a service; the others need no `_pb2_grpc` module."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    files = FileDescriptorSet.FromString(descriptors.read_bytes())
    return [file.name for file in files.file if file.service]


def differences(root: Path, target: Path) -> dict[Path, str]:
    """Return `missing`, `stale` or `left over` by relative path, for every generated file that is not up to date."""
    found = {path.relative_to(root) for pattern in PATTERNS for path in root.rglob(pattern)}
    wanted = {path.relative_to(target) for pattern in PATTERNS for path in target.rglob(pattern)}
    changes = dict.fromkeys(wanted - found, "missing") | dict.fromkeys(found - wanted, "left over")
    for path in wanted & found:
        if (root / path).read_bytes() != (target / path).read_bytes():
            changes[path] = "stale"
    return dict(sorted(changes.items()))


def report(changes: dict[Path, str]) -> int:
    """Print the files that are not up to date. Returns the exit status of `--check`."""
    for path, what in changes.items():
        print(f"{path.as_posix()}: {what}", file=sys.stderr)
    if changes:
        print("generated code is not fresh: run `make generate` and commit the result", file=sys.stderr)
    return 1 if changes else 0


def apply(changes: dict[Path, str], root: Path, target: Path) -> None:
    """Bring the tree to the generated state, without touching files that are up to date."""
    for path, what in changes.items():
        if what == "left over":
            (root / path).unlink()
        else:
            (root / path).write_bytes((target / path).read_bytes())
        print(f"{path.as_posix()}: was {what}")


if __name__ == "__main__":
    sys.exit(main())

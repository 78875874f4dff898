"""What the cross builds fetch into vendor/cross/: packages pinned by version and hash, and what is made of them.

Depends on vendor/fetch.py for the wheels. Nothing is installed: Debian's packages are unpacked, so that no root is
needed and the machine's own Rust stays as it is. A stamp per group records the pins, so a second call is quick.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
CROSS = ROOT / "vendor" / "cross"
# What the Debian packages unpack to, as in /.
SYSTEM = CROSS / "system"
ZIG = CROSS / "zig"
# Python for Linux arm64, apart from /: its interpreter has the name of the machine's own.
PYTHON = CROSS / "python"

sys.path.insert(0, str(ROOT / "vendor"))
import fetch  # noqa: E402

ZIG_WHEEL = fetch.Wheel(
    "ziglang",
    "0.17.0",
    "manylinux_2_12_x86_64",
    "97079827064a7492cce5541ceb438ae8003ce1e54e399676da2d62fb7a5dc08b",
    (("ziglang/", "zig/"),),
)
NUMPY_WHEEL = fetch.Wheel(
    "numpy",
    "2.4.6",
    "manylinux_2_28_aarch64",
    "0ab0a9c4ffb1a6d95ef519fe4247dba8eb6b18ad93999f76b7f657039acabd47",
    (("numpy/", "site/numpy/"), ("numpy.libs/", "site/numpy.libs/")),
)
# Every function of Accelerate as Apple's headers declare it: in TypeScript, and in a table with C types (apple.py).
NPM = ("@nativescript/macos-node-api", "0.4.0", "fa49477022566ede234db5274ea3a2e1d0b63009db3b1b1c3bc9b8789ad554f6")
NPM_FILES = {"types/Accelerate.d.ts": "Accelerate.d.ts", "Versions/0.1.0/NativeScript": "apple-headers"}
# bindgen's output for vDSP and vForce. Cargo checks the package against the checksum it locks.
CRATE = ("apple-accelerate", "0.4.2", "039fd5a1da8beec077e0ae9b5cc0d820b3f478d815aa977ceeb13d5a04ddf5f6")
# Debian 12 has a kernel of 16 KiB pages among what was built for it later.
SUITE, BACKPORTS = "bookworm", "bookworm-backports"
# The groups that have wheels, and the machines that these are for.
MACHINES = {"macos": ("Darwin", "arm64"), "arm64": ("Linux", "aarch64")}
# LLVM 16's list of what Apple's arm64 libc++ exports; macOS 14 has libc++ 16.
LLVM = ("llvm-toolchain-16", "5ab98480d3bc9f1896de1a1afafb46c318a9baa02bf21a4f6830c644d06c1cc0")


def say(text: str) -> None:
    """One line of progress."""
    print(f"cross: {text}", flush=True)


def run(command: Iterable[object], cwd: Path = ROOT, env: dict[str, str] | None = None) -> None:
    """Run a command; end with its exit status if it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=env, check=False)
    if done.returncode != 0:
        raise SystemExit(f"cross: `{' '.join(words)[:300]}` failed with exit status {done.returncode}")


def pins(groups: Iterable[str]) -> list[tuple[str, str, str, str]]:
    """The Debian packages of these groups: name, architecture, version, SHA-256."""
    rows = (line.split() for line in (HERE / "debian.txt").read_text().splitlines() if line[:1] not in ("#", ""))
    return [(name, arch, version, sha) for group, name, arch, version, sha in rows if group in groups]


def check_hash(path: Path, sha256: str) -> None:
    """End unless the file is the pinned one."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise SystemExit(f"cross: {path.name} has SHA-256 {found}, pinned is {sha256}")


def refuse_other_systems() -> None:
    """End, saying what is needed, on a machine that cannot fetch the packages."""
    release = Path("/etc/os-release")
    pairs = (line.split("=", 1) for line in release.read_text().splitlines() if "=" in line) if release.exists() else ()
    here = {key: value.strip('"') for key, value in pairs}
    lacking = [tool for tool in ("apt-get", "dpkg", "npm") if shutil.which(tool) is None]
    system = here.get("PRETTY_NAME", platform.system())
    if (here.get("ID"), here.get("VERSION_ID"), platform.machine()) != ("debian", "12", "x86_64"):
        raise SystemExit(
            f"cross: the tools are packages of Debian 12 (bookworm) on x86-64, and this is {system} on "
            f"{platform.machine()}: run it there, for example in a container of the image debian:12, which needs "
            "build-essential, python3-venv, npm and cargo (rustup)."
        )
    if lacking:
        raise SystemExit(f"cross: {', '.join(lacking)} not found; `apt-get install {' '.join(lacking)}` brings them.")


class Apt:
    """apt-get with lists and caches of its own: sees amd64, arm64 and sources, leaves the system's state alone.

    It asks the mirrors that the machine is set up with, so the machine must be a Debian 12 itself.
    """

    def __init__(self, state: Path) -> None:
        refuse_other_systems()
        for folder in ("lists/partial", "archives/partial", "sources"):
            (state / folder).mkdir(parents=True, exist_ok=True)
        for file in Path("/etc/apt/sources.list.d").glob("*.sources"):
            text = file.read_text()
            if "debian" in text:
                lines = ["Types: deb deb-src" if line.startswith("Types:") else line for line in text.splitlines()]
                lines = [f"{line} {BACKPORTS}" if SUITE in line.split() else line for line in lines]
                (state / "sources" / file.name).write_text("\n".join(lines) + "\n")
        single = Path("/etc/apt/sources.list")
        lines = single.read_text().splitlines() if single.exists() else []
        lines = [line.removeprefix("deb") for line in lines if line.startswith("deb ") and "debian" in line]
        words = [line.split() for line in lines]
        lines += [" ".join(BACKPORTS if w == SUITE else w for w in each) for each in words if SUITE in each]
        both = [f"{kind} {line.strip()}\n" for line in lines for kind in ("deb", "deb-src")]
        (state / "sources" / "debian.list").write_text("".join(both))
        options = {
            "Dir::Etc::sourcelist": "/dev/null",
            "Dir::Etc::sourceparts": state / "sources",
            "Dir::State::lists": state / "lists",
            "Dir::Cache": state,
            "APT::Sandbox::User": "root",
        }
        self.words = ["apt-get", "-qq"] + [f"-o{key}={value}" for key, value in options.items()]
        self.words += ["-oAPT::Architectures::=amd64", "-oAPT::Architectures::=arm64"]
        run([*self.words, "update"])

    def get(self, *words: str, into: Path) -> None:
        """Run apt-get in that folder."""
        run([*self.words, *words], cwd=into)


def unpack(name: str, package: Path, root: Path) -> None:
    """Unpack a package into `root` as into /; of a kernel that alone, whose modules would be ten times as much."""
    if not name.startswith("linux-image"):
        root.mkdir(parents=True, exist_ok=True)
        run(["dpkg", "-x", package, root])
        return
    with tempfile.TemporaryDirectory(prefix="cross-") as scratch:
        run(["dpkg", "-x", package, scratch])
        boot = root / "boot"
        shutil.rmtree(boot, ignore_errors=True)
        boot.mkdir(parents=True)
        for kernel in (Path(scratch) / "boot").glob("vmlinuz-*"):
            shutil.copy2(kernel, boot)


def fetch_debian(apt: Apt, groups: Iterable[str], root: Path = SYSTEM) -> None:
    """Download the packages, check them and unpack them."""
    stamps = CROSS / ".stamps"
    stamps.mkdir(parents=True, exist_ok=True)
    missing = []
    for pin in pins(groups):
        stamp = stamps / f"{pin[0]}.{pin[1]}"
        if not stamp.exists() or stamp.read_text() != pin[3]:
            stamp.unlink(missing_ok=True)
            missing.append(pin)
    if missing:
        # One call for all: reading Debian's lists takes apt-get longer than most of the packages.
        with tempfile.TemporaryDirectory(prefix="cross-") as scratch:
            names = (f"{name if arch == 'all' else f'{name}:{arch}'}={version}" for name, arch, version, _ in missing)
            apt.get("download", *names, into=Path(scratch))
            for name, arch, _, sha in missing:
                package = next(Path(scratch).glob(f"{name}_*_{arch}.deb"))
                check_hash(package, sha)
                unpack(name, package, root)
                (stamps / f"{name}.{arch}").write_text(sha)
    # The name by which rustc calls it to strip what it has linked for the Mac.
    objcopy = SYSTEM / "usr/bin/rust-objcopy"
    objcopy.unlink(missing_ok=True)
    objcopy.symlink_to("llvm-objcopy-22")
    script = SYSTEM / "usr/aarch64-linux-gnu/lib/libc.so"
    if script.exists():
        script.write_text(script.read_text().replace("/usr/aarch64-linux-gnu/lib/", ""))


def fetch_abilist(apt: Apt) -> None:
    """The list out of LLVM's source, of which nothing else is kept."""
    name, sha = LLVM
    with tempfile.TemporaryDirectory(prefix="cross-") as scratch:
        apt.get("source", "--download-only", "--tar-only", name, into=Path(scratch))
        archive = next(Path(scratch).glob("*.orig.tar.xz"))
        check_hash(archive, sha)
        with tarfile.open(archive) as source:
            for member in source:
                if "/libcxx/lib/abi/arm64-apple-darwin" in member.name:
                    content = source.extractfile(member)
                    assert content is not None
                    (CROSS / "libcxx.abilist").write_bytes(content.read())
                    return
    raise SystemExit(f"cross: {name} holds no list of arm64 libc++")


def fetch_npm() -> None:
    """Accelerate.d.ts, and the library that holds the table of C types."""
    name, version, sha = NPM
    with tempfile.TemporaryDirectory(prefix="cross-") as scratch:
        run(["npm", "pack", "--silent", f"{name}@{version}"], cwd=Path(scratch))
        archive = next(Path(scratch).glob("*.tgz"))
        check_hash(archive, sha)
        with tarfile.open(archive) as content:
            for end, name in NPM_FILES.items():
                member = next(member for member in content.getnames() if member.endswith(f"/{end}"))
                file = content.extractfile(member)
                assert file is not None
                (CROSS / name).write_bytes(file.read())


def fetch_crate() -> None:
    """bindgen's output, copied out of the package, which is fetched but never built."""
    name, version, checksum = CRATE
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    with tempfile.TemporaryDirectory(prefix="cross-") as scratch:
        package = Path(scratch)
        (package / "lib.rs").touch()
        head = '[package]\nname = "lists"\nversion = "0.0.0"\nedition = "2021"\n[lib]\npath = "lib.rs"\n[workspace]\n'
        (package / "Cargo.toml").write_text(f'{head}[dependencies]\n{name} = "={version}"\n')
        run([os.environ.get("CARGO", "cargo"), "fetch", "--quiet"], cwd=package)
        if checksum not in (package / "Cargo.lock").read_text():
            raise SystemExit(f"cross: the registry has another {name} {version} than the pinned one")
    source = next((home / "registry/src").glob(f"*/{name}-{version}/src/ffi"))
    shutil.copytree(source, CROSS / "accelerate-ffi", dirs_exist_ok=True)


def rust_env() -> dict[str, str]:
    """The environment in which the unpacked Rust runs."""
    env = dict(os.environ)
    for name in ("RUSTFLAGS", "RUSTUP_TOOLCHAIN", "VIRTUAL_ENV", "MLX_DIR", "OPENBLAS_DIR"):
        env.pop(name, None)
    env["PATH"] = f"{SYSTEM}/usr/bin:{env['PATH']}"
    env["LD_LIBRARY_PATH"] = f"{SYSTEM}/usr/lib/x86_64-linux-gnu"
    for name in ("rustc", "rustdoc", "cargo"):
        env[name.upper()] = f"{SYSTEM}/usr/bin/{name}"
    env.setdefault("CARGO_TARGET_DIR", str(ROOT / "target" / "cross"))
    return env


def build_std(target: str) -> None:
    """The standard library for a target that Debian has none for, from its source, into the unpacked Rust."""
    say(f"building Rust's standard library for {target} (a few minutes, once)")
    with tempfile.TemporaryDirectory(prefix="cross-") as scratch:
        package = Path(scratch)
        (package / "lib.rs").touch()
        text = '[package]\nname = "seed"\nversion = "0.0.0"\nedition = "2021"\n[lib]\npath = "lib.rs"\n[workspace]\n'
        (package / "Cargo.toml").write_text(text)
        env = rust_env() | {"RUSTC_BOOTSTRAP": "1", "CARGO_TARGET_DIR": scratch}
        command = ["cargo", "build", "--quiet", "--release", "-Zbuild-std=std,panic_unwind,test", "--target", target]
        run(command, cwd=package, env=env)
        library = SYSTEM / "usr/lib/rustlib" / target / "lib"
        # Two builds of one library would be one too many for rustc.
        shutil.rmtree(library, ignore_errors=True)
        library.mkdir(parents=True)
        for built in (package / target / "release/deps").glob("*.rlib"):
            if not built.name.startswith("libseed-"):
                shutil.copy2(built, library)


def wheels(group: str) -> tuple[fetch.Wheel, ...]:
    """MLX, and where it is used OpenBLAS, as vendor/fetch.py pins them for another machine; NumPy for its Python."""
    if group == "python":
        return (NUMPY_WHEEL,)
    return tuple(w for w in fetch.PARTS.get(MACHINES.get(group, ("", "")), ()) if w.package != "libclang")


def ensure_wheels(group: str) -> None:
    """Fetch the wheels of a group that are missing, and nothing else of it."""
    for wheel in wheels(group):
        if not fetch.in_place(wheel, CROSS / group):
            fetch.fetch(wheel, CROSS / group)


def stamp_of(group: str) -> tuple[Path, str]:
    """The file that records what a group was made of, and what it says if that is still what is pinned."""
    text = "\n".join(" ".join(row) for row in pins({"rust", group}))
    if group == "macos":
        text += f"\n{NPM} {NPM_FILES} {CRATE} {LLVM} {ZIG_WHEEL.sha256}"
    return CROSS / ".stamps" / group, text


def in_place(group: str) -> bool:
    """Is all of the group (macos, arm64, pages or python) there? Changes nothing."""
    stamp, text = stamp_of(group)
    recorded = stamp.read_text() if stamp.exists() else ""
    return recorded == text and all(fetch.in_place(wheel, CROSS / group) for wheel in wheels(group))


def ensure(group: str) -> None:
    """Fetch what is missing of a group."""
    if in_place(group):
        return
    CROSS.mkdir(parents=True, exist_ok=True)
    stamp, text = stamp_of(group)
    if not stamp.exists() or stamp.read_text() != text:
        say(f"fetching the tools for {group} into {CROSS.relative_to(ROOT)}")
        with tempfile.TemporaryDirectory(prefix="cross-") as scratch:
            apt = Apt(Path(scratch))
            fetch_debian(apt, *(({group}, PYTHON) if group == "python" else ({"rust", group},)))
            if group == "macos":
                fetch_abilist(apt)
        if group == "macos":
            fetch.fetch(ZIG_WHEEL, CROSS)
            (ZIG / "zig").chmod(0o755)
            fetch_npm()
            fetch_crate()
            build_std("aarch64-apple-darwin")
        stamp.write_text(text)
    ensure_wheels(group)

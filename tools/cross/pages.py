"""Programs for Linux arm64 on a kernel whose pages have 16 KiB, as macOS's have, in QEMU's system mode.

Debian's kernel of such pages starts with a root file system in memory: the programs, the libraries that they load, and
an init that runs them one by one, prints what they say to the serial line and turns the machine off. No disk and no
network.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from parts import CROSS, ROOT, SYSTEM

SIZE = 16 << 10
MEMORY_MB = 4096
# How long all programs may take together.
SECONDS = 3 * 3600
DONE = "pages: all programs ran"
INIT = f"""#!/bin/busybox sh
export PATH=/bin HOME=/tmp LD_LIBRARY_PATH=/lib RUST_BACKTRACE=1
# Tests see that all is emulated; the kernel itself starts programs.
export LUCID_TEST_RUNNER=
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
mount -t tmpfs tmp /tmp
ip link set lo up
echo "pages: $(getconf PAGESIZE 2>/dev/null || grep -m 1 KernelPageSize /proc/self/smaps)"
cd {ROOT}
for program in /tests/*; do
  "$program" --quiet
  echo "pages: $(basename "$program") ended with $?"
done
echo "{DONE}"
poweroff -f
"""


def libraries() -> Iterator[Path]:
    """What the programs load."""
    arm64 = SYSTEM / "usr/aarch64-linux-gnu/lib"
    for folder in (arm64, CROSS / "arm64/mlx/lib", CROSS / "arm64/mlx_cpu.libs", CROSS / "arm64/openblas/lib"):
        yield from (p for p in folder.iterdir() if ".so" in p.name and p.read_bytes()[:4] == b"\x7fELF")


def archive(files: dict[str, bytes]) -> bytes:
    """Files as a cpio archive of the form `newc`, which the kernel unpacks."""
    folders = {str(parent) for name in files for parent in Path(name).parents if str(parent) != "."}
    folders |= {"dev", "proc", "sys", "tmp", str(ROOT).lstrip("/")}
    folders |= {str(parent) for name in list(folders) for parent in Path(name).parents if str(parent) != "."}
    entries = [(name, 0o040755, b"") for name in sorted(folders)]
    entries += [(name, 0o100755, content) for name, content in files.items()]
    made = bytearray()
    for number, (name, mode, content) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
        made += b"070701" + "".join(f"{field:08x}" for field in fields).encode() + name.encode() + b"\0"
        made += b"\0" * (-len(made) % 4)
        made += content
        made += b"\0" * (-len(made) % 4)
    return bytes(made)


def run_tests(programs: list[str], cpu: str) -> str:
    """Run test programs; the last result of each. Ends if one fails, or if the kernel's pages have another size."""
    files = {"init": INIT.encode(), "bin/busybox": (SYSTEM / "bin/busybox").read_bytes()}
    files |= {f"lib/{path.name}": path.read_bytes() for path in libraries()}
    for program in programs:
        files[f"tests/{os.path.basename(program)}"] = Path(program).read_bytes()
        for made in Path(program).parents[1].glob("build/lucid-cpu-*/out/libaccelerate_stand_in.so"):
            files["lib/libaccelerate_stand_in.so"] = made.read_bytes()
    (kernel,) = (SYSTEM / "boot").glob("vmlinuz-*-16k")
    system = SYSTEM / "usr/lib/x86_64-linux-gnu"
    env = os.environ | {"LD_LIBRARY_PATH": f"{system}:{SYSTEM / 'lib/x86_64-linux-gnu'}"}
    with tempfile.TemporaryDirectory(prefix="pages-") as scratch:
        image = Path(scratch) / "root.cpio"
        image.write_bytes(archive(files))
        words = [str(SYSTEM / "usr/bin/qemu-system-aarch64"), "-L", str(SYSTEM / "usr/share/qemu")]
        words += ["-M", "virt", "-cpu", cpu, "-m", str(MEMORY_MB), "-smp", "2", "-nographic", "-no-reboot"]
        words += ["-net", "none", "-kernel", str(kernel), "-initrd", str(image)]
        words += ["-append", "console=ttyAMA0 quiet panic=-1"]
        done = subprocess.run(
            words, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    said = done.stdout.replace("\r", "")
    ended = re.findall(r"^pages: (\S+) ended with (\d+)$", said, re.MULTILINE)
    failed = [name for name, status in ended if status != "0"]
    wanted = re.search(r"^pages: (16384|KernelPageSize: +16 kB)$", said, re.MULTILINE)
    if failed or DONE not in said or not wanted:
        why = f"{', '.join(failed)} failed" if failed else "the machine stopped early, or its pages have another size"
        raise SystemExit(f"{said}{done.stderr}\ncross: {why}")
    # Tests that start themselves again print a result for each time.
    each = re.split(r"^pages: \S+ ended with \d+$", said, flags=re.MULTILINE)
    return "\n".join(line for part in each for line in re.findall(r"^test result: .*$", part, re.MULTILINE)[-1:])

"""A Chromium for the tests of the site: the machine's own, else Debian's package unpacked without root, else Playwright's.

python scripts/chromium.py FOLDER

FOLDER/chromium starts it. Nothing is installed on the machine. Where none can be had, the reasons are said and the status is 1.
"""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-headless-shell", "google-chrome", "chromium-browser")
PACKAGES = ("chromium-headless-shell", "fonts-liberation")
SHOWN = "<p>it starts"


class MissingError(Exception):
    """A way to a browser that leads nowhere here."""


def said(command, **options):
    """What a command answers; MissingError with its last line where it fails."""
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=600, **options)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingError(f"{command[0]}: {error}") from error
    if answer.returncode:
        raise MissingError(f"{command[0]}: {(answer.stderr.strip() or answer.stdout.strip()).splitlines()[-1:]}")
    return answer.stdout


def launcher(folder, program, root=None):
    """Write FOLDER/chromium, which starts a program, with libraries and fonts below `root`; it is tried at once."""
    lines = ["#!/bin/sh"]
    if root:
        places = {str(path.parent) for path in (root / "usr").rglob("*.so*")}
        lines += [
            f"export LD_LIBRARY_PATH={shlex.quote(':'.join(sorted(places)))}",
            f"export XDG_DATA_HOME={shlex.quote(str(root / 'usr/share'))}",  # where fontconfig looks for fonts too
        ]
        if not Path("/etc/fonts/fonts.conf").exists():
            lines.append(f"export FONTCONFIG_PATH={shlex.quote(str(root / 'etc/fonts'))}")
    start = folder / "chromium"
    start.write_text("\n".join([*lines, f'exec {shlex.quote(str(program))} "$@"', ""]), encoding="utf-8")
    start.chmod(0o755)
    page = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", f"data:text/html,{SHOWN}"]
    if "it starts" not in said([str(start), *page]):
        raise MissingError(f"{program} shows no page")
    return start


def of_machine(folder):
    """The Chromium that is installed."""
    tried = []
    for program in filter(None, map(shutil.which, NAMES)):
        try:
            return launcher(folder, program)
        except MissingError as error:
            tried.append(str(error))
    raise MissingError("; ".join(tried) or f"none of {', '.join(NAMES)} is installed")


def of_debian(folder):
    """Debian's package and what it needs besides, fetched and unpacked below `folder`, by any user."""
    root, work = folder / "root", folder / "apt"
    for part in ("lists/partial", "archives/partial"):
        (work / part).mkdir(parents=True, exist_ok=True)
    own = [f"Dir::State::Lists={work / 'lists'}", f"Dir::Cache={work}", "Debug::NoLocking=1", "APT::Sandbox::User="]
    apt = ["apt-get", "-qq", *(word for option in own for word in ("-o", option))]
    said([*apt, "update"])
    said([*apt, "-y", "--no-install-recommends", "--download-only", "install", *PACKAGES])
    packages = sorted((work / "archives").glob("*.deb"))
    for package in packages:
        said(["dpkg-deb", "--extract", str(package), str(root)])
    shutil.rmtree(work)
    programs = [path for path in (root / "usr/lib").rglob("chromium-headless-shell") if path.is_file()]
    if not programs:
        raise MissingError(f"no program in {[package.name for package in packages]}")
    return launcher(folder, programs[0], root)


def of_playwright(folder):
    """What Playwright downloads from its own site."""
    home = {"PLAYWRIGHT_BROWSERS_PATH": str(folder / "playwright")}
    said([sys.executable, "-m", "playwright", "install", "--only-shell", "chromium"], env={**_environment(), **home})
    programs = [
        *(folder / "playwright").rglob("headless_shell"),
        *(folder / "playwright").rglob("chrome-headless-shell"),
    ]
    return launcher(folder, programs[0])


def _environment():
    import os

    return dict(os.environ)


def main(folder):
    """Try each way in turn; 1 with all reasons where none leads to a browser."""
    folder.mkdir(parents=True, exist_ok=True)
    reasons = []
    for way in (of_machine, of_debian, of_playwright):
        try:
            print(f"{way(folder)} ({way.__name__.replace('_', ' ')})")
            return 0
        except (MissingError, OSError, IndexError) as error:
            reasons.append(f"{way.__name__.replace('_', ' ')}: {error}")
    (folder / "chromium").unlink(missing_ok=True)
    print("no Chromium for the tests of the site; install the package chromium", *reasons, sep="\n  ", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))

# SPDX-License-Identifier: GPL-3.0-or-later
"""What the checks share: the files of the tree, and how a finding is reported."""
import os
import subprocess
import sys

SOURCES = (".h", ".cpp", ".cu")


def root():
    """The folder to check: the first argument, else this checkout."""
    if len(sys.argv) > 1:
        return sys.argv[1]
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def files(top):
    """Paths, relative to `top`, of the files that git knows or would add; of all but build/ where there is no git."""
    git = ["git", "-C", top, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(git, check=True, capture_output=True).stdout.decode("utf-8", "surrogateescape").split("\0")
    except (OSError, subprocess.CalledProcessError):
        names = []
        for folder, below, here in os.walk(top):
            below[:] = [name for name in below if name not in ("build", ".git", "__pycache__")]
            names += [os.path.relpath(os.path.join(folder, name), top) for name in here]
    return sorted(name for name in set(names) if name and os.path.isfile(os.path.join(top, name)))


def lines(top, name):
    with open(os.path.join(top, name), encoding="utf-8", errors="replace") as file:
        return file.read().splitlines()


def finish(findings):
    """Prints them, one a line, and leaves with 1 if there are any."""
    for finding in findings:
        print(finding)
    sys.exit(1 if findings else 0)

# SPDX-License-Identifier: GPL-3.0-or-later
# What the scripts of this folder share: where things are, and how they speak. Sourced, never run.
# shellcheck shell=bash
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"
cache=${RANKYARD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rankyard}

say() { printf 'rankyard: %s\n' "$*" >&2; }

# fail CODE LINE…: a plain last word. 2 bad usage, 3 this machine lacks something.
fail() {
    local code=$1 line
    shift
    for line; do say "$line"; done
    exit "$code"
}

have() { command -v "$1" >/dev/null 2>&1; }

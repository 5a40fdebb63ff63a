# SPDX-License-Identifier: GPL-3.0-or-later
# What the scripts of this folder share: where things are, how they speak, how a preset is built. Sourced, never run.
# shellcheck shell=bash
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"
cache=${RANKYARD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rankyard}
export PYTHONUTF8=1 PYTHONDONTWRITEBYTECODE=1 # whatever the locale says; nothing is written beside the sources

say() { printf 'rankyard: %s\n' "$*" >&2; }

# fail CODE LINE…: a plain last word. 2 bad usage, 3 this machine lacks something.
fail() {
    local code=$1 line
    shift
    for line; do say "$line"; done
    exit "$code"
}

have() { command -v "$1" >/dev/null 2>&1; }

# As many jobs as there are cores and 2 GiB of memory for each.
jobs() {
    local gib
    gib=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)
    local n=$((gib / 2 < $(nproc) ? gib / 2 : $(nproc)))
    printf '%d\n' "$((n > 0 ? n : 1))"
}

# LibTorch's folder: $RANKYARD_LIBTORCH where that is set, else the provisioned one, fetched if need be.
libtorch() { if [[ ${RANKYARD_LIBTORCH:-} ]]; then printf '%s\n' "$RANKYARD_LIBTORCH"; else "$root/packaging/libtorch"; fi; }

# build PRESET [TARGET…]: configures when that was never done, or for another place, then builds. One call at a time.
# Its own output is kept in build/PRESET/build.log and shown on a terminal, or when something is wrong.
build() (
    local preset=$1 dir=$root/build/$1 torch
    shift
    torch=$(libtorch) || exit
    mkdir -p "$dir"
    exec 8>"$dir/build.lock"
    flock -n 8 || { say "another build of $preset is going on; waiting for it" && flock 8; }
    cd "$root" || exit
    if [[ ! -f $dir/build.ninja ]] || ! grep -qsxF "RANKYARD_LIBTORCH:PATH=$torch" "$dir/CMakeCache.txt" ||
        ! grep -qsxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$dir/CMakeCache.txt"; then
        say "configuring $preset"
        logged "$dir/configure.log" cmake --fresh --preset "$preset" -DRANKYARD_LIBTORCH:PATH="$torch" || exit
    fi
    logged "$dir/build.log" cmake --build --preset "$preset" -j "$(jobs)" ${1:+--target "$@"}
)

# logged FILE COMMAND…: output to FILE; on a terminal also there; without one only its end, and only on failure.
logged() {
    local log=$1
    shift
    if [[ -t 2 ]]; then
        "$@" 2>&1 | tee "$log" >&2
    elif ! "$@" >"$log" 2>&1; then
        grep -nE 'error|Error|FAILED|warning:' "$log" | head -n 40 >&2 || true
        tail -n 40 "$log" >&2
        say "failed: $*" "(all of it: $log)"
        return 1
    fi
}

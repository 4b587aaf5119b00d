#!/usr/bin/env bash
# The hostile-input suites against a build with AddressSanitizer and UndefinedBehaviorSanitizer (see docs/testing.md).
# Usage: bash tests/sanitize.sh [pytest arguments]
# PYTHON names the interpreter, which must have the test extra; SITE a folder that keeps the build for the next time.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
fail() { echo "sanitize.sh: $*" >&2; exit 1; }
command -v gcc >/dev/null || fail "gcc not found: the sanitizers' runtime comes with it"
"$python" -c 'import hypothesis, pytest' || fail "run pip install '.[test]' first, or set PYTHON"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
site=${SITE:-$scratch/site}
if [[ ! -d $site/kraftcore ]]; then
    echo "building with sanitizers"
    # A copy: objects left over from a normal build would be linked as they are.
    tar -cf - --exclude='*.so' --exclude='*.c' --exclude='__pycache__' --exclude='*.egg-info' \
        setup.py pyproject.toml README.md LICENSE MANIFEST.in kraftcore transports plugins | tar -xf - -C "$scratch"
    isolation=()
    if "$python" -c 'import Cython, setuptools as s; assert int(s.__version__.split(".")[0]) >= 77' 2>/dev/null; then isolation=(--no-build-isolation); fi
    (cd "$scratch" && KRAFTCORE_SANITIZE=1 "$python" -m pip install -q "${isolation[@]}" --no-deps --target "$site" . \
        >build.log 2>&1) || { tail -40 "$scratch/build.log" >&2; fail "the build failed"; }
    echo "built in ${SECONDS} s"
fi

# The interpreter is not instrumented, so the runtime must be there before it. libstdc++ too: without it the runtime does
# not find the exception functions that pyarrow needs.
runtime="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so) $(gcc -print-file-name=libstdc++.so.6)"
sanitized() {
    # PYTHONMALLOC: each object its own allocation, or an over-read would end in a neighbour. Leaks: the interpreter frees
    # nothing at its end. SAFEPATH, for pytest's processes too: the sources beside us must not shadow the build. No
    # allocation above 1 GiB has a place here.
    env LD_PRELOAD="$runtime" PYTHONMALLOC=malloc PYTHONPATH="$site" PYTHONSAFEPATH=1 \
        ASAN_OPTIONS=detect_leaks=0:abort_on_error=0:halt_on_error=1:max_allocation_size_mb=1024:allocator_may_return_null=1 \
        UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 "$python" "$@"
}
sanitized - "$site" <<'PROBE' || fail "the sanitized build is not the one that gets imported"
import ctypes, sys
import kraftcore.core.batch.record_batch as batch
assert batch.__file__.startswith(sys.argv[1]), batch.__file__
assert hasattr(ctypes.CDLL(None), "__asan_report_load1"), "the AddressSanitizer runtime is not loaded"
with open(batch.__file__, "rb") as file:
    assert b"__asan_report_load" in file.read(), "the module is not instrumented"
PROBE

if (($# == 0)); then
    # Every decoder of bytes from a peer or a disk. The crash simulation and the round trips of all messages are long and
    # add no input that these do not have; name them to run them too.
    set -- tests/core tests/storage tests/metadata tests/protocol/test_{hostile,frames,struct,golden_messages}.py \
        --ignore tests/core/test_log_crash.py
fi
# --capture=sys: the report of a finding is written to file descriptor 2, just before the process ends.
sanitized -m pytest -n "$(nproc)" --max-worker-restart 0 -q -x --capture=sys -p no:cacheprovider -p no:benchmark "$@" \
    || fail "failed, or a finding: see above"
echo "no finding in ${SECONDS} s"

"""Build of the compiled core. Everything that is not an extension module is declared in pyproject.toml.

Environment:
    KRAFTCORE_TRACE=1  build with line tracing, for coverage of the ``.pyx`` files (never time such a build).
    KRAFTCORE_SANITIZE=1  build with AddressSanitizer and UndefinedBehaviorSanitizer (see docs/testing.md).
"""

import os
import sys
from glob import glob

from Cython.Build import cythonize
from setuptools import Extension, setup

TRACE = os.environ.get("KRAFTCORE_TRACE") == "1"
SANITIZE = os.environ.get("KRAFTCORE_SANITIZE") == "1"
# Memoryview helpers are compiled once into this module instead of into every extension (Cython >= 3.2).
SHARED = "kraftcore.core._cyutility"

macros = [("CYTHON_TRACE", "1"), ("CYTHON_TRACE_NOGIL", "1"), ("CYTHON_USE_SYS_MONITORING", "0")] if TRACE else []
compile_args = ["-g0", "-Wall", "-Wextra"]
# What generated code cannot help: unused arguments and helpers, and gcc losing sight of out-parameters once inlined.
compile_args += ["-Wno-unused-parameter", "-Wno-unused-function", "-Wno-maybe-uninitialized"]
link_args = []
if SANITIZE:
    compile_args = ["-g1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined"]
    link_args = ["-fsanitize=address,undefined"]
# Modules that no figure of bench/ goes through, or that wait for the disk: gcc takes a third of the time for them.
SELDOM = {
    "core.columns.lists", "core.columns.partitions", "core.columns.record_types", "core.columns.rows",
    "core.columns.tree", "core.disk.files", "core.disk.os_files", "core.disk.simulated", "core.dump", "core.uuid",
    "core.wire.text", "security.index",
}  # fmt: skip


def level(name: str) -> str:
    """The level of optimisation of a module."""
    return "-Og" if SANITIZE or name.removeprefix("kraftcore.") in SELDOM else "-O2"


def extension(name: str, source: str) -> Extension:
    return Extension(
        name,
        [source],
        include_dirs=["kraftcore/core"],
        depends=sorted(glob("kraftcore/core/*.h")),
        define_macros=macros,
        extra_compile_args=[level(name), *compile_args],
        extra_link_args=link_args,
    )


extensions = [
    extension(path.removesuffix(".pyx").replace(os.sep, "."), path)
    for path in sorted(glob("kraftcore/**/*.pyx", recursive=True))
]
extensions.append(extension(SHARED, "kraftcore/core/_cyutility.c"))  # written by cythonize

# These commands only list files: nothing is translated for them.
IS_LISTING = not {"egg_info", "dist_info", "sdist"}.isdisjoint(sys.argv)


def translated() -> list[Extension]:
    """The extensions, their C files made."""
    return cythonize(
        extensions,
        nthreads=(os.cpu_count() or 1) if sys.platform == "linux" else 0,  # elsewhere processes are not forked
        force=TRACE,  # cythonize goes by mtime and would miss the changed directive
        # For every module; each checks its own bounds, because it must answer hostile bytes with its own errors.
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "initializedcheck": False,
            "cdivision": True,
            "autotestdict": False,  # would add a __test__ that the stubs do not have
            "emit_code_comments": False,  # the source's lines between those of C: a fifth of the text gcc reads
            "auto_pickle": False,  # objects over C memory; those that can be pickled say how
            "linetrace": TRACE,
        },
        shared_utility_qualified_name=SHARED,
    )


setup(
    ext_modules=extensions if IS_LISTING else translated(),
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
)

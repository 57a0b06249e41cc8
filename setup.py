"""Build steps that pyproject.toml cannot express: the packages below the root, the Cython extensions of the runtime,
the standard library of rules, parsed and checked, and the templates of kernels, translated to Python.

The repository root is the package `rewrite`, so the root holds files that are not part of it (this one, for
instance): `BuildPy` leaves them out of the wheel.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
ROOMS = (
    "system",
    "pages",
    "grammar",
    "engine",
    "soundness",
    "backend",
    "tuning",
    "frontends",
    "cli",
    "ort",
    "torch_backend",
)
NOT_MODULES = {"setup", "conftest"}


def packages() -> list[str]:
    """`rewrite` and every package inside its rooms, sorted."""
    inits = [init for room in ROOMS for init in (ROOT / room).rglob("__init__.py")]
    return ["rewrite", *sorted(".".join(("rewrite", *init.parent.relative_to(ROOT).parts)) for init in inits)]


def extensions() -> list[Extension]:
    """One extension per `.pyx` file of the rooms; Cython is asked only if there is one."""
    sources = sorted(source.relative_to(ROOT) for room in ROOMS for source in (ROOT / room).rglob("*.pyx"))
    if not sources:
        return []
    from Cython.Build import cythonize

    flags = ["-O3", "-g0", "-pthread", "-fno-math-errno", "-fno-trapping-math", "-Wno-unreachable-code-fallthrough"]
    directives = {"language_level": 3, "boundscheck": False, "wraparound": False, "cdivision": True}
    modules = []
    for source in sources:
        name = ".".join(("rewrite", *source.with_suffix("").parts))
        options = {"extra_compile_args": flags, "extra_link_args": ["-pthread"]}
        modules.append(Extension(name, [source.as_posix()], **options))
    built: list[Extension] = cythonize(modules, build_dir="build/cython", compiler_directives=directives)
    return built


class BuildPy(build_py):
    """Copies the package without files that only serve the build and the tests; prepares rules and templates."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            code = (
                "from rewrite.engine.rewriting.rule_library import prepare_standard_library as rules; rules();"
                "from rewrite.backend.codegen.render import prepare_templates as templates; templates()"
            )
            # what pip installed for the build is found through its own PYTHONPATH
            path = os.pathsep.join(filter(None, [os.path.abspath(self.build_lib), os.environ.get("PYTHONPATH")]))
            environment = {**os.environ, "PYTHONPATH": path}
            subprocess.run([sys.executable, "-P", "-c", code], cwd=self.build_lib, env=environment, check=True)

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        found: list[tuple[str, str, str]] = super().find_package_modules(package, package_dir)
        return [module for module in found if package != "rewrite" or module[1] not in NOT_MODULES]


if __name__ == "__main__":
    os.chdir(ROOT)
    setup(packages=packages(), ext_modules=extensions(), cmdclass={"build_py": BuildPy})

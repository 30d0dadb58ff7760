"""asv environment plugin: the installed vLLM wheel with one commit's Python laid over it.

A commit that stands for a release puts that release's own unpacked wheel there instead.

Named in asv.conf.json by `"plugins": [".harness.asv_overlay"]` and
`"environment_type": "overlay"`. The wheel is the one of the environment that runs asv, so
nothing is built or installed, and a commit is in place in moments.
"""

import os
import tempfile
import venv
from pathlib import Path
from typing import Any

import asv_runner

from harness import git, overlay, progress, release_commits, releases, wheel
from harness.asv_names import RUNNING_PYTHON, CommitEnvironment, own_lines
from harness.errors import FixcostError

_ROOT = Path(__file__).resolve().parents[1]
_KEPT_OVERLAYS = 8
_OVERLAYS = "overlays"
_PATH_FILE = Path("lib", f"python{RUNNING_PYTHON}", "site-packages", "overlay.pth")


class WheelOverlay(CommitEnvironment):
    """A bare Python whose path is: this project, the commit's overlay, the wheel's packages."""

    tool_name = "overlay"

    def check(self) -> None:
        wheel.installed(wheel.running_site_packages())

    def fingerprint(self) -> list[str]:
        try:
            below = wheel.installed(wheel.running_site_packages())
        except FixcostError:
            return []  # asv also makes environments to compare and publish, without a wheel
        return [str(_ROOT), str(below.site_packages), below.digest, self._wheel_ref(below)]

    def build(self, folder: Path) -> None:
        venv.EnvBuilder(symlinks=True).create(folder)

    def install(self, folder: Path, repository: Path, commit: str) -> None:
        below = wheel.installed(wheel.running_site_packages())
        release = release_commits.name_of(repository, commit)
        first = _unpacked(release) if release else self._laid(folder, repository, commit, below)
        # asv strips PYTHONPATH. Of a path that a .pth file adds, nested .pth files are not read,
        # so an editable install of this project would not be found: its root comes first.
        packages = Path(asv_runner.__file__).parents[1]
        path = dict.fromkeys([_ROOT, first, below.site_packages, packages])
        lines = [f"# {commit}", *map(str, path)]
        (folder / _PATH_FILE).write_text("".join(f"{line}\n" for line in lines))

    def _laid(self, folder: Path, repository: Path, commit: str, below: wheel.Wheel) -> Path:
        """The folder in which the commit's Python is laid over the wheel's."""
        wheel_ref = self._wheel_ref(below)
        wheel_commit = git.commit_of(repository, wheel_ref)
        if wheel_commit is None:
            raise FixcostError(
                f"{repository} has no {wheel_ref}, the commit of the installed vLLM "
                f"{below.version}: make or choose the subject again."
            )
        laid = folder / _OVERLAYS / f"{commit}-{wheel_commit[:8]}-{below.digest[:8]}"
        if not laid.exists():
            overlay.make(repository, commit, wheel_ref, below.site_packages, laid)
        os.utime(laid)
        overlay.keep_newest(laid.parent, _KEPT_OVERLAYS)
        return laid

    def is_installed(self, folder: Path, commit: str) -> bool:
        try:
            path = (folder / _PATH_FILE).read_text().splitlines()
        except FileNotFoundError:
            return False
        return path[0] == f"# {commit}" and (Path(path[2]) / "vllm").is_dir()

    def run_setup_cache(self, arguments: list[str], **options: Any) -> Any:
        with tempfile.TemporaryDirectory() as folder, own_lines():
            status = Path(folder, "progress.json")
            options["env"] = {**options["env"], progress.VARIABLE: str(status)}
            with progress.follow(status):
                return super().run_setup_cache(arguments, **options)

    def _wheel_ref(self, below: wheel.Wheel) -> str:
        return self.overlay_ref or below.tag


def _unpacked(name: str) -> Path:
    found = releases.unpacked(name)
    if found is None:
        raise FixcostError(f"vLLM {name} is not unpacked here: run `fixcost history add {name}`.")
    return found.folder

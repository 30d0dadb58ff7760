"""The releases of vLLM that are known: those that run here, and why the others do not."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from harness.errors import FixcostError
from harness.files import write_atomically

PATH = Path(__file__).with_name("releases.json")


class Known(msgspec.Struct, frozen=True):
    """A release that runs here."""

    version: str
    released: datetime
    """When PyPI got it, or, where that was not looked up, when its wheel was built."""
    sha256: str
    """Of its x86-64 CPU wheel."""


class Table(msgspec.Struct, frozen=True):
    """All that is known, the releases in their order in time."""

    releases: list[Known]
    impossible: dict[str, str]
    """By version: why it cannot run here."""

    def find(self, version: str) -> Known | None:
        """The release of this version."""
        return next((one for one in self.releases if one.version == version), None)


def read() -> Table:
    """The table.

    Raises:
        FixcostError: its file is damaged.
    """
    try:
        return msgspec.json.decode(PATH.read_bytes(), type=Table)
    except (msgspec.DecodeError, OSError) as error:
        raise FixcostError(f"{PATH} is damaged ({error}): restore it by git.") from None


def note(version: str, built: datetime, sha256: str) -> None:
    """Add a release to the table's end, unless it is there; it is dated after all others."""
    table = read()
    if table.find(version):
        return
    newest = max((one.released for one in table.releases), default=datetime.min.replace(tzinfo=UTC))
    if built <= newest:
        built = newest + timedelta(seconds=1)  # git keeps whole seconds
    releases = [*table.releases, Known(version, built, sha256)]
    encoded = msgspec.json.encode(Table(releases, table.impossible))
    write_atomically(PATH, msgspec.json.format(encoded, indent=1) + b"\n")

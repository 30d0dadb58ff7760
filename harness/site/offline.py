"""asv's own pages, without a request that leaves the host and without hidden failures."""

import json
import re
import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from harness.errors import FixcostError
from harness.files import write_atomically

VENDOR = Path(__file__).with_name("vendor")
ASV_PAGE = "asv.html"
"""asv's first page under its new name; ours is `index.html`."""
_LOCAL = {
    "jquery-3.3.1.min.js": "jquery/jquery.min.js",
    "jquery.flot.min.js": "flot/jquery.flot.js",
    "jquery.flot.time.min.js": "flot/jquery.flot.time.js",
    "jquery.flot.selection.min.js": "flot/jquery.flot.selection.js",
    "jquery.flot.categories.min.js": "flot/jquery.flot.categories.js",
    "jquery.flot.orderBars.js": "flot-orderbars/jquery.flot.orderBars.js",
    "stupidtable.min.js": "stupid-table-plugin/stupidtable.min.js",
    "md5.min.js": "blueimp-md5/md5.min.js",
    "bootstrap.min.js": "bootstrap/bootstrap.min.js",
    "bootstrap.min.css": "bootstrap/bootstrap.min.css",
}
_REMOTE = re.compile(
    r'(?P<attribute>src|href)="https?://(?P<host>[^/"]+)[^"]*/(?P<name>[^"/]+\.(?:js|css))"'
    r'(?: integrity="[^"]*")?(?: crossorigin="[^"]*")?(?: referrerpolicy="[^"]*")?'
)
_FIRST_TAB = '<li id="nav-li-" class="active">'


def mend_page(html: Path) -> None:
    """Serve the libraries of asv's page from `html` itself, and link our page first in it.

    Raises:
        FixcostError: asv's page is not as expected.
    """
    shutil.copytree(VENDOR, html / "vendor", dirs_exist_ok=True)
    page = html / "index.html"
    text = _REMOTE.sub(_local, page.read_text(encoding="utf-8"))
    if text.count(_FIRST_TAB) != 1:
        raise FixcostError("asv's page has no first tab before which ours could be linked.")
    ours = '<li id="nav-li-fixcost"><a href="index.html">Fix cost</a></li>'
    text = text.replace(_FIRST_TAB, f"{ours}\n{_FIRST_TAB}")
    write_atomically(html / ASV_PAGE, text.encode())


def fill_gaps(html: Path, benchmarks: Iterable[str]) -> None:
    """Give each benchmark that was never run the empty graph for which asv's grid asks."""
    for name in benchmarks:
        path = html / "graphs" / "summary" / f"{name}.json"
        if not path.exists():
            write_atomically(path, b"[]")


def mark_failures(html: Path, missing: Mapping[str, Collection[tuple[str, int | None]]]) -> None:
    """Say "failed" in asv's list in place of the last good value.

    Args:
        html: the published site.
        missing: what has no value now, by summary file (`asv_names.without_value`).
    """
    for summary, benchmarks in missing.items():
        path = html / summary
        rows = json.loads(path.read_text(encoding="utf-8"))
        for row in rows:
            if (row["name"], row["idx"]) in benchmarks:
                row["pretty_name"] = f"FAILED NOW: {row['pretty_name']}"
                row |= {"last_value": None, "prev_value": None, "last_err": None}
        write_atomically(path, json.dumps(rows, separators=(",", ":")).encode())


def _local(found: re.Match[str]) -> str:
    name = found["name"]
    if name not in _LOCAL:
        raise FixcostError(f"asv's page asks {found['host']} for {name}, which is not in {VENDOR}.")
    return f'{found["attribute"]}="vendor/{_LOCAL[name]}"'

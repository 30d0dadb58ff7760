"""Build the dashboard with asv and serve it on this machine alone."""

import functools
import http.server
from pathlib import Path

from harness import asv_names, bench, subject

ADDRESS = "127.0.0.1"
PORT = 8080
"""The first to be tried."""


def build(conf_path: Path) -> Path:
    """Publish all stored results; the folder of the site.

    Raises:
        FixcostError: there is no subject, or what is stored is damaged.
    """
    chosen = subject.current(conf_path)
    if chosen.repository == conf_path.parent / subject.FOLDER:
        subject.restore(conf_path)
    bench.quiet("publish", folder=conf_path.parent)
    return Path(conf_path.parent, asv_names.load_conf(conf_path).html_dir)


def serve(site: Path) -> None:
    """Serve a folder until Ctrl-C, and print where."""
    handler = functools.partial(_Quiet, directory=str(site))
    with _server(handler) as server:
        print(
            f"Serving it at http://{ADDRESS}:{server.server_address[1]}/ until Ctrl-C.", flush=True
        )
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    """A handler that says nothing of each request."""

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def _server(handler: functools.partial[_Quiet]) -> http.server.ThreadingHTTPServer:
    """On `PORT`, or on any free one where it is taken."""
    try:
        return http.server.ThreadingHTTPServer((ADDRESS, PORT), handler)
    except OSError:
        return http.server.ThreadingHTTPServer((ADDRESS, 0), handler)

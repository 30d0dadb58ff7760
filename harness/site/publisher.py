"""asv publisher plugin: our pages before asv's own, and both without a request to elsewhere."""

from pathlib import Path
from typing import Any

from harness import asv_names, places, release_commits
from harness.asv_names import OutputPublisher, UserError
from harness.errors import FixcostError

asv_names.publish_also(
    f"refs/heads/{release_commits.BRANCH}", f"refs/heads/{release_commits.BUILDS}/"
)


class FixCostPages(OutputPublisher):  # type: ignore[misc]
    """Runs after asv's own publishers, which write what is mended here."""

    name = "fixcost"
    button_label = "Fix cost"
    description = "Is the output right, what does the fix cost, and where"
    order = 100

    @classmethod
    def publish(cls, conf: Any, _repo: Any, benchmarks: Any, graphs: Any, _revisions: Any) -> None:
        """Write into `conf.html_dir`; damaged results end `asv publish` with a sentence."""
        from harness.site import offline, pages  # asv imports its plugins for every command

        html = Path(conf.html_dir)
        try:
            offline.mend_page(html)
            offline.fill_gaps(html, benchmarks)
            offline.mark_failures(html, asv_names.without_value(benchmarks, graphs))
            pages.write(places.ASV_CONF, html)
        except FixcostError as error:
            raise UserError(str(error)) from None

"""Change single keys of asv.conf.json in place, with all its comments left as they are."""

import json
import re
from pathlib import Path

from harness.errors import FixcostError

Value = str | list[str] | None

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_VALUE = rf"(?:null|{_STRING}|\[(?:\s*{_STRING}\s*,?)*\s*\])"


def edit(path: Path, values: dict[str, Value]) -> None:
    """Set the keys of `values`, each of which must stand on a line of its own in the file.

    Raises:
        FixcostError: a key is not there exactly once, or asv would not read back what was
            meant; the file is then as it was before.
    """
    from harness.asv_names import load_conf

    text = path.read_text(encoding="utf-8")
    for key, value in values.items():
        place = re.compile(rf'^(\s*"{key}"\s*:\s*){_VALUE}', re.MULTILINE)
        written = json.dumps(value, ensure_ascii=False)
        text, count = place.subn(lambda found, new=written: found[1] + new, text)  # type: ignore[misc]
        if count != 1:
            raise FixcostError(f'{path} must have "{key}" on exactly one line, not on {count}.')
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        read = vars(load_conf(partial))
        wrong = [key for key, value in values.items() if read[key] != value]
        if wrong:
            raise FixcostError(f"{path} cannot be edited ({', '.join(wrong)}): edit it by hand.")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)

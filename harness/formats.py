"""In which form the commands print results."""

from enum import StrEnum
from typing import Annotated

import typer


class Format(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"


class AnswerFormat(StrEnum):
    """How the answer on a pull request is printed."""

    TABLE = "table"
    JSON = "json"
    MARKDOWN = "md"


FormatOption = Annotated[Format, typer.Option("--format", help="For people or for programs.")]

"""Take the fix of PR 51100 out of the scheduler's source again."""

import ast

from harness.errors import FixcostError

SCHEDULER = "vllm/distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py"
_ALIGNMENT = "resolve_mamba_align_size"


def without_fix(source: str) -> str:
    """The scheduler's `source` as it was before the fix: only mode "align" gets an alignment.

    Raises:
        FixcostError: the place is not there exactly once.
    """
    tests = [
        node
        for function in ast.walk(ast.parse(source))
        if isinstance(function, ast.FunctionDef) and function.name == _ALIGNMENT
        for node in ast.walk(function)
        if _accepts_both_modes(node)
    ]
    with_fix = ast.get_source_segment(source, tests[0]) if len(tests) == 1 else None
    if with_fix is None or source.count(with_fix) != 1:
        raise FixcostError(
            f'The installed vLLM has no single test for modes "align" and "all" in {_ALIGNMENT}: '
            "the fix of PR 51100 cannot be taken out (0.28 to 0.31 have it)."
        )
    tested = with_fix[: with_fix.index(" in ")]
    return source.replace(with_fix, f'{tested} == "align"')


def _accepts_both_modes(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In)):
        return False
    try:
        return set(ast.literal_eval(node.comparators[0])) == {"align", "all"}
    except (ValueError, TypeError):
        return False

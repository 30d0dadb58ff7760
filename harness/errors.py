"""The one kind of error that is meant for the user."""


class FixcostError(Exception):
    """What is wrong and what to do about it, in one sentence.

    The command line prints the sentence and exits with code 2; there is never a traceback.
    """


class MeterError(FixcostError):
    """An energy meter is absent, refused, standing still or lost; the sentence says which."""


PREFIX = "fixcost: "
"""With this the sentence begins where a program shows it among the output of others."""

"""How a command ends: the program's exit codes.

0    done
1    it ran, and the answer is no: findings, differences, a refused rule, a list that is not enforced in time
2    the call was wrong: an option, or a file that cannot be read as what it should be
3    something needed is not there: a file, a right, a program, the service
130  interrupted
"""

from __future__ import annotations

from orchestrator.errors import AclflowError, BadInput, Missing, TryAgain

DONE, ANSWER_IS_NO, WRONG_CALL, NOT_THERE, INTERRUPTED = 0, 1, 2, 3, 130

EXIT_CODES: tuple[tuple[type[AclflowError], int], ...] = (
    (BadInput, WRONG_CALL),
    (Missing, NOT_THERE),
    (TryAgain, NOT_THERE),
    (AclflowError, ANSWER_IS_NO),
)
"""The first class that an error belongs to gives the exit code."""

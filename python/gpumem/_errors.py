"""Errors of the package."""

from typing import Optional

from ._native import Error

__all__ = ["Error", "ExportError"]


class ExportError(Error):
    """A module that PyTorch cannot export. The text has the reason and the line of your code.

    The exception of PyTorch is its `__cause__`.
    """

    #: The reason in one line, as PyTorch has it.
    reason: str
    #: The file of the line that could not be exported. `None` if PyTorch does not say.
    filename: Optional[str]
    #: The number of that line, from 1 on.
    lineno: Optional[int]
    #: The function that it is in.
    function: Optional[str]
    #: The line itself.
    line: Optional[str]

    def __init__(
        self,
        message: str,
        reason: str = "",
        filename: Optional[str] = None,
        lineno: Optional[int] = None,
        function: Optional[str] = None,
        line: Optional[str] = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.filename = filename
        self.lineno = lineno
        self.function = function
        self.line = line


# Tracebacks name it as users import it.
ExportError.__module__ = "gpumem"

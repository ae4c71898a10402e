"""The one error of the project: something asked for that cannot be done as asked."""


class BadInput(ValueError):
    """Bad input, refused at the door.

    The message is one line that names what was wrong and what would be right. Programs print it and exit with
    status 2; it is never caught to be ignored.
    """

"""The failure of a check on the values of operands, which a reference makes."""


class Unmet(Exception):
    """Raised by a reference if a check of its formula does not hold; the message is the check's."""

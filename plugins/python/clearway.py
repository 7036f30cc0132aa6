"""Messages, for plugins in Python."""

import struct


def fields(message):
    """The fields of a question: pairs of a name in small letters and its value, both bytes."""
    at, found = 8, []
    while at + 8 <= len(message):
        name_length, value_length = struct.unpack_from("<II", message, at)
        middle = at + 8 + name_length
        at, begin = middle + value_length, at + 8
        found.append((message[begin:middle].lower(), message[middle:at]))
    return found


def answer(status, body=b"", headers=()):
    """An answer."""
    parts = [(b":status", b"%d" % status), *headers, (b":body", body)]
    lines = (struct.pack("<II", len(name), len(value)) + name + value for name, value in parts)
    return struct.pack("<BBHI", 1, 4, 0, len(parts)) + b"".join(lines)

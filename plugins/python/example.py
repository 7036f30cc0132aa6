"""A plugin in Python, for host.c: what the example in C does by the names `greet`, `echo` and `check`."""

import clearway


def handle(question):
    fields = dict(clearway.fields(question))
    function = fields[b":function"]
    if function == b"greet":
        return clearway.answer(200, b"hello " + fields[b":args"] + b" from Python\n")
    if function == b"echo":
        return clearway.answer(200, fields[b":body"])
    if function == b"check":
        if fields.get(b"x-key") == b"key":
            return clearway.answer(204)
        return clearway.answer(403, b"wrong key\n")
    return clearway.answer(404, b"no such function\n")

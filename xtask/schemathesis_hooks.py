"""Changes to the requests of `cargo xtask fuzz-api`."""

import itertools

import schemathesis

_numbers = itertools.count(1)


@schemathesis.hook
def before_call(context, case, kwargs):
    """Gives every request its own Idempotency-Key.

    The fuzzer repeats values. The answer to a repeated key is that of the first request, whose job the fuzzer may
    have deleted since: it would report "created resource not found". Keys that the server must refuse stay as they are.
    """
    key = (case.headers or {}).get("Idempotency-Key")
    if key and len(key) <= 190 and key.isascii() and key.isprintable():
        case.headers["Idempotency-Key"] = f"{key}{next(_numbers)}"

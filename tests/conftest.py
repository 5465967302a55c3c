"""What holds for all tests."""

import signal

from hypothesis import settings

# No test depends on speed: examples have no deadline. The first ones often compile something.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_configure() -> None:
    """Let programs that tests start be interrupted, also where this one runs in the background.

    A shell starts a background command with the interrupt ignored, and its children inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)

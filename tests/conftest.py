"""What holds for all tests."""

import signal


def pytest_configure() -> None:
    """Let programs that tests start be interrupted, also where this one runs in the background.

    A shell starts a background command with the interrupt ignored, and its children inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)

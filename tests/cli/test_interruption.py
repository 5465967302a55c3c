import os
import signal
import subprocess
import sys
import threading

import pytest

from mohsearch.cli.interruption import Terminated, ends_on_request, exit_code_of

STUCK = """
import hashlib
import multiprocessing
import time
from mohsearch.cli.interruption import ends_on_request

if __name__ == "__main__":
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    child.start()
    with ends_on_request(lambda code: print("go on", code, flush=True), grace_s=0.1):
        while True:
            try:
                print(child.pid, flush=True)
                hashlib.pbkdf2_hmac("sha256", b"", b"", 2 * 10**9)  # minutes, deaf to signals
            except KeyboardInterrupt:
                pass  # came before it had begun
"""


@pytest.fixture(autouse=True)
def handlers():
    """What is done on signals, put back after each test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield before
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_first_sigterm_interrupts_and_further_ones_are_ignored():
    told = []

    def work():
        with ends_on_request(told.append):
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                threading.Event().wait(5)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)
                os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Terminated) as caught:
        work()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    assert exit_code_of(caught.value) == 143
    assert exit_code_of(KeyboardInterrupt()) == 130
    assert told == []


def test_signals_are_handled_as_before_once_the_block_has_ended(handlers):
    threads = threading.active_count()
    with ends_on_request(print):
        assert signal.getsignal(signal.SIGTERM) != handlers[signal.SIGTERM]
    assert {number: signal.getsignal(number) for number in handlers} == handlers
    assert signal.set_wakeup_fd(-1) == -1
    assert threading.active_count() == threads


def test_nothing_is_changed_outside_the_main_thread():
    seen = []

    def block():
        with ends_on_request(print):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=block)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_command_deep_in_compiled_code_is_ended_with_its_processes(tmp_path, number, code):
    script = tmp_path / "stuck.py"
    script.write_text(STUCK)
    process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    child = int(process.stdout.readline())
    try:
        process.send_signal(number)
        # the pipe ends when the child is gone, too
        said, _ = process.communicate(timeout=30)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        process.kill()
        process.communicate()
        raise
    assert (process.returncode, said.splitlines()[-1]) == (code, f"go on {code}")

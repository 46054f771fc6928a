"""Several contenders, each in a process of its own, run in turn: a slow minute of the machine then hits all alike."""

import gc
import multiprocessing
import time

from .machine import memory_in_use


class Side:
    """One contender: `build(*args, **options)` is called in a new process and returns {name: function of no arguments}.

    Before memory is first looked at, `build(*warm_up)`, something tiny, is built and every function of it called once:
    so `peak_memory` does not count libraries. Use it as a context manager. `build` must be a function that another
    process can import.
    Raises RuntimeError, with the other process's error, where building or running fails there.
    """

    def __init__(self, build, *args, warm_up, **options):
        context = multiprocessing.get_context("spawn")
        self._pipe, far_end = context.Pipe()
        call = (far_end, build, warm_up, args, options)
        self._process = context.Process(target=_serve, args=call, daemon=True)
        self._process.start()
        far_end.close()
        self._receive()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._pipe.close()  # at which the process ends
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()

    def run(self, name="step"):
        """Call the function of that name once; return the seconds it took."""
        return self._ask("run", name)

    def peak_memory(self):
        """Return the most bytes held at a time, above those held after the warm-up; None if unknown."""
        return self._ask("memory", None)

    def _ask(self, *question):
        self._pipe.send(question)
        return self._receive()

    def _receive(self):
        try:
            ok, answer = self._pipe.recv()
        except EOFError:
            self._process.join(10)
            raise RuntimeError(f"a measured process died, exit code {self._process.exitcode}") from None
        if not ok:
            raise RuntimeError(f"in a measured process: {answer}")
        return answer


def _serve(pipe, build, warm_up, args, options):
    """What the other process does: build, then answer until the pipe is closed."""
    try:
        for function in build(*warm_up, **options).values():
            function()
        gc.collect()
        before, _ = memory_in_use()
        functions = build(*args, **options)
        pipe.send((True, None))
        while True:
            try:
                question, name = pipe.recv()
            except EOFError:
                return
            if question == "memory":
                _, peak = memory_in_use()
                pipe.send((True, None if peak is None else peak - before))
            else:
                start = time.perf_counter()
                functions[name]()
                pipe.send((True, time.perf_counter() - start))
    except Exception as error:  # whatever it was, it is said on the other side
        pipe.send((False, f"{type(error).__name__}: {error}"))


def alternate(calls, repeats, warm_up=2, pause=0.02):
    """Call each function in turn, `repeats` times; return a list of seconds for each, warm-up calls not counted.

    `calls` return seconds, as Side.run does. The pause lets threads of the one before, which may still be waiting for
    work, fall asleep.
    """
    seconds = [[] for _ in calls]
    for i in range(warm_up + repeats):
        for call, kept in zip(calls, seconds, strict=True):
            time.sleep(pause)
            taken = call()
            if i >= warm_up:
                kept.append(taken)
    return seconds

"""Processes that export without a start of 15 s of CPU: each is forked off one that has exported before.

`python warm_python.py SOCKET PID` keeps that one, as long as the process PID lives. `ask(SOCKET, words)` runs
`python WORDS` off it with the caller's folder, environment and files, and returns its exit code; so does
`python warm_python.py ask SOCKET WORDS`, which hands Ctrl-C and SIGTERM on. Whoever asks is followed: if it
ends, what it asked for is ended.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
from pathlib import Path

import psutil


def ask(place: str, words: list[str], *, hand_on: tuple[signal.Signals, ...] = ()) -> int:
    """The exit code of `python WORDS`; 128 and more for a signal, as in a shell. It gets the signals in
    `hand_on` that come here."""
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(place)
        for number in hand_on:
            signal.signal(number, lambda got, _: link.sendall(bytes([got])))
        asked = json.dumps({"words": words, "cwd": str(Path.cwd()), "env": dict(os.environ)}).encode()
        socket.send_fds(link, [len(asked).to_bytes(4, "big")], [0, 1, 2])
        link.sendall(asked)
        answer = link.recv(1)
    return answer[0] if answer else 1


def serve(place: str, pid: int) -> None:
    gc.set_threshold(200_000, 50, 1000)
    _export_something()
    gc.freeze()  # what is forked shares its memory for as long as nobody counts in it
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(f"{place}.new")
        door.listen(16)
        Path(f"{place}.new").rename(place)  # it is there once it answers
        while psutil.pid_exists(pid):
            if select.select([door], [], [], 1.0)[0]:
                link, _ = door.accept()
                if os.fork() == 0:
                    door.close()
                    os._exit(_follow(link))
                link.close()


def _export_something() -> None:
    """Most of what an export needs is loaded by the first one."""
    os.environ["OMP_NUM_THREADS"] = "1"  # a pool of threads would not live on in what is forked
    _mean_the_wheel()
    import executorch.devtools  # noqa: F401
    import pydantic  # noqa: F401
    import scipy.special  # noqa: F401
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer
    from executorch.exir import to_edge_transform_and_lower
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()).eval()
    inputs = (torch.ones(1, 3, 8, 8),)
    quantizer = xnnpack_quantizer.XNNPACKQuantizer()
    quantizer.set_global(xnnpack_quantizer.get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(torch.export.export(model, inputs, strict=False).module(), quantizer)
    prepared(*inputs)
    traced = torch.export.export(convert_pt2e(prepared), inputs, strict=False)
    to_edge_transform_and_lower(traced, partitioner=[XnnpackPartitioner()]).to_executorch()


def _mean_the_wheel() -> None:
    """Let `executorch` be the wheel, as in every process of the kit: a namespace package that was imported
    without the kit would follow `sys.path` to a checkout. The kit itself is loaded anew by what is forked."""
    from model_profiling.core.hints import import_only_the_wheel

    import_only_the_wheel()
    for name in [name for name in sys.modules if name.partition(".")[0] == "model_profiling"]:
        del sys.modules[name]


def _follow(link: socket.socket) -> int:
    """Fork what is asked for, tell how it ended, and end it with whoever asked."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    head, files, _, _ = socket.recv_fds(link, 4, 3)
    text = b""
    while len(text) < int.from_bytes(head, "big"):
        text += link.recv(1 << 16)
    asked = json.loads(text)
    child = os.fork()
    if child == 0:
        link.close()
        _become(asked, files)
    for number in files:
        os.close(number)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            with contextlib.suppress(OSError):
                link.sendall(bytes([code if code >= 0 else 128 - code]))
            return 0
        if select.select([link], [], [], 0.05)[0]:
            handed_on = link.recv(1)
            with contextlib.suppress(ProcessLookupError):
                if handed_on:
                    os.kill(child, handed_on[0])
                else:
                    os.killpg(child, signal.SIGKILL)
                    return 0


def _become(asked: dict[str, object], files: list[int]) -> None:
    """Be the process that `python WORDS` would be."""
    code = 1
    try:
        os.setsid()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.environ.clear()
        os.environ.update(asked["env"])  # type: ignore[call-overload]
        os.chdir(str(asked["cwd"]))
        words = list(asked["words"])  # type: ignore[call-overload]
        added = [folder for folder in os.environ.get("PYTHONPATH", "").split(":") if folder]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if words[0] == "-m":
            sys.path[:1] = [str(Path.cwd()), *added]
            sys.argv = words[1:]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.path[:1] = [str(Path(words[0]).resolve().parent), *added]
            sys.argv = words
            runpy.run_path(words[0], run_name="__main__")
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001  as the interpreter does
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    if sys.argv[1] == "ask":
        sys.exit(ask(sys.argv[2], sys.argv[3:], hand_on=(signal.SIGINT, signal.SIGTERM)))
    serve(sys.argv[1], int(sys.argv[2]))

"""The audit hook that a test of hostile run directories rests on."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from model_profiling.core import process

TESTS = Path(__file__).resolve().parents[1] / "tests"


def test_the_hook_sees_what_it_is_to_see(tmp_path: Path) -> None:
    """Or else tests/runs/test_audited.py would say nothing."""
    attempts = {
        "subprocess.run(['true'])": "subprocess.Popen",
        "os.system('true')": "os.system",
        "socket.create_connection(('127.0.0.1', 9), 1)": "socket.",
        "pickle.loads(b'cos\\nsystem\\n.')": "pickle.find_class",
        "marshal.loads(b'N')": "marshal.loads",
        "open('/etc/hostname')": "open /etc/hostname",
        "os.open('/etc/hostname', os.O_RDONLY)": "open /etc/hostname",
        "open('../x', 'w')": "open ",
        "os.mkdir('../x')": "os.mkdir ",
        "open('x', 'w').close()": "",
        "open(os.__file__).close()": "",
    }
    code = f"""
import json, marshal, os, pickle, socket, subprocess, sys
sys.path.insert(0, {str(TESTS)!r})
from audited_commands import Audit
audit, seen = Audit([os.getcwd()], []), []
sys.addaudithook(audit)
for attempt in {list(attempts)!r}:
    audit.seen.clear()
    audit.watching = True
    try:
        exec(attempt)
    except Exception:
        pass
    audit.watching = False
    seen.append(list(audit.seen))
print(json.dumps(seen))
"""
    own = tmp_path / "own"
    own.mkdir()
    done = process.run([sys.executable, "-c", code], timeout=60, cwd=own)
    assert done.ok, done.tail()
    for (attempt, event), seen in zip(attempts.items(), json.loads(done.stdout), strict=True):
        assert any(each.startswith(event) for each in seen) if event else not seen, (attempt, seen)

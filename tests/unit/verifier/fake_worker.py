"""A worker that does what the request says; started by the tests as a process of its own."""

import os
import socket
import sys
import time
from pathlib import Path

from services.verifier.checkers.worker_loop import serve


def attempts(path):
    """What a worker must not do, by name."""
    return {
        "write": lambda: Path(path).write_text("a completion's secrets"),
        "create": lambda: Path(path).touch(),
        "remove": lambda: Path(path).unlink(),
        "read": lambda: Path(path).read_text(),
        "passwords": lambda: Path("/etc/passwd").read_text(),
        "list": lambda: os.listdir("/"),
        "connect": lambda: socket.create_connection(("127.0.0.1", 9), timeout=1),
        "unix socket": lambda: socket.socket(socket.AF_UNIX),
        "fork": os.fork,
        "execute": lambda: os.execv("/bin/true", ["true"]),
        "signal": lambda: os.kill(os.getppid(), 0),
        "raise a limit": lambda: os.setpriority(os.PRIO_PROCESS, 0, -5),
    }


def succeeds(attempt):
    try:
        attempt()
    except OSError:
        return False
    return True


def load():
    def act(request):
        match request["do"]:
            case "echo":
                return {"status": "ok", "text": request["text"], "pid": os.getpid()}
            case "attack":
                return {"status": "ok", "got": [n for n, a in attempts(request["path"]).items() if succeeds(a)]}
            case "import":
                import wave  # nobody has yet

                return {"status": "ok", "text": wave.__name__}
            case "environment":
                return {"status": "ok", "names": sorted(os.environ)}
            case "print":
                sys.stdout.write("noise\n")
                sys.stdout.flush()
                return {"status": "ok", "read": sys.stdin.read()}
            case "raise":
                raise RuntimeError("third-party code raises")
            case "spin":
                while True:
                    pass
            case "sleep":
                time.sleep(3600)
            case "exit":
                os._exit(3)
            case "exit_first":
                if os.getpid() == request["pid"]:
                    os._exit(3)
                return {"status": "ok"}
            case "hoard":
                return {"status": "ok", "size": len(bytearray(2 << 30))}
        raise ValueError(request["do"])

    return act


if __name__ == "__main__":
    serve(load)

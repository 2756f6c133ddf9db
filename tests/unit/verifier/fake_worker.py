"""A worker that does what the request says; started by the tests as a process of its own."""

import os
import sys
import time
from pathlib import Path

from services.verifier.checkers.worker_loop import serve


def written(path):
    try:
        return Path(path).write_text("a completion's secrets")
    except OSError:
        return 0


def load():
    def act(request):
        match request["do"]:
            case "echo":
                return {"status": "ok", "text": request["text"], "pid": os.getpid()}
            case "lock":
                status = Path("/proc/self/status").read_text()
                return {"status": "ok", "no_new_privs": "NoNewPrivs:\t1" in status, "written": written(request["path"])}
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
            case "exit_once":
                marker = Path(request["marker"])
                if not marker.exists():
                    marker.touch()
                    os._exit(3)
                return {"status": "ok"}
            case "hoard":
                return {"status": "ok", "size": len(bytearray(2 << 30))}
        raise ValueError(request["do"])

    return act


if __name__ == "__main__":
    serve(load)

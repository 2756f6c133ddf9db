"""Starts the zygote: `python __main__.py CONFIG`, with the standard library alone on the path."""

import json
import sys
from pathlib import Path

if __name__ == "__main__":
    standard_library = list(sys.path)
    sys.path.insert(0, str(Path(__file__).parents[4]))

    from services.verifier.sandbox.inside.zygote import serve

    _, config_text = sys.argv
    serve(json.loads(config_text), standard_library)

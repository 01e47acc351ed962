"""Where Prometheus and promtool are: in $PATH, or where deploy/setup.sh --tests puts them."""

import os
import pathlib
import shutil

from skips import skip

CACHE = pathlib.Path(os.environ.get("WEFT_CACHE") or pathlib.Path(
    os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "weft")


def tool(name):
    """Path of `prometheus` or `promtool`; without it the test is skipped."""
    path = os.pathsep.join([os.environ.get("PATH", ""), str(CACHE / "prometheus/usr/bin")])
    return shutil.which(name, path=path) or skip(
        "prometheus", f"{name} is neither in $PATH nor in {CACHE}/prometheus (deploy/setup.sh --tests)")

"""The chart as tests see it: rendered by Helm, checked by kubeconform, read as Python values."""

import atexit
import copy
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))

import kubernetes_schemas  # noqa: E402
from skips import skip  # noqa: E402

CHART = ROOT / "deploy/helm/weft"
EXAMPLES = sorted((CHART / "ci").glob("*-values.yaml"))
KUBERNETES = "1.36.3"
CACHE = pathlib.Path(os.environ.get("WEFT_CACHE") or pathlib.Path(
    os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "weft")
SCRATCH = pathlib.Path(tempfile.mkdtemp(prefix="weft-helm-"))
atexit.register(shutil.rmtree, SCRATCH, ignore_errors=True)


def tool(name):
    """helm or kubeconform, as deploy/setup.sh --kubernetes made them."""
    path = CACHE / "tools/bin" / name
    if not path.exists():
        skip("helm", f"{path} is missing: run deploy/setup.sh --kubernetes")
    return path


def helm(*arguments):
    return subprocess.run([tool("helm"), *map(str, arguments)], capture_output=True, text=True,
                          timeout=120, env={"PATH": os.environ["PATH"], "HOME": str(SCRATCH)})


class Refused(Exception):
    """Helm would not render; the message is Helm's."""


def helm_template(values=None, chart=CHART, files=(), release="weft", namespace="llm"):
    arguments = ["template", release, chart, "--namespace", namespace, "--kube-version", KUBERNETES]
    for path in files:
        arguments += ["--values", path]
    if values:
        path = SCRATCH / "values.json"
        path.write_text(json.dumps(values))
        arguments += ["--values", path]
    done = helm(*arguments)
    if done.returncode != 0:
        raise Refused(done.stderr)
    return done.stdout


def render(values=None, **named):
    """The objects, by (kind, name)."""
    objects = {}
    for one in yaml.load_all(helm_template(values, **named), Loader=yaml.CSafeLoader):
        if one:
            key = (one["kind"], one["metadata"]["name"])
            assert key not in objects, f"{key} is made twice"
            objects[key] = one
    return objects


def programs():
    return yaml.safe_load((CHART / "files/programs.yaml").read_text())


def chart_of_tomorrow(but=None):
    """The chart as if the programs could do all that files/programs.yaml knows of, so that layouts
    that wait for them are checked today; all `but` one of its names."""
    chart = SCRATCH / f"tomorrow-{but}/weft"
    if not chart.exists():
        shutil.copytree(CHART, chart, symlinks=False)
        able = {name: dict(one, there=name != but) for name, one in programs().items()}
        (chart / "files/programs.yaml").write_text(yaml.safe_dump(able))
    return chart


def tomorrow(values, **named):
    return render(values, chart=chart_of_tomorrow(), **named)


def schemas():
    """A folder with a schema of each kind."""
    source = CACHE / "kubernetes"
    if not (source / "installed").exists():
        skip("helm", f"{source} is missing: run deploy/setup.sh --kubernetes")
    folder = SCRATCH / "schemas"
    if not folder.exists():
        folder.mkdir()
        kubernetes_schemas.convert(source, folder)
    return folder


def kubeconform(text):
    """What kubeconform has against it, one line for each object; empty when nothing."""
    done = subprocess.run(
        [tool("kubeconform"), "-strict", "-output", "json", "-summary", "-schema-location",
         str(schemas()) + "/{{.ResourceKind}}{{.KindSuffix}}.json"],
        input=text, capture_output=True, text=True, timeout=60)
    result = json.loads(done.stdout)
    bad = [f'{one["kind"]} {one["name"]}: {one["msg"]}' for one in result.get("resources", [])]
    assert bool(bad) == (done.returncode != 0), done.stdout + done.stderr
    assert bad or result["summary"]["valid"] > 0, "kubeconform saw no object"
    return "\n".join(bad)


def pod_templates(objects):
    """(name, template) of everything that makes pods."""
    for (kind, name), one in objects.items():
        if kind in ("Deployment", "StatefulSet"):
            yield f"{kind} {name}", one["spec"]["template"]
        elif kind == "LeaderWorkerSet":
            yield f"{name} leader", one["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
            yield f"{name} worker", one["spec"]["leaderWorkerTemplate"]["workerTemplate"]


def containers(objects):
    for name, template in pod_templates(objects):
        for container in template["spec"]["containers"]:
            yield f'{name} {container["name"]}', container


def merged(*values):
    """Later ones win, fields of objects one by one."""
    result = {}
    for one in values:
        for key, value in copy.deepcopy(one).items():
            if isinstance(value, dict) and isinstance(result.get(key), dict):
                value = merged(result[key], value)
            result[key] = value
    return result

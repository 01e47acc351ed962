"""The product's metrics, as docs/METRICS.md lists them; tests hold that list to what is served."""

import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What Prometheus adds to each series that it scrapes.
SCRAPED = {"job": set(), "instance": set()}


@dataclasses.dataclass
class Metric:
    name: str
    type: str
    labels: dict  # name: values, none where they are not fixed

    def series(self):
        """The names under which it is stored."""
        if self.type == "histogram":
            return {self.name + part for part in ("_bucket", "_count", "_sum")}
        return {self.name}


def labels_of(cell):
    """Of "by: a, b; phase: c", "rank", "version, revision"."""
    labels = {}
    for part in filter(None, map(str.strip, cell.split(";"))):
        names, _, values = part.partition(":")
        for name in names.split(","):
            labels[name.strip()] = {value.strip() for value in values.split(",") if value.strip()}
    return labels


def sections():
    """{title: its rows as Metrics} of docs/METRICS.md."""
    found = {}
    for section in (ROOT / "docs/METRICS.md").read_text().split("\n## ")[1:]:
        title = section.split("\n", 1)[0]
        common = re.search(r"Every series carries (.*?)\.\n", section, re.S)
        common = {name: set() for name in re.findall(r"`(\w+)`", common.group(1) if common else "")}
        rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \|", section, re.M)
        found[title] = [Metric(name, kind, {**common, **labels_of(cell)})
                        for name, kind, cell in rows]
    return found


def series_labels():
    """{name of a series: {label: values}}; of what routers and shards both have, labels of both."""
    found = {}
    for metrics in sections().values():
        for metric in metrics:
            for name in metric.series():
                labels = found.setdefault(name, dict(SCRAPED))
                for label, values in metric.labels.items():
                    labels[label] = labels.get(label, set()) | values
                if name.endswith("_bucket"):
                    labels["le"] = set()
    return found

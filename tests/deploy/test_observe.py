"""deploy/prometheus and deploy/grafana against docs/METRICS.md: every metric and label that a rule,
an alert or a panel asks for is one that weft has, and every alert leads to its runbook.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/support"))
sys.path.append(str(ROOT / "deploy/grafana"))
import make_board  # noqa: E402
import metric_docs  # noqa: E402
import promql  # noqa: E402
from prometheus_tools import tool  # noqa: E402
from skips import run_tests  # noqa: E402

PROMETHEUS = ROOT / "deploy/prometheus"
BOARD = ROOT / "deploy/grafana/weft.json"
# Prometheus's own, of the alerts that it has.
ALERTS = {"alertname": set(), "alertstate": {"pending", "firing"}, "severity": set()}
LEVELS = {"job_model": {"job", "model_name"}, "instance_model": {"job", "instance", "model_name"}}
# Metrics that no panel shows, and why.
NO_PANEL = {
    "weft_time_per_output_token_seconds": "an older name of weft_inter_token_latency_seconds",
    "weft_request_max_num_generation_tokens": "the same as weft_request_generation_tokens",
    "weft_model_load_bytes": "weft_model_load_ratio says how far the load is",
    "process_start_time_seconds": "an alert reads it",
    "weft_traces_exported_total": "the collector's own board has what came",
    "weft_traces_dropped_total": "of use to whoever sends traces; they are off by default",
}


def rules_of(name):
    return [rule for group in yaml.safe_load((PROMETHEUS / name).read_text())["groups"]
            for rule in group["rules"]]


def queries_of_board():
    """(panel, its target, what the target asks for)."""
    for panel in json.loads(BOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            yield panel, target, promql.parse(target["expr"])


def known_series():
    known = {**metric_docs.series_labels(), "ALERTS": ALERTS}
    for rule in rules_of("rules.yaml"):
        level = rule["record"].split(":")[0]
        known[rule["record"]] = {label: set() for label in LEVELS[level]}
    return known


def promtool(*arguments):
    return subprocess.run([tool("promtool"), *arguments], capture_output=True, text=True,
                          timeout=120)


class Names(unittest.TestCase):
    known = known_series()

    def check_query(self, text):
        query = promql.parse(text)
        self.assertTrue(query.selectors, text)
        for selector in query.selectors:
            self.assertIn(selector.metric, self.known, text)
            labels = self.known[selector.metric]
            for label, operator, value in selector.matchers:
                self.assertIn(label, labels, text)
                if not labels[label] or operator not in ("=", "=~") or "$" in value:
                    continue
                for word in selector.values(label):
                    self.assertTrue(any(re.fullmatch(word, known) for known in labels[label]),
                                    f"{label} is never {word}: {text}")
            self.assertLessEqual(query.grouped_by, set(labels) | {"le"},
                                 f"{selector.metric} has not all of these labels: {text}")
        return query

    def test_rules(self):
        for rule in rules_of("rules.yaml"):
            query = self.check_query(rule["expr"])
            level = LEVELS[rule["record"].split(":")[0]]
            for grouping in query.groupings:
                self.assertEqual(grouping - {"le"}, level, rule["record"])

    def test_alerts(self):
        for rule in rules_of("alerts.yaml"):
            query = self.check_query(rule["expr"])
            named = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
            has = query.grouped_by.union(*(self.known[metric] for metric in query.metrics
                                           if ":" in metric))
            self.assertLessEqual(named, has, rule["alert"])

    def test_panels(self):
        for panel, target, _ in queries_of_board():
            query = self.check_query(target["expr"])
            legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            self.assertLessEqual(legend, query.grouped_by, panel["title"])

    def test_variables_of_the_board(self):
        names = {"datasource"}
        for variable in json.loads(BOARD.read_text())["templating"]["list"][1:]:
            asked, label = re.fullmatch(r"label_values\((.*), (\w+)\)",
                                        variable["query"]["query"]).groups()
            self.check_query(f"count by ({label}) ({asked})")
            names.add(variable["name"])
        for panel, target, _ in queries_of_board():
            used = set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval"}
            self.assertLessEqual(used, names, panel["title"])

    def test_every_metric_has_a_panel_or_a_reason(self):
        shown = set().union(*(query.metrics for _, _, query in queries_of_board()))
        of_rules = {rule["record"]: promql.parse(rule["expr"]).metrics
                    for rule in rules_of("rules.yaml")}
        for name in list(shown):
            shown |= of_rules.get(name, set())
        metrics = [metric for rows in metric_docs.sections().values() for metric in rows]
        missing = {metric.name for metric in metrics if not metric.series() & shown}
        self.assertEqual(missing, set(NO_PANEL))

    def test_the_list_is_the_products(self):
        golden = (ROOT / "tests/router/observe/metric_names.txt").read_text().split("\n")
        sections = metric_docs.sections()
        self.assertEqual({f"{metric.name} {metric.type}" for metric in sections["Router"]},
                         set(filter(None, golden)))
        source = "".join((ROOT / path).read_text() for path in (
            "shard/control/probe.cc", "common/metrics.cc"))
        for metric in sections["Shard"]:
            self.assertIn(f'"{metric.name}"', source)


class Runbooks(unittest.TestCase):
    def test_each_alert_has_one_and_leads_to_it(self):
        names = [rule["alert"] for rule in rules_of("alerts.yaml")]
        self.assertEqual(len(names), len(set(names)))
        for rule in rules_of("alerts.yaml"):
            path, _, anchor = rule["annotations"]["runbook_url"].partition("#")
            self.assertEqual(anchor, rule["alert"].lower())
            headings = re.findall(r"^#+ (.*)$", (ROOT / path).read_text(), re.M)
            self.assertEqual(headings.count(rule["alert"]), 1, f"{rule['alert']} in {path}")
        sections = re.findall(r"^## (Weft\w+)$", (ROOT / "docs/RUNBOOKS.md").read_text(), re.M)
        self.assertEqual(sorted(sections), sorted(names))
        self.assertTrue("(RUNBOOKS.md)" in (ROOT / "docs/OPERATIONS.md").read_text())

    def test_each_alert_says_how_bad_it_is_and_what_is_seen(self):
        for rule in rules_of("alerts.yaml"):
            self.assertIn(rule["labels"]["severity"], ("critical", "warning"), rule["alert"])
            self.assertEqual(set(rule["annotations"]), {"summary", "description", "runbook_url"})

    def test_names_in_the_runbooks_exist(self):
        known = metric_docs.series_labels()
        for name in re.findall(r"`(weft_\w+)", (ROOT / "docs/RUNBOOKS.md").read_text()):
            self.assertIn(name, known)
        titles = {panel["title"] for panel, _, _ in queries_of_board()}
        for title in re.findall(r"panel \*(.+?)\*", (ROOT / "docs/RUNBOOKS.md").read_text()):
            self.assertIn(title, titles)


class Promtool(unittest.TestCase):
    def test_rules_and_the_example_are_valid(self):
        done = promtool("check", "config", str(PROMETHEUS / "prometheus.yml"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_alerts_fire_and_clear(self):
        done = promtool("test", "rules", str(PROMETHEUS / "alerts_test.yaml"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_each_alert_is_tested_firing_clearing_and_silent(self):
        tests = yaml.safe_load((PROMETHEUS / "alerts_test.yaml").read_text())["tests"]
        fires, clears, silent = set(), set(), set()
        for test in tests:
            checks = test["alert_rule_test"]
            name = checks[0]["alertname"]
            fired = ["exp_alerts" in check for check in checks]
            if any(fired):
                fires.add(name)
                if fired[0] is False and fired[-1] is False:
                    clears.add(name)
            else:
                silent.add(name)
        names = {rule["alert"] for rule in rules_of("alerts.yaml")}
        self.assertEqual((fires, clears, silent), (names, names, names))

    def test_panels_are_valid(self):
        rules = [{"record": f"panel:{panel['id']}:{target['refId']}",
                  "expr": target["expr"].replace("$__rate_interval", "5m")}
                 for panel, target, _ in queries_of_board()]
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}, file)
            file.flush()
            done = promtool("check", "rules", file.name)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(f"{len(rules)} rules found", done.stdout)


class Board(unittest.TestCase):
    def test_it_is_what_its_generator_makes(self):
        self.assertEqual(BOARD.read_text(), make_board.text(), "run deploy/grafana/make_board.py")

    def test_panels_do_not_overlap_and_explain_themselves(self):
        taken, titles = {}, set()
        for panel in json.loads(BOARD.read_text())["panels"]:
            place = panel["gridPos"]
            self.assertLessEqual(place["x"] + place["w"], make_board.COLUMNS, panel["title"])
            for x in range(place["x"], place["x"] + place["w"]):
                for y in range(place["y"], place["y"] + place["h"]):
                    self.assertNotIn((x, y), taken, (panel["title"], taken.get((x, y))))
                    taken[x, y] = panel["title"]
            self.assertNotIn(panel["title"], titles)
            titles.add(panel["title"])
            if panel["type"] != "row":
                self.assertTrue(panel["description"], panel["title"])


if __name__ == "__main__":
    run_tests()

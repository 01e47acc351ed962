#!/usr/bin/env python3
"""Writes weft.json, the Grafana board, from panels.py: deploy/grafana/make_board.py [FILE].

Import weft.json in Grafana (10 or newer) and choose the Prometheus that has the metrics.
"""

import json
import pathlib
import sys

from panels import ROWS

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24


def thresholds(panel):
    steps = [{"color": "green", "value": None}]
    if "red_above" in panel:
        steps.append({"color": "red", "value": panel["red_above"]})
    if "red_below" in panel:
        steps = [{"color": "red", "value": None}, {"color": "green", "value": panel["red_below"]}]
    return {"mode": "absolute", "steps": steps}


def field_config(panel):
    defaults = {"unit": panel["unit"], "thresholds": thresholds(panel)}
    if panel["kind"] == "timeseries":
        stacked = panel.get("stack", False)
        defaults["min"] = 0
        defaults["custom"] = {"fillOpacity": 30 if stacked else 5, "lineWidth": 1,
                              "showPoints": "never",
                              "stacking": {"mode": "normal" if stacked else "none", "group": "A"}}
    return {"defaults": defaults, "overrides": []}


def options(panel):
    if panel["kind"] == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
                "colorMode": "value", "graphMode": "area"}
    if panel["kind"] == "heatmap":
        return {"calculate": False, "yAxis": {"unit": panel["unit"]},
                "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64},
                "tooltip": {"show": True, "yHistogram": False}, "legend": {"show": False}}
    if panel["kind"] == "table":
        return {"showHeader": True}
    return {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"}}


def target(panel, index, query, legend):
    made = {"datasource": SOURCE, "refId": chr(ord("A") + index), "expr": query,
            "legendFormat": legend}
    if panel["kind"] == "heatmap":
        made["format"] = "heatmap"
    if panel["kind"] == "table":
        made.update(format="table", instant=True)
    return made


def panel_json(panel, number, x, y):
    made = {"id": number, "type": panel["kind"], "title": panel["title"],
            "description": panel["text"], "datasource": SOURCE,
            "gridPos": {"x": x, "y": y, "w": panel["width"], "h": panel["height"]},
            "fieldConfig": field_config(panel), "options": options(panel),
            "targets": [target(panel, i, *query) for i, query in enumerate(panel["queries"])]}
    if panel["kind"] == "table":
        shown = {name: i for i, name in enumerate(panel["columns"])}
        made["transformations"] = [
            {"id": "filterFieldsByName", "options": {"include": {"names": panel["columns"]}}},
            {"id": "organize", "options": {"indexByName": shown}}]
    return made


def panels_json():
    made, y = [], 0
    for title, panels in ROWS:
        made.append({"id": len(made) + 1, "type": "row", "title": title, "collapsed": False,
                     "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1}, "panels": []})
        y, x, height = y + 1, 0, 0
        for panel in panels:
            panel = {"height": 4 if panel["kind"] == "stat" else 8, **panel}
            if x + panel["width"] > COLUMNS:
                x, y, height = 0, y + height, 0
            made.append(panel_json(panel, len(made) + 1, x, y))
            x, height = x + panel["width"], max(height, panel["height"])
        y += height
    return made


def variable(name, label, query):
    return {"name": name, "label": label, "type": "query", "datasource": SOURCE,
            "query": {"query": query, "refId": name}, "refresh": 2, "sort": 1,
            "multi": True, "includeAll": True, "allValue": ".*",
            "current": {"text": ["All"], "value": ["$__all"]}}


def board():
    return {
        "uid": "weft", "title": "weft", "tags": ["weft", "llm"], "schemaVersion": 39,
        "editable": True, "graphTooltip": 1, "refresh": "30s", "timezone": "browser",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [
            {"name": "datasource", "label": "Prometheus", "type": "datasource",
             "query": "prometheus", "current": {"text": "default", "value": "default"}},
            variable("model", "Model", "label_values(weft_server_state, model_name)"),
            variable("instance", "Router",
                     'label_values(weft_server_state{model_name=~"$model"}, instance)'),
        ]},
        "panels": panels_json(),
    }


def text():
    """A line for each panel, so that a change shows where it is."""
    made = board()
    panels = ",\n".join(json.dumps(panel) for panel in made.pop("panels"))
    return json.dumps(made, indent=1)[:-2] + ',\n "panels": [\n' + panels + "\n ]\n}\n"


def main():
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "weft.json"
    path.write_text(text())


if __name__ == "__main__":
    main()

"""What any timeline in the Trace Event Format must hold to, and sums over one."""

import collections

SLICE, BEGIN, END = "X", "b", "e"
FLOWS = {"s", "t", "f"}


def check(trace):
    """Sorted, nested, every begin with its end; raises AssertionError."""
    events = trace["traceEvents"]
    last_us = 0
    tracks = collections.defaultdict(list)   # (pid, tid): ends of the slices that are open
    stretches = collections.defaultdict(list)  # (category, id): names that are open
    flows = {}
    for event in events:
        if event["ph"] == "M":
            continue
        assert event["ts"] >= last_us, f"out of order: {event} after {last_us}"
        last_us = event["ts"]
        if event["ph"] == SLICE:
            check_slice(event, tracks[event["pid"], event["tid"]])
        elif event["ph"] == BEGIN:
            stretches[event["cat"], event["id"]].append(event["name"])
        elif event["ph"] == END:
            open_names = stretches[event["cat"], event["id"]]
            assert open_names and open_names.pop() == event["name"], f"not open: {event}"
        else:
            check_flow(event, flows)
            # An arrow that hangs in the air is not drawn.
            assert tracks[event["pid"], event["tid"]], f"no slice before {event}"
    assert not any(stretches.values()), f"never ended: {stretches}"
    unfinished = [flow for flow, phase in flows.items() if phase != "f"]
    assert not unfinished, f"flows without an end: {unfinished}"


def check_slice(event, ends):
    assert event["dur"] >= 0, event
    end = event["ts"] + event["dur"]
    while ends and ends[-1] <= event["ts"]:
        ends.pop()
    assert not ends or end <= ends[-1], f"{event} ends behind what encloses it: {ends[-1]}"
    ends.append(end)


def check_flow(event, flows):
    assert event["ph"] in FLOWS, event
    key = event["cat"], event["id"]
    before = flows.get(key)
    good = before is None if event["ph"] == "s" else before in ("s", "t")
    assert good, f"{event} follows {before}"
    flows[key] = event["ph"]


def slices(trace, **fields):
    """The slices whose fields have these values."""
    return [event for event in trace["traceEvents"] if event["ph"] == SLICE
            and all(event.get(name) == value for name, value in fields.items())]


def requests(trace):
    """{request id: {phase: (from, to)}}; the whole request is the phase ""."""
    found, begun = collections.defaultdict(dict), {}
    names = {}
    for event in trace["traceEvents"]:
        if event.get("cat") != "request" or event["ph"] not in (BEGIN, END):
            continue
        if event["ph"] == BEGIN:
            names[event["id"]] = event["args"]["request_id"]
            begun[event["id"], event["name"]] = event["ts"]
        else:
            request = names[event["id"]]
            phase = "" if event["name"] == request else event["name"]
            found[request][phase] = begun[event["id"], event["name"]], event["ts"]
    return found

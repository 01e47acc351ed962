"""What the board shows: its rows, and of each panel the queries, units and a sentence of help.

Queries have the board's variables: SELECT for the routers that are chosen, and Grafana's
$__rate_interval.
"""

SELECT = 'model_name=~"$model",instance=~"$instance"'
# Shards have ports, and so instances, of their own.
SHARDS = 'model_name=~"$model"'


def rate(metric, labels="", select=SELECT):
    more = f",{labels}" if labels else ""
    return f"rate({metric}{{{select}{more}}}[$__rate_interval])"


def by(labels, query):
    return f"sum by ({labels}) ({query})" if labels else f"sum({query})"


def quantiles(metric, shares=(0.5, 0.9, 0.99), labels="", select=SELECT):
    buckets = by("le", rate(f"{metric}_bucket", labels, select))
    return [(f"histogram_quantile({share}, {buckets})", f"p{round(100 * share)}")
            for share in shares]


def quantile_by(label, metric, labels="", share=0.99):
    return f'histogram_quantile({share}, {by(f"{label}, le", rate(f"{metric}_bucket", labels))})'


def mean(metric, legend, keep="", labels="", select=SELECT):
    total, count = (by(keep, rate(metric + part, labels, select)) for part in ("_sum", "_count"))
    return f"{total} / ({count} > 0)", legend


def heat(metric):
    return [(by("le", f"increase({metric}_bucket{{{SELECT}}}[$__rate_interval])"), "{{le}}")]


def now(metric, keep="", labels="", how="sum"):
    more = f",{labels}" if labels else ""
    return f"{how} by ({keep}) ({metric}{{{SELECT}{more}}})" if keep else \
        f"{how}({metric}{{{SELECT}{more}}})"


def panel(title, unit, queries, text, kind="timeseries", width=8, **options):
    return {"title": title, "unit": unit, "queries": queries, "text": text, "kind": kind,
            "width": width, **options}


def stat(title, unit, query, text, **options):
    return panel(title, unit, [(query, "")], text, kind="stat", width=4, **options)


NOT_PROBES = 'route!~"/metrics|/readyz|/livez|/startupz"'
RECORDED = 'model_name=~"$model"'

OVERVIEW = [
    stat("Servers ready", "none", now("weft_server_state", labels='state="ready"'),
         "Routers that take requests.", red_below=1),
    stat("Requests", "reqps", f"sum(job_model:weft_requests:rate5m{{{RECORDED}}})",
         "Requests that ended, in the last five minutes, at all replicas of the model."),
    stat("Errors", "percentunit", f"max(job_model:weft_request_errors:ratio_rate5m{{{RECORDED}}})",
         "Share of requests that failed by the server's fault: WeftErrorRatio at 5 %.",
         red_above=0.05),
    stat("First token, p99", "s",
         f"max(job_model:weft_time_to_first_token_seconds:p99_rate5m{{{RECORDED}}})",
         "One of a hundred requests waits longer than this."),
    stat("Gap between tokens, p99", "s",
         f"max(job_model:weft_inter_token_latency_seconds:p99_rate5m{{{RECORDED}}})",
         "One of a hundred tokens comes later than this after the one before."),
    stat("Generated tokens", "cps", f"sum(job_model:weft_generation_tokens:rate5m{{{RECORDED}}})",
         "Tokens a second, in the last five minutes."),
    panel("Requests by outcome", "reqps",
          [(by("finished_reason", rate("weft_request_success_total")), "{{finished_reason}}"),
           (by("reason", rate("weft_request_failure_total")), "failed: {{reason}}")],
          "Each request counts once, when it ends.", stack=True),
    panel("Refused", "reqps",
          [(by("reason", rate("weft_admission_rejections_total")), "{{reason}}")],
          "Turned away before they ran. queue_requests, queue_tokens, text_bytes: the server has "
          "no room (429). tenant: over its own limit (429). draining, not_ready: 503.", stack=True),
    panel("Cancelled", "reqps",
          [(by("by, phase", rate("weft_requests_cancelled_total")) + " > 0",
            "{{by}} in {{phase}}")],
          "Ended before their time, by whom, and what they were doing then. Empty while none are.",
          stack=True),
    panel("Tokens", "cps",
          [(by("", rate("weft_prompt_tokens_total")), "prompt"),
           (by("", rate("weft_prompt_tokens_cached_total")), "prompt, from the prefix cache"),
           (by("", rate("weft_generation_tokens_total")), "generated")], "Tokens a second."),
    panel("State of the servers", "none",
          [(now("weft_server_state", "state"), "{{state}}")],
          "How many routers are in each state.", stack=True),
    panel("Alerts that fire", "none",
          [('count by (alertname, severity) (ALERTS{alertname=~"Weft.*",alertstate="firing"})',
            "{{alertname}} ({{severity}})")],
          "Empty while none does. Each has a section in docs/RUNBOOKS.md.", stack=True),
    panel("HTTP answers", "reqps",
          [(by("code", rate("weft_http_requests_total", NOT_PROBES)), "{{code}}")],
          "All routes but those of probes and scrapes.", stack=True),
    panel("gRPC answers", "reqps",
          [(by("grpc_method, grpc_code", rate("grpc_server_handled_total")),
            "{{grpc_method}} {{grpc_code}}")], "Calls of weft.v1.TextGeneration.", stack=True),
    panel("Ignored fields", "reqps",
          [(by("door", rate("weft_request_ignored_fields_total")), "{{door}}")],
          "Fields of requests that weft does not know: clients may expect what they do not get."),
]

LATENCY = [
    panel("Time to first token", "s", quantiles("weft_time_to_first_token_seconds"),
          "From the arrival of a request to its first token."),
    panel("Gap between tokens", "s", quantiles("weft_inter_token_latency_seconds"),
          "Between two tokens of a stream."),
    panel("Whole request", "s", quantiles("weft_e2e_request_latency_seconds"),
          "From the arrival of a request to its end."),
    panel("Time to first token, all requests", "s", heat("weft_time_to_first_token_seconds"),
          "How many requests took how long.", kind="heatmap"),
    panel("Gap between tokens, all tokens", "s", heat("weft_inter_token_latency_seconds"),
          "How many gaps were how long.", kind="heatmap"),
    panel("Whole request, all requests", "s", heat("weft_e2e_request_latency_seconds"),
          "How many requests took how long.", kind="heatmap"),
    panel("Where a request's time goes", "s",
          [mean(f"weft_request_{part}_time_seconds", part)
           for part in ("validation", "queue", "prefill", "decode")],
          "Means: reading and tokenising, waiting for a place, prompt, output.", stack=True),
    panel("Wait in the queue", "s", quantiles("weft_request_queue_time_seconds"),
          "From admission to the first step."),
    panel("Time per output token", "s", quantiles("weft_request_time_per_output_token_seconds"),
          "A request's decode time by token after the first."),
    panel("Length of prompts", "none", quantiles("weft_request_prompt_tokens", (0.5, 0.9, 0.99)),
          "Tokens."),
    panel("Length of outputs", "none", quantiles("weft_request_generation_tokens") + [
        (query, "limit asked for, p50")
        for query, _ in quantiles("weft_request_params_max_tokens", (0.5,))], "Tokens."),
    panel("Prompt and decode time, p99", "s", [
        (quantiles(f"weft_request_{part}_time_seconds", (0.99,))[0][0], part)
        for part in ("prefill", "decode", "inference")],
          "First step to first token, first to last token, and both."),
    panel("gRPC calls, p99", "s",
          [(quantile_by("grpc_method", "grpc_server_handling_seconds"), "{{grpc_method}}")],
          "From the message of a call to its end; of Generate that is the whole stream."),
]

SCHEDULING = [
    panel("Running and waiting", "none",
          [(now("weft_num_requests_running"), "running"),
           (now("weft_num_requests_waiting"), "waiting")],
          "Requests that hold KV blocks, and requests that wait for a place."),
    panel("Waiting, by reason", "none",
          [(now("weft_num_requests_waiting_by_reason", "reason"), "{{reason}}")],
          "capacity: for a slot or KV blocks. deferred: for a shard group.", stack=True),
    panel("Preemptions", "cps", [(by("instance", rate("weft_num_preemptions_total")),
                                  "{{instance}}")],
          "Sequences that gave their KV blocks back and are computed again."),
    panel("Sequences in a step", "none", [mean("weft_batch_size", "{{phase}}", "phase")],
          "Mean, by the kind of step."),
    panel("Tokens in a step", "none",
          [mean("weft_iteration_tokens_total", "mean"),
           *quantiles("weft_iteration_tokens_total", (0.99,))],
          "Prompt tokens and decoded rows together."),
    panel("Steps", "ops", [(by("kind", rate("weft_steps_total")), "{{kind}}")],
          "Steps a second, by kind."),
    panel("Age of the last step", "s",
          [("time() - max by (instance) "
            f"(weft_engine_last_progress_timestamp_seconds{{{SELECT}}} > 0)", "{{instance}}")],
          "Grows while nothing is asked. WeftEngineStalled: above a minute while requests run."),
    panel("Device busy", "percentunit",
          [(by("instance", rate("weft_batch_forward_duration_seconds_sum")), "{{instance}}")],
          "Share of the time in which the device computes. Near 1 there is nothing left to take."),
    panel("HTTP connections", "none", [(now("weft_http_connections", "instance"), "{{instance}}")],
          "Open ones; --connections-max bounds them."),
]

KV = [
    panel("KV cache in use", "percentunit",
          [(now("weft_kv_cache_usage_perc", "instance", how="max"), "{{instance}}")],
          "Share of the blocks that running requests hold. WeftKvHigh above 0.9."),
    panel("KV blocks", "none", [(now("weft_kv_blocks", "state"), "{{state}}")],
          "used: by running requests. cached: prefixes that the next request may use.", stack=True),
    panel("KV blocks by group of layers", "none",
          [(now("weft_kv_group_blocks", "group, state"), "{{group}} {{state}}")],
          "Layers that see a window of the context make a group beside those that see all.",
          stack=True),
    panel("Prefix hits", "percentunit",
          [(f'{by("instance", rate("weft_prefix_cache_hits_total"))} / '
            f'({by("instance", rate("weft_prefix_cache_queries_total"))} > 0)', "{{instance}}")],
          "Share of prompt tokens that were found in the prefix cache."),
    panel("Prefix tokens", "cps",
          [(by("", rate("weft_prefix_cache_queries_total")), "looked up"),
           (by("", rate("weft_prefix_cache_hits_total")), "found")], "Prompt tokens a second."),
    panel("Cached blocks evicted", "cps",
          [(by("instance", rate("weft_prefix_cache_evicted_blocks_total")), "{{instance}}")],
          "Cached prefixes that made room for other use."),
    panel("Shape of the KV cache", "none",
          [(now("weft_cache_config_info", "instance, num_blocks, block_size, enable_prefix_caching",
                how="max") + " == 1", "")],
          "Blocks of the pool, tokens of a block.", kind="table", width=24, height=5,
          columns=["instance", "num_blocks", "block_size", "enable_prefix_caching"]),
]

CAUSES = (("forward", "device"), ("host", "host"), ("queue", "step before"), ("wire", "wire"))
STEPS = [
    *[panel(f"A {phase} step, by cause", "s",
            [mean(f"weft_batch_{part}_duration_seconds", legend, labels=f'phase="{phase}"')
             for part, legend in CAUSES],
            "Means. device: it computes. host: what router and shards compute beside it. step "
            "before: its wait for that one. wire: the rest of the call.", stack=True)
      for phase in ("prefill", "decode", "filter")],
    panel("Device time of a step, p99", "s",
          [(quantile_by("phase", "weft_batch_forward_duration_seconds"), "{{phase}}")],
          "By the kind of step."),
    panel("Host time of a step, p99", "s",
          [(quantile_by("phase", "weft_batch_host_duration_seconds"), "{{phase}}")],
          "What router and shards compute beside the device."),
    panel("Wire time of a step, p99", "s",
          [(quantile_by("phase", "weft_batch_wire_duration_seconds"), "{{phase}}")],
          "A call's time less the shard's."),
]

RECOVERY = [
    panel("State of the shard group", "none",
          [(now("weft_group_state", "state") + " > 0", "{{state}}")],
          "serving is the good one.", stack=True),
    panel("Groups lost", "cpm",
          [(f'60 * {by("state", rate("weft_group_losses_total"))}', "{{state}}")],
          "A minute, by the state in which the group was lost.", stack=True),
    panel("Time to recover", "s", quantiles("weft_group_recovery_duration_seconds", (0.5, 0.99)),
          "From the loss of a group to the first step of the next."),
    panel("Shards restarted", "cpm",
          [(f'60 * {by("reason", rate("weft_shard_restarts_total"))}', "{{reason}}")],
          "A minute. WeftShardFlapping at four in a quarter of an hour.", stack=True),
    panel("Steps lost", "cpm", [(f'60 * {by("kind", rate("weft_steps_lost_total"))}', "{{kind}}")],
          "A minute: sent and not answered when the group was lost. Their rows are computed again.",
          stack=True),
    panel("Epoch", "none", [(now("weft_group_epoch", "instance", how="max"), "{{instance}}")],
          "Each group that forms is a new epoch."),
    panel("Streams resumed here", "cpm",
          [(f'60 * {by("match", rate("weft_requests_resumed_total"))}', "{{match}}")],
          "A minute: begun elsewhere. exact: with the tokens that would have come.", stack=True),
    panel("Threads found stuck", "none",
          [(by("instance", "increase(weft_watchdog_stalls_total{%s}[1h])" % SELECT), "{{instance}}")],
          "In an hour. The log names each, with its stack."),
]

TENANTS = [
    panel("Requests by tenant", "reqps",
          [(by("tenant", rate("weft_tenant_requests_total")), "{{tenant}}")],
          "Let in. The 50 tenants with most tokens have names; all others are `other`.",
          width=12, stack=True),
    panel("Refused, by tenant", "reqps",
          [(by("tenant", rate("weft_tenant_rejections_total")), "{{tenant}}")],
          "Turned away: for want of room, or over the tenant's own limit.", width=12, stack=True),
    panel("Prompt tokens by tenant", "cps",
          [(by("tenant", rate("weft_tenant_prompt_tokens_total")), "{{tenant}}")],
          "Tokens a second, of requests that began to run.", width=12, stack=True),
    panel("Generated tokens by tenant", "cps",
          [(by("tenant", rate("weft_tenant_generation_tokens_total")), "{{tenant}}")],
          "Tokens a second.", width=12, stack=True),
]

OF_ROUTER = 'engine!=""'
SHARD_ROW = [
    panel("Shards that answer", "none",
          [(now("weft_shard_up", "instance, rank", how="min"), "{{instance}} rank {{rank}}")],
          "1 while the router hears the shard. WeftShardDown when it is 0 for a minute."),
    panel("Device time of a step, p99, by rank", "s",
          [(quantile_by("rank", "weft_shard_step_duration_seconds", OF_ROUTER), "rank {{rank}}")],
          "As shards report it: all run the same steps, so a slow one holds up the others."),
    panel("Age of a shard's last step", "s",
          [(f"time() - max by (instance, rank) (weft_shard_last_step_timestamp_seconds{{{SELECT},"
            f"{OF_ROUTER}}} > 0)", "{{instance}} rank {{rank}}")],
          "Grows while nothing is asked."),
    panel("Calls to shards, p99", "s",
          [(quantile_by("method", "weft_shard_rpc_duration_seconds", OF_ROUTER), "{{method}}")],
          "From the router's side."),
    panel("Model loaded", "percentunit",
          [(now("weft_model_load_ratio", "instance, rank", OF_ROUTER, "min"),
            "{{instance}} rank {{rank}}")], "Share of the weights that each shard has read."),
    panel("Reading the model", "s",
          [(now("weft_model_load_seconds", "instance, rank", OF_ROUTER, "max"),
            "{{instance}} rank {{rank}}")], "Time that loading has taken so far, or took."),
    panel("Where a shard's time goes", "percentunit",
          [(by("phase", rate("weft_shard_step_phase_seconds_total", select=SHARDS)), "{{phase}}")],
          "Seconds a second, all ranks together. comm is part of device. From the shards' own "
          "/metrics (--shard-metrics-port), as all that follows in this row."),
    panel("Steps of a shard", "ops",
          [(by("rank, method", rate("weft_shard_steps_total", select=SHARDS)),
            "rank {{rank}} {{method}}")], "Steps a second."),
    panel("Memory planned", "bytes",
          [(f"sum by (rank, kind) (weft_shard_memory_bytes{{{SHARDS}}})",
            "rank {{rank}} {{kind}}")],
          "What each rank took when it loaded; it takes no more.", stack=True),
    panel("Waits for compute helpers", "percentunit",
          [(by("rank", rate("weft_shard_helper_wait_seconds_total", select=SHARDS)),
            "rank {{rank}}")], "CPU shards: seconds a second in which a step waits for a thread."),
    panel("Compute helpers without a core", "cps",
          [(by("rank", rate("weft_shard_helper_stalls_total", select=SHARDS)),
            "stalls, rank {{rank}}"),
           (by("rank", rate("weft_shard_helper_backoffs_total", select=SHARDS)),
            "rests, rank {{rank}}")],
          "CPU shards: the machine has other work on their cores."),
    panel("Rows without a usable number; keys and values at the limit", "cps",
          [(by("rank", rate("weft_shard_invalid_rows_total", select=SHARDS)),
            "invalid, rank {{rank}}"),
           (by("rank", rate("weft_shard_kv_saturated_total", select=SHARDS)),
            "saturated, rank {{rank}}")],
          "Should be 0: NaN or infinity in logits (WeftInvalidRows); a float16 KV cache that is "
          "too narrow for the model."),
    panel("Most rows for an expert, against the mean", "none",
          [("max by (layer) ({0}) / (avg by (layer) ({0}) > 0)".format(
              rate("weft_shard_expert_rows_total", select=SHARDS)), "layer {{layer}}")],
          "1 where all experts of a layer get the same. Needs a model with experts and "
          "--expert-load."),
    panel("CPU of the router", "percentunit",
          [(by("instance", rate("process_cpu_seconds_total", OF_ROUTER)), "{{instance}}")],
          "1 is one core."),
    panel("Memory of the router", "bytes",
          [(now("process_resident_memory_bytes", "instance", OF_ROUTER), "{{instance}}")],
          "Resident."),
    panel("Open files of the router", "none",
          [(now("process_open_fds", "instance", OF_ROUTER), "{{instance}}")],
          "Connections, files and sockets."),
    panel("Log lines dropped", "cps",
          [(by("instance, rank", rate("weft_log_lines_dropped_total", select=SHARDS)),
            "{{instance}} {{rank}}")],
          "Should be 0: whoever reads stderr is too slow. Routers and shards."),
    panel("Versions", "none",
          [(f"max by (instance, rank, version, revision) (weft_build_info{{{SHARDS}}})", "")],
          "What runs where; shards have a rank.", kind="table",
          columns=["instance", "rank", "version", "revision"]),
]

GROUPS = [
    panel("Shard groups that serve", "none", [(now("weft_group_serving", "instance"), "{{instance}}")],
          "Of a router with several (--groups): a group that is lost gets nothing new."),
    panel("Requests by shard group", "none",
          [(now("weft_group_requests", "group, state"), "group {{group}} {{state}}")],
          "What each group runs, and what waits in it for its next step."),
    panel("Requests without a group", "none",
          [(now("weft_num_requests_undispatched", "instance"), "{{instance}}")],
          "In the one queue in front of all groups: none of them has room."),
    panel("KV use by shard group", "percentunit",
          [(now("weft_group_kv_usage_perc", "group", how="max"), "group {{group}}")],
          "Groups far apart: prompts that share a prefix keep to one."),
    panel("Placements", "reqps",
          [(by("reason", rate("weft_placements_total")), "{{reason}}")],
          "prefix: the group knows the prompt's beginning; load: it had least to do."),
    panel("Requests given back", "reqps",
          [(by("", rate("weft_requests_given_back_total")), "given back")],
          "A group was lost before it had begun them, and another group took them."),
]

ROWS = [
    ("Overview", OVERVIEW),
    ("Latency", LATENCY),
    ("Scheduling", SCHEDULING),
    ("KV and prefix", KV),
    ("Steps by cause", STEPS),
    ("Shard groups", GROUPS),
    ("Recovery", RECOVERY),
    ("Per tenant", TENANTS),
    ("Shards and processes", SHARD_ROW),
]

// The Prometheus text format, and what two readings say of the time between them.

import assert from 'node:assert/strict';
import test from 'node:test';

import {Load, POINTS_MAX} from '../../../../router/doors/ui/page/load.mjs';
import {difference, histogram, parseMetrics, quantile, rate, stateOf, sum} from
    '../../../../router/doors/ui/page/metrics.mjs';

test('series are read with their labels, escapes and numbers', () => {
  const families = parseMetrics([
    '# HELP a What it is', '# TYPE a gauge', 'a 1',
    'b{x="1",y="a\\"b\\\\c\\nd"} 2.5e3 1700000000000', 'b{x="2",} 3', 'b{} 4', 'c{le="+Inf"} +Inf',
    'd NaN', 'e -Inf', '', 'no number here', '{} 4',
    'f{x="}"} 6',
  ].join('\n'));
  assert.deepEqual(families.get('a'), [{labels: {}, value: 1}]);
  assert.deepEqual(families.get('b'), [
    {labels: {x: '1', y: 'a"b\\c\nd'}, value: 2500}, {labels: {x: '2'}, value: 3},
    {labels: {}, value: 4},
  ]);
  assert.equal(families.get('c')[0].value, Infinity);
  assert.ok(Number.isNaN(families.get('d')[0].value));
  assert.equal(families.get('e')[0].value, -Infinity);
  assert.deepEqual(families.get('f'), [{labels: {x: '}'}, value: 6}]);
  assert.equal(families.size, 6);
});

test('sums are over the series that carry the labels', () => {
  const families = parseMetrics('n{g="0",s="used"} 1\nn{g="1",s="used"} 2\nn{g="0",s="free"} 4\n');
  assert.equal(sum(families, 'n'), 7);
  assert.equal(sum(families, 'n', {s: 'used'}), 3);
  assert.equal(sum(families, 'n', {s: 'used', g: '1'}), 2);
  assert.equal(sum(families, 'none'), 0);
  assert.equal(stateOf(parseMetrics('s{state="a"} 0\ns{state="b"} 1\n'), 's', 'state'), 'b');
  assert.equal(stateOf(parseMetrics('s{state="a"} 0\n'), 's', 'state'), null);
});

const HISTOGRAM = (low, middle, all) => parseMetrics(
    `h_bucket{le="0.1"} ${low}\nh_bucket{le="+Inf"} ${all}\nh_bucket{le="0.2"} ${middle}\n` +
    `h_count ${all}\nh_sum ${all}\n`);

test('quantiles are interpolated in their bucket, as Prometheus does', () => {
  const found = histogram(HISTOGRAM(10, 20, 20), 'h');
  assert.deepEqual(found.buckets, [[0.1, 10], [0.2, 20], [Infinity, 20]]);
  assert.ok(Math.abs(quantile(found, 0.25) - 0.05) < 1e-12);
  assert.ok(Math.abs(quantile(found, 0.5) - 0.1) < 1e-12);
  assert.ok(Math.abs(quantile(found, 0.75) - 0.15) < 1e-12);
  // Of what is beyond the last bound nobody knows more than that.
  assert.equal(quantile(histogram(HISTOGRAM(0, 0, 5), 'h'), 0.5), 0.2);
  assert.equal(quantile(histogram(HISTOGRAM(0, 0, 0), 'h'), 0.5), null);
  assert.equal(quantile(histogram(new Map(), 'h'), 0.5), null);
});

test('a difference is what came in between, also of a server that began anew', () => {
  const early = histogram(HISTOGRAM(10, 20, 20), 'h');
  const late = histogram(HISTOGRAM(10, 24, 24), 'h');
  const between = difference(late, early);
  assert.equal(between.count, 4);
  assert.ok(Math.abs(quantile(between, 0.5) - 0.15) < 1e-12);
  assert.equal(difference(early, late), early);
  assert.equal(difference(early, null), early);
  assert.equal(rate(30, 10, 2), 10);
  assert.equal(rate(10, 30, 2), null);
  assert.equal(rate(30, 10, 0), null);
});

function scrape({generated = 0, running = 0, steps = 0, rows = 0, first = 0}) {
  return parseMetrics([
    `weft_num_requests_running ${running}`, 'weft_num_requests_waiting 2',
    `weft_generation_tokens_total ${generated}`, 'weft_prompt_tokens_total 8',
    'weft_kv_blocks{state="used"} 25', 'weft_kv_blocks{state="cached"} 25',
    'weft_kv_blocks{state="free"} 50', 'weft_server_state{state="ready"} 1',
    `weft_batch_size_count{phase="decode"} ${steps}`, `weft_batch_size_sum{phase="decode"} ${rows}`,
    'weft_batch_size_count{phase="prefill"} 99', 'weft_batch_size_sum{phase="prefill"} 99',
    `weft_time_to_first_token_seconds_bucket{le="0.1"} ${first}`,
    `weft_time_to_first_token_seconds_bucket{le="+Inf"} ${first}`,
    `weft_time_to_first_token_seconds_count ${first}`,
  ].join('\n'));
}

test('the load is rates between two readings and latencies of the last minute', () => {
  const load = new Load();
  const first = load.add(scrape({generated: 1000, first: 50}), 0);
  assert.equal(first.generatedRate, null);
  // Old requests are not those of the last minute.
  assert.equal(first.firstToken.p50, null);
  const now = load.add(scrape({generated: 1100, running: 3, steps: 10, rows: 30, first: 60}), 2);
  assert.equal(now.generatedRate, 50);
  assert.equal(now.promptedRate, 0);
  assert.equal(now.rows, 3);
  assert.deepEqual([now.running, now.waiting, now.state], [3, 2, 'ready']);
  assert.equal(now.kvShare, 0.25);
  assert.equal(now.firstToken.count, 10);
  assert.equal(now.firstToken.p50, 0.05);
  for (let at = 4; at <= 64; at += 2) load.add(scrape({generated: 1100, first: 60}), at);
  assert.equal(load.points[load.points.length - 1].firstToken.p50, null);
});

test('a server that began anew is no negative rate', () => {
  const load = new Load();
  load.add(scrape({generated: 1000, steps: 500, rows: 900, first: 50}), 0);
  const now = load.add(scrape({generated: 4, steps: 2, rows: 2, first: 2}), 2);
  assert.equal(now.generatedRate, null);
  assert.equal(now.rows, 0);
  const later = load.add(scrape({generated: 8, steps: 4, rows: 6, first: 60}), 4);
  assert.equal(later.generatedRate, 2);
  assert.equal(later.firstToken.count, 58);
});

test('the load of hours is no more than that of minutes', () => {
  const load = new Load();
  for (let at = 0; at < 10 * POINTS_MAX; ++at) load.add(scrape({generated: at}), 2 * at);
  assert.equal(load.points.length, POINTS_MAX);
});

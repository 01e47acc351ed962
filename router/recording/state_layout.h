// How a scheduler's state lies in a recording: one template for each of its structs, for whoever
// goes through the fields in order (Encoder, Decoder, and a fuzz target's changes). Holds for
// kFormat, like the layouts in records.h. Stateless.

#pragma once

#include "router/scheduler/scheduler_state.h"

namespace weft::router::recording {

// Only the low half is kept.
template <typename Coder, typename Self>
void CodeHash(Coder& c, Self& hash) {
  c.Fixed(hash.low);
}

template <typename Coder, typename Self>
void CodeTable(Coder& c, Self& table) {
  c.Number(table.capacity);
  c.Number(table.first);
  c.Number(table.end);
  c.Number(table.untold_left);
  c.Number(table.untold_appended);
  c.List(table.blocks, [&c](auto& block) { c.Number(block); });
}

template <typename Coder, typename Self>
void CodeSequence(Coder& c, Self& s) {
  c.Number(s.id);
  c.Number(s.tenant);
  c.Signed32(s.priority);
  c.Signed(s.turn_us);
  c.Number(s.prompt_length);
  c.Number(s.length_limit);
  c.Number(s.ignore_eos);
  c.Number(s.bypass_prefix_cache);
  c.Number(s.log_tokens);
  c.List(s.block_hashes, [&c](auto& hash) { CodeHash(c, hash); });
  c.Number(s.phase);
  c.Number(s.was_admitted);
  c.Number(s.recovering);
  c.Number(s.cached_tokens);
  c.Number(s.prompt_reached);
  c.Number(s.refused_at_freed);
  c.Number(s.refused_cost);
  c.Number(s.losses);
  c.Number(s.lost_at);
  c.Number(s.steps_in_flight);
  c.Number(s.samples_in_flight);
  c.Number(s.slot);
  c.List(s.tables, [&c](auto& table) { CodeTable(c, table); });
  c.Number(s.reach);
  c.Number(s.next_leave);
  c.Number(s.has_untold);
  c.Number(s.computed);
  c.Number(s.confirmed);
  c.Number(s.published_blocks);
  c.Number(s.kept_until);
}

template <typename Coder, typename Self>
void CodeStep(Coder& c, Self& step) {
  c.Number(step.rows);
  c.Number(step.prompt_tokens);
  c.Number(step.context_tokens);
  c.List(step.step_rows, [&c](auto& row) {
    c.Number(row.id);
    c.Number(row.slot);
    c.Number(row.kv_end);
    c.Number(row.samples);
  });
}

template <typename Coder, typename Self>
void CodeTenant(Coder& c, Self& tenant) {
  c.Number(tenant.index);
  c.Double(tenant.weight);
  c.Double(tenant.served);
  c.Number(tenant.wait_number);
  c.Number(tenant.idle);
  c.Signed(tenant.idle_since_us);
}

template <typename Coder, typename Self>
void CodeState(Coder& c, Self& state) {
  const auto number = [&c](auto& value) { c.Number(value); };
  c.Signed(state.now_us);
  c.Number(state.formed);
  c.Number(state.next_step);
  c.List(state.drops, number);
  c.List(state.in_flight, [&c](auto& step) { CodeStep(c, step); });
  c.List(state.sequences, [&c](auto& sequence) { CodeSequence(c, sequence); });
  c.Number(state.kv_blocks);
  c.List(state.plain, number);
  c.List(state.cached, number);
  c.List(state.published, [&c](auto& block) {
    c.Number(block.block);
    c.Number(block.group);
    CodeHash(c, block.hash);
  });
  c.Number(state.freed_count);
  c.List(state.tenants, [&c](auto& tenant) { CodeTenant(c, tenant); });
  c.Double(state.turn_served);
  c.Double(state.weights);
  c.Number(state.waits);
  c.Number(state.cost_known);
  c.List(state.knots_us, [&c](auto& knot) { c.Double(knot); });
  c.Double(state.context_token_us);
}

}  // namespace weft::router::recording

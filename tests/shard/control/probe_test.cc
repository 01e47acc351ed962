// The shard's metrics: the whole list is there at zero, and steps move it.

#include "shard/control/probe.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "common/metrics.h"

namespace weft::shard {

TEST_CASE("All shard metrics exist at zero and count steps", "[shard][probe]") {
  ShardProbe probe("tiny", 3);
  const std::string zero = RenderMetrics();
  INFO(zero);
  for (
      const char* series : {
          R"(weft_shard_steps_total{model_name="tiny",rank="3",method="Prefill"} 0)",
          R"(weft_shard_steps_total{model_name="tiny",rank="3",method="Decode"} 0)",
          R"(weft_shard_steps_total{model_name="tiny",rank="3",method="FilterBatch"} 0)",
          R"(weft_shard_step_duration_seconds_count{model_name="tiny",rank="3",method="Decode"} 0)",
          R"(weft_shard_rpc_duration_seconds_count{model_name="tiny",rank="3",method="Info"} 0)",
          R"(weft_model_load_seconds{model_name="tiny",rank="3"} 0)",
          R"(weft_model_load_bytes{model_name="tiny",rank="3"} 0)",
          R"(weft_model_load_ratio{model_name="tiny",rank="3"} 0)",
          R"(weft_shard_memory_bytes{model_name="tiny",rank="3",kind="kv"} 0)",
          R"(weft_shard_last_step_timestamp_seconds{model_name="tiny",rank="3"} 0)",
          R"(weft_shard_invalid_rows_total{model_name="tiny",rank="3"} 0)",
          R"(weft_shard_kv_saturated_total{model_name="tiny",rank="3"} 0)",
          R"(weft_log_lines_dropped_total{model_name="tiny",rank="3"} 0)",
          "weft_build_info{",
      }) {
    INFO(series);
    CHECK(absl::StrContains(zero, series));
  }
  v1::StepTimings timings;
  timings.set_queue_us(1000);
  timings.set_host_us(2000);
  timings.set_device_us(500000);
  timings.set_comm_us(250000);
  StepResult result;
  result.helpers = HelperCosts{2'500, 3, 1};
  result.invalid_rows = {0, 7};
  result.kv_saturated = 5;
  probe.StepDone("Decode", timings, result);
  probe.Loading(50, 200, absl::Seconds(2));
  const std::string moved = RenderMetrics();
  INFO(moved);
  for (const char* series : {
           R"(weft_shard_steps_total{model_name="tiny",rank="3",method="Decode"} 1)",
           R"({model_name="tiny",rank="3",method="Decode",phase="device"} 0.5)",
           R"({model_name="tiny",rank="3",method="Decode",phase="comm"} 0.25)",
           R"(weft_model_load_ratio{model_name="tiny",rank="3"} 0.25)",
           R"(weft_shard_helper_stalls_total{model_name="tiny",rank="3"} 3)",
           R"(weft_shard_invalid_rows_total{model_name="tiny",rank="3"} 2)",
           R"(weft_shard_kv_saturated_total{model_name="tiny",rank="3"} 5)",
           R"(weft_shard_helper_backoffs_total{model_name="tiny",rank="3"} 1)",
       }) {
    INFO(series);
    CHECK(absl::StrContains(moved, series));
  }
}

}  // namespace weft::shard

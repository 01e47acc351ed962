// The shard's metrics: the whole list is there at zero, and steps move it.

#include "shard/control/probe.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
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

namespace {

class FakeLoad : public ExpertLoad {
 public:
  FakeLoad() : ExpertLoad({1, 3}, 2) {}
  absl::StatusOr<std::vector<uint64_t>> Read() override {
    ++reads;
    return rows;
  }
  absl::StatusOr<std::vector<uint64_t>> rows = std::vector<uint64_t>{0, 0, 0, 0};
  int reads = 0;
};

}  // namespace

TEST_CASE("Rows of experts are fetched when somebody reads, and only when they are asked for",
          "[shard][probe]") {
  const auto load = std::make_shared<FakeLoad>();
  {
    // As above: a process has one set of labels.
    ShardProbe probe("tiny", 3);
    CHECK_FALSE(absl::StrContains(RenderMetrics(), "weft_shard_expert_rows_total"));
    probe.ShowExperts(load);
    CHECK(load->reads == 0);
    const auto shows = [](const char* layer, const char* expert, const char* value) {
      const std::string text = RenderMetrics();
      INFO(text);
      CHECK(absl::StrContains(
          text, absl::StrCat(R"(weft_shard_expert_rows_total{model_name="tiny",rank="3",expert=")",
                             expert, R"(",layer=")", layer, "\"} ", value, "\n")));
    };
    shows("1", "0", "0");
    shows("3", "1", "0");
    CHECK(load->reads == 2);
    load->rows = std::vector<uint64_t>{5, 0, 7, 1000000};
    shows("1", "0", "5");
    shows("1", "1", "0");
    shows("3", "0", "7");
    shows("3", "1", "1000000");
    // What cannot be read stays as it was.
    load->rows = absl::DeadlineExceededError("the device gave no copy");
    shows("3", "0", "7");
    load->rows = std::vector<uint64_t>{5, 0, 8, 1000000};
    shows("3", "0", "8");
  }
  const int reads = load->reads;
  RenderMetrics();
  CHECK(load->reads == reads);
}

}  // namespace weft::shard

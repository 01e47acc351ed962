// What `weft doctor` has found: a line for each check, with the way out of what is wrong. Values;
// filled by the checks in the order in which they are shown. Main thread.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace weft::launcher {

enum class Verdict {
  kOk,
  // A server starts, but is slower, smaller or more open than it may be meant to be.
  kWarn,
  // A server does not start, or does not serve.
  kFail,
};

struct Finding {
  Verdict verdict;
  // What was looked at, as "open files".
  std::string what;
  std::string found;
  // Empty where all is well, or where `found` says it already.
  std::string way_out;
};

class Report {
 public:
  void Ok(std::string what, std::string found) {
    findings_.push_back({Verdict::kOk, std::move(what), std::move(found), ""});
  }
  void Warn(std::string what, std::string found, std::string way_out) {
    findings_.push_back({Verdict::kWarn, std::move(what), std::move(found), std::move(way_out)});
  }
  void Fail(std::string what, std::string found, std::string way_out) {
    findings_.push_back({Verdict::kFail, std::move(what), std::move(found), std::move(way_out)});
  }
  // An error of start-up, which names its way out itself.
  void Fail(std::string what, const absl::Status& error) {
    Fail(std::move(what), std::string(error.message()), "");
  }

  const std::vector<Finding>& findings() const { return findings_; }
  size_t Count(Verdict verdict) const;

  // "ok    what: found; way out", a line each.
  std::string Text() const;
  // {"failed": N, "warned": N, "checks": [{"verdict", "what", "found", "way_out"}]}.
  std::string Json() const;

 private:
  std::vector<Finding> findings_;
};

}  // namespace weft::launcher

#include "deploy/launcher/doctor/report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "boost/json.hpp"

namespace weft::launcher {
namespace {

const char* VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kWarn:
      return "warn";
    case Verdict::kFail:
      return "fail";
  }
  return "?";
}

}  // namespace

size_t Report::Count(Verdict verdict) const {
  return static_cast<size_t>(
      std::count_if(findings_.begin(), findings_.end(),
                    [verdict](const Finding& finding) { return finding.verdict == verdict; }));
}

std::string Report::Text() const {
  std::string text;
  for (const Finding& finding : findings_) {
    absl::StrAppendFormat(&text, "%-4s  %s: %s%s%s\n", VerdictName(finding.verdict), finding.what,
                          finding.found, finding.way_out.empty() ? "" : "; ", finding.way_out);
  }
  return text;
}

std::string Report::Json() const {
  boost::json::array checks;
  for (const Finding& finding : findings_) {
    checks.push_back({{"verdict", VerdictName(finding.verdict)},
                      {"what", finding.what},
                      {"found", finding.found},
                      {"way_out", finding.way_out}});
  }
  return boost::json::serialize(boost::json::object{{"failed", Count(Verdict::kFail)},
                                                    {"warned", Count(Verdict::kWarn)},
                                                    {"checks", std::move(checks)}});
}

}  // namespace weft::launcher

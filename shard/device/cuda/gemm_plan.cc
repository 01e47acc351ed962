#include "shard/device/cuda/gemm_plan.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"

namespace weft::shard {
namespace {

using kernels::cuda::DType;

constexpr size_t kHexDigits = 16;
// Far more than any kernel splits k, or shares.
constexpr uint32_t kPartsMax = 8;
constexpr uint32_t kSizeMax = 1u << 30;
constexpr uint32_t kAttributeMax = 0x7fffffff;

absl::string_view TypeWord(DType type) { return type == DType::kFloat32 ? "f32" : "bf16"; }

// The words of a line from left to right.
class Words {
 public:
  explicit Words(absl::string_view line) : rest_(absl::StripAsciiWhitespace(line)) {}

  bool empty() const { return rest_.empty(); }
  absl::string_view next() const { return rest_.substr(0, rest_.find(' ')); }

  // The value of the next word, which is "<name>=<value>".
  absl::StatusOr<absl::string_view> Take(absl::string_view name) {
    absl::string_view word = next();
    if (word.substr(0, name.size()) != name || word.substr(name.size(), 1) != "=") {
      return Unexpected(absl::StrCat(name, "="));
    }
    rest_ = absl::StripLeadingAsciiWhitespace(rest_.substr(word.size()));
    word.remove_prefix(name.size() + 1);
    return word;
  }

  absl::Status TakeNumber(absl::string_view name, uint32_t min, uint32_t max, uint32_t* value) {
    WEFT_ASSIGN_OR_RETURN(const absl::string_view word, Take(name));
    return ParseNumber(name, word, min, max, value);
  }

  static absl::Status ParseNumber(absl::string_view name, absl::string_view word, uint32_t min,
                                  uint32_t max, uint32_t* value) {
    if (!absl::SimpleAtoi(word, value) || *value < min || *value > max) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, "=: \"", word, "\" is no number from ", min, " to ", max));
    }
    return absl::OkStatus();
  }

  absl::Status TakeType(absl::string_view name, DType* type) {
    WEFT_ASSIGN_OR_RETURN(const absl::string_view word, Take(name));
    if (word != TypeWord(DType::kFloat32) && word != TypeWord(DType::kBfloat16)) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, "=: \"", word, "\" is neither bf16 nor f32"));
    }
    *type = word == TypeWord(DType::kFloat32) ? DType::kFloat32 : DType::kBfloat16;
    return absl::OkStatus();
  }

  absl::Status Unexpected(absl::string_view expected) const {
    return absl::InvalidArgumentError(
        absl::StrCat("expected ", expected, ", found ",
                     empty() ? "the end of the line" : absl::StrCat("\"", next(), "\"")));
  }

 private:
  absl::string_view rest_;
};

absl::Status ParseShape(Words& words, GemmPlan* plan) {
  GemmShape& shape = plan->shape;
  WEFT_RETURN_IF_ERROR(words.TakeNumber("n", 1, kSizeMax, &shape.n));
  WEFT_RETURN_IF_ERROR(words.TakeNumber("k", 1, kSizeMax, &shape.k));
  WEFT_RETURN_IF_ERROR(words.TakeType("in", &shape.in));
  shape.accumulate = words.next().substr(0, 4) == "out+";
  WEFT_RETURN_IF_ERROR(words.TakeType(shape.accumulate ? "out+" : "out", &shape.out));
  WEFT_ASSIGN_OR_RETURN(const absl::string_view rows, words.Take("rows"));
  const size_t dash = rows.find('-');
  if (dash == absl::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows=: \"", rows, "\" is no range, as 9-16 is"));
  }
  WEFT_RETURN_IF_ERROR(
      words.ParseNumber("rows", rows.substr(0, dash), 1, kSizeMax, &plan->rows_min));
  return words.ParseNumber("rows", rows.substr(dash + 1), plan->rows_min, kSizeMax, &shape.rows);
}

absl::Status ParseData(absl::string_view digits, std::vector<uint64_t>* data) {
  const auto is_hex = [](absl::string_view text) {
    for (const char c : text) {
      if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) return false;
    }
    return true;
  };
  if (digits.size() != kCublasLtDataWords * kHexDigits || !is_hex(digits)) {
    return absl::InvalidArgumentError(
        absl::StrCat("data=: not ", kCublasLtDataWords * kHexDigits, " hexadecimal digits"));
  }
  for (size_t at = 0; at < digits.size(); at += kHexDigits) {
    uint64_t word = 0;
    for (const char c : digits.substr(at, kHexDigits)) {
      const int digit = absl::ascii_isdigit(static_cast<unsigned char>(c))
                            ? c - '0'
                            : absl::ascii_tolower(static_cast<unsigned char>(c)) - 'a' + 10;
      word = word << 4 | static_cast<uint64_t>(digit);
    }
    data->push_back(word);
  }
  return absl::OkStatus();
}

absl::StatusOr<GemmKernel> ParseCublasLt(Words& words) {
  CublasLtChoice choice;
  const std::pair<const char*, uint32_t*> attributes[] = {
      {"id", &choice.id},         {"tile", &choice.tile},           {"stages", &choice.stages},
      {"splits", &choice.splits}, {"reduction", &choice.reduction}, {"swizzle", &choice.swizzle},
      {"custom", &choice.custom}, {"inner", &choice.inner},         {"cluster", &choice.cluster},
  };
  for (const auto& [name, value] : attributes) {
    WEFT_RETURN_IF_ERROR(words.TakeNumber(name, 0, kAttributeMax, value));
  }
  if (words.empty()) return choice;
  WEFT_ASSIGN_OR_RETURN(const absl::string_view digits, words.Take("data"));
  WEFT_RETURN_IF_ERROR(ParseData(digits, &choice.data));
  return choice;
}

absl::StatusOr<GemmKernel> ParseKernel(Words& words) {
  WEFT_ASSIGN_OR_RETURN(const absl::string_view use, words.Take("use"));
  if (use == "cublaslt") return ParseCublasLt(words);
  if (use == "gemv") return GemvChoice{};
  if (use != "small") {
    return absl::InvalidArgumentError(
        absl::StrCat("use=: \"", use, "\" is none of cublaslt, gemv and small"));
  }
  SmallGemmChoice choice;
  WEFT_RETURN_IF_ERROR(words.TakeNumber("splits", 1, kPartsMax, &choice.splits));
  WEFT_RETURN_IF_ERROR(words.TakeNumber("sharers", 1, kPartsMax, &choice.sharers));
  return choice;
}

std::string Format(const CublasLtChoice& choice) {
  std::string out = absl::StrFormat(
      "use=cublaslt id=%u tile=%u stages=%u splits=%u reduction=%u swizzle=%u custom=%u inner=%u "
      "cluster=%u",
      choice.id, choice.tile, choice.stages, choice.splits, choice.reduction, choice.swizzle,
      choice.custom, choice.inner, choice.cluster);
  if (!choice.data.empty()) absl::StrAppend(&out, " data=");
  for (const uint64_t word : choice.data) absl::StrAppendFormat(&out, "%016x", word);
  return out;
}

std::string Format(const GemvChoice&) { return "use=gemv"; }

std::string Format(const SmallGemmChoice& choice) {
  return absl::StrCat("use=small splits=", choice.splits, " sharers=", choice.sharers);
}

}  // namespace

std::string FormatGemmKernel(const GemmKernel& kernel) {
  return std::visit([](const auto& choice) { return Format(choice); }, kernel);
}

std::string FormatGemmPlan(const GemmPlan& plan) {
  const GemmShape& shape = plan.shape;
  return absl::StrCat("n=", shape.n, " k=", shape.k, " in=", TypeWord(shape.in),
                      shape.accumulate ? " out+=" : " out=", TypeWord(shape.out),
                      " rows=", plan.rows_min, "-", shape.rows, " ", FormatGemmKernel(plan.kernel),
                      plan.note.empty() ? "" : "  # ", plan.note);
}

absl::StatusOr<GemmPlan> ParseGemmPlan(absl::string_view line) {
  GemmPlan plan;
  if (const size_t hash = line.find('#'); hash != absl::string_view::npos) {
    plan.note = std::string(absl::StripAsciiWhitespace(line.substr(hash + 1)));
    line = line.substr(0, hash);
  }
  Words words(line);
  WEFT_RETURN_IF_ERROR(ParseShape(words, &plan));
  WEFT_ASSIGN_OR_RETURN(plan.kernel, ParseKernel(words));
  if (!words.empty()) return words.Unexpected("the end of the line");
  return plan;
}

}  // namespace weft::shard

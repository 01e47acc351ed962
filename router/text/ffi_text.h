// Glue between the C ABI of ffi/weft_text.h and this folder's C++: slices, owned texts, statuses.
// Private to router/text; stateless.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "router/text/ffi/weft_text.h"

namespace weft::router {

inline WeftSlice ToSlice(absl::string_view text) { return {text.data(), text.size()}; }

// Owns a text that the library handed out.
class FfiText {
 public:
  FfiText() = default;
  ~FfiText() { weft_text_free(text_); }
  FfiText(const FfiText&) = delete;
  FfiText& operator=(const FfiText&) = delete;

  // For one call to write into.
  WeftText* out() { return &text_; }
  absl::string_view view() const { return {text_.data, text_.size}; }

 private:
  WeftText text_ = {nullptr, 0};
};

// The status of a failed call: INVALID_ARGUMENT for refused input, RESOURCE_EXHAUSTED for a bound,
// INTERNAL for what the library gave up on.
inline absl::Status ToStatus(WeftTextStatus status, absl::string_view error) {
  switch (status) {
    case WEFT_TEXT_OK:
      return absl::OkStatus();
    case WEFT_TEXT_INVALID:
      return absl::InvalidArgumentError(error);
    case WEFT_TEXT_LIMIT:
      return absl::ResourceExhaustedError(error);
    case WEFT_TEXT_CANCELLED:
      return absl::CancelledError("nobody waits for the result");
    case WEFT_TEXT_TOO_MANY:
      return absl::ResourceExhaustedError("too many tokens");
    case WEFT_TEXT_PANIC:
      break;
  }
  return absl::InternalError(
      absl::StrCat("the model's tokenizer or template failed on this text: ", error));
}

}  // namespace weft::router

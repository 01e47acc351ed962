#include "router/text/parts/part_writer.h"

#include <utility>

#include "common/limits.h"

namespace weft::router {

void PartWriter::SetOut(std::vector<AnswerPart>* out) {
  out_ = out;
  first_ = out->size();
}

bool PartWriter::BeginCall(absl::string_view name) {
  if (name.empty() || name.size() > kCalledNameBytesMax) return false;
  tool_ = tools_->Find(name);
  if (tool_ == nullptr && !tools_->empty()) return false;
  in_call_ = true;
  has_arguments_ = false;
  muted_ = calls_ > 0 && !parallel_calls_;
  if (muted_) return true;
  AnswerPart part;
  part.kind = AnswerPart::Kind::kToolBegin;
  part.call = calls_++;
  part.name.assign(name.data(), name.size());
  out_->push_back(std::move(part));
  return true;
}

void PartWriter::Arguments(absl::string_view json) {
  if (json.empty()) return;
  has_arguments_ = true;
  if (!muted_) Append(AnswerPart::Kind::kToolArguments, json);
}

void PartWriter::EndCall(bool complete) {
  if (complete && !has_arguments_) Arguments("{}");
  in_call_ = false;
}

void PartWriter::Append(AnswerPart::Kind kind, absl::string_view text) {
  if (text.empty()) return;
  if (out_->size() == first_ || out_->back().kind != kind) {
    out_->emplace_back();
    out_->back().kind = kind;
    if (kind == AnswerPart::Kind::kToolArguments) out_->back().call = calls_ - 1;
  }
  out_->back().text.append(text.data(), text.size());
}

}  // namespace weft::router

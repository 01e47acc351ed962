// Fuzz target: bytes as the public gRPC door's messages. Generate is refused with the field named,
// or becomes a request that keeps all promises and, written as a message again, is read as the
// same. An input that begins with '#' is the request in protobuf's text format, where a string can
// grow without the lengths around it.

#include <boost/json.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "google/protobuf/stubs/logging.h"
#include "google/protobuf/text_format.h"
#include "router/doors/door_context.h"
#include "router/doors/grpc/messages.h"
#include "router/doors/grpc/request.h"
#include "router/observe/probe.h"
#include "tests/router/doors/checking_entrance.h"

namespace weft::router {
namespace {

constexpr size_t kBytesMax = 1u << 20;

const DoorContext& Doors(bool strict) {
  static Probe probe;
  static CheckingEntrance entrance;
  static const DoorContext lenient(&entrance, &probe, {});
  static const DoorContext strict_one(&entrance, &probe, [] {
    DoorOptions options;
    options.strict_fields = true;
    return options;
  }());
  return strict ? strict_one : lenient;
}

template <typename Message>
bool Take(absl::string_view bytes, Message* message) {
  const grpc::Slice slice(bytes.data(), bytes.size());
  grpc::ByteBuffer buffer(&slice, 1);
  const absl::Status status = TakeMessage(&buffer, kBytesMax, message);
  WEFT_CHECK_EQ(buffer.Length(), size_t{0});
  WEFT_CHECK(status.ok() || ErrorField(status) == "request");
  return status.ok();
}

void CheckRefused(const absl::Status& status) {
  // Another model's name is no fault of a field.
  if (absl::IsNotFound(status)) return;
  WEFT_CHECK(absl::IsInvalidArgument(status));
  WEFT_CHECK(!ErrorField(status).value_or("").empty());
}

void WriteMessage(const ChatMessage& message, weft::v1::ChatMessage* to) {
  to->set_role(message.role);
  to->set_content(message.content);
  for (const std::string& part : message.content_parts) to->add_content_parts(part);
  to->set_name(message.name);
  to->set_tool_call_id(message.tool_call_id);
  to->set_reasoning_content(message.reasoning_content);
  for (const ToolCall& call : message.tool_calls) {
    weft::v1::ToolCall* const written = to->add_tool_calls();
    written->set_id(call.id);
    written->set_name(call.name);
    written->set_arguments(call.arguments);
  }
}

// The entries of a list of JSON as texts of their own.
void WriteList(const std::string& json, google::protobuf::RepeatedPtrField<std::string>* texts) {
  if (json.empty()) return;
  const boost::json::value list = boost::json::parse(json);
  for (const boost::json::value& entry : list.as_array()) {
    *texts->Add() = boost::json::serialize(entry);
  }
}

void WriteChat(const ChatPrompt& chat, weft::v1::ChatPrompt* to) {
  to->set_add_generation_prompt(chat.add_generation_prompt);
  to->set_continue_final_message(chat.continue_final_message);
  for (const ChatMessage& message : chat.messages) WriteMessage(message, to->add_messages());
  WriteList(chat.tools, to->mutable_tools());
  WriteList(chat.documents, to->mutable_documents());
  to->set_chat_template_kwargs(chat.template_kwargs);
  to->set_reasoning_effort(chat.reasoning_effort);
}

void WritePrompt(const GenerateInput& input, weft::v1::GenerateRequest* request) {
  if (const auto* text = std::get_if<std::string>(&input.prompt)) {
    request->set_text(*text);
  } else if (const auto* ids = std::get_if<std::vector<TokenId>>(&input.prompt)) {
    request->mutable_token_ids()->mutable_ids()->Add(ids->begin(), ids->end());
  } else {
    const ChatPrompt& chat = std::get<ChatPrompt>(input.prompt);
    WriteChat(chat, request->mutable_chat());
  }
}

void WriteSampling(const SamplingParams& from, weft::v1::GenerateRequest* request) {
  weft::v1::SamplingParameters* const sampling = request->mutable_sampling();
  sampling->set_temperature(from.temperature);
  sampling->set_top_k(from.top_k);
  sampling->set_top_p(from.top_p);
  sampling->set_min_p(from.min_p);
  sampling->set_typical_p(from.typical_p);
  weft::v1::DecodingParameters* const decoding = request->mutable_decoding();
  decoding->set_repetition_penalty(from.repetition_penalty);
  decoding->set_presence_penalty(from.presence_penalty);
  decoding->set_frequency_penalty(from.frequency_penalty);
  for (const auto& [id, bias] : from.logit_bias) {
    weft::v1::LogitBias* const to = decoding->add_logit_bias();
    to->set_id(id);
    to->set_bias(bias);
  }
  request->mutable_response()->set_logprobs(from.logprobs);
  request->mutable_response()->set_top_logprobs(from.top_logprobs);
}

weft::v1::GenerateRequest Write(const GenerateInput& input) {
  weft::v1::GenerateRequest request;
  request.set_request_id(input.correlation_id);
  WritePrompt(input, &request);
  WriteSampling(input.sampling, &request);
  if (input.seed.has_value()) request.mutable_sampling()->set_seed(*input.seed);
  weft::v1::StoppingParameters* const stopping = request.mutable_stopping();
  if (input.max_tokens.has_value()) stopping->set_max_tokens(*input.max_tokens);
  for (const std::string& stop : input.stop_sequences) stopping->add_stop_sequences(stop);
  stopping->set_include_stop_sequence(input.include_stop_sequence);
  stopping->set_ignore_eos(input.ignore_eos);
  request.mutable_response()->set_echo_prompt(input.echo_prompt);
  if (input.prompt_logprobs.has_value()) {
    request.mutable_response()->set_prompt_logprobs(*input.prompt_logprobs);
  }
  request.set_add_special_tokens(input.add_special_tokens);
  if (input.truncate_prompt_tokens.has_value()) {
    request.set_truncate_prompt_tokens(*input.truncate_prompt_tokens);
  }
  if (input.priority.has_value()) request.set_priority(*input.priority);
  if (input.resume.has_value()) {
    // The seed of the broken stream has become the request's own.
    weft::v1::Resume* const resume = request.mutable_resume();
    resume->mutable_output_ids()->Add(input.resume->output_ids.begin(),
                                      input.resume->output_ids.end());
    resume->set_fingerprint(input.resume->fingerprint);
  }
  return request;
}

void Generate(absl::string_view bytes) {
  weft::v1::GenerateRequest request;
  if (!Take(bytes, &request)) return;
  weft::v1::GenerateRequest again = request;
  std::vector<std::string> ignored;
  const absl::StatusOr<GenerateInput> input = ReadGenerate(Doors(false), &request, &ignored);
  if (!input.ok()) return CheckRefused(input.status());
  WEFT_CHECK_EQ(InputFault(*input), std::string());
  weft::v1::GenerateRequest written = Write(*input);
  std::vector<std::string> none;
  const absl::StatusOr<GenerateInput> same = ReadGenerate(Doors(true), &written, &none);
  WEFT_CHECK_MSG(same.ok(), same.status().ToString());
  WEFT_CHECK_EQ(InputText(*same), InputText(*input));
  // A strict server refuses exactly what a lenient one has ignored something of.
  const absl::StatusOr<GenerateInput> strict = ReadGenerate(Doors(true), &again, &none);
  WEFT_CHECK_EQ(strict.ok(), ignored.empty());
}

void TextCalls(absl::string_view bytes) {
  weft::v1::TokenizeRequest tokenize;
  if (Take(bytes, &tokenize)) {
    auto prompt = ReadTokenize(&tokenize);
    if (prompt.ok()) {
      GenerateInput input;
      std::visit([&input](auto&& value) { input.prompt = std::move(value); }, *std::move(prompt));
      WEFT_CHECK_EQ(InputFault(input), std::string());
    } else {
      CheckRefused(prompt.status());
    }
  }
  weft::v1::DetokenizeRequest detokenize;
  if (!Take(bytes, &detokenize)) return;
  auto ids = ReadDetokenize(detokenize);
  if (!ids.ok()) return CheckRefused(ids.status());
  GenerateInput input;
  input.prompt = *std::move(ids);
  WEFT_CHECK_EQ(InputFault(input), std::string());
}

}  // namespace
}  // namespace weft::router

// Of texts that are not UTF-8, once each.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (!bytes.empty() && bytes.front() == '#') {
    weft::v1::GenerateRequest request;
    google::protobuf::TextFormat::ParseFromString(std::string(bytes), &request);
    weft::router::Generate(request.SerializeAsString());
    return 0;
  }
  weft::router::Generate(bytes);
  weft::router::TextCalls(bytes);
  return 0;
}

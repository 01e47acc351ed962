#include "router/doors/tgi/request.h"

#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"
#include "router/doors/http/fields.h"
#include "router/doors/http/grammar.h"
#include "router/doors/http/json.h"
#include "router/doors/http/parameters.h"

namespace weft::router {
namespace {

constexpr RefusedField kRefusedParameters[] = {{"adapter_id", ""},
                                               {"frequency_penalty_decay", ""},
                                               {"num_beams", "1"},
                                               {"length_penalty", "1|1.0"}};

// Where some clients put it instead of into parameters.
constexpr RefusedField kRefusedOutside[] = {{"adapter_id", ""}};

void ReadInputs(FieldReader& fields, GenerateInput* input, std::string* text) {
  const boost::json::value* inputs = fields.Value("inputs");
  if (inputs == nullptr) {
    fields.Fail("inputs", "is required");
  } else if (const boost::json::array* array = inputs->if_array()) {
    absl::StatusOr<std::vector<TokenId>> ids = ReadTokenIds(*array, "inputs");
    if (ids.ok()) {
      input->prompt = *std::move(ids);
    } else {
      fields.Fail(ids.status());
    }
  } else if (const boost::json::string* string = inputs->if_string()) {
    *text = std::string(string->data(), string->size());
    fields.Fail(CheckPromptText(*text, "inputs"));
    input->prompt = *text;
  } else {
    fields.Fail("inputs", absl::StrCat("must be a string or a list of token ids, not ",
                                       JsonKindName(*inputs)));
  }
}

// Greedy unless do_sample is true or the request turns a sampling knob; `sampling` has the others,
// and the server's defaults where the request is silent.
void ReadTemperature(FieldReader& fields, const SamplingParams& defaults,
                     SamplingParams* sampling) {
  const std::optional<float> temperature = fields.Float("temperature", {0, kTemperatureMax, true});
  const bool do_sample = fields.Bool("do_sample").value_or(false);
  const bool knob = temperature.value_or(1.0f) != 1.0f || sampling->top_k != defaults.top_k ||
                    sampling->top_p != defaults.top_p ||
                    sampling->typical_p != defaults.typical_p || sampling->min_p != defaults.min_p;
  sampling->temperature = do_sample || knob ? temperature.value_or(defaults.temperature) : 0.0f;
}

void ReadParameters(const DoorContext& doors, FieldReader& fields, const std::string& prompt_text,
                    TgiRequest* request) {
  GenerateInput& input = request->input;
  TgiFormat& format = request->format;
  const SamplingParams defaults = doors.entrance().Model().sampling_defaults;
  ReadCommonParameters(defaults, fields, &input);
  ReadTemperature(fields, defaults, &input.sampling);
  ReadStop(fields, "stop", &input);
  input.max_tokens = ReadTokenCount(fields, "max_new_tokens");
  ReadMinTokens(fields, "min_new_tokens", &input);
  ReadTgiGrammar(fields, &input);
  input.truncate_prompt_tokens = ReadTokenCount(fields, "truncate");
  format.details = fields.Bool("details").value_or(false);
  if (fields.Bool("decoder_input_details").value_or(false)) {
    if (format.stream) fields.Fail("decoder_input_details", "is for whole answers");
    format.details = true;
    input.prompt_logprobs = 0;
  }
  format.best_of = static_cast<uint32_t>(fields.Integer("best_of", 1, kChoicesMax).value_or(1));
  if (format.best_of > 1 && format.stream) {
    fields.Fail("best_of", "more than 1 is for whole answers: which is best shows at the end");
  }
  if (fields.Bool("return_full_text").value_or(false)) {
    if (std::holds_alternative<std::string>(input.prompt)) {
      format.text_prefix = prompt_text;
    } else {
      input.echo_prompt = true;  // the text of ids is the tokenizer's to say
    }
  }
  input.sampling.top_logprobs =
      static_cast<uint32_t>(fields.Integer("top_n_tokens", 0, kTopLogprobsMax).value_or(0));
  format.top_tokens = input.sampling.top_logprobs > 0;
  ReadResume(fields, format.stream, &input, &request->ignored);
  fields.Refuse(kRefusedParameters);
}

}  // namespace

absl::StatusOr<TgiRequest> ReadTgiRequest(const DoorContext& doors, TgiRoute route,
                                          const boost::json::object& body,
                                          const std::string& request_id) {
  TgiRequest request;
  GenerateInput& input = request.input;
  FieldReader fields(body);
  std::string prompt_text;
  ReadInputs(fields, &input, &prompt_text);

  const std::optional<bool> stream = fields.Bool("stream");
  request.format.stream =
      route == TgiRoute::kRoot ? stream.value_or(false) : route == TgiRoute::kGenerateStream;
  if (route != TgiRoute::kRoot && stream.has_value() && *stream != request.format.stream) {
    fields.Fail("stream", absl::StrCat("must be ", request.format.stream ? "true" : "false",
                                       " on this route, or left out"));
  }
  request.format.wrap_in_list = route == TgiRoute::kRoot && !request.format.stream;

  fields.Refuse(kRefusedOutside);
  static const boost::json::object kNoParameters;
  const boost::json::object* object = fields.Object("parameters");
  FieldReader parameters(object == nullptr ? kNoParameters : *object, "parameters.");
  ReadParameters(doors, parameters, prompt_text, &request);

  FieldReader* const readers[] = {&fields, &parameters};
  WEFT_RETURN_IF_ERROR(FinishFields(doors, Door::kTgi, readers, &request.ignored));
  // A stream's tokens always carry their log-probability, a whole answer's only with details.
  input.sampling.logprobs = request.format.stream || request.format.details ||
                            request.format.top_tokens || request.format.best_of > 1;
  input.correlation_id = request_id;
  return request;
}

absl::Span<const RefusedField> RefusedTgiParameters() { return kRefusedParameters; }
absl::Span<const RefusedField> RefusedTgiFields() { return kRefusedOutside; }

}  // namespace weft::router

#include "router/text/parts/formats.h"

namespace weft::router {
namespace {

using Use = ToolMark::Use;
using Family = ToolFormat::Family;

constexpr ToolMark kHermesMarks[] = {{"<tool_call>"}, {"</tool_call>", Use::kClose}};

constexpr ToolMark kLlama3Marks[] = {
    {"<|python_tag|>"}, {"<|eom_id|>", Use::kClose}, {"<|eot_id|>", Use::kClose}};

constexpr ToolMark kJsonMarks[] = {{"```json", Use::kOpenFirst}, {"```", Use::kClose}};

// Granite 3.0 has the token, later ones the tag; Granite 4 writes as Hermes does.
constexpr ToolMark kGraniteMarks[] = {{"<|tool_call|>"},
                                      {"<tool_call>"},
                                      {"<|/tool_call|>", Use::kClose},
                                      {"</tool_call>", Use::kClose}};

constexpr ToolMark kPhi4MiniMarks[] = {
    {"<|tool_call|>"}, {"functools", Use::kOpenFirst}, {"<|/tool_call|>", Use::kClose}};

constexpr ToolMark kMistralMarks[] = {{"[TOOL_CALLS]"}};

constexpr ToolMark kDeepSeekMarks[] = {{"<｜tool▁calls▁begin｜>"},
                                       {"<｜tool▁call▁begin｜>", Use::kOpen, CallEntry::kCall},
                                       {"<｜tool▁call▁end｜>", Use::kClose},
                                       {"<｜tool▁calls▁end｜>", Use::kClose},
                                       {"```", Use::kClose}};

constexpr ToolMark kKimiMarks[] = {{"<|tool_calls_section_begin|>"},
                                   {"<|tool_call_begin|>", Use::kOpen, CallEntry::kCall},
                                   {"<|tool_call_end|>", Use::kClose},
                                   {"<|tool_calls_section_end|>", Use::kClose}};

constexpr ToolMark kPythonicMarks[] = {{"<|python_start|>"},
                                       {"<|python_tag|>"},
                                       {"<|python_end|>", Use::kClose},
                                       {"<|eom|>", Use::kClose},
                                       {"<|eot|>", Use::kClose}};

// Models leave the outer tag out at times.
constexpr ToolMark kQwen3CoderMarks[] = {{"<tool_call>"},
                                         {"<function=", Use::kOpen, CallEntry::kCall},
                                         {"</function>", Use::kClose},
                                         {"</tool_call>", Use::kClose}};
constexpr TagForm kQwen3Coder = {.call_open = "<function=",
                                 .name_stops = ">",
                                 .name_tail = "",
                                 .parameter_open = "<parameter=",
                                 .key_stop = '>',
                                 .key_tail = "",
                                 .attributes = false,
                                 .value_close = "</parameter>",
                                 .call_close = "</function>",
                                 .lines = true};

constexpr ToolMark kGlm45Marks[] = {{"<tool_call>", Use::kOpen, CallEntry::kCall},
                                    {"</tool_call>", Use::kClose}};
constexpr TagForm kGlm45 = {.call_open = "",
                            .name_stops = "\n<",
                            .name_tail = "",
                            .parameter_open = "<arg_key>",
                            .key_stop = '<',
                            .key_tail = "/arg_key> <arg_value>",
                            .attributes = false,
                            .value_close = "</arg_value>",
                            .call_close = "</tool_call>",
                            .lines = false};

constexpr ToolMark kMinimaxMarks[] = {{"<minimax:tool_call>"},
                                      {"<invoke name=\"", Use::kOpenInLead, CallEntry::kCall},
                                      {"</invoke>", Use::kClose},
                                      {"</minimax:tool_call>", Use::kClose}};
constexpr TagForm kMinimax = {.call_open = "<invoke name=\"",
                              .name_stops = "\"",
                              .name_tail = ">",
                              .parameter_open = "<parameter name=\"",
                              .key_stop = '"',
                              .key_tail = "",
                              .attributes = true,
                              .value_close = "</parameter>",
                              .call_close = "</invoke>",
                              .lines = false};

constexpr ToolMark kDeepSeek32Marks[] = {{"<｜DSML｜function_calls>"},
                                         {"<｜DSML｜invoke name=\"", Use::kOpen, CallEntry::kCall},
                                         {"</｜DSML｜invoke>", Use::kClose},
                                         {"</｜DSML｜function_calls>", Use::kClose}};
constexpr TagForm kDeepSeek32 = {.call_open = "<｜DSML｜invoke name=\"",
                                 .name_stops = "\"",
                                 .name_tail = ">",
                                 .parameter_open = "<｜DSML｜parameter name=\"",
                                 .key_stop = '"',
                                 .key_tail = "",
                                 .attributes = true,
                                 .value_close = "</｜DSML｜parameter>",
                                 .call_close = "</｜DSML｜invoke>",
                                 .lines = false};

const ToolFormat kToolFormats[] = {
    {"deepseek_v3", Family::kDeepSeek, kDeepSeekMarks, ""},
    {"deepseek_v31", Family::kDeepSeek, kDeepSeekMarks, ""},
    {"deepseek_v32", Family::kTags, kDeepSeek32Marks, "", &kDeepSeek32},
    {"glm45", Family::kTags, kGlm45Marks, "", &kGlm45},
    {"granite", Family::kJson, kGraniteMarks, ""},
    {kHarmony, Family::kHarmony, {}, ""},
    {"hermes", Family::kJson, kHermesMarks, ""},
    {"json", Family::kJson, kJsonMarks, "{["},
    {"kimi_k2", Family::kKimi, kKimiMarks, ""},
    {"llama3_json", Family::kJson, kLlama3Marks, "{["},
    {"llama4_pythonic", Family::kPythonic, kPythonicMarks, "["},
    {"minimax_m2", Family::kTags, kMinimaxMarks, "", &kMinimax},
    {"mistral", Family::kMistral, kMistralMarks, ""},
    {"phi4_mini", Family::kJson, kPhi4MiniMarks, ""},
    {"pythonic", Family::kPythonic, kPythonicMarks, "["},
    {"qwen3_coder", Family::kTags, kQwen3CoderMarks, "", &kQwen3Coder},
};

constexpr absl::string_view kThinkOpens[] = {"<think>"};
constexpr absl::string_view kThinkCloses[] = {"</think>"};
constexpr absl::string_view kMistralOpens[] = {"[THINK]"};
constexpr absl::string_view kMistralCloses[] = {"[/THINK]"};
constexpr absl::string_view kGraniteOpens[] = {"Here is my thought process:",
                                               "Here's my thought process:"};
constexpr absl::string_view kGraniteCloses[] = {"Here is my response:", "Here's my response:"};

const ReasoningFormat kReasoningFormats[] = {
    {"granite", kGraniteOpens, kGraniteCloses, false},
    {kHarmony, {}, {}, false},
    {"mistral", kMistralOpens, kMistralCloses, true},
    {"think", kThinkOpens, kThinkCloses, false},
};

}  // namespace

absl::Span<const ToolFormat> ToolFormats() { return kToolFormats; }

absl::Span<const ReasoningFormat> ReasoningFormats() { return kReasoningFormats; }

const ToolFormat* FindToolFormat(absl::string_view name) {
  for (const ToolFormat& format : kToolFormats) {
    if (format.name == name) return &format;
  }
  return nullptr;
}

const ReasoningFormat* FindReasoningFormat(absl::string_view name) {
  for (const ReasoningFormat& format : kReasoningFormats) {
    if (format.name == name) return &format;
  }
  return nullptr;
}

}  // namespace weft::router

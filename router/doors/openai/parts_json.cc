#include "router/doors/openai/parts_json.h"

#include <string>

namespace weft::router {
namespace {

using Kind = AnswerPart::Kind;

// The texts of the parts of one kind, joined; false when there are none.
bool Joined(const std::vector<AnswerPart>& parts, Kind kind, std::string* text) {
  bool any = false;
  text->clear();
  for (const AnswerPart& part : parts) {
    if (part.kind != kind) continue;
    any = true;
    *text += part.text;
  }
  return any;
}

bool IsOfCall(const AnswerPart& part) {
  return part.kind == Kind::kToolBegin || part.kind == Kind::kToolArguments;
}

}  // namespace

void WriteMessage(const ChoiceParts& choice, bool reasoning, JsonWriter* json) {
  json->BeginObject().Key("role").String("assistant").Key("content");
  if (choice.called() && choice.content().empty()) {
    json->Null();
  } else {
    json->String(choice.content());
  }
  json->Key("refusal").Null();
  if (reasoning && !choice.reasoning().empty()) {
    json->Key("reasoning_content").String(choice.reasoning());
  }
  if (choice.called()) {
    json->Key("tool_calls").BeginArray();
    for (const AnsweredCall& call : choice.calls()) {
      json->BeginObject().Key("id").String(call.id).Key("type").String("function");
      json->Key("function").BeginObject().Key("name").String(call.name);
      json->Key("arguments").String(call.arguments).EndObject().EndObject();
    }
    json->EndArray();
  }
  json->EndObject();
}

void WriteDelta(const std::vector<AnswerPart>& parts, const ChoiceParts& choice, bool reasoning,
                JsonWriter* json) {
  std::string text;
  if (reasoning && Joined(parts, Kind::kReasoning, &text)) {
    json->Key("reasoning_content").String(text);
  }
  if (Joined(parts, Kind::kContent, &text)) json->Key("content").String(text);
  bool any = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!IsOfCall(parts[i])) continue;
    if (!any) json->Key("tool_calls").BeginArray();
    any = true;
    const uint32_t call = parts[i].call;
    json->BeginObject().Key("index").Unsigned(call);
    const bool begins = parts[i].kind == Kind::kToolBegin;
    if (begins) {
      json->Key("id").String(choice.calls()[call].id).Key("type").String("function");
    }
    json->Key("function").BeginObject();
    if (begins) json->Key("name").String(parts[i].name);
    // What follows of the same call goes with it.
    text = parts[i].text;
    while (i + 1 < parts.size() && parts[i + 1].kind == Kind::kToolArguments &&
           parts[i + 1].call == call) {
      text += parts[++i].text;
    }
    json->Key("arguments").String(text).EndObject().EndObject();
  }
  if (any) json->EndArray();
}

}  // namespace weft::router

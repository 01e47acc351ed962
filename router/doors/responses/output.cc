#include "router/doors/responses/output.h"

#include "absl/strings/str_cat.h"

namespace weft::router {

using Kind = OutputItem::Kind;

void WriteOutputPart(const OutputItem& item, JsonWriter* json) {
  json->BeginObject().Key("type");
  if (item.kind == Kind::kReasoning) {
    json->String("reasoning_text");
  } else {
    json->String("output_text").Key("annotations").BeginArray().EndArray();
    json->Key("logprobs").Raw(absl::StrCat("[", item.logprobs, "]"));
  }
  json->Key("text").String(item.text).EndObject();
}

void WriteOutputItem(const OutputItem& item, JsonWriter* json) {
  json->BeginObject().Key("id").String(item.id).Key("type");
  switch (item.kind) {
    case Kind::kMessage:
      json->String("message").Key("role").String("assistant");
      break;
    case Kind::kReasoning:
      json->String("reasoning").Key("summary").BeginArray().EndArray();
      break;
    case Kind::kCall:
      json->String("function_call").Key("call_id").String(item.call_id);
      json->Key("name").String(item.name).Key("arguments").String(item.text);
      break;
  }
  json->Key("status").String(item.status);
  if (item.kind != Kind::kCall) {
    json->Key("content").BeginArray();
    if (item.status != "in_progress") WriteOutputPart(item, json);
    json->EndArray();
  }
  json->EndObject();
}

}  // namespace weft::router

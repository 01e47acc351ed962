#include "router/doors/openai/tool_choice.h"

#include "absl/strings/str_cat.h"
#include "boost/json/value.hpp"
#include "common/limits.h"
#include "router/errors.h"

namespace weft::router {
namespace {

constexpr char kForms[] =
    "must be none, auto, required, or an object of type function or allowed_tools";

// Calls `read` with the reader of what `outer` says of the tool or tools `type`, wherever that
// stands.
template <typename Read>
void ReadShaped(FieldReader& outer, const char* type, ToolShape shape,
                std::vector<std::string>* unknown, Read read) {
  if (shape == ToolShape::kFlat) return read(outer);
  const boost::json::object* object = outer.Object(type);
  if (object == nullptr) return outer.Fail(type, "is required");
  FieldReader inner(*object, absl::StrCat(outer.path(), type, "."));
  read(inner);
  outer.Fail(inner.status());
  inner.AddUnknown(unknown);
}

// {"type": "function", ...}, in a choice or a list of allowed tools.
std::string ReadChosenTool(const boost::json::object& object, const std::string& path,
                           ToolShape shape, FieldReader& fields,
                           std::vector<std::string>* unknown) {
  FieldReader outer(object, absl::StrCat(path, "."));
  if (outer.String("type").value_or("") != "function") outer.Fail("type", "must be \"function\"");
  std::string name;
  ReadShaped(outer, "function", shape, unknown, [&name](FieldReader& reader) {
    name = reader.String("name").value_or("");
    reader.Fail(CheckToolName(name, absl::StrCat(reader.path(), "name")));
  });
  fields.Fail(outer.status());
  outer.AddUnknown(unknown);
  return name;
}

// {"type": "allowed_tools", ...}: `mode` and `tools`.
void ReadAllowedTools(const boost::json::object& object, ToolShape shape, FieldReader& fields,
                      ToolChoice* choice, std::vector<std::string>* unknown) {
  FieldReader outer(object, absl::StrCat(fields.path(), "tool_choice."));
  outer.Accept("type");
  ReadShaped(outer, "allowed_tools", shape, unknown, [&](FieldReader& reader) {
    const std::string mode = reader.String("mode").value_or("auto");
    if (mode != "auto" && mode != "required") reader.Fail("mode", "must be auto or required");
    if (mode == "required") choice->calls = PartsSpec::Calls::kRequired;
    const boost::json::array* tools = reader.Array("tools");
    if (tools == nullptr || tools->empty() || tools->size() > kToolsMax) {
      return reader.Fail("tools", absl::StrCat("must hold 1 to ", kToolsMax, " tools"));
    }
    choice->allowed.emplace();
    for (size_t i = 0; i < tools->size() && fields.ok(); ++i) {
      const std::string path = absl::StrCat(reader.path(), "tools[", i, "]");
      const boost::json::object* tool = (*tools)[i].if_object();
      if (tool == nullptr) return fields.Fail(FieldError(path, "must be an object"));
      choice->allowed->push_back(ReadChosenTool(*tool, path, shape, fields, unknown));
    }
  });
  fields.Fail(outer.status());
  outer.AddUnknown(unknown);
}

}  // namespace

ToolChoice ReadToolChoice(FieldReader& fields, ToolShape shape, std::vector<std::string>* unknown) {
  ToolChoice choice;
  choice.parallel_calls = fields.Bool("parallel_tool_calls").value_or(true);
  const boost::json::value* value = fields.Value("tool_choice");
  if (value == nullptr) return choice;
  if (const boost::json::string* word = value->if_string()) {
    choice.none = *word == "none";
    if (*word == "required") choice.calls = PartsSpec::Calls::kRequired;
    if (!choice.none && *word != "auto" && *word != "required") fields.Fail("tool_choice", kForms);
    return choice;
  }
  const boost::json::object* object = value->if_object();
  if (object == nullptr) {
    fields.Fail("tool_choice", kForms);
    return choice;
  }
  const boost::json::value* type = object->if_contains("type");
  if (type != nullptr && type->is_string() && type->get_string() == "allowed_tools") {
    ReadAllowedTools(*object, shape, fields, &choice, unknown);
    return choice;
  }
  choice.calls = PartsSpec::Calls::kNamed;
  choice.named =
      ReadChosenTool(*object, absl::StrCat(fields.path(), "tool_choice"), shape, fields, unknown);
  return choice;
}

}  // namespace weft::router

#include "router/doors/http/flat_tools.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "boost/json/value.hpp"
#include "common/limits.h"
#include "router/errors.h"

namespace weft::router {
namespace {

// One tool as templates know it. Errors go to `tool`.
boost::json::value Nested(const FlatToolForm& form, FieldReader& tool) {
  for (const absl::string_view name : form.accepted) tool.Accept(name);
  tool.Refuse(form.refused);
  const std::optional<std::string> type = tool.String("type");
  if (type.has_value() ? *type != form.type : !form.type_optional) {
    tool.Fail("type", absl::StrCat("must be \"", form.type, "\": no tools are run here"));
  }
  boost::json::object function;
  const std::string name = tool.String("name").value_or("");
  tool.Fail(CheckToolName(name, absl::StrCat(tool.path(), "name")));
  function["name"] = name;
  if (std::optional<std::string> text = tool.String("description")) {
    function["description"] = *text;
  }
  const boost::json::object* schema = tool.Object(form.schema);
  if (schema != nullptr) function["parameters"] = *schema;
  if (schema == nullptr && form.schema_required) tool.Fail(form.schema, "is required");
  if (tool.Bool("strict").value_or(false)) function["strict"] = true;
  return {{"type", "function"}, {"function", std::move(function)}};
}

}  // namespace

ToolList ReadFlatTools(FieldReader& fields, const FlatToolForm& form,
                       std::vector<std::string>* unknown) {
  const boost::json::array* tools = fields.Array("tools");
  if (tools == nullptr) return {};
  boost::json::array list;
  for (size_t i = 0; i < tools->size() && i <= kToolsMax && fields.ok(); ++i) {
    const std::string path = absl::StrCat("tools[", i, "]");
    const boost::json::object* object = (*tools)[i].if_object();
    if (object == nullptr) {
      fields.Fail(path, "must be an object");
      break;
    }
    FieldReader tool(*object, absl::StrCat(path, "."));
    list.push_back(Nested(form, tool));
    fields.Fail(tool.status());
    tool.AddUnknown(unknown);
  }
  if (!fields.ok()) return {};
  absl::StatusOr<ToolList> read = ReadTools(boost::json::value(std::move(list)), "tools");
  if (read.ok()) return *std::move(read);
  const std::string field = ErrorField(read.status()).value_or("tools");
  fields.Fail(RenameField(read.status(), absl::StrReplaceAll(field, {{".function", ""}})));
  return {};
}

}  // namespace weft::router

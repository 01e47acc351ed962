#include "router/text/parts/call_reader.h"

#include "router/text/parts/header_call_reader.h"
#include "router/text/parts/json_call_reader.h"
#include "router/text/parts/pythonic_call_reader.h"
#include "router/text/parts/tag_call_reader.h"

namespace weft::router {

std::unique_ptr<CallReader> MakeCallReader(const ToolFormat& format) {
  switch (format.family) {
    case ToolFormat::Family::kJson:
      return std::make_unique<JsonCallReader>();
    case ToolFormat::Family::kDeepSeek:
    case ToolFormat::Family::kKimi:
    case ToolFormat::Family::kMistral:
      return std::make_unique<HeaderCallReader>(format.family);
    case ToolFormat::Family::kTags:
      return std::make_unique<TagCallReader>(*format.tags);
    case ToolFormat::Family::kPythonic:
      return std::make_unique<PythonicCallReader>();
    case ToolFormat::Family::kHarmony:
      break;
  }
  return nullptr;  // HarmonyParser reads its calls itself
}

}  // namespace weft::router

#include "published_fixture.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>

#include "text_fixture.h"

namespace weft::router {

namespace json = boost::json;

namespace {

constexpr char kFolder[] = WEFT_TEXT_TEST_DIR "/../../goldens/chat/";

std::string ReadWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.is_open());
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The member's text; "" where there is none.
std::string TextOr(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  return value == nullptr ? "" : Text(*value);
}

std::string JsonOr(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  return value == nullptr ? "" : json::serialize(*value);
}

ChatMessage ToMessage(const json::object& from) {
  ChatMessage message(Text(from.at("role")), "");
  const json::value* content = from.if_contains("content");
  message.no_content = content == nullptr;
  if (content != nullptr && content->is_array()) {
    for (const json::value& part : content->as_array()) {
      message.content_parts.push_back(Text(part.at("text")));
    }
  } else if (content != nullptr) {
    message.content = Text(*content);
  }
  message.reasoning_content = TextOr(from, "reasoning_content");
  message.name = TextOr(from, "name");
  message.tool_call_id = TextOr(from, "tool_call_id");
  if (const json::value* calls = from.if_contains("tool_calls")) {
    for (const json::value& call : calls->as_array()) {
      const json::object& function = call.at("function").as_object();
      message.tool_calls.push_back({TextOr(call.as_object(), "id"), Text(function.at("name")),
                                    Text(function.at("arguments"))});
    }
  }
  return message;
}

ChatPrompt ToPrompt(const json::object& from) {
  ChatPrompt prompt;
  for (const json::value& message : from.at("messages").as_array()) {
    prompt.messages.push_back(ToMessage(message.as_object()));
  }
  prompt.continue_final_message = from.contains("continue_final_message");
  const json::value* add = from.if_contains("add_generation_prompt");
  prompt.add_generation_prompt = add == nullptr ? !prompt.continue_final_message : add->as_bool();
  prompt.tools = JsonOr(from, "tools");
  prompt.documents = JsonOr(from, "documents");
  prompt.template_kwargs = JsonOr(from, "kwargs");
  prompt.reasoning_effort = TextOr(from, "reasoning_effort");
  return prompt;
}

}  // namespace

const json::object& ChatGoldens() {
  static const json::value goldens = json::parse(ReadWhole(std::string(kFolder) + "goldens.json"));
  return goldens.as_object();
}

std::string PublishedSource(const std::string& name) {
  return ReadWhole(kFolder + name + ".jinja");
}

std::vector<std::string> PublishedNames() {
  std::vector<std::string> names;
  for (const auto& entry : ChatGoldens().at("traits").as_object()) names.emplace_back(entry.key());
  return names;
}

ChatPrompt GoldenConversation(const std::string& title) {
  return ToPrompt(ChatGoldens().at("conversations").at(title).as_object());
}

namespace {

std::unique_ptr<ChatTemplate> CompilePublished(const std::string& name) {
  ChatTemplate::Options options;
  options.bos_token = "<bos>";
  options.eos_token = "<eos>";
  options.now_unix_s = static_cast<uint32_t>(ChatGoldens().at("now_unix_s").as_int64());
  auto made = ChatTemplate::Create(&Templates(), &DemoTokenizer(), PublishedSource(name), options);
  INFO(name << ": " << made.status().ToString());
  REQUIRE(made.ok());
  return std::move(made).value();
}

}  // namespace

// Each once.
const ChatTemplate& Published(const std::string& name) {
  static std::map<std::string, std::unique_ptr<ChatTemplate>> templates;
  std::unique_ptr<ChatTemplate>& slot = templates[name];
  if (slot == nullptr) slot = CompilePublished(name);
  return *slot;
}

}  // namespace weft::router

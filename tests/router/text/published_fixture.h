// The templates and conversations of tests/goldens/chat, for the tests of chat templates.

#pragma once

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "router/chat_prompt.h"
#include "router/text/chat_template.h"

namespace weft::router {

// goldens.json.
const boost::json::object& ChatGoldens();
std::vector<std::string> PublishedNames();
std::string PublishedSource(const std::string& name);
// Compiled for the demo model's tokenizer, once, with the goldens' date, "<bos>" and "<eos>".
const ChatTemplate& Published(const std::string& name);
ChatPrompt GoldenConversation(const std::string& title);

}  // namespace weft::router

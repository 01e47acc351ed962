#include "router/text/parts/arguments_reader.h"

namespace weft::router {

ValueStep ArgumentsReader::Take(char c, std::string* out) {
  const bool in_string = scanner_.in_string();
  const ValueStep step = scanner_.Take(c);
  if (step == ValueStep::kBroken || step == ValueStep::kEndBefore) {
    if (form_ == Form::kString) string_.Finish(out);
    return step;
  }
  switch (form_) {
    case Form::kUnknown:
      if (IsJsonSpace(c)) break;
      form_ = c == '"' ? Form::kString : c == 'n' ? Form::kNull : Form::kPlain;
      if (form_ == Form::kPlain) out->push_back(c);
      break;
    case Form::kPlain:
      if (in_string && static_cast<unsigned char>(c) < 0x20) {
        AppendJsonByte(c, out);
      } else {
        out->push_back(c);
      }
      break;
    case Form::kString:
      if (step == ValueStep::kEnd) {
        string_.Finish(out);
      } else {
        string_.Take(c, out);
      }
      break;
    case Form::kNull:
      break;
  }
  return step;
}

}  // namespace weft::router

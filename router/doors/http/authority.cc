#include "router/doors/http/authority.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "boost/url/authority_view.hpp"
#include "boost/url/parse.hpp"

namespace weft::router {
namespace {

bool IsPort(absl::string_view port) {
  uint32_t number = 0;
  return port.empty() ||
         (port.size() <= 5 &&
          std::all_of(port.begin(), port.end(),
                      [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }) &&
          absl::SimpleAtoi(port, &number) && number <= 65535);
}

}  // namespace

std::optional<HttpAuthority> ParseAuthority(absl::string_view text) {
  auto authority = boost::urls::parse_authority({text.data(), text.size()});
  // With a letter before it what begins like an address is a name to Boost, too.
  const bool digit_first =
      !text.empty() && absl::ascii_isdigit(static_cast<unsigned char>(text[0]));
  const std::string named = absl::StrCat("a", text);
  const bool name = !authority.has_value() && digit_first;
  if (name) authority = boost::urls::parse_authority({named.data(), named.size()});
  if (!authority.has_value() || authority->has_userinfo()) return std::nullopt;
  const absl::string_view port(authority->port().data(), authority->port().size());
  if (!IsPort(port)) return std::nullopt;
  const auto host = authority->encoded_host();
  return HttpAuthority{std::string(host.data(), host.size()).substr(name ? 1 : 0),
                       std::string(port)};
}

}  // namespace weft::router

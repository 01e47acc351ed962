// The files of the page (router/doors/ui/page) as bytes of this program: embed.cmake makes the
// source of this list in the build tree. Constant; any thread.

#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace weft::router {

struct PageFile {
  // Without a folder, as "index.html".
  absl::string_view name;
  absl::string_view bytes;
};

absl::Span<const PageFile> PageFiles();

}  // namespace weft::router

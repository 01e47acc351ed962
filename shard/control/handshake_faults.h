// What a shard says of connections that its TLS turns away: the router alone would know of them,
// and not always why, since TLS 1.3 does not tell a client. gRPC says it in its log, which is the
// only place (common/library_log.h takes the rest of it). Any thread; never waits.

#pragma once

#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace weft::shard {

class HandshakeFaults {
 public:
  // A router asks again several times a second.
  static constexpr int64_t kSilenceUs = 60'000'000;

  // What is to be logged for a line of gRPC's log; empty when the line is of something else, or the
  // same was said less than kSilenceUs before `now_us`.
  std::string Judge(absl::string_view grpc_line, int64_t now_us);

 private:
  absl::Mutex mutex_;
  // When each reason was said.
  absl::flat_hash_map<absl::string_view, int64_t> said_us_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft::shard

// Makes gRPC honour the bound on what it reads from a connection at once. By an experiment that is
// on by default, 1.51 reads 8 KiB at a time whatever a server asks for, and takes in all calls of
// three reads before the first of them can be refused: with many connections these are megabytes
// for which nobody can be asked. For main, before gRPC and the first thread.

#pragma once

#include <cstdlib>
#include <string>

namespace weft::router {

inline void AllowSmallGrpcReads() {
  constexpr char kVariable[] = "GRPC_EXPERIMENTS";
  constexpr char kOff[] = "-tcp_read_chunks";
  const char* const set = std::getenv(kVariable);
  const std::string all = set == nullptr || *set == '\0' ? kOff : std::string(set) + "," + kOff;
  setenv(kVariable, all.c_str(), /*replace=*/1);
}

}  // namespace weft::router

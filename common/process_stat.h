// What /proc says of processes: CPU time, start, memory, descriptors, the pid namespace. Used by
// the router to tell a hung shard from a slow one, by metrics and by `weft bench`. Any thread;
// every call reads anew, and what cannot be read is empty or zero.

#pragma once

#include <cstdint>
#include <optional>

namespace weft {

// The parts of /proc/<pid>/stat that are asked for.
struct ProcessStat {
  // User and system time so far of all threads, microseconds.
  int64_t cpu_us = 0;
  // When it started, clock ticks after boot: tells a process from a later one of the same number.
  uint64_t start_ticks = 0;
  // It ends: its memory and then its descriptors are being given back.
  bool ending = false;
};

// Empty for a process that is gone or not to be seen.
std::optional<ProcessStat> ReadProcessStat(uint64_t pid);

// Inode of this process's pid namespace, in which the numbers under /proc are; 0 when it cannot be
// read. Equal in two processes of one host exactly when they give the same pids to processes.
uint64_t PidNamespace();

// Proportional set size (shared pages count by their share) of `pid`, bytes.
uint64_t ProportionalBytes(uint64_t pid);

// Of this process: resident memory in bytes, and open file descriptors.
uint64_t ResidentBytes();
int OpenFiles();

}  // namespace weft

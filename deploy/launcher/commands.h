// The sub-commands of `weft`. Each parses its own flags, runs to its end and returns the process's
// exit code; none returns before it has stopped what it started.

#pragma once

namespace weft::launcher {

// Starts one router and N shards on this host, watches and restarts them, ends with them.
int RunServe(int argc, char** argv);
// Talks to a server in the terminal.
int RunChat(int argc, char** argv);
// Load generators, step bench and choice of kernels: `weft bench load`, `offline`, `step`, `tune`.
int RunBench(int argc, char** argv);
int RunBenchLoad(int argc, char** argv);
int RunBenchOffline(int argc, char** argv);
int RunBenchStep(int argc, char** argv);
int RunBenchTune(int argc, char** argv);
// API keys and their file: `weft key new`, `list`, `revoke`.
int RunKey(int argc, char** argv);
// Says what is in a model directory or file and what memory it needs.
int RunInspect(int argc, char** argv);
// Says whether `weft serve` with the same flags would start here: `ok`, `warn` or `fail` for each
// check.
int RunDoctor(int argc, char** argv);
// Fetches a model's files from a hub into the cache.
int RunPull(int argc, char** argv);
// Has a running server write a timeline of its steps for a few seconds.
int RunTrace(int argc, char** argv);
// Plays a recording of the router's scheduler again and compares every decision.
int RunReplay(int argc, char** argv);
// Writes safetensors from .bin checkpoints and tokenizer.json from older files.
int RunConvert(int argc, char** argv);

}  // namespace weft::launcher

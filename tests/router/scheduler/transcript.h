// Transcripts: text files that hold events for the scheduler and what it answers.
//
// A file is a list of blocks. A block is one command a line, a line "----", then the output that
// the commands together must give, up to an empty line. Lines that start with # are comments.
// Commands:
//   config [running_max=N] [step_tokens_max=N] [block_tokens=N] [context_tokens_max=N]
//          [inter_token_target_us=N] [watermark_permille=N] [prefix_cache=0|1] [eos=ID]
//          [ageing_us=N] [windows=N,...]; a target is a second unless given; one KV group for
//          each window, where 0 sees the whole context
//   at US                                    the time of the commands that follow; 0 at the start
//   group blocks=N [cost=ROWS/PROMPT_TOKENS/CONTEXT/US,...]       the group forms
//   lost                                                          the group is lost
//   arrive ID prompt=PART,... max_new=N [priority=N] [salt=N] [ignore_eos] [stop_ids=PART] [bypass]
//          [tenant=N] [weight=N]            prints why, if it is refused
//          PART is an id or a range A..B; a token id is any number
//   cancel ID
//   flush                                                         the prefix cache is flushed
//   cut ID tokens=N                          cuts the limit and prints whether that was possible
//   plan                            prints the plan, or "nothing to do"
//   done [us=N] [TOKEN ...]         answers the oldest step in flight; without tokens its rows give
//                                   900, 901, ... counted over the whole file
//   run [STEPS]                     plan and done in turn, without output except ends, until there
//                                   is nothing to do or for so many steps
//   log ID, cached ID, stats, groups
// Every command is followed by a check of the scheduler's invariants.

#pragma once

#include <string>

namespace weft::router {

struct TranscriptResult {
  // The file as it should be: the same commands and comments with the output they gave.
  std::string actual;
  // Empty, or why the file could not be run.
  std::string error;
};

TranscriptResult RunTranscript(const std::string& text);

}  // namespace weft::router

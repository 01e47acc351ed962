// The C ABI of the line editor in ffi/, which is Rust: rustyline. Nothing of it unwinds into C++.
// One thread.

#pragma once

#include <stdbool.h>
#include <stddef.h>

extern "C" {

typedef struct WeftLineEditor WeftLineEditor;

// Borrowed UTF-8.
struct WeftLineSlice {
  const char* data;
  size_t size;
};

enum WeftLineStatus {
  kWeftLineRead = 0,
  kWeftLineInterrupted = 1,
  kWeftLineEnd = 2,
  // What was typed is no UTF-8.
  kWeftLineNotText = 3,
  // The slice says why; it is empty after a fault of the editor's own.
  kWeftLineFailed = 4,
};

// `entries_max` of history; `styled`: the prompt is bold. `is_complete` says whether Enter ends a
// line. Null when the terminal cannot be had.
WeftLineEditor* weft_line_editor_new(size_t entries_max, bool styled,
                                     bool (*is_complete)(WeftLineSlice text));
void weft_line_editor_free(WeftLineEditor* editor);
// For Tab, in a line that begins with a slash.
void weft_line_editor_add_word(WeftLineEditor* editor, WeftLineSlice word);
void weft_line_editor_add_history(WeftLineEditor* editor, WeftLineSlice entry);
// Waits for a line. *text lives until the next call.
WeftLineStatus weft_line_editor_read(WeftLineEditor* editor, WeftLineSlice prompt,
                                     WeftLineSlice* text);
}

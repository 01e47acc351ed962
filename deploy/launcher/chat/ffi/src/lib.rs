//! rustyline behind the C ABI of line_editor_ffi.h. One editor a process, used by one thread.

mod helper;
mod paste;

use helper::ChatHelper;
use paste::{KeyHandler, SharedPastes};
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{ColorMode, CompletionType, Config, Editor, Event, EventHandler};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::slice;

/// `WeftLineSlice` of line_editor_ffi.h.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Slice {
    data: *const u8,
    size: usize,
}

impl Slice {
    /// # Safety
    /// `data` and `size` are those of a living buffer, or `size` is 0.
    unsafe fn text(&self) -> String {
        if self.size == 0 {
            return String::new();
        }
        String::from_utf8_lossy(slice::from_raw_parts(self.data, self.size)).into_owned()
    }
}

/// `WeftLineStatus` of line_editor_ffi.h.
#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
pub enum Status {
    Line = 0,
    Interrupted = 1,
    End = 2,
    NotText = 3,
    Failed = 4,
}

pub type IsComplete = extern "C" fn(text: Slice) -> bool;

pub struct LineEditor {
    editor: Editor<ChatHelper, MemHistory>,
    pastes: SharedPastes,
    /// Holds what the last read returned.
    text: String,
}

fn make(entries_max: usize, styled: bool, is_complete: IsComplete) -> Option<LineEditor> {
    let config = Config::builder()
        .max_history_size(entries_max)
        .ok()?
        .auto_add_history(false)
        .completion_type(CompletionType::List)
        .color_mode(if styled {
            ColorMode::Enabled
        } else {
            ColorMode::Disabled
        })
        .build();
    let history = MemHistory::with_config(&config);
    let mut editor = Editor::with_history(config, history).ok()?;
    let pastes = SharedPastes::default();
    editor.set_helper(Some(ChatHelper::new(pastes.clone(), is_complete)));
    let keys = EventHandler::Conditional(Box::new(KeyHandler(pastes.clone())));
    editor.bind_sequence(Event::Any, keys);
    Some(LineEditor {
        editor,
        pastes,
        text: String::new(),
    })
}

fn read(editor: &mut LineEditor, prompt: &str) -> Status {
    editor.pastes.lock().clear();
    match editor.editor.readline(prompt) {
        Ok(line) => {
            editor.text = editor.pastes.lock().expand(&line);
            Status::Line
        }
        Err(ReadlineError::Interrupted) => Status::Interrupted,
        Err(ReadlineError::Eof) => Status::End,
        Err(ReadlineError::Io(error)) if error.kind() == std::io::ErrorKind::InvalidData => {
            Status::NotText
        }
        Err(error) => {
            editor.text = error.to_string();
            Status::Failed
        }
    }
}

/// Null when no editor can be made.
#[no_mangle]
pub extern "C" fn weft_line_editor_new(
    entries_max: usize,
    styled: bool,
    is_complete: IsComplete,
) -> *mut LineEditor {
    catch_unwind(|| make(entries_max, styled, is_complete))
        .ok()
        .flatten()
        .map_or(std::ptr::null_mut(), |editor| {
            Box::into_raw(Box::new(editor))
        })
}

/// # Safety
/// `editor` is of weft_line_editor_new and not freed.
#[no_mangle]
pub unsafe extern "C" fn weft_line_editor_free(editor: *mut LineEditor) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(editor))));
}

/// # Safety
/// `editor` is of weft_line_editor_new; `word` is a buffer.
#[no_mangle]
pub unsafe extern "C" fn weft_line_editor_add_word(editor: *mut LineEditor, word: Slice) {
    let word = word.text();
    let _ = catch_unwind(AssertUnwindSafe(|| {
        if let Some(helper) = (*editor).editor.helper_mut() {
            helper.add_word(word);
        }
    }));
}

/// # Safety
/// `editor` is of weft_line_editor_new; `entry` is a buffer.
#[no_mangle]
pub unsafe extern "C" fn weft_line_editor_add_history(editor: *mut LineEditor, entry: Slice) {
    let entry = entry.text();
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let _ = (*editor).editor.add_history_entry(entry);
    }));
}

/// # Safety
/// `editor` is of weft_line_editor_new; `prompt` is a buffer; `text` is a place for a slice, which
/// lives until the next call.
#[no_mangle]
pub unsafe extern "C" fn weft_line_editor_read(
    editor: *mut LineEditor,
    prompt: Slice,
    text: *mut Slice,
) -> Status {
    let prompt = prompt.text();
    (*editor).text.clear();
    let status =
        catch_unwind(AssertUnwindSafe(|| read(&mut *editor, &prompt))).unwrap_or(Status::Failed);
    let result = &(*editor).text;
    *text = Slice {
        data: result.as_ptr(),
        size: result.len(),
    };
    status
}

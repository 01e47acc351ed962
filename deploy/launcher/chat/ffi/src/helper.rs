//! What the editor asks while a line is typed: whether Enter ends it, what Tab completes, how the
//! prompt looks.

use crate::paste::SharedPastes;
use crate::{IsComplete, Slice};
use rustyline::completion::Completer;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Helper, Result};
use std::borrow::Cow;

pub struct ChatHelper {
    pastes: SharedPastes,
    is_complete: IsComplete,
    /// Commands and what may follow them: "/set", "/set temperature".
    words: Vec<String>,
}

impl ChatHelper {
    pub fn new(pastes: SharedPastes, is_complete: IsComplete) -> Self {
        ChatHelper {
            pastes,
            is_complete,
            words: Vec::new(),
        }
    }

    pub fn add_word(&mut self, word: String) {
        self.words.push(word);
    }
}

impl Validator for ChatHelper {
    fn validate(&self, context: &mut ValidationContext) -> Result<ValidationResult> {
        let text = self.pastes.lock().expand(context.input());
        let slice = Slice {
            data: text.as_ptr(),
            size: text.len(),
        };
        Ok(if (self.is_complete)(slice) {
            ValidationResult::Valid(None)
        } else {
            ValidationResult::Incomplete
        })
    }
}

impl Completer for ChatHelper {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        _: &Context<'_>,
    ) -> Result<(usize, Vec<Self::Candidate>)> {
        let typed = &line[..pos];
        if !typed.starts_with('/') {
            return Ok((pos, Vec::new()));
        }
        let matching = self.words.iter().filter(|word| word.starts_with(typed));
        Ok((0, matching.cloned().collect()))
    }
}

impl Hinter for ChatHelper {
    type Hint = String;
}

impl Highlighter for ChatHelper {
    /// Asked only where styles are on.
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, _: bool) -> Cow<'b, str> {
        Cow::Owned(format!("\x1b[1m{prompt}\x1b[0m"))
    }
}

impl Helper for ChatHelper {}

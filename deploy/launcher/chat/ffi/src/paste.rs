//! Pasted text. A terminal marks its beginning and end; what lies between is text, whatever keys it
//! looks like. A long one would fill the screen and be drawn again with every key, so it stands in the
//! line as a short label until the line is sent.

use rustyline::{
    Cmd, ConditionalEventHandler, Event, EventContext, KeyCode, KeyEvent, Modifiers, RepeatCount,
};
use std::sync::{Arc, Mutex, MutexGuard};

/// What is shown as it was pasted.
const SHOWN_LINES_MAX: usize = 8;
const SHOWN_BYTES_MAX: usize = 1000;
/// What is kept of a paste, and labels of a line: above what a message may be, so that its sender can
/// say that it is too long.
const PASTE_BYTES_MAX: usize = 8 << 20;
const PASTES_MAX: usize = 64;

#[derive(Default)]
pub struct Pastes {
    /// Some while a paste arrives.
    arriving: Option<String>,
    /// Labels that stand in the line, with what they stand for.
    labelled: Vec<(String, String)>,
}

#[derive(Clone, Default)]
pub struct SharedPastes(Arc<Mutex<Pastes>>);

impl SharedPastes {
    pub fn lock(&self) -> MutexGuard<'_, Pastes> {
        self.0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Pastes {
    /// A new line begins: nothing is left of the last one.
    pub fn clear(&mut self) {
        self.arriving = None;
        self.labelled.clear();
    }

    /// `line` with each label replaced by what it stands for, once.
    pub fn expand(&self, line: &str) -> String {
        let mut text = line.to_owned();
        for (label, paste) in self.labelled.iter().rev() {
            text = text.replacen(label.as_str(), paste, 1);
        }
        text
    }

    fn take(&mut self, key: &KeyEvent) {
        let Some(paste) = &mut self.arriving else {
            return;
        };
        if paste.len() >= PASTE_BYTES_MAX {
            return;
        }
        match (key.0, key.1) {
            (KeyCode::Char(c), modifiers) if !modifiers.contains(Modifiers::CTRL) => paste.push(c),
            (KeyCode::Enter, _) => paste.push('\r'),
            (KeyCode::Char('J'), _) => paste.push('\n'),
            (KeyCode::Tab, _) => paste.push('\t'),
            // Other control characters and escape sequences are no text.
            _ => {}
        }
    }

    /// What to insert into the line in the place of a paste that is complete.
    fn finish(&mut self) -> String {
        let text = self.arriving.take().unwrap_or_default();
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let lines = text.trim_end_matches('\n').split('\n').count();
        if lines <= SHOWN_LINES_MAX && text.len() <= SHOWN_BYTES_MAX
            || self.labelled.len() >= PASTES_MAX
        {
            return text;
        }
        let label = format!(
            "[pasted text {}: {} {}, {} characters]",
            self.labelled.len() + 1,
            lines,
            if lines == 1 { "line" } else { "lines" },
            text.chars().count()
        );
        self.labelled.push((label.clone(), text));
        label
    }
}

/// Sees every key before the editor does.
pub struct KeyHandler(pub SharedPastes);

impl ConditionalEventHandler for KeyHandler {
    fn handle(&self, event: &Event, _: RepeatCount, _: bool, _: &EventContext) -> Option<Cmd> {
        let Event::KeySeq(keys) = event else {
            return None;
        };
        let key = keys.first()?;
        let mut pastes = self.0.lock();
        if pastes.arriving.is_some() {
            if key.0 == KeyCode::BracketedPasteEnd {
                return Some(Cmd::Insert(1, pastes.finish()));
            }
            pastes.take(key);
            return Some(Cmd::Noop);
        }
        match (key.0, key.1) {
            (KeyCode::BracketedPasteStart, _) => {
                pastes.arriving = Some(String::new());
                Some(Cmd::Noop)
            }
            // A line break without the end of the message: Alt-Enter, and Ctrl-J where Alt is taken.
            (KeyCode::Enter, Modifiers::ALT) | (KeyCode::Char('J'), Modifiers::CTRL) => {
                Some(Cmd::Insert(1, "\n".to_owned()))
            }
            _ => None,
        }
    }
}

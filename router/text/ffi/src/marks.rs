//! Marks in users' strings (router/text/chat_marks.h) and the functions of templates that look at
//! the ends or the length of a string: they see through the marks.

use std::borrow::Cow;

use minijinja::{Error, State, Value};

const MARK: char = '\u{1d1ae}';
const ESCAPE: char = '\u{1d1af}';

/// True for the characters that marks and their escapes are written with.
pub fn is_one(c: char) -> bool {
    ('\u{1d1ae}'..='\u{1d1b1}').contains(&c)
}

/// `text` without characters that `drop` names at the ends asked for. A mark among them stays, at
/// the new end: what it kept apart must stay apart.
fn strip(text: &str, start: bool, end: bool, drop: impl Fn(char) -> bool) -> String {
    let ends = |c: char| c == MARK || drop(c);
    let mut kept = text;
    if start {
        kept = kept.trim_start_matches(ends);
    }
    let begin = text.len() - kept.len();
    if end {
        kept = kept.trim_end_matches(ends);
    }
    let mut out = String::with_capacity(kept.len() + 2 * MARK.len_utf8());
    if text[..begin].contains(MARK) {
        out.push(MARK);
    }
    out.push_str(kept);
    if text[begin + kept.len()..].contains(MARK) {
        out.push(MARK);
    }
    out
}

fn strip_set(text: &str, start: bool, end: bool, set: Option<&str>) -> String {
    match set {
        Some(set) => strip(text, start, end, |c| set.contains(c)),
        None => strip(text, start, end, char::is_whitespace),
    }
}

/// The filter `trim`.
pub fn trim(text: Cow<'_, str>, set: Option<Cow<'_, str>>) -> String {
    strip_set(&text, true, true, set.as_deref())
}

/// The filter `length`.
pub fn length(value: &Value) -> Result<usize, Error> {
    match value.as_str() {
        // An escape stands before one more character.
        Some(text) => Ok(text.chars().filter(|c| *c != MARK && *c != ESCAPE).count()),
        None => minijinja::filters::length(value),
    }
}

/// Python's methods of strings, lists and maps.
pub fn call_method(
    state: &mut State,
    value: &Value,
    method: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    let ends = match method {
        "strip" => Some((true, true)),
        "lstrip" => Some((true, false)),
        "rstrip" => Some((false, true)),
        _ => None,
    };
    if let (Some((start, end)), Some(text), true) = (ends, value.as_str(), arguments.len() < 2) {
        let set = arguments.first().filter(|set| !set.is_none());
        if text.contains(MARK) && set.is_none_or(|set| set.as_str().is_some()) {
            let set = set.and_then(|set| set.as_str());
            return Ok(Value::from(strip_set(text, start, end, set)));
        }
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, method, arguments)
}

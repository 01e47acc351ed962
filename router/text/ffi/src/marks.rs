//! Marks and stand-ins in users' strings (router/text/chat_marks.h) and the functions of templates
//! that look at the ends, the length or the kinds of characters of a string: they see through them.

use std::borrow::Cow;

use minijinja::{Error, State, Value};

use crate::python_methods;

const MARK: char = '\u{1d1ae}';
const ESCAPE: char = '\u{1d1af}';
/// Behind the escape: which of the two a user wrote.
const WAS_MARK: char = '\u{1d1b0}';
const WAS_ESCAPE: char = '\u{1d1b1}';

/// The first of 64: stand-ins in the order of `PUNCTUATION`, and in the second half what stands
/// behind an escape for each of them.
const STAND_IN: char = '\u{4dc0}';
const STAND_INS_END: char = '\u{4dff}';

/// Characters that may have a stand-in. No quotes and no backslash, which functions of templates
/// write before other characters, and no `_`, which is part of the names of fields.
pub const PUNCTUATION: &str = "!#$%&()*+,-./:;<=>?@[]^`{|}~";

/// True for the characters that marks, stand-ins and their escapes are written with.
pub fn is_one(c: char) -> bool {
    ('\u{1d1ae}'..='\u{1d1b1}').contains(&c) || (STAND_IN..=STAND_INS_END).contains(&c)
}

/// What a stand-in stands for; other characters are themselves.
fn real(c: char) -> char {
    let index = (c as u32).wrapping_sub(STAND_IN as u32) as usize;
    PUNCTUATION
        .as_bytes()
        .get(index)
        .map_or(c, |byte| char::from(*byte))
}

fn has_any(text: &str) -> bool {
    text.contains(is_one)
}

/// What a user wrote: `text` without marks, with stand-ins and escapes undone.
pub fn plain(text: &str) -> Cow<'_, str> {
    if !has_any(text) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let escaped = match (c, chars.peek()) {
            (ESCAPE, Some(&WAS_MARK)) => Some(MARK),
            (ESCAPE, Some(&WAS_ESCAPE)) => Some(ESCAPE),
            (ESCAPE, Some(&next)) if (STAND_IN..=STAND_INS_END).contains(&next) => {
                char::from_u32((next as u32).wrapping_sub(32)).filter(|c| *c >= STAND_IN)
            }
            _ => None,
        };
        match escaped {
            Some(written) => {
                chars.next();
                out.push(written);
            }
            None if c == MARK => {}
            None => out.push(real(c)),
        }
    }
    Cow::Owned(out)
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
        // The set may be a user's, with stand-ins of its own.
        Some(set) => strip(text, start, end, |c| {
            set.chars().any(|one| real(one) == real(c))
        }),
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
        None if value.is_undefined() => Ok(0),
        None => minijinja::filters::length(value),
    }
}

/// The filter `escape`: what HTML has a name for is written by it, and is no part of a form then.
pub fn escape(state: &mut State, value: &Value) -> Result<Value, Error> {
    let Some(text) = value
        .as_str()
        .filter(|text| has_any(text) && !value.is_safe())
    else {
        return minijinja::filters::escape(state, value);
    };
    let named = |c: char| if "<>&/".contains(real(c)) { real(c) } else { c };
    let shown: String = text.chars().map(named).collect();
    minijinja::filters::escape(state, &Value::from(shown))
}

/// Python's methods of strings, lists and maps. Those that look at the ends or at the kinds of
/// characters see through marks.
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
        if has_any(text) && set.is_none_or(|set| set.as_str().is_some()) {
            let set = set.and_then(|set| set.as_str());
            return Ok(Value::from(strip_set(text, start, end, set)));
        }
    }
    if let (true, Some(text)) = (method.starts_with("is"), value.as_str()) {
        let shown: String = text.chars().filter(|c| *c != MARK).map(real).collect();
        return python_methods::call_method(state, &Value::from(shown), method, arguments);
    }
    python_methods::call_method(state, value, method, arguments)
}

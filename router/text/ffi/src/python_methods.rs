//! Python's methods of strings, lists and maps beyond the `pycompat` of minijinja-contrib, for
//! templates that were written for jinja2.

use minijinja::value::{from_args, Tuple, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use crate::python::WIDTH_MAX;

/// str.splitlines: more than line feeds end a line.
fn split_lines(text: &str, keep_ends: bool) -> Value {
    let ends_line = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'
                ..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(ends_line) {
        let end = rest[at..].chars().next().map_or(1, char::len_utf8);
        let end = if rest[at..].starts_with("\r\n") {
            2
        } else {
            end
        };
        let line = if keep_ends { at + end } else { at };
        lines.push(Value::from(&rest[..line]));
        rest = &rest[at + end..];
    }
    if !rest.is_empty() {
        lines.push(Value::from(rest));
    }
    Value::from(lines)
}

fn partition(text: &str, separator: &str, found: Option<usize>, last: bool) -> Value {
    let parts = match found {
        Some(at) => [&text[..at], separator, &text[at + separator.len()..]],
        None if last => ["", "", text],
        None => [text, "", ""],
    };
    Value::from(Tuple::from(parts.map(Value::from)))
}

fn right_split(text: &str, separator: Option<&str>, times: Option<i64>) -> Value {
    let times = times.and_then(|n| usize::try_from(n).ok());
    let mut parts: Vec<&str> = Vec::new();
    let mut rest = match separator {
        Some(_) => text,
        None => text.trim_end(),
    };
    while times.is_none_or(|n| parts.len() < n) {
        let found = match separator {
            Some(separator) => rest.rfind(separator).map(|at| (at, separator.len())),
            None => rest
                .rfind(char::is_whitespace)
                .map(|at| (at, rest[at..].chars().next().map_or(1, char::len_utf8))),
        };
        let Some((at, bytes)) = found else { break };
        parts.push(&rest[at + bytes..]);
        rest = match separator {
            Some(_) => &rest[..at],
            None => rest[..at].trim_end(),
        };
    }
    if separator.is_some() || !rest.is_empty() {
        parts.push(rest);
    }
    parts.reverse();
    parts.into_iter().map(Value::from).collect()
}

fn not_found() -> Error {
    Error::new(ErrorKind::InvalidOperation, "substring not found")
}

fn characters_before(text: &str, at: Option<usize>) -> Result<Value, Error> {
    let at = at.ok_or_else(not_found)?;
    Ok(Value::from(text[..at].chars().count()))
}

/// The part of `text` between two places as Python counts them (characters, from the end where
/// negative), and the number of characters before it.
fn part<'a>(text: &'a str, from: &Value, to: Option<&Value>) -> Result<(&'a str, usize), Error> {
    let length = text.chars().count() as i64;
    let place = |value: &Value, usual: i64| -> Result<usize, Error> {
        let at = match value.is_none() {
            true => usual,
            false => i64::try_from(value.clone())?,
        };
        let at = if at < 0 { at + length } else { at };
        Ok(at.clamp(0, length) as usize)
    };
    let begin = place(from, 0)?;
    let end = to.map_or(Ok(length as usize), |to| place(to, length))?;
    let bytes = |characters: usize| {
        let at = text.char_indices().nth(characters);
        at.map_or(text.len(), |(at, _)| at)
    };
    Ok((&text[bytes(begin)..bytes(end.max(begin))], begin))
}

/// Searches in a part of a string: find(what, start, end) and the like. None where there is no start.
fn search_in_part(
    state: &mut State,
    text: &str,
    method: &str,
    arguments: &[Value],
) -> Result<Option<Value>, Error> {
    let (what, from, to) = match arguments {
        [what, from] => (what, from, None),
        [what, from, to] => (what, from, Some(to)),
        _ => return Ok(None),
    };
    let counts = matches!(method, "find" | "rfind" | "index" | "rindex");
    if !counts && !matches!(method, "count" | "startswith" | "endswith") {
        return Ok(None);
    }
    let (part, before) = part(text, from, to)?;
    let found = call_method(state, &Value::from(part), method, &[what.clone()])?;
    Ok(Some(match i64::try_from(found.clone()) {
        Ok(at) if counts && at >= 0 => Value::from(at + before as i64),
        _ => found,
    }))
}

/// `text` filled up to a width, with `left` of the rest in front.
fn fill(
    text: &str,
    arguments: &[Value],
    left: impl Fn(usize, usize) -> usize,
) -> Result<Value, Error> {
    let (width, with): (usize, Option<char>) = from_args(arguments)?;
    let rest = width.saturating_sub(text.chars().count());
    if rest > WIDTH_MAX {
        return Err(Error::new(ErrorKind::InvalidOperation, "too wide"));
    }
    let filler = |count: usize| with.unwrap_or(' ').to_string().repeat(count);
    let front = left(rest, width);
    Ok(Value::from(filler(front) + text + &filler(rest - front)))
}

/// The methods of strings that pycompat has not, or has otherwise than Python; None for others.
fn string_method(text: &str, method: &str, arguments: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match method {
        "splitlines" => {
            let (keep_ends,): (Option<bool>,) = from_args(arguments)?;
            split_lines(text, keep_ends.unwrap_or(false))
        }
        "removeprefix" => {
            let (part,): (&str,) = from_args(arguments)?;
            Value::from(text.strip_prefix(part).unwrap_or(text))
        }
        "removesuffix" => {
            let (part,): (&str,) = from_args(arguments)?;
            Value::from(text.strip_suffix(part).unwrap_or(text))
        }
        "partition" => {
            let (separator,): (&str,) = from_args(arguments)?;
            partition(text, separator, text.find(separator), false)
        }
        "rpartition" => {
            let (separator,): (&str,) = from_args(arguments)?;
            partition(text, separator, text.rfind(separator), true)
        }
        "rsplit" => {
            let (separator, times): (Option<&str>, Option<i64>) = from_args(arguments)?;
            if separator == Some("") {
                return Err(Error::new(ErrorKind::InvalidOperation, "empty separator"));
            }
            right_split(text, separator, times)
        }
        "index" => {
            let (part,): (&str,) = from_args(arguments)?;
            characters_before(text, text.find(part))?
        }
        "rindex" => {
            let (part,): (&str,) = from_args(arguments)?;
            characters_before(text, text.rfind(part))?
        }
        // Of the folds beyond lower case the one that is common.
        "casefold" => Value::from(text.to_lowercase().replace('ß', "ss")),
        "swapcase" => Value::from(swap_case(text)),
        "isdecimal" => Value::from(!text.is_empty() && text.chars().all(|c| c.is_ascii_digit())),
        "ljust" => fill(text, arguments, |_, _| 0)?,
        "rjust" => fill(text, arguments, |rest, _| rest)?,
        // The odd one goes where Python puts it.
        "center" => fill(text, arguments, |rest, width| rest / 2 + (rest & width & 1))?,
        "zfill" => {
            let (width,): (usize,) = from_args(arguments)?;
            let digits = text.trim_start_matches(['-', '+']);
            let sign = &text[..text.len() - digits.len()];
            let width = Value::from(width.saturating_sub(sign.len()));
            let filled = fill(digits, &[width, Value::from("0")], |rest, _| rest)?;
            Value::from(format!("{sign}{filled}"))
        }
        _ => return Ok(None),
    }))
}

fn swap_case(text: &str) -> String {
    let swapped = |c: char| match c.is_uppercase() {
        true => c.to_lowercase().collect::<String>(),
        false => c.to_uppercase().collect::<String>(),
    };
    text.chars().map(swapped).collect()
}

/// Python's methods of strings, lists and maps.
pub fn call_method(
    state: &mut State,
    value: &Value,
    method: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        if let Some(result) = search_in_part(state, text, method, arguments)? {
            return Ok(result);
        }
        if let Some(result) = string_method(text, method, arguments)? {
            return Ok(result);
        }
    }
    match (value.kind(), method, arguments) {
        (ValueKind::Map | ValueKind::Seq, "copy", []) => return Ok(value.clone()),
        (ValueKind::Seq, "index", [what]) => {
            let at = value.try_iter()?.position(|item| item == *what);
            return at.map(Value::from).ok_or_else(not_found);
        }
        _ => {}
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, method, arguments)
}

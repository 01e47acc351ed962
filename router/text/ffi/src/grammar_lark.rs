//! Grammars that are not JSON schemas, as the Lark text that the compiler takes: choices, regular
//! expressions, and Lark itself, whose embedded schemas go the way of all schemas.

use serde_json::Value;

use crate::abi::{Failure, Outcome};
use crate::grammar_schema::prepare_value;

/// Brackets within brackets: the compiler descends them on its stack.
const NESTING_MAX: usize = 64;
/// It descends from rule to rule too.
const LINES_MAX: usize = 4_000;

/// One of the texts, whole.
pub fn choice(texts: &[&str]) -> Outcome<String> {
    if texts.is_empty() {
        return Err(Failure::invalid("expected at least one text"));
    }
    if texts.iter().all(|text| text.is_empty()) {
        return Err(Failure::invalid("expected a text that is not empty"));
    }
    // A terminal, so that one that begins like another stays possible to the last byte.
    let quoted: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
    Ok(format!("start: CHOICE\nCHOICE: {}\n", quoted.join(" | ")))
}

/// A text as Lark writes it.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if (c as u32) < 0x20 || c as u32 == 0x7F => {
                out.push_str(&format!("\\u{:04x}", c as u32));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A regular expression as a terminal of Lark; it fits the whole text.
pub fn regex_terminal(pattern: &str) -> String {
    format!("/{}/", llguidance::regex_to_lark(pattern, ""))
}

pub fn regex(pattern: &str) -> Outcome<String> {
    if pattern.is_empty() {
        return Err(Failure::invalid("expected a pattern that is not empty"));
    }
    check_nesting(pattern.bytes())?;
    Ok(format!("start: TEXT\nTEXT: {}\n", regex_terminal(pattern)))
}

fn check_nesting(text: impl Iterator<Item = u8>) -> Outcome<()> {
    let mut depth = 0usize;
    for byte in text {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > NESTING_MAX {
            return Err(Failure::invalid(format!(
                "more than {NESTING_MAX} brackets within brackets"
            )));
        }
    }
    Ok(())
}

/// The Lark text with its `%json` schemas prepared.
pub fn lark(text: &str) -> Outcome<String> {
    if text.lines().count() > LINES_MAX {
        return Err(Failure::invalid(format!("more than {LINES_MAX} lines")));
    }
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let mut outside = Vec::with_capacity(text.len());
    let mut copied = 0;
    let mut at = 0;
    let mut found = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'"' => end_of(bytes, at, b'"'),
            b'/' if bytes.get(at + 1) == Some(&b'/') => line_end(bytes, at),
            b'/' => end_of(bytes, at, b'/'),
            b'#' => line_end(bytes, at),
            b'<' => special_end(bytes, at),
            b'%' if bytes[at..].starts_with(b"%json") => {
                found += 1;
                let start = at + 5;
                let mut values =
                    serde_json::Deserializer::from_slice(&bytes[start..]).into_iter::<Value>();
                let schema = match values.next() {
                    Some(Ok(schema)) => schema,
                    Some(Err(error)) => {
                        return Err(Failure::invalid(format!("%json is no JSON: {error}")));
                    }
                    None => return Err(Failure::invalid("%json has no schema behind it")),
                };
                let end = start + values.byte_offset();
                out.push_str(&text[copied..start]);
                out.push(' ');
                out.push_str(&prepare_value(&schema, false)?.to_string());
                copied = end;
                end
            }
            byte => {
                outside.push(byte);
                at + 1
            }
        };
        at = end;
    }
    out.push_str(&text[copied..]);
    if text.matches("%json").count() != found {
        return Err(Failure::invalid(
            "%json stands inside of a text, an expression or a comment",
        ));
    }
    if outside.contains(&b'&') || outside.contains(&b'~') {
        // No fuel bounds the time that these take to compile.
        return Err(Failure::invalid("the operators & and ~ are not supported"));
    }
    if found > 0 && outside.windows(7).any(|part| part == b"%ignore") {
        // The parser loses its way between what is ignored and a schema.
        return Err(Failure::invalid(
            "%ignore and %json do not go together; write the blanks out",
        ));
    }
    check_nesting(outside.into_iter())?;
    Ok(out)
}

/// Behind the quote that ends what begins at `at`.
fn end_of(bytes: &[u8], at: usize, quote: u8) -> usize {
    let mut i = at + 1;
    while i < bytes.len() {
        match bytes[i] {
            b'\\' => i += 1,
            byte if byte == quote => return i + 1,
            _ => {}
        }
        i += 1;
    }
    bytes.len()
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..]
        .iter()
        .position(|byte| *byte == b'\n')
        .map_or(bytes.len(), |i| at + i)
}

/// `<name>` is a special token, whatever its name holds.
fn special_end(bytes: &[u8], at: usize) -> usize {
    let ends = |byte: &u8| matches!(byte, b'<' | b'>' | b' ' | b'\t' | b'\r' | b'\n');
    match bytes[at + 1..].iter().position(ends) {
        Some(i) if i > 0 && bytes[at + 1 + i] == b'>' => at + i + 2,
        _ => at + 1,
    }
}

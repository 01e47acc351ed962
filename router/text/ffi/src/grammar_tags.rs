//! Structural tags: free text in which a trigger begins a part that fits a grammar, as vLLM's and
//! XGrammar's documents of type `structural_tag` describe it, written as Lark.

use std::collections::HashMap;

use serde_json::{json, Value};

use crate::abi::{Failure, Outcome};
use crate::grammar_lark::{quoted, regex_terminal};
use crate::grammar_schema::prepare_value;

const TAGS_MAX: usize = 256;
const FORMATS_MAX: usize = 2_000;
const DEPTH_MAX: usize = 32;

/// `specials`: written forms of special tokens and their ids, which match as tokens and never as
/// characters.
pub fn to_lark(text: &str, specials: &[(String, u32)]) -> Outcome<String> {
    let document: Value = serde_json::from_str(text)
        .map_err(|error| Failure::invalid(format!("is no JSON: {error}")))?;
    let mut writer = Writer {
        specials,
        rules: String::new(),
        count: 0,
        free_texts: HashMap::new(),
    };
    let start = match (document.get("structures"), document.get("format")) {
        (Some(structures), None) => {
            let tags: Vec<Value> = list(structures, "structures")?
                .iter()
                .map(|part| {
                    json!({
                        "begin": part.get("begin"),
                        "content": {"type": "json_schema", "json_schema": part.get("schema")},
                        "end": part.get("end"),
                    })
                })
                .collect();
            let format = json!({ "triggers": document.get("triggers"), "tags": tags });
            writer.triggered(&format, "#")?
        }
        (None, Some(format)) => writer.format(format, "format", 0)?,
        _ => {
            return Err(Failure::invalid(
                "expected structures and triggers, or format",
            ))
        }
    };
    Ok(format!("start: {start}\n{}", writer.rules))
}

fn refuse<T>(path: &str, what: impl std::fmt::Display) -> Outcome<T> {
    Err(Failure::invalid(format!("{path}: {what}")))
}

fn list<'a>(value: &'a Value, path: &str) -> Outcome<&'a Vec<Value>> {
    match value {
        Value::Array(items) if !items.is_empty() && items.len() <= TAGS_MAX => Ok(items),
        _ => refuse(
            path,
            format!("expected an array of 1 to {TAGS_MAX} entries"),
        ),
    }
}

fn word<'a>(value: &'a Value, key: &str, path: &str) -> Outcome<&'a str> {
    match value.get(key) {
        Some(Value::String(text)) => Ok(text),
        _ => refuse(path, format!("expected a string in {key}")),
    }
}

fn flag(value: &Value, key: &str) -> bool {
    value.get(key) == Some(&Value::Bool(true))
}

/// A part of a text: characters, or a token.
enum Piece<'a> {
    Text(&'a str),
    Token(u32),
}

struct Writer<'a> {
    specials: &'a [(String, u32)],
    rules: String,
    count: usize,
    /// By what must not be in them, the terminals of free text.
    free_texts: HashMap<String, String>,
}

impl Writer<'_> {
    fn rule(&mut self, body: &str) -> String {
        self.count += 1;
        let name = format!("r{}", self.count);
        self.rules.push_str(&format!("{name}: {body}\n"));
        name
    }

    fn pieces<'t>(&self, text: &'t str) -> Vec<Piece<'t>> {
        let mut pieces = vec![];
        let mut rest = text;
        while !rest.is_empty() {
            // The first special token in it; of two at one place the longer.
            let next = self
                .specials
                .iter()
                .filter_map(|(form, id)| {
                    rest.find(form.as_str())
                        .map(|at| (at, usize::MAX - form.len(), *id))
                })
                .min();
            let Some((at, length, id)) = next else {
                pieces.push(Piece::Text(rest));
                break;
            };
            if at > 0 {
                pieces.push(Piece::Text(&rest[..at]));
            }
            pieces.push(Piece::Token(id));
            rest = &rest[at + (usize::MAX - length)..];
        }
        pieces
    }

    /// A fixed text as an expression of Lark.
    fn fixed(&self, text: &str) -> String {
        let parts: Vec<String> = self
            .pieces(text)
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => quoted(text),
                Piece::Token(id) => format!("<[{id}]>"),
            })
            .collect();
        if parts.is_empty() {
            "\"\"".to_string()
        } else {
            parts.join(" ")
        }
    }

    fn format(&mut self, format: &Value, path: &str, depth: usize) -> Outcome<String> {
        self.count += 1;
        if self.count > FORMATS_MAX || depth > DEPTH_MAX {
            return refuse(path, "too many parts, or too many within each other");
        }
        match word(format, "type", path)? {
            "const_string" => Ok(self.fixed(word(format, "value", path)?)),
            "json_schema" => schema(format.get("json_schema"), path),
            "regex" => Ok(regex_terminal(word(format, "pattern", path)?)),
            "any_text" => Ok("/(?s:.*)/".to_string()),
            kind @ ("sequence" | "or") => {
                let mut parts = vec![];
                let elements = format.get("elements").unwrap_or(&Value::Null);
                for (i, element) in list(elements, path)?.iter().enumerate() {
                    parts.push(self.format(element, &format!("{path}/elements/{i}"), depth + 1)?);
                }
                let joint = if kind == "or" { " | " } else { " " };
                Ok(format!("({})", parts.join(joint)))
            }
            "tag" => self.tag(format, 0, path, depth),
            "triggered_tags" => self.triggered(format, path),
            "tags_with_separator" => self.separated(format, path, depth),
            other => refuse(path, format!("the type {other} is not supported")),
        }
    }

    /// A tag whose begin is there up to `done` bytes.
    fn tag(&mut self, tag: &Value, done: usize, path: &str, depth: usize) -> Outcome<String> {
        let begin = self.fixed(&word(tag, "begin", path)?[done..]);
        let content = tag.get("content").unwrap_or(&Value::Null);
        let ends: Vec<&str> = match tag.get("end") {
            Some(Value::String(end)) => vec![end],
            Some(Value::Array(ends)) if !ends.is_empty() && ends.len() <= TAGS_MAX => {
                let texts: Option<Vec<&str>> = ends.iter().map(Value::as_str).collect();
                match texts {
                    Some(texts) => texts,
                    None => return refuse(path, "expected strings in end"),
                }
            }
            _ => return refuse(path, "expected a string in end"),
        };
        if content.get("type") == Some(&json!("any_text")) {
            let rest = self.text_until(&ends, path)?;
            return Ok(format!("{begin} {rest}"));
        }
        let inside = self.format(content, &format!("{path}/content"), depth + 1)?;
        let ends: Vec<String> = ends.iter().map(|end| self.fixed(end)).collect();
        Ok(format!("{begin} {inside} ({})", ends.join(" | ")))
    }

    /// Free text up to the first of `marks`, with it.
    fn text_until(&mut self, marks: &[&str], path: &str) -> Outcome<String> {
        let mut options = vec![];
        for mark in marks {
            let rest = self.before(mark, marks, path)?;
            options.push(rest);
        }
        Ok(format!("({})", options.join(" | ")))
    }

    /// Free text without `marks` up to `mark`, with it.
    fn before(&mut self, mark: &str, marks: &[&str], path: &str) -> Outcome<String> {
        let pieces = self.pieces(mark);
        match pieces.first() {
            None => refuse(path, "expected a text that is not empty"),
            Some(Piece::Token(_)) => Ok(format!("{} {}", self.free(marks), self.fixed(mark))),
            Some(Piece::Text(text)) => {
                let rest = self.fixed(&mark[text.len()..]);
                self.count += 1;
                let name = format!("r{}", self.count);
                let text = quoted(text);
                self.rules
                    .push_str(&format!("{name}[suffix={text}]: /(?s:.*)/\n"));
                Ok(format!("{name} {rest}"))
            }
        }
    }

    /// Text in which none of `marks` begins, as a terminal.
    fn free(&mut self, marks: &[&str]) -> String {
        let texts: Vec<String> = marks
            .iter()
            .filter_map(|mark| match self.pieces(mark).first() {
                Some(Piece::Text(text)) => Some(regex_escaped(text)),
                _ => None,
            })
            .collect();
        if texts.is_empty() {
            return "/(?s:.*)/".to_string();
        }
        let texts = texts.join("|");
        if let Some(name) = self.free_texts.get(&texts) {
            return name.clone();
        }
        let name = format!("FREE{}", self.free_texts.len());
        self.rules
            .push_str(&format!("{name}: /(?s:.*)/ & ~/(?s:.*({texts}).*)/\n"));
        self.free_texts.insert(texts, name.clone());
        name
    }

    fn triggered(&mut self, format: &Value, path: &str) -> Outcome<String> {
        let triggers = list(format.get("triggers").unwrap_or(&Value::Null), "triggers")?;
        let triggers: Option<Vec<&str>> = triggers.iter().map(Value::as_str).collect();
        let Some(triggers) = triggers else {
            return refuse("triggers", "expected strings");
        };
        let tags = list(format.get("tags").unwrap_or(&Value::Null), "tags")?;
        let mut calls = vec![];
        for trigger in &triggers {
            let mut rests = vec![];
            for (i, tag) in tags.iter().enumerate() {
                let here = format!("{path}/tags/{i}");
                if word(tag, "begin", &here)?.starts_with(trigger) {
                    rests.push(self.tag(tag, trigger.len(), &here, 1)?);
                }
            }
            if rests.is_empty() {
                return refuse("triggers", format!("no tag begins with {trigger:?}"));
            }
            let text = self.before(trigger, &triggers, path)?;
            calls.push(format!("{text} ({})", rests.join(" | ")));
        }
        for (i, tag) in tags.iter().enumerate() {
            let begin = word(tag, "begin", path)?;
            if !triggers.iter().any(|trigger| begin.starts_with(trigger)) {
                return refuse(&format!("tags/{i}"), "begins with none of the triggers");
            }
        }
        let call = self.rule(&calls.join("\n  | "));
        let tail = self.free(&triggers);
        let once = flag(format, "stop_after_first");
        Ok(match (flag(format, "at_least_one"), once) {
            (true, true) => call,
            (true, false) => format!("({call}+ {tail})"),
            (false, true) => format!("({call} | {tail})"),
            (false, false) => format!("({call}* {tail})"),
        })
    }

    fn separated(&mut self, format: &Value, path: &str, depth: usize) -> Outcome<String> {
        let tags = list(format.get("tags").unwrap_or(&Value::Null), path)?;
        let mut options = vec![];
        for (i, tag) in tags.iter().enumerate() {
            options.push(self.tag(tag, 0, &format!("{path}/tags/{i}"), depth + 1)?);
        }
        let tag = self.rule(&options.join("\n  | "));
        let separator = self.fixed(word(format, "separator", path)?);
        let many = if flag(format, "stop_after_first") {
            tag
        } else {
            format!("({tag} ({separator} {tag})*)")
        };
        Ok(if flag(format, "at_least_one") {
            many
        } else {
            format!("({many})?")
        })
    }
}

fn schema(value: Option<&Value>, path: &str) -> Outcome<String> {
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return refuse(path, "expected a schema");
    };
    let prepared = prepare_value(value, false)
        .map_err(|error| Failure::invalid(format!("{path}: {}", error.message)))?;
    Ok(format!("%json {prepared}"))
}

fn regex_escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if r"\.+*?()|[]{}^$/".contains(c) => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

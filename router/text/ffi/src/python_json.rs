//! JSON as Python's json.dumps writes it: what the `tojson` of transformers' chat templates gives.
//! minijinja's own tojson escapes for HTML, which would change prompts.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};

use crate::marks;
use crate::python;

struct Style {
    item_separator: String,
    key_separator: String,
    indent: Option<usize>,
    ensure_ascii: bool,
    sort_keys: bool,
}

/// More than a prompt may have.
const BYTES_MAX: usize = 32 << 20;
/// json.dumps takes any; templates use 2 or 4.
const INDENT_MAX: usize = 64;

/// Nesting beyond this is refused; Python's own limit is near 1,000.
const DEPTH_MAX: usize = 200;

/// The filter: tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False).
pub fn tojson(value: &Value, kwargs: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = kwargs.get("indent")?;
    if indent.is_some_and(|indent| indent > INDENT_MAX) {
        let message = format!("tojson: indent is above {INDENT_MAX}");
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    let separators: Option<Vec<String>> = kwargs.get("separators")?;
    let (item_separator, key_separator) = match separators.as_deref() {
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                "separators must be a pair",
            ));
        }
        // json.dumps drops the blank after items when it breaks lines.
        None => (
            if indent.is_some() { "," } else { ", " }.to_string(),
            ": ".to_string(),
        ),
    };
    let style = Style {
        item_separator,
        key_separator,
        indent,
        ensure_ascii: kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort_keys: kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    kwargs.assert_all_used()?;
    let mut out = String::new();
    write(value, &style, 0, &mut out)?;
    Ok(out)
}

fn write(value: &Value, style: &Style, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > DEPTH_MAX {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            "tojson: nested too deeply",
        ));
    }
    if out.len() > BYTES_MAX {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson: too large"));
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&python::number(value)),
        ValueKind::String => write_string(value.as_str().unwrap_or_default(), style, out),
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.collect();
            write_list(('[', ']'), items.len(), style, depth, out, |i, out| {
                write(&items[i], style, depth + 1, out)
            })?;
        }
        ValueKind::Map => {
            let mut keys: Vec<Value> = value.try_iter()?.collect();
            if style.sort_keys {
                keys.sort_by_key(|key| marks::plain(&key.to_string()).into_owned());
            }
            write_list(('{', '}'), keys.len(), style, depth, out, |i, out| {
                match keys[i].kind() {
                    ValueKind::None | ValueKind::Bool => {
                        out.push('"');
                        write(&keys[i], style, depth, out)?;
                        out.push('"');
                    }
                    _ => write_string(&keys[i].to_string(), style, out),
                }
                out.push_str(&style.key_separator);
                write(&value.get_item(&keys[i])?, style, depth + 1, out)
            })?;
        }
        kind => {
            let message = format!("tojson: a value of type {kind} is not JSON serializable");
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
    }
    Ok(())
}

/// Brackets, separators and line breaks around `count` items.
fn write_list(
    brackets: (char, char),
    count: usize,
    style: &Style,
    depth: usize,
    out: &mut String,
    mut item: impl FnMut(usize, &mut String) -> Result<(), Error>,
) -> Result<(), Error> {
    let new_line = |out: &mut String, depth: usize| {
        if let Some(indent) = style.indent {
            out.push('\n');
            out.extend(std::iter::repeat(' ').take(indent * depth));
        }
    };
    out.push(brackets.0);
    for i in 0..count {
        if i > 0 {
            out.push_str(&style.item_separator);
        }
        new_line(out, depth + 1);
        item(i, out)?;
    }
    if count > 0 {
        new_line(out, depth);
    }
    out.push(brackets.1);
    Ok(())
}

fn write_string(text: &str, style: &Style, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if marks::is_one(c) => out.push(c),
            c if (c as u32) < 0x20 || (style.ensure_ascii && c as u32 >= 0x7f && c != '\u{7f}') => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

//! What templates written for jinja2 expect of its filters and tests where minijinja's are otherwise:
//! numbers as Python's repr() writes them, and orders that see through marks (marks.rs).

use minijinja::value::{Kwargs, Rest, Tuple, ValueKind};
use minijinja::{Error, ErrorKind, Output, State, Value};

use crate::marks;

/// Wider than a template that means well makes a string.
pub const WIDTH_MAX: usize = 10_000;

/// A number as Python's repr() writes it: 1e+16, 1e-05, 0.1, 3.
pub fn number(value: &Value) -> String {
    match f64::try_from(value.clone()) {
        Ok(float) if !value.is_integer() => repr(float),
        _ => value.to_string(),
    }
}

fn repr(float: f64) -> String {
    if float.is_nan() {
        return "NaN".to_string();
    }
    if float.is_infinite() {
        return if float > 0.0 { "Infinity" } else { "-Infinity" }.to_string();
    }
    // The shortest digits that read back the same, as "d.ddde-7".
    let scientific = format!("{float:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = format!("{float}");
        return if plain.contains('.') {
            plain
        } else {
            plain + ".0"
        };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// The filter `int`: what is no number is the default.
pub fn int(value: &Value, default: Option<Value>, base: Option<u32>) -> Value {
    let default = || default.clone().unwrap_or(Value::from(0));
    let Some(text) = value.as_str() else {
        let whole = f64::try_from(value.clone()).map(f64::trunc);
        return match (value.kind(), i64::try_from(value.clone()), whole) {
            (ValueKind::Bool, ..) => Value::from(i64::from(value.is_true())),
            (_, Ok(whole), _) => Value::from(whole),
            (ValueKind::Number, _, Ok(float)) => Value::from(float as i128),
            _ => default(),
        };
    };
    let text = text.trim();
    let base = base.unwrap_or(10);
    if (2..=36).contains(&base) {
        let digits = match base {
            16 => text.trim_start_matches("0x"),
            8 => text.trim_start_matches("0o"),
            2 => text.trim_start_matches("0b"),
            _ => text,
        };
        if let Ok(number) = i64::from_str_radix(digits, base) {
            return Value::from(number);
        }
    }
    let float = text.parse::<f64>().ok().filter(|float| float.is_finite());
    float.map_or_else(default, |float| Value::from(float.trunc() as i128))
}

/// The filter `float`: what is no number is the default.
pub fn float(value: &Value, default: Option<Value>) -> Value {
    let parsed = match value.as_str() {
        Some(text) => text.trim().parse::<f64>().ok(),
        None if value.kind() == ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
        None => f64::try_from(value.clone()).ok(),
    };
    parsed.map_or_else(|| default.unwrap_or(Value::from(0.0)), Value::from)
}

/// The filter `indent`. Lines are counted as str.splitlines counts them.
pub fn indent(
    text: &str,
    width: Option<&Value>,
    first: Option<bool>,
    blank: Option<bool>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let named: Option<Value> = kwargs.get("width")?;
    let width = width.or(named.as_ref());
    let first = first.or(kwargs.get("first")?).unwrap_or(false);
    let blank = blank.or(kwargs.get("blank")?).unwrap_or(false);
    kwargs.assert_all_used()?;
    let indention = match width.map(|width| (width.as_str(), usize::try_from(width.clone()))) {
        None => " ".repeat(4),
        Some((Some(text), _)) => text.to_string(),
        Some((None, Ok(width))) if width <= WIDTH_MAX => " ".repeat(width),
        Some(_) => return Err(Error::new(ErrorKind::InvalidOperation, "indent: the width")),
    };
    let mut out = if first {
        indention.clone()
    } else {
        String::new()
    };
    for (number, line) in text.split('\n').enumerate() {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if number > 0 {
            out.push('\n');
            if blank || !line.is_empty() {
                out.push_str(&indention);
            }
        }
        out.push_str(line);
    }
    Ok(out)
}

/// The function `cycler`.
pub fn cycler(items: Rest<Value>) -> Result<Value, Error> {
    minijinja_contrib::globals::cycler(items.0)
}

/// The filter `string`.
pub fn string(value: &Value) -> Value {
    match value.kind() {
        ValueKind::String => value.clone(),
        ValueKind::Number => Value::from(number(value)),
        _ => Value::from(value.to_string()),
    }
}

/// What `{{ }}` writes.
pub fn print(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    if value.kind() == ValueKind::Number && !value.is_integer() {
        return out.write_str(&number(value)).map_err(Error::from);
    }
    minijinja::escape_formatter(out, state, value)
}

// -- Orders ---------------------------------------------------------------------------------------

/// What a value is ordered by: of a string what a user wrote, in lower case unless case counts.
fn sort_key(value: &Value, case_sensitive: bool) -> Value {
    match value.as_str() {
        Some(text) if case_sensitive => Value::from(marks::plain(text).as_ref()),
        Some(text) => Value::from(marks::plain(text).to_lowercase()),
        None => value.clone(),
    }
}

struct Order {
    case_sensitive: bool,
    reverse: bool,
}

impl Order {
    fn of(kwargs: &Kwargs) -> Result<Order, Error> {
        Ok(Order {
            case_sensitive: kwargs
                .get::<Option<bool>>("case_sensitive")?
                .unwrap_or(false),
            reverse: kwargs.get::<Option<bool>>("reverse")?.unwrap_or(false),
        })
    }

    /// As Python's sorted(): equal ones keep their order, also in reverse.
    fn sort(&self, keyed: &mut [(Value, Value)]) {
        keyed.sort_by(|a, b| {
            let order = a.0.cmp(&b.0);
            match self.reverse {
                true => order.reverse(),
                false => order,
            }
        });
    }
}

/// The filter `dictsort`.
pub fn dictsort(map: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    if map.kind() != ValueKind::Map {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            "cannot convert value into pair list",
        ));
    }
    let by_value = kwargs.get::<Option<&str>>("by")? == Some("value");
    let order = Order::of(&kwargs)?;
    kwargs.assert_all_used()?;
    let mut keyed = Vec::new();
    for key in map.try_iter()? {
        let value = map.get_item(&key)?;
        let by = if by_value { &value } else { &key };
        let by = sort_key(by, order.case_sensitive);
        keyed.push((by, Value::from(Tuple::from([key, value]))));
    }
    order.sort(&mut keyed);
    Ok(keyed.into_iter().map(|(_, pair)| pair).collect())
}

/// What stands under "a.b" of an item; undefined where there is nothing.
fn attribute(item: &Value, path: &str) -> Value {
    let mut found = item.clone();
    for name in path.split('.') {
        let next = match name.parse::<usize>() {
            Ok(index) => found.get_item_by_index(index),
            Err(_) => found.get_attr(name),
        };
        found = next.unwrap_or(Value::UNDEFINED);
    }
    found
}

/// The filter `sort`.
pub fn sort(items: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    let order = Order::of(&kwargs)?;
    let by: Option<&str> = kwargs.get("attribute")?;
    let by: Vec<&str> = by
        .map(|paths| paths.split(',').map(str::trim).collect())
        .unwrap_or_default();
    let mut keyed = Vec::new();
    for item in items.try_iter()? {
        let key = |value: &Value| sort_key(value, order.case_sensitive);
        let key = match by.as_slice() {
            [] => key(&item),
            [path] => key(&attribute(&item, path)),
            paths => paths
                .iter()
                .map(|path| key(&attribute(&item, path)))
                .collect(),
        };
        keyed.push((key, item));
    }
    kwargs.assert_all_used()?;
    order.sort(&mut keyed);
    Ok(keyed.into_iter().map(|(_, item)| item).collect())
}

// -- Tests ----------------------------------------------------------------------------------------

/// The test `iterable`: of what has no items only none is not.
pub fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// The test `sequence`: what has a length and can be indexed, as maps and strings.
pub fn is_sequence(value: &Value) -> bool {
    value.is_undefined()
        || matches!(
            value.kind(),
            ValueKind::Seq | ValueKind::Map | ValueKind::String
        )
}

/// The test `number`: Python's booleans are numbers.
pub fn is_number(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Number | ValueKind::Bool)
}

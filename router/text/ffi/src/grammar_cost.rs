//! What a schema may cost: the bounds that keep the compiler's time and memory small. It cannot be
//! interrupted, so each way that its work grows faster than the schema has a bound here.

use serde_json::{json, Map, Value};

use crate::abi::{Failure, Outcome};

const SCHEMAS_MAX: usize = 20_000;
const REFERENCES_MAX: usize = 1_000;
/// Of `enum`, over the whole schema.
const CONSTANTS_MAX: usize = 20_000;
/// The compiler's work for an object is quadratic in its properties.
const PROPERTIES_MAX: usize = 2_000;
const OPTIONAL_MAX: usize = 500;
const PROPERTY_SQUARES_MAX: usize = 8_000_000;
/// Patterns of one object are compared with each other.
const PATTERNS_MAX: usize = 16;
const PATTERN_PAIRS_MAX: usize = 400;
const PATTERN_BYTES_MAX: usize = 4_096;
const PATTERN_BYTES_SUM_MAX: usize = 65_536;
/// Alternatives that are left when alternatives within alternatives are multiplied out.
const ALTERNATIVES_MAX: u64 = 1_000;
/// Alternatives times the size of what they are combined with.
const EXPANSION_MAX: u64 = 40_000;
const MULTIPLE_MAX: f64 = 10_000.0;
const MULTIPLE_DIGITS_MAX: i32 = 4;
/// Of the least number that is a multiple of all of them, wherever in the schema they stand: where
/// two of them meet the compiler counts up to it, and cannot be interrupted.
const COMMON_MULTIPLE_MAX: u128 = 100_000;
/// Larger counts are as good as none.
const COUNT_MAX: u64 = 1_000_000_000;
/// 2^53: JSON's numbers are exact up to there.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

const NAMES: [&str; 7] = [
    "null", "boolean", "number", "integer", "string", "array", "object",
];

fn refuse<T>(path: &str, what: impl std::fmt::Display) -> Outcome<T> {
    Err(Failure::invalid(format!("{path}: {what}")))
}

/// A bound that is exact in a double, or nothing where the keyword's value has no effect.
pub fn check_numbers(key: &str, value: &Value, path: &str) -> Outcome<Option<Value>> {
    if value.is_boolean() && key.starts_with("exclusive") {
        return Ok(Some(value.clone()));
    }
    let Some(number) = value.as_f64() else {
        return refuse(path, "expected a number");
    };
    let lower = key.ends_with("inimum");
    if (lower && number > EXACT_MAX) || (!lower && number < -EXACT_MAX) {
        return refuse(path, "expected a number up to 2^53");
    }
    if number.abs() > EXACT_MAX {
        // No number that a model writes on purpose is beyond.
        return Ok(Some(json!((EXACT_MAX as i64) * if lower { -1 } else { 1 })));
    }
    if number != 0.0 && number.abs() < 1e-9 {
        return refuse(path, "expected 0 or a number of at least 1e-9 in size");
    }
    Ok(Some(value.clone()))
}

#[derive(Default)]
pub struct Cost {
    schemas: usize,
    constants: usize,
    squares: usize,
    pairs: usize,
    pattern_bytes: usize,
    /// The least common multiple so far, in units of its last decimal; 0 = none.
    multiple: u128,
    multiple_digits: u32,
}

impl Cost {
    pub fn add_schema(&mut self, path: &str) -> Outcome<()> {
        self.schemas += 1;
        if self.schemas > SCHEMAS_MAX {
            return refuse(path, format!("more than {SCHEMAS_MAX} parts"));
        }
        Ok(())
    }

    pub fn add_reference(&mut self, known: usize, path: &str) -> Outcome<()> {
        if known >= REFERENCES_MAX {
            return refuse(path, format!("more than {REFERENCES_MAX} different $ref"));
        }
        Ok(())
    }

    /// Of an object's keywords as they are handed to the compiler.
    pub fn add_object(&mut self, map: &Map<String, Value>, path: &str) -> Outcome<()> {
        let count = |key: &str| map.get(key).and_then(Value::as_object).map_or(0, Map::len);
        let required: Vec<&str> = match map.get("required") {
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            _ => vec![],
        };
        let properties = count("properties");
        let all = properties + required.len();
        let set: std::collections::HashSet<&str> = required.into_iter().collect();
        let optional = map
            .get("properties")
            .and_then(Value::as_object)
            .map_or(0, |map| {
                map.keys()
                    .filter(|name| !set.contains(name.as_str()))
                    .count()
            });
        if all > 2 * PROPERTIES_MAX || properties > PROPERTIES_MAX {
            return refuse(path, format!("more than {PROPERTIES_MAX} properties"));
        }
        if optional > OPTIONAL_MAX {
            return refuse(
                path,
                format!("more than {OPTIONAL_MAX} properties that are not required"),
            );
        }
        self.squares += all * all / 4 + optional * optional;
        if self.squares > PROPERTY_SQUARES_MAX {
            return refuse(path, "too many objects with many properties");
        }
        let patterns = count("patternProperties");
        if patterns > PATTERNS_MAX {
            return refuse(path, format!("more than {PATTERNS_MAX} patternProperties"));
        }
        self.pairs += patterns * (patterns + properties);
        if self.pairs > PATTERN_PAIRS_MAX && patterns > 0 {
            return refuse(path, "too many patternProperties beside properties");
        }
        if let Some(Value::Object(map)) = map.get("patternProperties") {
            for pattern in map.keys() {
                self.add_pattern(pattern, path)?;
            }
        }
        Ok(())
    }

    fn add_pattern(&mut self, pattern: &str, path: &str) -> Outcome<()> {
        self.pattern_bytes += pattern.len();
        if pattern.len() > PATTERN_BYTES_MAX {
            return refuse(
                path,
                format!("a pattern of more than {PATTERN_BYTES_MAX} bytes"),
            );
        }
        if self.pattern_bytes > PATTERN_BYTES_SUM_MAX {
            return refuse(
                path,
                format!("patterns of more than {PATTERN_BYTES_SUM_MAX} bytes"),
            );
        }
        Ok(())
    }

    /// The value of a keyword that is taken over, None where it says nothing.
    pub fn check_plain(&mut self, key: &str, value: &Value, path: &str) -> Outcome<Option<Value>> {
        match key {
            "type" => self.check_type(value, path),
            "required" => match value {
                Value::Array(names) if names.iter().all(Value::is_string) => {
                    Ok(Some(value.clone()))
                }
                // Draft 3 had a boolean here.
                _ => refuse(path, "expected an array of names"),
            },
            "pattern" => match value {
                Value::String(pattern) => {
                    self.add_pattern(pattern, path)?;
                    Ok(Some(value.clone()))
                }
                _ => refuse(path, "expected a string"),
            },
            "const" => self
                .check_constants(std::slice::from_ref(value), path)
                .map(|()| Some(value.clone())),
            "enum" => match value {
                Value::Array(values) => {
                    self.check_constants(values, path)?;
                    Ok(Some(value.clone()))
                }
                _ => refuse(path, "expected an array"),
            },
            "multipleOf" => self.check_multiple(value, path),
            _ => check_count(key, value, path),
        }
    }

    fn check_multiple(&mut self, value: &Value, path: &str) -> Outcome<Option<Value>> {
        let number = value.as_f64().unwrap_or(0.0);
        let mut scaled = number;
        let mut digits = 0;
        while (scaled - scaled.round()).abs() > 1e-9 * scaled.abs() && digits <= MULTIPLE_DIGITS_MAX
        {
            scaled *= 10.0;
            digits += 1;
        }
        if number <= 0.0 || scaled > MULTIPLE_MAX || digits > MULTIPLE_DIGITS_MAX {
            return refuse(
                path,
                format!(
                    "expected a number above 0 with at most {MULTIPLE_DIGITS_MAX} decimals and \
                     at most {MULTIPLE_MAX} in units of its last digit"
                ),
            );
        }
        let digits = digits.unsigned_abs();
        let common = self.multiple_digits.max(digits);
        let one = scaled.round() as u128 * 10u128.pow(common - digits);
        let other = self.multiple * 10u128.pow(common - self.multiple_digits);
        self.multiple = if other == 0 {
            one
        } else {
            least_common_multiple(one, other)
        };
        self.multiple_digits = common;
        if self.multiple > COMMON_MULTIPLE_MAX {
            return refuse(
                path,
                format!(
                    "together with the schema's other ones the least common multiple is above \
                     {COMMON_MULTIPLE_MAX} in units of its last digit"
                ),
            );
        }
        Ok(Some(value.clone()))
    }

    fn check_type(&self, value: &Value, path: &str) -> Outcome<Option<Value>> {
        let known = |name: &Value| name.as_str().is_some_and(|name| NAMES.contains(&name));
        let names = match value {
            Value::String(_) => std::slice::from_ref(value),
            Value::Array(names) => names,
            _ => return refuse(path, "expected a name or an array of names"),
        };
        // "any" is draft 3's.
        if names.iter().any(|name| name == "any") {
            return Ok(None);
        }
        if names.is_empty() || names.len() > NAMES.len() || !names.iter().all(known) {
            return refuse(path, format!("expected some of {}", NAMES.join(", ")));
        }
        // An integer is a number; both would be two ways to write the same.
        let number = names.iter().any(|name| name == "number");
        let kept: Vec<&Value> = names
            .iter()
            .filter(|name| !(number && *name == "integer"))
            .collect();
        Ok(Some(if kept.len() == 1 {
            kept[0].clone()
        } else {
            json!(kept)
        }))
    }

    fn check_constants(&mut self, values: &[Value], path: &str) -> Outcome<()> {
        for value in values {
            self.constants += 1;
            if self.constants > CONSTANTS_MAX {
                return refuse(path, format!("more than {CONSTANTS_MAX} constants"));
            }
            match value {
                Value::Number(number) if number.as_f64().is_none_or(|n| n.abs() >= EXACT_MAX) => {
                    return refuse(path, "a number of 2^53 or more cannot be a constant");
                }
                Value::Array(items) => self.check_constants(items, path)?,
                Value::Object(map) => {
                    for item in map.values() {
                        self.check_constants(std::slice::from_ref(item), path)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Alternatives in alternatives are multiplied out by the compiler: how much would that be?
    pub fn check_expansion(&self, root: &Value) -> Outcome<()> {
        let mut walk = Expansion {
            root,
            sizes: std::collections::HashMap::new(),
            spent: 0,
        };
        walk.of(root, "#", 0)?;
        if let Some(Value::Object(defs)) = root.get("$defs") {
            for name in defs.keys() {
                walk.reference(&format!("#/$defs/{name}"), 0)?;
            }
        }
        Ok(())
    }
}

fn check_count(key: &str, value: &Value, path: &str) -> Outcome<Option<Value>> {
    let count = value.as_u64().or_else(|| {
        let number = value.as_f64()?;
        (number >= 0.0 && number.fract() == 0.0 && number < 1e18).then_some(number as u64)
    });
    let Some(count) = count else {
        return refuse(path, "expected a whole number of at least 0");
    };
    if count <= COUNT_MAX {
        return Ok(Some(json!(count)));
    }
    if key.starts_with("min") {
        return refuse(path, format!("expected at most {COUNT_MAX}"));
    }
    Ok(None)
}

fn least_common_multiple(a: u128, b: u128) -> u128 {
    let (mut divisor, mut rest) = (a, b);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    a / divisor * b
}

#[derive(Clone, Copy)]
struct Size {
    /// Alternatives it is multiplied out to.
    options: u64,
    /// Parts of one of them.
    weight: u64,
}

struct Expansion<'a> {
    root: &'a Value,
    /// None while it is being walked: a schema that contains itself.
    sizes: std::collections::HashMap<String, Option<Size>>,
    spent: u64,
}

impl Expansion<'_> {
    fn reference(&mut self, reference: &str, depth: usize) -> Outcome<Size> {
        match self.sizes.get(reference) {
            Some(Some(size)) => return Ok(*size),
            Some(None) => {
                return Ok(Size {
                    options: 1,
                    weight: 1,
                })
            }
            None => {}
        }
        self.sizes.insert(reference.to_string(), None);
        let target = self.root.pointer(&reference[1..]);
        let size = match target {
            Some(target) => self.of(target, reference, depth + 1)?,
            None => Size {
                options: 1,
                weight: 1,
            },
        };
        self.sizes.insert(reference.to_string(), Some(size));
        Ok(size)
    }

    fn of(&mut self, schema: &Value, path: &str, depth: usize) -> Outcome<Size> {
        let Value::Object(map) = schema else {
            return Ok(Size {
                options: 1,
                weight: 1,
            });
        };
        let mut weight = 1;
        for (key, value) in map {
            let parts: Vec<&Value> = match (key.as_str(), value) {
                ("properties" | "patternProperties", Value::Object(parts)) => {
                    parts.values().collect()
                }
                ("items" | "prefixItems", Value::Array(parts)) => parts.iter().collect(),
                ("items" | "additionalProperties" | "additionalItems", part) => vec![part],
                _ => continue,
            };
            for part in parts {
                let size = self.of(part, path, depth)?;
                weight += size.weight.saturating_mul(size.options);
            }
        }
        let mut options: u64 = 1;
        let mut factors = u64::from(weight > 1 || map.contains_key("type"));
        let mut times = |size: Size| {
            options = options.saturating_mul(size.options.max(1));
            weight = weight.saturating_add(size.weight);
            factors += 1;
        };
        if let Some(Value::Array(names)) = map.get("type") {
            times(Size {
                options: names.len() as u64,
                weight: 0,
            });
        }
        if let Some(Value::Array(values)) = map.get("enum") {
            // One lexeme for all of them, when nothing else is said.
            times(Size {
                options: (values.len() as u64).div_ceil(20),
                weight: 1,
            });
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(Value::Array(parts)) = map.get(key) {
                let mut sum = Size {
                    options: 0,
                    weight: 0,
                };
                for part in parts {
                    let size = self.of(part, path, depth)?;
                    sum.options += size.options;
                    sum.weight = sum.weight.max(size.weight);
                }
                times(sum);
            }
        }
        if let Some(Value::Array(parts)) = map.get("allOf") {
            for part in parts {
                let size = self.of(part, path, depth)?;
                times(size);
            }
        }
        if let Some(Value::String(reference)) = map.get("$ref") {
            let size = self.reference(reference, depth)?;
            times(size);
        }
        let cost = if factors > 1 {
            options.saturating_mul(weight)
        } else {
            weight
        };
        self.spent = self
            .spent
            .saturating_add(if factors > 1 { cost } else { 0 });
        if options > ALTERNATIVES_MAX || self.spent > EXPANSION_MAX {
            return refuse(
                path,
                format!(
                    "alternatives within alternatives that multiply out to {options} of {weight} \
                     parts; expected fewer than {ALTERNATIVES_MAX}, and {EXPANSION_MAX} parts in all"
                ),
            );
        }
        Ok(Size { options, weight })
    }
}

//! JSON schemas before they are compiled: what the compiler below would ignore, get wrong or spend
//! unbounded time on is refused here by name and place, rewritten into what it can do, or bounded.
//! What comes out has only keywords that it enforces, and its `$ref`s point into `$defs` of our own.

use std::collections::{HashMap, VecDeque};

use serde_json::{json, Map, Value};

use crate::abi::{Failure, Outcome};
use crate::grammar_cost::{check_numbers, Cost};
use crate::grammar_format::{format_of, Format};

/// Draft 4 to 2020-12 define these to restrict values, and no grammar is made for them.
const REFUSED: [&str; 14] = [
    "not",
    "if",
    "then",
    "else",
    "contains",
    "minContains",
    "maxContains",
    "uniqueItems",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$dynamicRef",
    "$recursiveRef",
    "extends",
    "disallow",
];

/// Taken over as they are, once their values are known to be sane.
const PLAIN: [&str; 12] = [
    "type",
    "required",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minLength",
    "maxLength",
    "pattern",
    "const",
    "enum",
    "multipleOf",
];

const BOUNDS: [&str; 4] = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"];

/// Spaces, tabs and one line's end between two parts of a JSON text: enough for an indented text,
/// and no place for a model to write blanks without end.
const BLANKS: &str = r"[ \t]{1,32}|\r?\n[ \t]{0,64}";

/// The options of the compiler, at the root of each schema. `\u` escapes are not written: a name
/// could be spelt with them so that it is not seen to be another property's.
fn compiler_options() -> Value {
    json!({ "whitespace_pattern": BLANKS, "json_allowed_escapes": "nrbtf\\\"" })
}

fn refuse<T>(path: &str, what: impl std::fmt::Display) -> Outcome<T> {
    Err(Failure::invalid(format!("{path}: {what}")))
}

/// The schema in `text`, ready for the compiler. `closed`: objects that list their properties and
/// do not speak of others take no others.
pub fn prepare(text: &str, closed: bool) -> Outcome<Value> {
    let schema: Value = serde_json::from_str(text)
        .map_err(|error| Failure::invalid(format!("is no JSON: {error}")))?;
    prepare_value(&schema, closed)
}

pub fn prepare_value(schema: &Value, closed: bool) -> Outcome<Value> {
    let closed = closed && !composes(schema);
    let mut writer = Writer {
        root: schema,
        closed,
        cost: Cost::default(),
        names: HashMap::new(),
        queue: VecDeque::new(),
    };
    let written = writer.schema(schema, "#")?;
    let mut root = match written {
        Value::Object(map) => map,
        Value::Bool(true) => Map::new(),
        _ => return refuse("#", "nothing fits the schema false"),
    };
    let mut defs = Map::new();
    while let Some((pointer, name)) = writer.queue.pop_front() {
        let target = writer.target(&pointer)?;
        let written = writer.schema(target, &pointer)?;
        defs.insert(name, written);
    }
    if !defs.is_empty() {
        root.insert("$defs".to_string(), Value::Object(defs));
    }
    let root_value = Value::Object(root);
    writer.cost.check_expansion(&root_value)?;
    let Value::Object(mut root) = root_value else {
        unreachable!()
    };
    root.insert("x-guidance".to_string(), compiler_options());
    Ok(Value::Object(root))
}

/// Closing objects changes what schemas mean that are put together of several.
fn composes(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => {
            let joined = ["anyOf", "oneOf", "$ref"]
                .iter()
                .any(|key| map.contains_key(*key));
            let object = ["properties", "required", "additionalProperties"]
                .iter()
                .any(|key| map.contains_key(*key));
            map.contains_key("allOf") || (joined && object) || map.values().any(composes)
        }
        Value::Array(items) => items.iter().any(composes),
        _ => false,
    }
}

struct Writer<'a> {
    root: &'a Value,
    closed: bool,
    cost: Cost,
    /// By the reference as it is written: the name under `$defs`.
    names: HashMap<String, String>,
    queue: VecDeque<(String, String)>,
}

impl<'a> Writer<'a> {
    fn schema(&mut self, schema: &Value, path: &str) -> Outcome<Value> {
        self.cost.add_schema(path)?;
        let map = match schema {
            Value::Bool(_) => return Ok(schema.clone()),
            Value::Object(map) => map,
            _ => return refuse(path, "is no schema; expected an object, true or false"),
        };
        for key in REFUSED {
            if map.contains_key(key) && !without_effect(map, key) {
                return refuse(path, format!("the keyword {key} is not supported"));
            }
        }
        if map.contains_key("x-guidance") {
            return refuse(path, "x-guidance is not taken");
        }
        let mut out = Map::new();
        for (key, value) in map {
            self.keyword(map, key, value, path, &mut out)?;
        }
        self.dependencies(map, path, &mut out)?;
        self.property_names(map, path, &mut out)?;
        let takes_others = out.contains_key("additionalProperties")
            || out.contains_key("patternProperties")
            || !out.contains_key("properties");
        if self.closed && !takes_others {
            out.insert("additionalProperties".to_string(), Value::Bool(false));
        }
        self.cost.add_object(&out, path)?;
        Ok(Value::Object(out))
    }

    fn keyword(
        &mut self,
        map: &Map<String, Value>,
        key: &str,
        value: &Value,
        path: &str,
        out: &mut Map<String, Value>,
    ) -> Outcome<()> {
        let here = format!("{path}/{key}");
        let written = match key {
            "properties" | "patternProperties" => self.schemas_by_name(value, &here)?,
            "additionalProperties" | "additionalItems" => self.schema(value, &here)?,
            "items" if value.is_array() => self.schemas(value, &here)?,
            "items" => self.schema(value, &here)?,
            "prefixItems" | "anyOf" => self.schemas(value, &here)?,
            "allOf" => {
                let Value::Array(parts) = self.schemas(value, &here)? else {
                    unreachable!()
                };
                for part in parts {
                    push_all_of(out, part);
                }
                return Ok(());
            }
            "oneOf" => {
                let options = self.schemas(value, &here)?;
                return one_of(options, out);
            }
            "$ref" => json!(self.reference(value, &here)?),
            "format" => return self.format(map, value, &here, out),
            _ if BOUNDS.contains(&key) => {
                let Some(bound) = check_numbers(key, value, &here)? else {
                    return Ok(());
                };
                bound
            }
            _ if PLAIN.contains(&key) => {
                let Some(plain) = self.cost.check_plain(key, value, &here)? else {
                    return Ok(());
                };
                plain
            }
            // Annotations, definitions that nothing has referred to yet, and unknown words, which
            // JSON Schema takes for annotations.
            _ => return Ok(()),
        };
        out.insert(key.to_string(), written);
        Ok(())
    }

    fn schemas(&mut self, value: &Value, path: &str) -> Outcome<Value> {
        let Value::Array(items) = value else {
            return refuse(path, "expected an array of schemas");
        };
        let written: Outcome<Vec<Value>> = items
            .iter()
            .enumerate()
            .map(|(i, item)| self.schema(item, &format!("{path}/{i}")))
            .collect();
        Ok(Value::Array(written?))
    }

    fn schemas_by_name(&mut self, value: &Value, path: &str) -> Outcome<Value> {
        let Value::Object(map) = value else {
            return refuse(path, "expected an object of schemas");
        };
        let mut out = Map::new();
        for (name, item) in map {
            let written = self.schema(item, &format!("{path}/{name}"))?;
            out.insert(name.clone(), written);
        }
        Ok(Value::Object(out))
    }

    /// The reference to the same schema among our own definitions.
    fn reference(&mut self, value: &Value, path: &str) -> Outcome<String> {
        let Some(reference) = value.as_str() else {
            return refuse(path, "expected a string");
        };
        if let Some(name) = self.names.get(reference) {
            return Ok(format!("#/$defs/{name}"));
        }
        self.cost.add_reference(self.names.len(), path)?;
        self.target(reference)
            .map_err(|error| Failure::invalid(format!("{path}: {}", error.message)))?;
        let name = format!("d{}", self.names.len());
        self.names.insert(reference.to_string(), name.clone());
        self.queue.push_back((reference.to_string(), name.clone()));
        Ok(format!("#/$defs/{name}"))
    }

    fn target(&self, reference: &str) -> Outcome<&'a Value> {
        let unknown = || {
            Failure::invalid(format!(
                "{reference} is not in this schema; expected #, #/a/path, #an_anchor or the $id of \
                 a part"
            ))
        };
        let (document, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let base = if document.is_empty() || id_of(self.root) == Some(document) {
            self.root
        } else {
            find(self.root, &|part| id_of(part) == Some(document)).ok_or_else(unknown)?
        };
        if fragment.is_empty() || fragment == "/" {
            return Ok(base);
        }
        let fragment = percent_decoded(fragment).ok_or_else(unknown)?;
        if fragment.starts_with('/') {
            return base.pointer(&fragment).ok_or_else(unknown);
        }
        let named = |part: &Value| {
            let word = |key: &str| part.get(key).and_then(Value::as_str);
            word("$anchor") == Some(&fragment) || word("$id") == Some(&format!("#{fragment}"))
        };
        find(base, &named).ok_or_else(unknown)
    }

    fn format(
        &mut self,
        map: &Map<String, Value>,
        value: &Value,
        path: &str,
        out: &mut Map<String, Value>,
    ) -> Outcome<()> {
        let Some(name) = value.as_str() else {
            return refuse(path, "expected a string");
        };
        match format_of(name) {
            Some(Format::Free) => {}
            Some(Format::Known(known)) => {
                out.insert("format".to_string(), json!(known));
            }
            Some(Format::Pattern(pattern)) if !map.contains_key("pattern") => {
                out.insert("pattern".to_string(), json!(pattern));
            }
            Some(Format::Pattern(pattern)) => push_all_of(out, json!({ "pattern": pattern })),
            None if takes_no_strings(map) => {}
            None => return refuse(path, format!("the format {name} is not supported")),
        }
        Ok(())
    }

    /// `dependentRequired`, `dependentSchemas` and draft 7's `dependencies`: either the property is
    /// absent, or what depends on it holds.
    fn dependencies(
        &mut self,
        map: &Map<String, Value>,
        path: &str,
        out: &mut Map<String, Value>,
    ) -> Outcome<()> {
        for key in ["dependentRequired", "dependentSchemas", "dependencies"] {
            let Some(value) = map.get(key) else { continue };
            let here = format!("{path}/{key}");
            let Value::Object(entries) = value else {
                return refuse(&here, "expected an object");
            };
            for (name, needed) in entries {
                let then = match needed {
                    Value::Array(names) => json!({ "required": names }),
                    _ => self.schema(needed, &format!("{here}/{name}"))?,
                };
                self.cost.add_schema(&here)?;
                let absent = json!({ "properties": { name: false } });
                push_all_of(out, json!({ "anyOf": [absent, then] }));
            }
        }
        Ok(())
    }

    /// Names of all properties fit a schema: of an object that lists none, that is the pattern of
    /// its properties.
    fn property_names(
        &mut self,
        map: &Map<String, Value>,
        path: &str,
        out: &mut Map<String, Value>,
    ) -> Outcome<()> {
        let Some(names) = map.get("propertyNames") else {
            return Ok(());
        };
        let here = format!("{path}/propertyNames");
        if names == &json!(true) || names == &json!({}) || names == &json!({ "type": "string" }) {
            return Ok(());
        }
        let pattern = match names {
            Value::Object(map) => match map.get("pattern") {
                Some(Value::String(pattern))
                    if map.len() == 1 || (map.len() == 2 && map.contains_key("type")) =>
                {
                    Some(pattern)
                }
                _ => None,
            },
            _ => None,
        };
        let lists = ["properties", "patternProperties", "required"]
            .iter()
            .any(|key| map.contains_key(*key));
        let Some(pattern) = pattern.filter(|_| !lists) else {
            return refuse(
                &here,
                "propertyNames is supported with a pattern alone, in objects that list no \
                 properties",
            );
        };
        let values = out.remove("additionalProperties").unwrap_or(json!(true));
        out.insert("patternProperties".to_string(), json!({ pattern: values }));
        out.insert("additionalProperties".to_string(), json!(false));
        Ok(())
    }
}

fn push_all_of(out: &mut Map<String, Value>, schema: Value) {
    match out.get_mut("allOf") {
        Some(Value::Array(all)) => all.push(schema),
        _ => {
            out.insert("allOf".to_string(), json!([schema]));
        }
    }
}

/// Keywords that say nothing with the value they have.
fn without_effect(map: &Map<String, Value>, key: &str) -> bool {
    let value = &map[key];
    match key {
        "uniqueItems" | "unevaluatedItems" | "unevaluatedProperties" => {
            value == &json!(key != "uniqueItems")
        }
        "not" => value == &json!(false),
        "if" => !map.contains_key("then") && !map.contains_key("else"),
        "then" | "else" => !map.contains_key("if"),
        "minContains" | "maxContains" => !map.contains_key("contains"),
        _ => false,
    }
}

fn takes_no_strings(map: &Map<String, Value>) -> bool {
    match map.get("type") {
        Some(Value::String(name)) => name != "string",
        Some(Value::Array(names)) => names.iter().all(|name| name != "string"),
        _ => false,
    }
}

/// The compiler has no "exactly one": it takes alternatives only where it can prove that no value
/// fits two. Two kinds that it cannot tell apart are told apart here: constants, and alternatives
/// that demand one property each.
fn one_of(options: Value, out: &mut Map<String, Value>) -> Outcome<()> {
    let Value::Array(mut list) = options else {
        unreachable!()
    };
    let mut constants: Vec<&Value> = Vec::new();
    let mut all_constant = true;
    for option in &list {
        match (option.get("const"), option.get("enum")) {
            (Some(value), None) => constants.push(value),
            (None, Some(Value::Array(values))) => constants.extend(values),
            _ => all_constant = false,
        }
    }
    let scalar = constants
        .iter()
        .all(|value| !value.is_array() && !value.is_object());
    if all_constant && scalar {
        let mut texts: Vec<String> = constants.iter().map(|value| value.to_string()).collect();
        let count = texts.len();
        texts.sort();
        texts.dedup();
        if texts.len() == count {
            push_all_of(out, json!({ "anyOf": list }));
            return Ok(());
        }
    }
    let needs: Option<Vec<String>> = list.iter().map(only_required).collect();
    if let Some(names) = needs.filter(|names| names.len() <= 16) {
        for (i, option) in list.iter_mut().enumerate() {
            let others = names.iter().enumerate().filter(|(j, _)| *j != i);
            let absent: Map<String, Value> = others
                .map(|(_, name)| (name.clone(), Value::Bool(false)))
                .collect();
            if !absent.contains_key(&names[i]) {
                option["properties"] = Value::Object(absent);
            }
        }
        push_all_of(out, json!({ "anyOf": list }));
        return Ok(());
    }
    out.insert("oneOf".to_string(), Value::Array(list));
    Ok(())
}

/// The name, when the schema says nothing but that one property is required.
fn only_required(option: &Value) -> Option<String> {
    let map = option.as_object()?;
    let typed = map.get("type").is_some_and(|name| name == "object");
    if map.len() != 1 + usize::from(typed) {
        return None;
    }
    match map.get("required")?.as_array()?.as_slice() {
        [Value::String(name)] => Some(name.clone()),
        _ => None,
    }
}

fn id_of(part: &Value) -> Option<&str> {
    let id = part.get("$id").or_else(|| part.get("id"))?.as_str()?;
    Some(id.trim_end_matches('#'))
}

fn find<'a>(value: &'a Value, wanted: &dyn Fn(&Value) -> bool) -> Option<&'a Value> {
    if wanted(value) {
        return Some(value);
    }
    match value {
        Value::Object(map) => map.values().find_map(|part| find(part, wanted)),
        Value::Array(items) => items.iter().find_map(|part| find(part, wanted)),
        _ => None,
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

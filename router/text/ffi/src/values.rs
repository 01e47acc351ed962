//! The variables of a chat template as the router writes them (router/text/chat_values.h): decoded
//! into values of the template engine. Maps are found in by the key that was sent, and show the key
//! with its marks (marks.rs): users name the arguments of their tools.

use std::collections::HashMap;
use std::sync::Arc;

use minijinja::value::{Enumerator, Object, ObjectRepr};
use minijinja::Value;

use crate::abi::{Failure, Outcome};
use crate::marks;

/// Deeper values than the router sends are refused, so that no call runs out of stack here.
const DEPTH_MAX: usize = 100;

/// A map whose keys may be users' strings.
#[derive(Debug)]
pub struct Map {
    keys: Vec<Value>,
    values: Vec<Value>,
    /// By the key without marks.
    places: HashMap<String, usize>,
}

impl Map {
    fn find(&self, key: &str) -> Option<Value> {
        let place = *self.places.get(marks::plain(key).as_ref())?;
        Some(self.values[place].clone())
    }
}

impl Object for Map {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.find(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        self.find(key)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.keys.clone())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.keys.len())
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

fn broken() -> Failure {
    Failure::invalid("the variables of the chat template are broken")
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Outcome<&'a [u8]> {
        if count > self.rest.len() {
            return Err(broken());
        }
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Outcome<usize> {
        let bytes = self.take(4)?;
        Ok(u32::from_ne_bytes(bytes.try_into().map_err(|_| broken())?) as usize)
    }

    fn text(&mut self) -> Outcome<&'a str> {
        let count = self.number()?;
        std::str::from_utf8(self.take(count)?)
            .map_err(|_| Failure::invalid("a string of the conversation is not valid UTF-8"))
    }

    /// Number of parts that follow, each of a byte or more.
    fn count(&mut self) -> Outcome<usize> {
        let count = self.number()?;
        if count > self.rest.len() {
            return Err(broken());
        }
        Ok(count)
    }

    fn value(&mut self, depth: usize) -> Outcome<Value> {
        if depth > DEPTH_MAX {
            return Err(broken());
        }
        Ok(match self.take(1)?[0] {
            b'n' => Value::from(()),
            b't' => Value::from(true),
            b'f' => Value::from(false),
            b'i' => self.integer()?,
            b'd' => Value::from(self.text()?.parse::<f64>().map_err(|_| broken())?),
            b's' => Value::from(self.text()?),
            b'l' => {
                let count = self.count()?;
                let items: Outcome<Vec<Value>> =
                    (0..count).map(|_| self.value(depth + 1)).collect();
                Value::from(items?)
            }
            b'm' => self.map(depth)?,
            _ => return Err(broken()),
        })
    }

    fn integer(&mut self) -> Outcome<Value> {
        let text = self.text()?;
        if let Ok(small) = text.parse::<i64>() {
            return Ok(Value::from(small));
        }
        text.parse::<u64>().map(Value::from).map_err(|_| broken())
    }

    fn map(&mut self, depth: usize) -> Outcome<Value> {
        let count = self.count()?;
        let mut map = Map {
            keys: Vec::with_capacity(count),
            values: Vec::with_capacity(count),
            places: HashMap::with_capacity(count),
        };
        for place in 0..count {
            let key = self.text()?;
            map.places.insert(marks::plain(key).into_owned(), place);
            map.keys.push(Value::from(key));
            map.values.push(self.value(depth + 1)?);
        }
        Ok(Value::from_object(map))
    }
}

/// The variables: a map at the top.
pub fn read(bytes: &[u8]) -> Outcome<Vec<(String, Value)>> {
    let mut reader = Reader { rest: bytes };
    if reader.take(1)? != b"m" {
        return Err(broken());
    }
    let count = reader.count()?;
    let mut variables = Vec::with_capacity(count);
    for _ in 0..count {
        let name = reader.text()?.to_string();
        variables.push((name, reader.value(0)?));
    }
    if !reader.rest.is_empty() {
        return Err(broken());
    }
    Ok(variables)
}

//! What a model's tokenizer may hold, checked before anything is built from it: a file decides how
//! much memory loading takes and how far its normalizer makes a text grow, and both are bounded here
//! by refusing files beyond what published ones need.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::Value;

use crate::abi::{Failure, Outcome};
use crate::bound::steps;

/// Published tokenizers have up to 10,000 added tokens of up to 60 bytes.
const ADDED_TOKENS_MAX: usize = 1 << 16;
const ADDED_TOKEN_BYTES_MAX: usize = 1024;
const ADDED_BYTES_MAX: usize = 1 << 20;
/// Bytes of each member that is not the model: some carry a character map or a long pattern.
const PART_BYTES_MAX: usize = 1 << 20;
const ADDED_JSON_BYTES_MAX: usize = 32 << 20;
const PATTERN_BYTES_MAX: usize = 4096;
const STEPS_MAX: usize = 32;
/// A normalizer's output over its input, in bytes. NFKC alone makes 11 of 1, lower case 2.
const GROWTH_MAX: usize = 32;

/// Added tokens, one after another.
#[derive(Default)]
pub struct AddedBudget {
    count: usize,
    bytes: usize,
}

impl AddedBudget {
    pub fn add(&mut self, token: &str) -> Outcome<()> {
        self.count += 1;
        self.bytes += token.len();
        let refuse = |what: String| Err(Failure::invalid(format!("added tokens: {what}")));
        if token.len() > ADDED_TOKEN_BYTES_MAX {
            return refuse(format!(
                "one has {} bytes; at most {ADDED_TOKEN_BYTES_MAX} are taken",
                token.len()
            ));
        }
        if self.count > ADDED_TOKENS_MAX {
            return refuse(format!("more than {ADDED_TOKENS_MAX}"));
        }
        if self.bytes > ADDED_BYTES_MAX {
            return refuse(format!("more than {ADDED_BYTES_MAX} bytes together"));
        }
        Ok(())
    }
}

/// Refuses a tokenizer.json by name whose parts are larger than any published one's. The factor by
/// which its normalizer may make a text grow.
pub fn check_json(json: &[u8]) -> Outcome<usize> {
    let broken = |error: serde_json::Error| Failure::invalid(error.to_string());
    let parts: BTreeMap<String, &RawValue> = serde_json::from_slice(json).map_err(broken)?;
    // The crate reads a member that is there twice two times; here only its last value is seen.
    let seen: usize = parts
        .iter()
        .map(|(name, part)| name.len() + part.get().len() + 64)
        .sum();
    if json.len() > seen + 4096 {
        return Err(Failure::invalid(
            "a member is there twice, or far too much white space",
        ));
    }
    let mut growth = 1;
    for (name, part) in &parts {
        let bytes = part.get().len();
        let bytes_max = match name.as_str() {
            "model" => continue,
            "added_tokens" => ADDED_JSON_BYTES_MAX,
            _ => PART_BYTES_MAX,
        };
        if bytes > bytes_max {
            return Err(Failure::invalid(format!(
                "{name} has {bytes} bytes; at most {bytes_max} are taken"
            )));
        }
        let in_part = |error: serde_json::Error| Failure::invalid(format!("{name}: {error}"));
        if name == "added_tokens" {
            check_added(part)?;
            continue;
        }
        // Nesting is bounded by serde_json, at 128.
        let value: Value = serde_json::from_str(part.get()).map_err(in_part)?;
        match name.as_str() {
            "normalizer" => growth = growth_of(value)?,
            "pre_tokenizer" => check_patterns(value)?,
            "post_processor" => check_templates(value)?,
            _ => {}
        }
    }
    Ok(growth)
}

fn check_added(part: &RawValue) -> Outcome<()> {
    let broken = |error: serde_json::Error| Failure::invalid(format!("added_tokens: {error}"));
    let mut budget = AddedBudget::default();
    let tokens: Vec<&RawValue> = serde_json::from_str(part.get()).map_err(broken)?;
    for token in tokens {
        let token: Value = serde_json::from_str(token.get()).map_err(broken)?;
        budget.add(token["content"].as_str().unwrap_or_default())?;
    }
    Ok(())
}

fn check_pattern(pattern: &Value) -> Outcome<()> {
    let bytes = pattern["Regex"]
        .as_str()
        .or(pattern["String"].as_str())
        .map_or(0, str::len);
    if bytes > PATTERN_BYTES_MAX {
        return Err(Failure::invalid(format!(
            "a pattern has {bytes} bytes; at most {PATTERN_BYTES_MAX} are taken"
        )));
    }
    Ok(())
}

fn steps_of(part: &str, list: &str, value: Value) -> Outcome<Vec<Value>> {
    let steps = steps(Ok(value), list)
        .ok_or_else(|| Failure::invalid(format!("{part}: a sequence without {list}")))?;
    if steps.len() > STEPS_MAX {
        return Err(Failure::invalid(format!(
            "{part} has {} steps; at most {STEPS_MAX} are taken",
            steps.len()
        )));
    }
    Ok(steps)
}

fn check_patterns(value: Value) -> Outcome<()> {
    for step in steps_of("pre_tokenizer", "pretokenizers", value)? {
        check_pattern(&step["pattern"])?;
    }
    Ok(())
}

/// A template's special tokens are among those that it explains: the crate panics at the first text
/// when one is not.
fn check_templates(value: Value) -> Outcome<()> {
    for step in steps_of("post_processor", "processors", value)? {
        for list in ["single", "pair"] {
            for piece in step[list].as_array().into_iter().flatten() {
                let Some(id) = piece["SpecialToken"]["id"].as_str() else {
                    continue;
                };
                if step["special_tokens"].get(id).is_none() {
                    return Err(Failure::invalid(format!(
                        "post_processor: {list} has the special token {id:?}, which special_tokens \
                         does not explain"
                    )));
                }
            }
        }
    }
    Ok(())
}

/// The product of what each step may do to the bytes of a text.
fn growth_of(value: Value) -> Outcome<usize> {
    let mut growth = 1usize;
    for step in steps_of("normalizer", "normalizers", value)? {
        let kind = step["type"].as_str().unwrap_or_default();
        let factor = match kind {
            "NFC" | "NFD" => 3,
            "NFKC" | "NFKD" => 11,
            "Lowercase" | "ByteLevel" => 2,
            // Chinese characters get blanks around them, letters lose accents by decomposition.
            "BertNormalizer" => 2 * 3 * 2,
            "Strip" | "StripAccents" | "Nmt" => 1,
            "Prepend" => 1 + step["prepend"].as_str().map_or(0, str::len),
            "Replace" => {
                check_pattern(&step["pattern"])?;
                let content = step["content"].as_str().map_or(0, str::len);
                match step["pattern"]["String"].as_str() {
                    Some(text) => content.div_ceil(text.len().max(1)).max(1),
                    // A regular expression may match at every byte, and nothing.
                    None => content + 1,
                }
            }
            _ => {
                return Err(Failure::invalid(format!(
                "normalizer {kind:?} is not supported: how much it makes a text grow is not known"
            )))
            }
        };
        growth = growth.saturating_mul(factor);
        if growth > GROWTH_MAX {
            return Err(Failure::invalid(format!(
                "normalizer: up to its step {kind} a text may grow {growth} times; at most \
                 {GROWTH_MAX} times are taken"
            )));
        }
    }
    Ok(growth)
}

extern "C" {
    // Of the Oniguruma library, which the tokenizers crate links.
    fn onig_set_match_stack_limit_size(entries: std::os::raw::c_uint) -> std::os::raw::c_int;
}

/// Places that the regular expression engine may keep to come back to, some 40 bytes each: two for
/// each byte of the longest text. Published patterns keep one for each character of a word, hostile
/// ones any number; those end with an error. `WORK_BYTES_PER_BYTE` of tokenizer.rs holds them.
const MATCH_STACK_MAX: std::os::raw::c_uint = 2 * (8 << 20);

/// Bounds the memory of regular expressions, once for the process.
pub fn bound_patterns() {
    // SAFETY: sets an integer that later searches read.
    unsafe { onig_set_match_stack_limit_size(MATCH_STACK_MAX) };
}

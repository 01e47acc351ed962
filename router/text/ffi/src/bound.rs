//! How many tokens a text has at least, known from its bytes alone: a prompt that cannot fit is
//! refused before the seconds that encoding megabytes takes.
//!
//! The bound is sound because it is only given where no counted byte can leave the text unseen:
//! every step before the model must be one that is known to drop nothing, and only bytes that have
//! a token of their own are counted (a BPE without an unknown token drops the others). Each counted
//! byte is then part of one token, and no token stands for more than `longest` bytes. Any other
//! pipeline (lower-casing, stripping, removing splits, fused unknown tokens) has no bound.

use serde_json::Value;
use tokenizers::models::bpe::BPE;
use tokenizers::{Model, ModelWrapper, Tokenizer};

use crate::decoder::{byte_of, Kind};

/// Canonical composition makes text shorter, at most 3.5 times (U+1FBE U+0308 U+0301, 7 bytes, are
/// U+0390, 2 bytes; tried for every character of Unicode).
const COMPOSITION_SHRINKS: usize = 4;

pub struct Bound {
    counted: [bool; 256],
    /// Bytes of text behind one token at most.
    longest: usize,
}

impl Bound {
    /// None when the tokenizer might drop bytes that would be counted. No token of the
    /// model stands for more than `longest` bytes of text.
    pub fn of(tokenizer: &Tokenizer, kind: Kind, mut longest: usize) -> Option<Bound> {
        let ModelWrapper::BPE(bpe) = tokenizer.get_model() else {
            return None;
        };
        // Affixes make other tokens of the same bytes.
        let affixed = |affix: &Option<String>| affix.as_ref().is_some_and(|a| !a.is_empty());
        if affixed(&bpe.continuing_subword_prefix) || affixed(&bpe.end_of_word_suffix) {
            return None;
        }
        let normalizers = serde_json::to_value(tokenizer.get_normalizer());
        let shrinks = shrinks(&steps(normalizers, "normalizers")?, kind)?;
        let pre_tokenizers = serde_json::to_value(tokenizer.get_pre_tokenizer());
        let pre_tokenizers = steps(pre_tokenizers, "pretokenizers")?;
        if !pre_tokenizers.iter().all(|step| keeps_bytes(step, kind)) {
            return None;
        }
        let into_alphabet = pre_tokenizers.iter().filter(|s| s["type"] == "ByteLevel");
        let alphabets = into_alphabet.count();
        let counted = match kind {
            Kind::ByteLevel if alphabets == 1 => counted_bytes(bpe),
            Kind::SentencePiece if has_all_byte_tokens(bpe) => [true; 256],
            _ => return None,
        };
        // Composition makes bytes that were not in the text: then all must be counted alike.
        if shrinks > 1 && counted.contains(&false) {
            return None;
        }
        for token in tokenizer.get_added_tokens_decoder().values() {
            // These swallow any amount of white space beside them.
            if token.lstrip || token.rstrip {
                return None;
            }
            // Composition may also make a written form longer, at most three times.
            let written = token.content.len() * if shrinks > 1 { 3 } else { 1 };
            longest = longest.max(written);
        }
        Some(Bound {
            counted,
            longest: longest.max(1) * shrinks,
        })
    }

    pub fn tokens_min(&self, text: &[u8]) -> usize {
        let counted = text.iter().filter(|b| self.counted[**b as usize]).count();
        counted.div_ceil(self.longest)
    }
}

/// The steps of a normalizer, pre-tokenizer or post-processor in its serialised form (its fields are
/// private); null is none. A sequence holds its steps, which may be sequences, under `list`.
pub fn steps(value: serde_json::Result<Value>, list: &str) -> Option<Vec<Value>> {
    let value = value.ok()?;
    if value.is_null() {
        return Some(Vec::new());
    }
    if value["type"] != "Sequence" {
        return Some(vec![value]);
    }
    let mut flat = Vec::new();
    for step in value[list].as_array()? {
        flat.extend(steps(Ok(step.clone()), list)?);
    }
    Some(flat)
}

/// How many times shorter the normalizers can make a text; None when that is not known.
fn shrinks(normalizers: &[Value], kind: Kind) -> Option<usize> {
    let mut factor = 1;
    for step in normalizers {
        match step["type"].as_str()? {
            "NFC" => factor *= COMPOSITION_SHRINKS,
            // SentencePiece's blank, three bytes for one: with byte-level BPE other bytes than the
            // counted ones.
            "Prepend" if kind == Kind::SentencePiece => {}
            "Replace"
                if kind == Kind::SentencePiece
                    && step["pattern"]["String"] == " "
                    && step["content"] == "\u{2581}" => {}
            _ => return None,
        }
    }
    Some(factor)
}

/// True for steps that cut and replace without dropping anything.
fn keeps_bytes(step: &Value, kind: Kind) -> bool {
    match step["type"].as_str() {
        Some("ByteLevel" | "Digits") => true,
        Some("Metaspace") => kind == Kind::SentencePiece,
        Some("Split" | "Punctuation") => {
            step["behavior"].is_string() && step["behavior"] != "Removed"
        }
        _ => false,
    }
}

/// Bytes whose character of the byte alphabet is a token.
fn counted_bytes(bpe: &BPE) -> [bool; 256] {
    let mut counted = [false; 256];
    for c in (0..=0x143).filter_map(char::from_u32) {
        if let Some(byte) = byte_of(c) {
            counted[byte as usize] = bpe.token_to_id(&c.to_string()).is_some();
        }
    }
    counted
}

/// True when no character is unknown: what has no token becomes one for each of its bytes.
pub fn has_all_byte_tokens(bpe: &BPE) -> bool {
    bpe.byte_fallback && (0..=255).all(|b| bpe.token_to_id(&format!("<0x{b:02X}>")).is_some())
}

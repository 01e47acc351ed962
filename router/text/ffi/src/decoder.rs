//! What a tokenizer's decoder means for the bytes of each token. Decoding itself is done in C++ on
//! those bytes, so only decoders that work token by token are accepted; any other is refused by
//! name rather than decoded nearly right.

use serde_json::Value;
use tokenizers::DecoderWrapper;

use crate::abi::{Failure, Outcome};

/// `WeftDecoderKind` of weft_text.h.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    ByteLevel = 0,
    SentencePiece = 1,
}

#[derive(Debug, PartialEq)]
pub struct Decoder {
    pub kind: Kind,
    pub byte_fallback: bool,
    pub strip_leading_blank: bool,
}

const BLANK: &str = "\u{2581}";
const KNOWN: &str = "known are ByteLevel and the SentencePiece form: Sequence of \
                     Replace(U+2581, blank), ByteFallback, Fuse, Strip(blank, 1, 0)";

/// The meaning of `decoder`, read from its serialised form (its fields are private).
pub fn understand(decoder: Option<&DecoderWrapper>) -> Outcome<Decoder> {
    let Some(decoder) = decoder else {
        return Err(Failure::invalid(format!("decoder: none is given; {KNOWN}")));
    };
    let value = serde_json::to_value(decoder)
        .map_err(|error| Failure::invalid(format!("decoder: {error}")))?;
    let steps: Vec<&Value> = match value["type"].as_str() {
        Some("Sequence") => value["decoders"].as_array().into_iter().flatten().collect(),
        _ => vec![&value],
    };
    let names: Vec<&str> = steps
        .iter()
        .map(|s| s["type"].as_str().unwrap_or("?"))
        .collect();
    if names == ["ByteLevel"] {
        return Ok(Decoder {
            kind: Kind::ByteLevel,
            byte_fallback: false,
            strip_leading_blank: false,
        });
    }

    let understood = Decoder {
        kind: Kind::SentencePiece,
        byte_fallback: names.contains(&"ByteFallback"),
        strip_leading_blank: names.contains(&"Strip"),
    };
    // Strip works on the whole text only behind Fuse.
    let order = ["Replace", "ByteFallback", "Fuse", "Strip"];
    let places: Vec<Option<usize>> = names
        .iter()
        .map(|name| order.iter().position(|known| known == name))
        .collect();
    let in_order = places.iter().all(Option::is_some) && places.windows(2).all(|w| w[0] < w[1]);
    let right = steps.iter().all(|step| match step["type"].as_str() {
        Some("Replace") => step["pattern"]["String"] == BLANK && step["content"] == " ",
        Some("Strip") => step["content"] == " " && step["start"] == 1 && step["stop"] == 0,
        _ => true,
    });
    let complete = names.first() == Some(&"Replace")
        && (!understood.strip_leading_blank || names.contains(&"Fuse"));
    if in_order && right && complete {
        return Ok(understood);
    }
    let shown: String = value.to_string().chars().take(300).collect();
    Err(Failure::invalid(format!(
        "decoder {} is not supported: {shown}; {KNOWN}",
        names.join("+")
    )))
}

/// GPT-2's byte alphabet: the byte behind each of its 256 characters, none elsewhere.
pub fn byte_of(c: char) -> Option<u8> {
    // Printable Latin-1 stands for itself; the other bytes follow from U+0100 in ascending order.
    let plain = |b: u32| matches!(b, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    let code = c as u32;
    match code {
        _ if plain(code) => Some(code as u8),
        0x100..=0x120 => Some((code - 0x100) as u8),
        0x121..=0x142 => Some((code - 0x121 + 0x7F) as u8),
        0x143 => Some(0xAD),
        _ => None,
    }
}

impl Decoder {
    /// Appends the bytes of `token` alone.
    pub fn append_bytes(&self, token: &str, out: &mut Vec<u8>) {
        match self.kind {
            Kind::ByteLevel => {
                let start = out.len();
                for c in token.chars() {
                    match byte_of(c) {
                        Some(byte) => out.push(byte),
                        None => {
                            // Added tokens are written as they are, not in the alphabet.
                            out.truncate(start);
                            out.extend_from_slice(token.as_bytes());
                            return;
                        }
                    }
                }
            }
            Kind::SentencePiece => {
                let hex = token
                    .strip_prefix("<0x")
                    .and_then(|rest| rest.strip_suffix('>'));
                let byte = hex
                    .filter(|hex| self.byte_fallback && hex.len() == 2)
                    .and_then(|hex| u8::from_str_radix(hex, 16).ok());
                match byte {
                    Some(byte) => out.push(byte),
                    None => out.extend_from_slice(token.replace(BLANK, " ").as_bytes()),
                }
            }
        }
    }
}

//! A SentencePiece BPE from the pieces and scores that GGUF files hold instead of merges: the
//! pipeline that transformers makes of such models.

use ahash::AHashMap;
use serde_json::json;
use tokenizers::models::bpe::BPE;
use tokenizers::{AddedToken, DecoderWrapper, NormalizerWrapper, Tokenizer};

use crate::abi::{borrow, Failure, Outcome, Slice};
use crate::bpe::{CACHED_WORDS_MAX, TOKEN_CONTROL, TOKEN_USER_DEFINED};
use crate::load::AddedBudget;

/// `WeftPieces` of weft_text.h.
#[repr(C)]
pub struct Pieces {
    tokens: *const Slice,
    token_kinds: *const u8,
    scores: *const f32,
    token_count: usize,
    unknown: u32,
    blank_first: bool,
}

/// Every way to cut a piece in two is tried; published ones have up to some 200 bytes.
const PIECE_BYTES_MAX: usize = 1024;

/// What a `Pieces` points to, as texts.
pub struct Parts<'a> {
    pub tokens: Vec<&'a str>,
    kinds: &'a [u8],
    scores: &'a [f32],
    unknown: u32,
    blank_first: bool,
}

impl Pieces {
    /// # Safety
    /// The pointers must be valid for the count as long as the result is used.
    pub unsafe fn read<'a>(&self) -> Outcome<Parts<'a>> {
        // SAFETY: the caller's promise, for all three.
        unsafe {
            let tokens = borrow(self.tokens, self.token_count).iter();
            Ok(Parts {
                tokens: tokens
                    .map(|token| token.text("a token of tokenizer.ggml.tokens"))
                    .collect::<Outcome<_>>()?,
                kinds: borrow(self.token_kinds, self.token_count),
                scores: borrow(self.scores, self.token_count),
                unknown: self.unknown,
                blank_first: self.blank_first,
            })
        }
    }
}

impl Parts<'_> {
    /// A text's normalizer makes it at most so many times longer.
    pub fn growth(&self) -> usize {
        if self.blank_first {
            4 * 3
        } else {
            3
        }
    }

    /// Pairs of pieces that make a piece, best first, as transformers' generate_merges has them:
    /// higher scores, then longer first and second parts.
    fn merges(&self, ids: &AHashMap<&str, u32>) -> Outcome<Vec<(String, String)>> {
        let mut found: Vec<(f32, usize, usize, &str, &str)> = Vec::new();
        for (id, piece) in self.tokens.iter().enumerate() {
            if piece.len() > PIECE_BYTES_MAX {
                return Err(Failure::invalid(format!(
                    "tokenizer.ggml.tokens: one has {} bytes; at most {PIECE_BYTES_MAX} are taken",
                    piece.len()
                )));
            }
            if self.kinds[id] == TOKEN_CONTROL || self.scores[id].is_nan() {
                continue;
            }
            let first = found.len();
            for (at, _) in piece.char_indices().skip(1) {
                let (left, right) = piece.split_at(at);
                if ids.contains_key(left) && ids.contains_key(right) {
                    let lengths = (left.chars().count(), right.chars().count());
                    found.push((self.scores[id], lengths.0, lengths.1, left, right));
                }
            }
            found[first..].sort_by_key(|merge| (ids[merge.3], ids[merge.4]));
        }
        // Stable: what is equal stays in the order of ids.
        found.sort_by(|a, b| b.0.total_cmp(&a.0).then((b.1, b.2).cmp(&(a.1, a.2))));
        Ok(found
            .into_iter()
            .map(|(_, _, _, left, right)| (left.to_string(), right.to_string()))
            .collect())
    }
}

fn broken(error: serde_json::Error) -> Failure {
    Failure::invalid(error.to_string())
}

fn normalizer(blank_first: bool) -> Outcome<NormalizerWrapper> {
    let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"});
    if !blank_first {
        return serde_json::from_value(replace).map_err(broken);
    }
    let prepend = json!({"type": "Prepend", "prepend": "\u{2581}"});
    serde_json::from_value(json!({"type": "Sequence", "normalizers": [prepend, replace]}))
        .map_err(broken)
}

fn decoder(blank_first: bool) -> Outcome<DecoderWrapper> {
    let mut steps = vec![
        json!({"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if blank_first {
        steps.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    serde_json::from_value(json!({"type": "Sequence", "decoders": steps})).map_err(broken)
}

/// Everything but the post-processor: BOS and EOS of GGUF files are added by the caller.
pub fn build(parts: &Parts) -> Outcome<Tokenizer> {
    let mut ids = AHashMap::with_capacity(parts.tokens.len());
    let mut added = Vec::new();
    let mut budget = AddedBudget::default();
    for (id, token) in parts.tokens.iter().enumerate() {
        if matches!(parts.kinds[id], TOKEN_CONTROL | TOKEN_USER_DEFINED) {
            budget.add(token)?;
            let special = parts.kinds[id] == TOKEN_CONTROL;
            added.push(AddedToken::from(*token, special).normalized(false));
        }
        if let Some(first) = ids.insert(*token, id as u32) {
            return Err(Failure::invalid(format!(
                "tokenizer.ggml.tokens has {token:?} twice, as {first} and {id}"
            )));
        }
    }
    let merges = parts.merges(&ids)?;
    let vocab: AHashMap<String, u32> = ids.iter().map(|(t, id)| (t.to_string(), *id)).collect();
    let failed = |error: tokenizers::Error| Failure::invalid(error.to_string());
    let mut model = BPE::builder()
        .vocab_and_merges(vocab, merges)
        .byte_fallback(true)
        .fuse_unk(true)
        .cache_capacity(CACHED_WORDS_MAX);
    if let Some(unknown) = parts.tokens.get(parts.unknown as usize) {
        model = model.unk_token(unknown.to_string());
    }
    let mut tokenizer = Tokenizer::new(model.build().map_err(failed)?);
    tokenizer
        .with_normalizer(Some(normalizer(parts.blank_first)?))
        .map_err(failed)?;
    tokenizer.with_decoder(Some(decoder(parts.blank_first)?));
    tokenizer.add_tokens(added).map_err(failed)?;
    Ok(tokenizer)
}

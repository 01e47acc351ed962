//! A byte-level BPE tokenizer from a vocabulary and merges as GGUF files hold them, and the table of
//! pre-tokenizers behind `tokenizer.ggml.pre`.

use ahash::AHashMap;
use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::unicode::NFC;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::punctuation::Punctuation;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::{AddedToken, NormalizerWrapper, SplitDelimiterBehavior, Tokenizer};

use crate::abi::{borrow, Failure, Outcome, Slice};
use crate::load::AddedBudget;

/// `WeftBpe` of weft_text.h.
#[repr(C)]
pub struct Bpe {
    tokens: *const Slice,
    token_kinds: *const u8,
    token_count: usize,
    merges: *const Slice,
    merge_count: usize,
    pre: Slice,
}

// `WeftTokenKind` of weft_text.h.
pub const TOKEN_CONTROL: u8 = 1;
pub const TOKEN_USER_DEFINED: u8 = 2;

/// Words whose ids each thread keeps, up to 8 KB each: users choose them, and the crate's own 10,000
/// would hold 80 MB a thread for good.
pub const CACHED_WORDS_MAX: usize = 2048;

/// How text is cut before BPE: the differences between the published byte-level tokenizers.
struct Pre {
    names: &'static [&'static str],
    build: fn() -> tokenizers::Result<Vec<PreTokenizerWrapper>>,
    /// A piece that is a token as a whole is taken without merging.
    ignore_merges: bool,
    /// Canonical composition before everything else.
    nfc: bool,
}

/// The pattern of Llama 3 and Qwen 2, which differ in how many digits one piece may have.
macro_rules! words_and_digits {
    ($digits:literal) => {
        concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|",
            $digits,
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
    };
}
pub const LLAMA3: &str = words_and_digits!(r"\p{N}{1,3}");
pub const QWEN2: &str = words_and_digits!(r"\p{N}");
/// BLOOM's: what is neither white space nor its punctuation.
const BLOOM: &str = r" ?[^(\s|[.,!?…。，、।۔،])]+";

const PRES: &[Pre] = &[
    Pre {
        names: &["smollm", "starcoder", "refact", "command-r"],
        build: || Ok(vec![Digits::new(true).into(), byte_level(true)]),
        ignore_merges: false,
        nfc: false,
    },
    Pre {
        names: &["gpt-2", "mpt"],
        build: || Ok(vec![byte_level(true)]),
        ignore_merges: false,
        nfc: false,
    },
    Pre {
        names: &["falcon"],
        build: || {
            Ok(vec![
                Punctuation::new(SplitDelimiterBehavior::Contiguous).into(),
                byte_level(true),
                split("[0-9][0-9][0-9]")?,
            ])
        },
        ignore_merges: false,
        nfc: false,
    },
    Pre {
        names: &["bloom"],
        build: || Ok(vec![split(BLOOM)?, byte_level(false)]),
        ignore_merges: false,
        nfc: false,
    },
    Pre {
        names: &["llama-bpe"],
        build: || Ok(vec![split(LLAMA3)?, byte_level(false)]),
        ignore_merges: true,
        nfc: false,
    },
    Pre {
        names: &["qwen2", "stablelm2"],
        build: || Ok(vec![split(QWEN2)?, byte_level(false)]),
        ignore_merges: false,
        nfc: true,
    },
];

fn byte_level(use_regex: bool) -> PreTokenizerWrapper {
    ByteLevel::new(false, true, use_regex).into()
}

fn split(regex: &str) -> tokenizers::Result<PreTokenizerWrapper> {
    let pattern = SplitPattern::Regex(regex.to_string());
    Ok(Split::new(pattern, SplitDelimiterBehavior::Isolated, false)?.into())
}

fn find_pre(name: &str) -> Outcome<&'static Pre> {
    PRES.iter()
        .find(|pre| pre.names.contains(&name))
        .ok_or_else(|| {
            let known: Vec<&str> = PRES
                .iter()
                .flat_map(|pre| pre.names.iter().copied())
                .collect();
            Failure::invalid(format!(
                "tokenizer.ggml.pre is {name:?}, which is not known here; known are {}",
                known.join(", ")
            ))
        })
}

/// What a `Bpe` points to, as texts.
pub struct Parts<'a> {
    pub tokens: Vec<&'a str>,
    kinds: &'a [u8],
    merges: &'a [Slice],
    pre: &'a str,
}

impl Bpe {
    /// # Safety
    /// The pointers must be valid for their counts as long as the result is used.
    pub unsafe fn read<'a>(&self) -> Outcome<Parts<'a>> {
        // SAFETY: the caller's promise, for all four.
        unsafe {
            let tokens = borrow(self.tokens, self.token_count).iter();
            Ok(Parts {
                tokens: tokens
                    .map(|token| token.text("a token of tokenizer.ggml.tokens"))
                    .collect::<Outcome<_>>()?,
                kinds: borrow(self.token_kinds, self.token_count),
                merges: borrow(self.merges, self.merge_count),
                pre: self.pre.text("tokenizer.ggml.pre")?,
            })
        }
    }
}

/// The two tokens of a merge.
fn read_merge(slice: &Slice) -> Outcome<(String, String)> {
    // SAFETY: part of what `Bpe::read` was promised.
    let merge = unsafe { slice.text("a merge of tokenizer.ggml.merges")? };
    // The first token may itself begin with a blank, so one at byte 0 never parts them.
    match merge.bytes().skip(1).position(|byte| byte == b' ') {
        Some(at) => Ok((merge[..at + 1].to_string(), merge[at + 2..].to_string())),
        None => Err(Failure::invalid(format!(
            "tokenizer.ggml.merges has {merge:?}; expected two tokens with a blank between"
        ))),
    }
}

/// Everything but the post-processor: BOS and EOS of GGUF files are added by the caller.
pub fn build(parts: &Parts) -> Outcome<Tokenizer> {
    let pre = find_pre(parts.pre)?;
    let mut vocab = AHashMap::with_capacity(parts.tokens.len());
    let mut added = Vec::new();
    let mut budget = AddedBudget::default();
    for (id, token) in parts.tokens.iter().enumerate() {
        if matches!(parts.kinds[id], TOKEN_CONTROL | TOKEN_USER_DEFINED) {
            budget.add(token)?;
            let special = parts.kinds[id] == TOKEN_CONTROL;
            added.push(AddedToken::from(*token, special).normalized(false));
        }
        if let Some(first) = vocab.insert(token.to_string(), id as u32) {
            return Err(Failure::invalid(format!(
                "tokenizer.ggml.tokens has {token:?} twice, as {first} and {id}"
            )));
        }
    }
    let merges = parts
        .merges
        .iter()
        .map(read_merge)
        .collect::<Outcome<_>>()?;

    let failed = |error: tokenizers::Error| Failure::invalid(error.to_string());
    let model = BPE::builder()
        .vocab_and_merges(vocab, merges)
        .ignore_merges(pre.ignore_merges)
        .cache_capacity(CACHED_WORDS_MAX)
        .build()
        .map_err(|error| Failure::invalid(format!("tokenizer.ggml.merges: {error}")))?;
    let mut tokenizer = Tokenizer::new(model);
    if pre.nfc {
        tokenizer
            .with_normalizer(Some(NormalizerWrapper::NFC(NFC)))
            .map_err(failed)?;
    }
    let steps = (pre.build)().map_err(failed)?;
    tokenizer.with_pre_tokenizer(Some(Sequence::new(steps)));
    tokenizer.with_decoder(Some(ByteLevel::new(false, true, true)));
    tokenizer.add_tokens(added).map_err(failed)?;
    Ok(tokenizer)
}

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

/// `WeftBpe` of weft_text.h.
#[repr(C)]
pub struct Bpe {
    tokens: *const Slice,
    token_kinds: *const u8,
    pub token_count: usize,
    merges: *const Slice,
    merge_count: usize,
    pre: Slice,
}

// `WeftTokenKind` of weft_text.h.
const TOKEN_CONTROL: u8 = 1;
const TOKEN_USER_DEFINED: u8 = 2;

/// How text is cut before BPE: the differences between the published byte-level tokenizers.
struct Pre {
    names: &'static [&'static str],
    build: fn() -> tokenizers::Result<Vec<PreTokenizerWrapper>>,
    /// A piece that is a token as a whole is taken without merging.
    ignore_merges: bool,
    /// Canonical composition before everything else.
    nfc: bool,
}

// \p{N}{1,3} and \p{N} are all that differs between the patterns of Llama 3 and of Qwen 2.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

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
        names: &["llama-bpe"],
        build: || Ok(vec![split(LLAMA3)?, byte_level(false)]),
        ignore_merges: true,
        nfc: false,
    },
    Pre {
        names: &["qwen2"],
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

/// Everything but the post-processor: BOS and EOS of GGUF files are added by the caller.
///
/// # Safety
/// The pointers of `bpe` must be valid for their counts.
pub unsafe fn build(bpe: &Bpe) -> Outcome<Tokenizer> {
    // SAFETY: the caller's promise, here and for each slice below.
    let slices = unsafe { borrow(bpe.tokens, bpe.token_count) };
    let kinds = unsafe { borrow(bpe.token_kinds, bpe.token_count) };
    let merges = unsafe { borrow(bpe.merges, bpe.merge_count) };
    let pre = find_pre(unsafe { bpe.pre.text("tokenizer.ggml.pre")? })?;

    let mut vocab = AHashMap::with_capacity(slices.len());
    let mut added = Vec::new();
    for (id, slice) in slices.iter().enumerate() {
        let token = unsafe { slice.text("a token of tokenizer.ggml.tokens")? };
        if kinds[id] == TOKEN_CONTROL || kinds[id] == TOKEN_USER_DEFINED {
            let special = kinds[id] == TOKEN_CONTROL;
            added.push(AddedToken::from(token, special).normalized(false));
        }
        if let Some(first) = vocab.insert(token.to_string(), id as u32) {
            return Err(Failure::invalid(format!(
                "tokenizer.ggml.tokens has {token:?} twice, as {first} and {id}"
            )));
        }
    }

    let mut pairs = Vec::with_capacity(merges.len());
    for slice in merges {
        let merge = unsafe { slice.text("a merge of tokenizer.ggml.merges")? };
        // The first half may itself begin with a blank, so the blank at byte 0 never parts them.
        let cut = merge
            .char_indices()
            .skip(1)
            .find(|(_, c)| *c == ' ')
            .map(|(at, _)| at);
        let cut = cut.ok_or_else(|| {
            Failure::invalid(format!(
                "tokenizer.ggml.merges has {merge:?}: expected two tokens"
            ))
        })?;
        pairs.push((merge[..cut].to_string(), merge[cut + 1..].to_string()));
    }

    let failed = |error: tokenizers::Error| Failure::invalid(error.to_string());
    let model = BPE::builder()
        .vocab_and_merges(vocab, pairs)
        .ignore_merges(pre.ignore_merges)
        .build()
        .map_err(failed)?;
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

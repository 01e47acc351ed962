//! Entry points of the tokenizer: from tokenizer.json or a BPE vocabulary, encode, and the table of
//! the bytes behind all ids.

use std::sync::atomic::AtomicBool;

use tokenizers::{ModelWrapper, Tokenizer};

use crate::abi::{borrow, give, guard, take_back, Failure, Outcome, Slice, Status, Text};
use crate::bound::Bound;
use crate::bpe::{self, Bpe};
use crate::decoder::{self, Decoder, Kind};
use crate::encode::{Encoder, End, Options};
use crate::load;
use crate::pieces::{self, Pieces};

/// `WeftTokenizer` of weft_text.h.
pub struct Handle {
    tokenizer: Tokenizer,
    encoder: Encoder,
    decoder: Decoder,
    /// None: nothing is known.
    bound: Option<Bound>,
    /// The normalizer makes a text at most so many times longer.
    growth: usize,
    /// Bytes of all tokens one after another; token i is [starts[i], starts[i + 1]).
    bytes: Vec<u8>,
    starts: Vec<u32>,
    /// 1 = special.
    specials: Vec<u8>,
}

impl Handle {
    /// `tokens` gives the written form of id 0, 1, ..., None in a gap.
    fn new<T: AsRef<str>>(
        tokenizer: Tokenizer,
        growth: usize,
        tokens: impl ExactSizeIterator<Item = Option<T>>,
    ) -> Outcome<*mut Handle> {
        load::bound_patterns();
        let decoder = decoder::understand(tokenizer.get_decoder())?;
        let encoder = Encoder::of(&tokenizer)?;
        let mut bytes = Vec::with_capacity(8 * tokens.len());
        let mut starts = Vec::with_capacity(tokens.len() + 1);
        let mut specials = vec![0; tokens.len()];
        for (id, token) in &tokenizer.get_added_tokens_decoder() {
            specials[*id as usize] = u8::from(token.special);
        }
        starts.push(0);
        let mut longest = 0;
        for token in tokens {
            if let Some(token) = token {
                let start = bytes.len();
                decoder.append_bytes(token.as_ref(), &mut bytes);
                longest = longest.max(match decoder.kind {
                    Kind::ByteLevel => bytes.len() - start,
                    // A text may hold the three bytes of SentencePiece's blank itself.
                    Kind::SentencePiece => token.as_ref().len(),
                });
            }
            starts.push(bytes.len() as u32);
        }
        let bound = Bound::of(&tokenizer, decoder.kind, longest);
        Ok(Box::into_raw(Box::new(Handle {
            tokenizer,
            encoder,
            decoder,
            bound,
            growth,
            bytes,
            starts,
            specials,
        })))
    }
}

fn from_json(json: &[u8], ids_max: u32) -> Outcome<*mut Handle> {
    let failed = |error: tokenizers::Error| Failure::invalid(error.to_string());
    let growth = load::check_json(json)?;
    let mut tokenizer = Tokenizer::from_bytes(json).map_err(failed)?;
    // Left over from training in some published files; a prompt is never cut or filled up here.
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None).map_err(failed)?;
    if let ModelWrapper::BPE(bpe) = tokenizer.get_model() {
        let mut bpe = bpe.clone();
        bpe.resize_cache(bpe::CACHED_WORDS_MAX);
        tokenizer.with_model(bpe);
    }
    let largest = tokenizer.get_vocab(true).into_values().max();
    let Some(largest) = largest.filter(|id| *id < ids_max) else {
        let found = largest.map_or("no token".to_string(), |id| format!("token id {id}"));
        return Err(Failure::invalid(format!(
            "{found}; expected ids below {ids_max}"
        )));
    };
    let tokens: Vec<Option<String>> = (0..=largest).map(|id| tokenizer.id_to_token(id)).collect();
    Handle::new(tokenizer, growth, tokens.iter().map(Option::as_ref))
}

/// # Safety
/// See weft_text.h: `json` valid, `out` and `error` writable.
#[no_mangle]
pub unsafe extern "C" fn weft_tokenizer_from_json(
    json: Slice,
    ids_max: u32,
    out: *mut *mut Handle,
    error: *mut Text,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { guard(out, error, || from_json(json.bytes(), ids_max)) }
}

/// # Safety
/// See weft_text.h: `pieces` and all it points to valid, `out` and `error` writable.
#[no_mangle]
pub unsafe extern "C" fn weft_tokenizer_from_pieces(
    pieces: *const Pieces,
    out: *mut *mut Handle,
    error: *mut Text,
) -> Status {
    let body = || {
        // SAFETY: the caller's promise.
        let parts = unsafe { (*pieces).read()? };
        let tokenizer = pieces::build(&parts)?;
        Handle::new(tokenizer, parts.growth(), parts.tokens.iter().map(Some))
    };
    // SAFETY: the caller's promise.
    unsafe { guard(out, error, body) }
}

/// # Safety
/// See weft_text.h: `bpe` and all it points to valid, `out` and `error` writable.
#[no_mangle]
pub unsafe extern "C" fn weft_tokenizer_from_bpe(
    bpe: *const Bpe,
    out: *mut *mut Handle,
    error: *mut Text,
) -> Status {
    let body = || {
        // SAFETY: the caller's promise.
        let parts = unsafe { (*bpe).read()? };
        let tokenizer = bpe::build(&parts)?;
        // Composition is the only normalizer here.
        let growth = if tokenizer.get_normalizer().is_some() {
            3
        } else {
            1
        };
        Handle::new(tokenizer, growth, parts.tokens.iter().map(Some))
    };
    // SAFETY: the caller's promise.
    unsafe { guard(out, error, body) }
}

/// # Safety
/// `handle` is null or from this library, and not used again.
#[no_mangle]
pub unsafe extern "C" fn weft_tokenizer_free(handle: *mut Handle) {
    if !handle.is_null() {
        // SAFETY: made by Box::into_raw above.
        drop(unsafe { Box::from_raw(handle) });
    }
}

/// `WeftEncodeOptions` of weft_text.h.
#[repr(C)]
pub struct EncodeOptions {
    breaks: *const u32,
    break_count: usize,
    tokens_max: usize,
    piece_bytes: usize,
    cancelled: *const bool,
    add_special_tokens: bool,
    control_tokens: bool,
    offsets: bool,
}

/// `WeftEncoding` of weft_text.h.
#[repr(C)]
pub struct Encoding {
    ids: *mut u32,
    offsets: *mut u32,
    count: usize,
    offset_count: usize,
}

/// # Safety
/// See weft_text.h: `handle` from this library, `text` and `options` valid, `out` and `error`
/// writable.
#[no_mangle]
pub unsafe extern "C" fn weft_tokenizer_encode(
    handle: *const Handle,
    text: Slice,
    options: *const EncodeOptions,
    out: *mut Encoding,
    error: *mut Text,
) -> Status {
    let mut ended = Status::Ok;
    let body = || {
        // SAFETY: the caller's promise, for all pointers; the flag is a C++ atomic, of one byte.
        let (text, given, handle) = unsafe { (text.text("text")?, &*options, &*handle) };
        let options = unsafe {
            Options {
                add_special_tokens: given.add_special_tokens,
                control_tokens: given.control_tokens,
                offsets: given.offsets,
                breaks: borrow(given.breaks, given.break_count),
                tokens_max: given.tokens_max,
                piece_bytes: given.piece_bytes,
                cancelled: (!given.cancelled.is_null())
                    .then(|| AtomicBool::from_ptr(given.cancelled.cast_mut())),
            }
        };
        let empty = |count| Encoding {
            ids: std::ptr::null_mut(),
            offsets: std::ptr::null_mut(),
            count,
            offset_count: 0,
        };
        match handle.encoder.encode(&handle.tokenizer, text, &options) {
            Ok((ids, offsets)) => {
                let (ids, count) = give(ids);
                let (offsets, offset_count) = give(offsets);
                Ok(Encoding {
                    ids,
                    offsets,
                    count,
                    offset_count,
                })
            }
            Err(End::TooMany(count)) => {
                ended = Status::TooMany;
                Ok(empty(count))
            }
            Err(End::Cancelled) => {
                ended = Status::Cancelled;
                Ok(empty(0))
            }
            Err(End::Failed(failure)) => Err(failure),
        }
    };
    // SAFETY: the caller's promise.
    match unsafe { guard(out, error, body) } {
        Status::Ok => ended,
        status => status,
    }
}

/// # Safety
/// `encoding` is from weft_tokenizer_encode and not used again.
#[no_mangle]
pub unsafe extern "C" fn weft_encoding_free(encoding: Encoding) {
    // SAFETY: made by `give` with these lengths.
    unsafe {
        take_back(encoding.ids, encoding.count);
        take_back(encoding.offsets, encoding.offset_count);
    }
}

/// # Safety
/// See weft_text.h: `handle` from this library, `text` valid; it may be no UTF-8.
#[no_mangle]
pub unsafe extern "C" fn weft_tokenizer_tokens_min(handle: *const Handle, text: Slice) -> usize {
    // SAFETY: the caller's promise.
    let (bound, bytes) = unsafe { (&(*handle).bound, text.bytes()) };
    bound.as_ref().map_or(0, |bound| bound.tokens_min(bytes))
}

/// Bytes that encoding takes for each byte of the longest piece of a text, measured: each of its
/// bytes may be a word of its own, which is held with its places and its token.
const WORK_BYTES_PER_BYTE: usize = 400;
/// Bytes for each byte of text while ids and offsets grow and are handed over.
const RESULT_BYTES_PER_BYTE: usize = 48;

/// # Safety
/// See weft_text.h: `handle` from this library, `text` valid; it may be no UTF-8.
#[no_mangle]
pub unsafe extern "C" fn weft_tokenizer_work_bytes_max(
    handle: *const Handle,
    text: Slice,
    text_bytes: usize,
    piece_bytes: usize,
) -> usize {
    // SAFETY: the caller's promise.
    let (handle, bytes) = unsafe { (&*handle, text.bytes()) };
    let piece = match std::str::from_utf8(bytes) {
        Ok(text) if !text.is_empty() => handle.encoder.piece_bytes_max(text, piece_bytes),
        _ => text_bytes.max(bytes.len()),
    };
    piece * WORK_BYTES_PER_BYTE * handle.growth
        + text_bytes.max(bytes.len()) * RESULT_BYTES_PER_BYTE * handle.growth
}

/// # Safety
/// See weft_text.h: `handle` from this library, `text` valid, `out` and `error` writable.
#[no_mangle]
pub unsafe extern "C" fn weft_tokenizer_breaks(
    handle: *const Handle,
    text: Slice,
    ends: bool,
    out: *mut Encoding,
    error: *mut Text,
) -> Status {
    let body = || {
        // SAFETY: the caller's promise.
        let (text, handle) = unsafe { (text.text("text")?, &*handle) };
        let (ids, count) = give(handle.encoder.added.breaks(&handle.tokenizer, text, ends)?);
        Ok(Encoding {
            ids,
            offsets: std::ptr::null_mut(),
            count,
            offset_count: 0,
        })
    };
    // SAFETY: the caller's promise.
    unsafe { guard(out, error, body) }
}

/// # Safety
/// See weft_text.h: `handle` from this library.
#[no_mangle]
pub unsafe extern "C" fn weft_tokenizer_form_edges(handle: *const Handle) -> Slice {
    // SAFETY: the caller's promise.
    Slice::of(unsafe { &(*handle).encoder.added.edges })
}

/// `WeftVocab` of weft_text.h.
#[repr(C)]
pub struct Vocab {
    bytes: *const u8,
    starts: *const u32,
    specials: *const u8,
    size: u32,
    decoder: u8,
    strip_leading_blank: bool,
}

impl Vocab {
    /// The bytes behind all ids, and 1 for each that is special.
    ///
    /// # Safety
    /// All that it points to must be valid as long as the result is used.
    pub unsafe fn tokens<'a>(&self) -> (Vec<&'a [u8]>, &'a [u8]) {
        let size = self.size as usize;
        // SAFETY: the caller's promise; `starts` has one entry more than there are tokens.
        unsafe {
            let starts = borrow(self.starts, size + 1);
            let end = starts.last().map_or(0, |end| *end as usize);
            let bytes = borrow(self.bytes, end);
            let tokens = (0..size)
                .map(|id| &bytes[starts[id] as usize..starts[id + 1] as usize])
                .collect();
            (tokens, borrow(self.specials, size))
        }
    }
}

/// # Safety
/// `handle` from this library; the result must not outlive it.
#[no_mangle]
pub unsafe extern "C" fn weft_tokenizer_vocab(handle: *const Handle) -> Vocab {
    // SAFETY: the caller's promise.
    let handle = unsafe { &*handle };
    Vocab {
        bytes: handle.bytes.as_ptr(),
        starts: handle.starts.as_ptr(),
        specials: handle.specials.as_ptr(),
        size: handle.specials.len() as u32,
        decoder: handle.decoder.kind as u8,
        strip_leading_blank: handle.decoder.strip_leading_blank,
    }
}

/// # Safety
/// `handle` from this library, `token` valid, `id` writable.
#[no_mangle]
pub unsafe extern "C" fn weft_tokenizer_find(
    handle: *const Handle,
    token: Slice,
    id: *mut u32,
) -> bool {
    // SAFETY: the caller's promise; bytes that are no UTF-8 name no token.
    unsafe {
        let found = token
            .text("token")
            .ok()
            .and_then(|t| (*handle).tokenizer.token_to_id(t));
        if let Some(found) = found {
            id.write(found);
        }
        found.is_some()
    }
}

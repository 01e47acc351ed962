//! Entry points of the tokenizer: from tokenizer.json or a BPE vocabulary, encode, and the table of
//! the bytes behind all ids.

use tokenizers::Tokenizer;

use crate::abi::{give, guard, take_back, Failure, Outcome, Slice, Status, Text};
use crate::bpe::{self, Bpe};
use crate::decoder;

/// `WeftTokenizer` of weft_text.h.
pub struct Handle {
    tokenizer: Tokenizer,
    /// Largest id + 1.
    size: u32,
}

/// # Safety
/// See weft_text.h: `json` valid, `out` and `error` writable.
#[no_mangle]
pub unsafe extern "C" fn weft_tokenizer_from_json(
    json: Slice,
    out: *mut *mut Handle,
    error: *mut Text,
) -> Status {
    let body = || {
        let bytes = unsafe { json.bytes() };
        let mut tokenizer =
            Tokenizer::from_bytes(bytes).map_err(|error| Failure::invalid(error.to_string()))?;
        // Left over from training in some published files; a prompt is never cut or filled up here.
        tokenizer.with_padding(None);
        tokenizer
            .with_truncation(None)
            .map_err(|error| Failure::invalid(error.to_string()))?;
        let size = tokenizer
            .get_vocab(true)
            .values()
            .max()
            .map_or(0, |id| id + 1);
        Ok(Box::into_raw(Box::new(Handle { tokenizer, size })))
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
        let (tokenizer, size) = unsafe { (bpe::build(&*bpe)?, (*bpe).token_count as u32) };
        Ok(Box::into_raw(Box::new(Handle { tokenizer, size })))
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

/// `WeftEncoding` of weft_text.h.
#[repr(C)]
pub struct Encoding {
    ids: *mut u32,
    offsets: *mut u32,
    count: usize,
}

/// # Safety
/// See weft_text.h: `handle` from this library, `text` valid, `out` and `error` writable.
#[no_mangle]
pub unsafe extern "C" fn weft_tokenizer_encode(
    handle: *const Handle,
    text: Slice,
    add_special_tokens: bool,
    out: *mut Encoding,
    error: *mut Text,
) -> Status {
    let body = || {
        let text = unsafe { text.text("text")? };
        let encoding = unsafe { &*handle }
            .tokenizer
            .encode(text, add_special_tokens)
            .map_err(|error| Failure::invalid(error.to_string()))?;
        let (ids, count) = give(encoding.get_ids().to_vec());
        let mut offsets = Vec::with_capacity(2 * count);
        for (begin, end) in encoding.get_offsets() {
            offsets.extend([*begin as u32, *end as u32]);
        }
        Ok(Encoding {
            ids,
            offsets: give(offsets).0,
            count,
        })
    };
    // SAFETY: the caller's promise.
    unsafe { guard(out, error, body) }
}

/// # Safety
/// `encoding` is from weft_tokenizer_encode and not used again.
#[no_mangle]
pub unsafe extern "C" fn weft_encoding_free(encoding: Encoding) {
    // SAFETY: made by `give` with these lengths.
    unsafe {
        take_back(encoding.ids, encoding.count);
        take_back(encoding.offsets, 2 * encoding.count);
    }
}

/// `WeftVocab` of weft_text.h.
#[repr(C)]
pub struct Vocab {
    bytes: *mut u8,
    starts: *mut u32,
    specials: *mut u8,
    size: u32,
    decoder: u8,
    strip_leading_blank: bool,
}

fn vocab(handle: &Handle, size_max: u32) -> Outcome<Vocab> {
    let tokenizer = &handle.tokenizer;
    let decoder = decoder::understand(tokenizer.get_decoder())?;
    let size = handle.size;
    if size > size_max {
        return Err(Failure::invalid(format!(
            "{size} ids; at most {size_max} are supported"
        )));
    }

    let mut bytes = Vec::with_capacity(8 * size as usize);
    let mut starts = Vec::with_capacity(size as usize + 1);
    for id in 0..size {
        starts.push(bytes.len() as u32);
        if let Some(token) = tokenizer.id_to_token(id) {
            decoder.append_bytes(&token, &mut bytes);
        }
    }
    starts.push(bytes.len() as u32);
    let mut specials = vec![0; size as usize];
    for (id, token) in &tokenizer.get_added_tokens_decoder() {
        specials[*id as usize] = u8::from(token.special);
    }
    // The caller frees `bytes` by starts[size], its length.
    Ok(Vocab {
        bytes: give(bytes).0,
        starts: give(starts).0,
        specials: give(specials).0,
        size,
        decoder: decoder.kind as u8,
        strip_leading_blank: decoder.strip_leading_blank,
    })
}

/// # Safety
/// See weft_text.h: `handle` from this library, `out` and `error` writable.
#[no_mangle]
pub unsafe extern "C" fn weft_tokenizer_vocab(
    handle: *const Handle,
    size_max: u32,
    out: *mut Vocab,
    error: *mut Text,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { guard(out, error, || vocab(&*handle, size_max)) }
}

/// # Safety
/// `vocab` is from weft_tokenizer_vocab and not used again.
#[no_mangle]
pub unsafe extern "C" fn weft_vocab_free(vocab: Vocab) {
    if vocab.starts.is_null() {
        return;
    }
    let size = vocab.size as usize;
    // SAFETY: made by `give` with these lengths; the last start is the number of bytes.
    unsafe {
        take_back(vocab.bytes, *vocab.starts.add(size) as usize);
        take_back(vocab.starts, size + 1);
        take_back(vocab.specials, size);
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

//! A matcher: where one sequence stands in its grammar. What it may do next as a mask over the
//! vocabulary, a token more, some tokens less.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use llguidance::api::StopReason;
use llguidance::{CancellationHandle, TokenParser};

use crate::abi::{guard, Failure, Outcome, Status, Text};
use crate::grammar::{calmly, lexer_bytes, lexer_failed, words, Grammar};

/// So many tokens are consumed between two masks when a sequence is consumed again: a mask gives
/// the lexer new fuel.
const REFUEL_TOKENS: usize = 32;

/// Ends a matcher's calls from outside, whichever parser it has by then.
pub struct Cancel {
    set: AtomicBool,
    parser: Mutex<CancellationHandle>,
}

impl Cancel {
    fn new(parser: &mut TokenParser) -> Arc<Cancel> {
        Arc::new(Cancel {
            set: AtomicBool::new(false),
            parser: Mutex::new(parser.enable_cancellation()),
        })
    }

    fn is_set(&self) -> bool {
        self.set.load(Ordering::SeqCst)
    }

    fn set(&self) {
        self.set.store(true, Ordering::SeqCst);
        self.parser
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .cancel();
    }

    fn move_to(&self, parser: &mut TokenParser) {
        let handle = parser.enable_cancellation();
        *self.parser.lock().unwrap_or_else(PoisonError::into_inner) = handle.clone();
        if self.is_set() {
            handle.cancel();
        }
    }
}

const TOO_COMPLEX: &str = "is too complex: it takes too long";

pub struct Matcher {
    grammar: Arc<Grammar>,
    parser: TokenParser,
    cancel: Arc<Cancel>,
    ids: Vec<u32>,
    /// Tokens consumed since a mask was made.
    unmasked: usize,
    /// The lexer is not shared.
    alone: bool,
    /// Why nothing goes on.
    failed: Option<String>,
    mask_fuel: u64,
    mask_items: u64,
}

/// `WeftMatcherState` of weft_text.h.
#[repr(C)]
pub struct State {
    tokens: usize,
    lexer_bytes: usize,
    mask_fuel: u64,
    mask_items: u64,
    may_stop: bool,
    must_stop: bool,
}

impl Matcher {
    fn new(grammar: &Arc<Grammar>, alone: bool) -> Outcome<Matcher> {
        let mut parser = grammar.parser(alone)?;
        let cancel = Cancel::new(&mut parser);
        Ok(Matcher {
            grammar: grammar.clone(),
            parser,
            cancel,
            ids: vec![],
            unmasked: 0,
            alone,
            failed: None,
            mask_fuel: 0,
            mask_items: 0,
        })
    }

    fn fork(&self) -> Matcher {
        let mut parser = self.parser.clone();
        let cancel = Cancel::new(&mut parser);
        Matcher {
            grammar: self.grammar.clone(),
            parser,
            cancel,
            ids: self.ids.clone(),
            unmasked: self.unmasked,
            alone: self.alone,
            failed: self.failed.clone(),
            mask_fuel: 0,
            mask_items: 0,
        }
    }

    /// A call that ends the matcher when it panics.
    fn call<T>(&mut self, body: impl FnOnce(&mut Matcher) -> Outcome<T>) -> Outcome<T> {
        self.check()?;
        match calmly(|| body(self)) {
            Some(outcome) => outcome,
            None => {
                self.failed = Some("made the library fail".to_string());
                Err(Failure {
                    status: Status::Panic,
                    message: "a bug of the library, or of one below it".to_string(),
                })
            }
        }
    }

    fn check(&self) -> Outcome<()> {
        match &self.failed {
            Some(why) => Err(Failure::limit(why.clone())),
            None => Ok(()),
        }
    }

    fn fail<T>(&mut self, why: String) -> Outcome<T> {
        self.failed = Some(why.clone());
        Err(Failure::limit(why))
    }

    /// The same place after `ids`, with a lexer that knows nothing yet.
    fn rebuild(&mut self, ids: &[u32], alone: bool) -> Outcome<()> {
        self.parser = self.grammar.parser(alone)?;
        self.cancel.move_to(&mut self.parser);
        self.alone = alone;
        self.ids.clear();
        for (i, id) in ids.iter().enumerate() {
            if i % REFUEL_TOKENS == 0 && !self.must_stop() {
                if let Err(error) = self.parser.compute_mask() {
                    return self.fail(words(&error));
                }
            }
            if !self.consume_known(*id)? {
                return self.fail(format!("does not allow token {id} again"));
            }
        }
        Ok(())
    }

    fn must_stop(&self) -> bool {
        self.parser.stop_reason() != StopReason::NotStopped
    }

    /// A lexer that failed under another matcher, or that has grown too large, is left behind.
    fn leave_bad_lexer(&mut self) -> Outcome<()> {
        let bad = !self.cancel.is_set() && lexer_failed(&self.parser);
        if bad || lexer_bytes(&self.parser) > self.grammar.env.limits.lexer_bytes {
            let ids = std::mem::take(&mut self.ids);
            return self.rebuild(&ids, bad);
        }
        Ok(())
    }

    fn mask(&mut self, words_out: &mut [u32]) -> Outcome<()> {
        words_out.fill(0);
        if self.must_stop() {
            for id in &self.grammar.env.eos {
                let (word, bit) = (*id as usize / 32, id % 32);
                if word < words_out.len() {
                    words_out[word] |= 1 << bit;
                }
            }
            return Ok(());
        }
        self.leave_bad_lexer()?;
        self.unmasked = 0;
        let mut result = self.parser.compute_mask();
        let stats = self.parser.last_step_stats();
        self.mask_fuel = stats.lexer_cost;
        self.mask_items = stats.all_items as u64;
        if result.is_err()
            && self.parser.stop_reason() == StopReason::LexerTooComplex
            && !self.alone
        {
            // What the lexer has spent may be others' doing: once more, alone.
            let ids = std::mem::take(&mut self.ids);
            self.rebuild(&ids, true)?;
            result = self.parser.compute_mask();
        }
        let mask = match result {
            Ok(mask) => mask,
            Err(error) => {
                let why = match self.parser.stop_reason() {
                    StopReason::Cancelled => TOO_COMPLEX.to_string(),
                    StopReason::NoExtensionBias => "no token fits it here".to_string(),
                    _ => words(&error),
                };
                return self.fail(why);
            }
        };
        let from = mask.as_slice();
        let vocab_words = (self.grammar.env.vocab_size as usize).div_ceil(32);
        let count = from.len().min(words_out.len()).min(vocab_words);
        words_out[..count].copy_from_slice(&from[..count]);
        let last_bits = self.grammar.env.vocab_size % 32;
        if last_bits != 0 && count == vocab_words {
            words_out[count - 1] &= (1u32 << last_bits) - 1;
        }
        Ok(())
    }

    /// False: the token does not fit, and nothing has changed.
    fn consume(&mut self, id: u32) -> Outcome<bool> {
        if id >= self.grammar.env.vocab_size {
            return Ok(false);
        }
        if !self.must_stop() {
            self.leave_bad_lexer()?;
            if self.ids.len() % REFUEL_TOKENS == 0 && self.unmasked >= REFUEL_TOKENS {
                self.unmasked = 0;
                if let Err(error) = self.parser.compute_mask() {
                    return self.fail(words(&error));
                }
            }
        }
        self.unmasked += 1;
        self.consume_known(id)
    }

    fn consume_known(&mut self, id: u32) -> Outcome<bool> {
        let eos = &self.grammar.env.eos;
        if self.must_stop() {
            // Complete: of the tokens that say so one may come.
            let ended = self.ids.last().is_some_and(|last| eos.contains(last));
            if ended || !eos.contains(&id) {
                return Ok(false);
            }
            self.ids.push(id);
            return Ok(true);
        }
        match self.parser.validate_tokens_raw(&[id]) {
            Ok(1) => {}
            Ok(_) if lexer_failed(&self.parser) => {
                return self.fail(TOO_COMPLEX.to_string());
            }
            Ok(_) => return Ok(false),
            Err(error) => return self.fail(words(&error)),
        }
        let consumed = self
            .parser
            .consume_token(id)
            .and_then(|_| self.parser.check_stop());
        if let Err(error) = consumed {
            return self.fail(words(&error));
        }
        self.ids.push(id);
        Ok(true)
    }

    fn rollback(&mut self, count: usize) -> Outcome<()> {
        if count > self.ids.len() {
            return Err(Failure::invalid(format!(
                "expected at most the {} tokens that were consumed",
                self.ids.len()
            )));
        }
        let kept = self.ids.len() - count;
        // The parser does not count a token behind the end, and not all grammars roll back.
        if self.must_stop() || self.parser.rollback(count).is_err() {
            let ids = self.ids[..kept].to_vec();
            return self.rebuild(&ids, self.alone);
        }
        self.ids.truncate(kept);
        Ok(())
    }

    fn state(&mut self) -> Outcome<State> {
        let must_stop = self.must_stop();
        Ok(State {
            tokens: self.ids.len(),
            lexer_bytes: lexer_bytes(&self.parser),
            mask_fuel: self.mask_fuel,
            mask_items: self.mask_items,
            may_stop: must_stop || self.parser.is_accepting(),
            must_stop,
        })
    }

    /// Bytes that come next whatever is chosen; found on a copy, so that masks stay what they are.
    fn forced(&self) -> Outcome<String> {
        self.check()?;
        if self.must_stop() {
            return Ok(String::new());
        }
        let bytes = calmly(|| self.parser.clone().force_bytes()).unwrap_or_default();
        let valid = match std::str::from_utf8(&bytes) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        Ok(String::from_utf8_lossy(&bytes[..valid]).into_owned())
    }
}

/// # Safety
/// See weft_text.h: `grammar` from this library, `out` and `error` writable.
#[no_mangle]
pub unsafe extern "C" fn weft_matcher_new(
    grammar: *const Arc<Grammar>,
    out: *mut *mut Matcher,
    error: *mut Text,
) -> Status {
    // SAFETY: the caller's promise.
    let body = || {
        Ok(Box::into_raw(Box::new(Matcher::new(
            unsafe { &*grammar },
            false,
        )?)))
    };
    // SAFETY: the caller's promise.
    unsafe { guard(out, error, body) }
}

/// # Safety
/// See weft_text.h: `matcher` from this library, `out` and `error` writable.
#[no_mangle]
pub unsafe extern "C" fn weft_matcher_fork(
    matcher: *const Matcher,
    out: *mut *mut Matcher,
    error: *mut Text,
) -> Status {
    // SAFETY: the caller's promise.
    let body = || Ok(Box::into_raw(Box::new(unsafe { (*matcher).fork() })));
    // SAFETY: the caller's promise.
    unsafe { guard(out, error, body) }
}

/// # Safety
/// `matcher` is null or from this library, and not used again.
#[no_mangle]
pub unsafe extern "C" fn weft_matcher_free(matcher: *mut Matcher) {
    if !matcher.is_null() {
        // SAFETY: made by Box::into_raw above.
        drop(unsafe { Box::from_raw(matcher) });
    }
}

/// # Safety
/// See weft_text.h: `matcher` from this library and of this thread, `words` writable.
#[no_mangle]
pub unsafe extern "C" fn weft_matcher_mask(
    matcher: *mut Matcher,
    words: *mut u32,
    word_count: usize,
    error: *mut Text,
) -> Status {
    let body = || {
        // SAFETY: the caller's promise; an empty buffer may be null.
        let (matcher, words) = unsafe {
            let words: &mut [u32] = if word_count == 0 {
                &mut []
            } else {
                std::slice::from_raw_parts_mut(words, word_count)
            };
            (&mut *matcher, words)
        };
        matcher.call(|matcher| matcher.mask(words))
    };
    // SAFETY: the caller's promise.
    unsafe { guard(&mut (), error, body) }
}

/// # Safety
/// See weft_text.h: `matcher` from this library and of this thread, `fits` and `error` writable.
#[no_mangle]
pub unsafe extern "C" fn weft_matcher_consume(
    matcher: *mut Matcher,
    id: u32,
    fits: *mut bool,
    error: *mut Text,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        guard(fits, error, || {
            (*matcher).call(|matcher| matcher.consume(id))
        })
    }
}

/// # Safety
/// See weft_text.h: `matcher` from this library and of this thread, `error` writable.
#[no_mangle]
pub unsafe extern "C" fn weft_matcher_rollback(
    matcher: *mut Matcher,
    count: usize,
    error: *mut Text,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        guard(&mut (), error, || {
            (*matcher).call(|matcher| matcher.rollback(count))
        })
    }
}

/// # Safety
/// See weft_text.h: `matcher` from this library and of this thread, `out` and `error` writable.
#[no_mangle]
pub unsafe extern "C" fn weft_matcher_state(
    matcher: *mut Matcher,
    out: *mut State,
    error: *mut Text,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { guard(out, error, || (*matcher).call(Matcher::state)) }
}

/// # Safety
/// See weft_text.h: `matcher` from this library and of this thread, `out` and `error` writable.
#[no_mangle]
pub unsafe extern "C" fn weft_matcher_forced(
    matcher: *const Matcher,
    out: *mut Text,
    error: *mut Text,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { guard(out, error, || Ok(Text::new((*matcher).forced()?))) }
}

/// # Safety
/// `matcher` from this library and of this thread.
#[no_mangle]
pub unsafe extern "C" fn weft_matcher_cancel_new(matcher: *const Matcher) -> *mut Arc<Cancel> {
    // SAFETY: the caller's promise.
    Box::into_raw(Box::new(unsafe { (*matcher).cancel.clone() }))
}

/// # Safety
/// `cancel` from this library; any thread.
#[no_mangle]
pub unsafe extern "C" fn weft_cancel_set(cancel: *const Arc<Cancel>) {
    // SAFETY: the caller's promise.
    unsafe { &*cancel }.set()
}

/// # Safety
/// `cancel` is null or from this library, and not used again.
#[no_mangle]
pub unsafe extern "C" fn weft_cancel_free(cancel: *mut Arc<Cancel>) {
    if !cancel.is_null() {
        // SAFETY: made by Box::into_raw above.
        drop(unsafe { Box::from_raw(cancel) });
    }
}

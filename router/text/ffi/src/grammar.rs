//! Grammars: the environment that is made once from a vocabulary, and the compilation of a source
//! into a grammar that many matchers share. The compiler is the `llguidance` crate.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use llguidance::api::{GrammarWithLexer, ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use llguidance::{panic_utils, ParserFactory, TokenParser};

use crate::abi::{borrow, guard, Failure, Outcome, Slice, Status, Text};
use crate::tokenizer::Vocab;
use crate::{grammar_lark, grammar_schema, grammar_tags};

/// The trie counts a token's bytes with ten bits.
const TOKEN_BYTES_MAX: usize = 1000;
/// Stack of a compilation, which descends the grammar; only what is used takes memory.
const COMPILE_STACK_BYTES: usize = 256 << 20;

/// `WeftGrammarLimits` of weft_text.h.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Limits {
    source_bytes: usize,
    symbols: usize,
    compile_fuel: u64,
    compile_cpu_us: u64,
    mask_fuel: u64,
    mask_items: usize,
    row_items: usize,
    pub lexer_bytes: usize,
    lexers: usize,
}

pub struct Env {
    factory: ParserFactory,
    pub eos: Vec<u32>,
    pub vocab_size: u32,
    /// Written forms of special tokens.
    specials: Vec<(String, u32)>,
    pub limits: Limits,
}

impl Env {
    fn new(tokens: &[&[u8]], specials: &[u8], eos: &[u32], limits: Limits) -> Outcome<Env> {
        let vocab_size = tokens.len() as u32;
        if limits.lexers == 0 {
            return Err(Failure::invalid("expected at least one lexer".to_string()));
        }
        if eos.is_empty() || eos.iter().any(|id| *id >= vocab_size) {
            return Err(Failure::invalid(format!(
                "expected the ids of tokens that end an answer, below {vocab_size}"
            )));
        }
        let mut forms = vec![];
        let mut words = Vec::with_capacity(tokens.len());
        for (id, token) in tokens.iter().enumerate() {
            let special = specials[id] != 0 || eos.contains(&(id as u32));
            let mut word = Vec::with_capacity(token.len() + 1);
            if token.len() > TOKEN_BYTES_MAX {
                // Never allowed, like an id without bytes.
            } else if special {
                word.push(TokTrie::SPECIAL_TOKEN_MARKER);
                word.extend_from_slice(token);
                if let Ok(form) = std::str::from_utf8(token) {
                    if !form.is_empty() {
                        forms.push((form.to_string(), id as u32));
                    }
                }
            } else {
                word.extend_from_slice(token);
            }
            words.push(word);
        }
        let trie = TokTrie::from(&TokRxInfo::new(vocab_size, eos[0]), &words).with_eos_tokens(eos);
        // Not canonical: which tokens spell a text is the model's choice, and no text is forced.
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory = ParserFactory::new(
            &env,
            InferenceCapabilities::default(),
            &SlicedBiasComputer::json_slices(),
        )
        .map_err(|error| Failure::invalid(error.to_string()))?;
        factory.quiet();
        *factory.limits_mut() = ParserLimits {
            max_items_in_row: limits.row_items,
            initial_lexer_fuel: limits.compile_fuel,
            step_lexer_fuel: limits.mask_fuel,
            step_max_items: limits.mask_items,
            // Bytes are what is bounded (matchers leave a lexer that has grown too large).
            max_lexer_states: 1_000_000,
            max_grammar_size: limits.symbols,
            precompute_large_lexemes: false,
            verbose_errors: false,
        };
        Ok(Env {
            factory,
            eos: eos.to_vec(),
            vocab_size,
            specials: forms,
            limits,
        })
    }
}

/// `WeftGrammarKind` of weft_text.h.
const JSON_SCHEMA: u8 = 0;
const JSON_OBJECT: u8 = 1;
const LARK: u8 = 2;
const REGEX: u8 = 3;
const CHOICE: u8 = 4;
const STRUCTURAL_TAG: u8 = 5;

/// `WeftGrammarSource` of weft_text.h.
#[repr(C)]
pub struct Source {
    texts: *const Slice,
    text_count: usize,
    kind: u8,
    closed_objects: bool,
}

fn top_level(kind: u8, texts: &[&str], closed: bool, env: &Env) -> Outcome<TopLevelGrammar> {
    let one = || match texts {
        [text] => Ok(*text),
        _ => Err(Failure::invalid("expected one text")),
    };
    let lark = |text: String| GrammarWithLexer::from_lark(text);
    let grammar = match kind {
        JSON_SCHEMA => GrammarWithLexer::from_json_schema(grammar_schema::prepare(one()?, closed)?),
        JSON_OBJECT => GrammarWithLexer::from_json_schema(grammar_schema::prepare(
            r#"{"type":"object"}"#,
            false,
        )?),
        LARK => lark(grammar_lark::lark(one()?)?),
        REGEX => lark(grammar_lark::regex(one()?)?),
        CHOICE => lark(grammar_lark::choice(texts)?),
        STRUCTURAL_TAG => lark(grammar_tags::to_lark(one()?, &env.specials)?),
        _ => return Err(Failure::invalid(format!("no kind {kind} of grammar"))),
    };
    Ok(TopLevelGrammar::from_grammar(grammar))
}

/// What the compiler says of a grammar that it refuses, without its marks for machines.
pub fn words(error: &dyn std::fmt::Display) -> String {
    let text = error.to_string();
    let text = text.split("\n<").next().unwrap_or_default().trim();
    match text.char_indices().nth(400) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_string(),
    }
}

/// CPU time of the calling thread, which other load does not lengthen.
fn thread_cpu_us() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is writable; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000
}

pub struct Grammar {
    pub env: Arc<Env>,
    /// As it was compiled; lexers are copied from it.
    pristine: Mutex<TokenParser>,
    /// Shared by matchers, made when they are needed.
    roots: Mutex<(usize, Vec<TokenParser>)>,
    bytes: usize,
}

/// Runs what may panic in the compiler, or in a lexer that another matcher's panic has left locked,
/// without a word on stderr; None when it did.
pub fn calmly<T>(body: impl FnOnce() -> T) -> Option<T> {
    panic_utils::catch_unwind(AssertUnwindSafe(|| Ok(body()))).ok()
}

/// Bytes that a lexer holds, as far as it tells, and the sets of lexemes of its states.
fn lexer_bytes_of(parser: &TokenParser) -> usize {
    let stats = parser.parser.lexer_stats();
    stats.num_bytes + stats.num_states * (stats.num_regexps / 4 + 64)
}

/// The same of one that may have failed; 0 then.
pub fn lexer_bytes(parser: &TokenParser) -> usize {
    calmly(|| lexer_bytes_of(parser)).unwrap_or(0)
}

/// Whether the lexer has failed, under whichever matcher.
pub fn lexer_failed(parser: &TokenParser) -> bool {
    calmly(|| parser.parser.get_error().is_some()).unwrap_or(true)
}

impl Grammar {
    fn compile(env: &Arc<Env>, kind: u8, texts: &[&str], closed: bool) -> Outcome<Grammar> {
        let source_bytes: usize = texts.iter().map(|text| text.len() + 1).sum();
        if source_bytes > env.limits.source_bytes {
            return Err(Failure::limit(format!(
                "has {source_bytes} bytes; at most {} are taken",
                env.limits.source_bytes
            )));
        }
        let start_us = thread_cpu_us();
        let top = top_level(kind, texts, closed, env)?;
        let mut parser = env
            .factory
            .create_parser(top)
            .map_err(|error| Failure::invalid(words(&error)))?;
        parser.start_without_prompt();
        if lexer_bytes(&parser) > env.limits.lexer_bytes {
            return Err(Failure::limit(
                "is too complex: its lexer takes too much memory",
            ));
        }
        let mut start = parser.deep_clone();
        panic_utils::catch_unwind(AssertUnwindSafe(|| start.compute_mask()))
            .map_err(|error| Failure::invalid(format!("allows no text: {}", words(&error))))?;
        if thread_cpu_us() - start_us > env.limits.compile_cpu_us {
            return Err(Failure::limit(
                "is too complex: compiling it takes too long",
            ));
        }
        let bytes = (64 << 10) + 64 * source_bytes + (1 + env.limits.lexers) * lexer_bytes(&start);
        Ok(Grammar {
            env: env.clone(),
            pristine: Mutex::new(parser),
            roots: Mutex::new((0, vec![])),
            bytes,
        })
    }

    /// A parser at the beginning, which shares its lexer with others, or has one of its own.
    pub fn parser(&self, alone: bool) -> Outcome<TokenParser> {
        let poisoned = || Failure::limit("a grammar that failed before");
        let fresh = || Ok(self.pristine.lock().map_err(|_| poisoned())?.deep_clone());
        if alone {
            return fresh();
        }
        let mut roots = self.roots.lock().map_err(|_| poisoned())?;
        let (next, list) = &mut *roots;
        let at = *next % self.env.limits.lexers;
        *next += 1;
        if list.len() <= at {
            list.push(fresh()?);
        } else if lexer_failed(&list[at]) || lexer_bytes(&list[at]) > self.env.limits.lexer_bytes {
            list[at] = fresh()?;
        }
        Ok(list[at].clone())
    }
}

/// # Safety
/// See weft_text.h: `vocab` of a tokenizer or of the same shape, `eos` valid, `out` and `error`
/// writable.
#[no_mangle]
pub unsafe extern "C" fn weft_grammar_env_new(
    vocab: *const Vocab,
    eos: *const u32,
    eos_count: usize,
    limits: *const Limits,
    out: *mut *mut Arc<Env>,
    error: *mut Text,
) -> Status {
    let body = || {
        // SAFETY: the caller's promise.
        let (tokens, specials, eos, limits) = unsafe {
            let (tokens, specials) = (*vocab).tokens();
            (tokens, specials, borrow(eos, eos_count), *limits)
        };
        let env = Env::new(&tokens, specials, eos, limits)?;
        Ok(Box::into_raw(Box::new(Arc::new(env))))
    };
    // SAFETY: the caller's promise.
    unsafe { guard(out, error, body) }
}

/// # Safety
/// `env` is null or from this library, and not used again.
#[no_mangle]
pub unsafe extern "C" fn weft_grammar_env_free(env: *mut Arc<Env>) {
    if !env.is_null() {
        // SAFETY: made by Box::into_raw above.
        drop(unsafe { Box::from_raw(env) });
    }
}

/// # Safety
/// See weft_text.h: `env` from this library, `source` and all it points to valid, `out` and `error`
/// writable.
#[no_mangle]
pub unsafe extern "C" fn weft_grammar_compile(
    env: *const Arc<Env>,
    source: *const Source,
    out: *mut *mut Arc<Grammar>,
    error: *mut Text,
) -> Status {
    let body = || {
        // SAFETY: the caller's promise.
        let (env, kind, closed, slices) = unsafe {
            let source = &*source;
            let slices: &[Slice] = borrow(source.texts, source.text_count);
            (&*env, source.kind, source.closed_objects, slices)
        };
        let mut texts = Vec::with_capacity(slices.len());
        for slice in slices {
            // SAFETY: the caller's promise.
            texts.push(unsafe { slice.text("the text")? });
        }
        // On a stack of its own, whose size does not depend on who asks.
        let compiled = std::thread::scope(|scope| {
            std::thread::Builder::new()
                .name("weft-grammar".to_string())
                .stack_size(COMPILE_STACK_BYTES)
                .spawn_scoped(scope, || {
                    calmly(|| Grammar::compile(env, kind, &texts, closed))
                })
                .map(|thread| thread.join())
        });
        match compiled {
            Ok(Ok(Some(grammar))) => Ok(Box::into_raw(Box::new(Arc::new(grammar?)))),
            Ok(_) => Err(Failure {
                status: Status::Panic,
                message: "the compiler gave up".to_string(),
            }),
            Err(error) => Err(Failure::limit(format!("no thread to compile on: {error}"))),
        }
    };
    // SAFETY: the caller's promise.
    unsafe { guard(out, error, body) }
}

/// # Safety
/// `grammar` is null or from this library, and not used again.
#[no_mangle]
pub unsafe extern "C" fn weft_grammar_free(grammar: *mut Arc<Grammar>) {
    if !grammar.is_null() {
        // SAFETY: made by Box::into_raw above.
        drop(unsafe { Box::from_raw(grammar) });
    }
}

/// # Safety
/// `grammar` from this library.
#[no_mangle]
pub unsafe extern "C" fn weft_grammar_bytes(grammar: *const Arc<Grammar>) -> usize {
    // SAFETY: the caller's promise.
    unsafe { &*grammar }.bytes
}

//! Text to ids, piece by piece: the steps of `tokenizers::Tokenizer::encode` with this library's own
//! search for added tokens (added.rs), so that a long text needs the memory of one piece at a time
//! (cuts.rs) and ends early when it has too many tokens or nobody waits for it any more.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{json, Value};
use tokenizers::normalizer::Range;
use tokenizers::{
    Encoding, Model, NormalizedString, Normalizer, NormalizerWrapper, OffsetType,
    PreTokenizedString, PreTokenizer, PreTokenizerWrapper, Token, Tokenizer,
};

use crate::abi::{Failure, Outcome};
use crate::added::Added;
use crate::bound::steps;
use crate::cuts::Cuts;

/// Stands for the text while a post-processor shows what it puts around it.
const TEXT_ID: u32 = u32::MAX;

pub struct Encoder {
    pub added: Added,
    cuts: Option<Cuts>,
    /// What `add_special_tokens` puts before and behind a text.
    before: Vec<u32>,
    behind: Vec<u32>,
    /// The post-processor takes white space out of offsets; true: but for one blank at the start.
    trim: Option<bool>,
    /// For what is not the beginning of a text, or of what stands between two added tokens, where
    /// the tokenizer's own puts a blank in front.
    later_normalizer: Option<NormalizerWrapper>,
    later_pre_tokenizer: Option<PreTokenizerWrapper>,
}

pub struct Options<'a> {
    pub add_special_tokens: bool,
    pub control_tokens: bool,
    pub offsets: bool,
    /// Ascending byte offsets that no added token spans.
    pub breaks: &'a [u32],
    pub tokens_max: usize,
    /// A longer text between two added tokens is cut.
    pub piece_bytes: usize,
    pub cancelled: Option<&'a AtomicBool>,
}

/// Why there are no ids.
pub enum End {
    TooMany(usize),
    Cancelled,
    Failed(Failure),
}

impl From<Failure> for End {
    fn from(failure: Failure) -> End {
        End::Failed(failure)
    }
}

fn failed(error: tokenizers::Error) -> End {
    End::Failed(Failure::invalid(error.to_string()))
}

/// Ids so far, and where each one's text begins and ends.
struct Sink<'a> {
    options: &'a Options<'a>,
    trim: Option<bool>,
    ids: Vec<u32>,
    offsets: Vec<u32>,
}

impl Sink<'_> {
    fn push(&mut self, id: u32, begin: usize, end: usize, token: &str) {
        if self.options.offsets {
            let (begin, end) = match self.trim {
                Some(prefixed) => trim(begin, end, token, prefixed && begin == 0),
                None => (begin, end),
            };
            self.offsets.extend([begin as u32, end as u32]);
        }
        self.ids.push(id);
    }

    fn push_special(&mut self, ids: &[u32]) {
        for id in ids {
            self.ids.push(*id);
            if self.options.offsets {
                self.offsets.extend([0, 0]);
            }
        }
    }

    fn check(&self) -> Result<(), End> {
        if self.ids.len() > self.options.tokens_max {
            return Err(End::TooMany(self.ids.len()));
        }
        match self.options.cancelled {
            Some(flag) if flag.load(Ordering::Relaxed) => Err(End::Cancelled),
            _ => Ok(()),
        }
    }
}

/// As the crate's ByteLevel and Roberta post-processors do it: white space at the ends of a token
/// leaves its range; at the `first` place a single blank that may have been added stays.
fn trim(begin: usize, end: usize, token: &str, first: bool) -> (usize, usize) {
    let blank = |c: &char| *c == '\u{120}' || c.is_whitespace();
    let leading = token.chars().take_while(blank).count();
    let trailing = token.chars().rev().take_while(blank).count();
    let kept = first && leading == 1;
    let begin = if kept {
        begin
    } else {
        (begin + leading).min(end)
    };
    let end = if trailing > 0 && end >= trailing {
        (end - trailing).max(begin)
    } else {
        end
    };
    (begin, end)
}

impl Encoder {
    pub fn of(tokenizer: &Tokenizer) -> Outcome<Encoder> {
        let (before, behind) = around(tokenizer)?;
        Ok(Encoder {
            added: Added::of(tokenizer)?,
            cuts: Cuts::of(tokenizer),
            before,
            behind,
            trim: trims(tokenizer),
            later_normalizer: later_normalizer(tokenizer)?,
            later_pre_tokenizer: later_pre_tokenizer(tokenizer)?,
        })
    }

    /// Ids, and two offsets for each when they are wanted.
    pub fn encode(
        &self,
        tokenizer: &Tokenizer,
        text: &str,
        options: &Options,
    ) -> Result<(Vec<u32>, Vec<u32>), End> {
        let mut sink = Sink {
            options,
            trim: self.trim,
            ids: Vec::new(),
            offsets: Vec::new(),
        };
        if options.add_special_tokens {
            sink.push_special(&self.before);
        }
        let mut done = 0;
        self.added.find(
            text,
            options.breaks,
            options.control_tokens,
            |begin, end, id| {
                if done < begin {
                    self.segment(tokenizer, text, done, begin, &mut sink)?;
                }
                sink.push(id, begin, end, &text[begin..end]);
                done = end;
                sink.check()
            },
        )?;
        if done < text.len() {
            self.segment(tokenizer, text, done, text.len(), &mut sink)?;
        }
        if options.add_special_tokens {
            sink.push_special(&self.behind);
        }
        sink.check()?;
        Ok((sink.ids, sink.offsets))
    }

    /// Bytes of the longest piece of `text`.
    pub fn piece_bytes_max(&self, text: &str, piece_bytes: usize) -> usize {
        let mut longest = 0;
        let mut done = 0;
        let mut measure = |begin: usize, end: usize| {
            let mut from = begin;
            while from < end {
                let next = self.piece_end(&text[..end], from, piece_bytes);
                longest = longest.max(next - from);
                from = next;
            }
        };
        let _ = self.added.find(text, &[], true, |begin, end, _| {
            measure(done, begin);
            done = end;
            Ok::<(), ()>(())
        });
        measure(done, text.len());
        longest
    }

    fn piece_end(&self, text: &str, from: usize, piece_bytes: usize) -> usize {
        match &self.cuts {
            Some(cuts) if text.len() - from > piece_bytes => {
                from + cuts.next(&text[from..], piece_bytes)
            }
            _ => text.len(),
        }
    }

    /// What stands between two added tokens.
    fn segment(
        &self,
        tokenizer: &Tokenizer,
        text: &str,
        begin: usize,
        end: usize,
        sink: &mut Sink,
    ) -> Result<(), End> {
        let mut from = begin;
        while from < end {
            let next = self.piece_end(&text[..end], from, sink.options.piece_bytes);
            self.piece(tokenizer, &text[from..next], from, from == begin, sink)?;
            sink.check()?;
            from = next;
        }
        Ok(())
    }

    /// `base` is the place of `text` in the whole; `first`: an added token or nothing precedes.
    fn piece(
        &self,
        tokenizer: &Tokenizer,
        text: &str,
        base: usize,
        first: bool,
        sink: &mut Sink,
    ) -> Result<(), End> {
        let later = self.later_normalizer.as_ref().filter(|_| !first);
        let mut normalized = NormalizedString::from(text);
        if let Some(normalizer) = later.or(tokenizer.get_normalizer()) {
            normalizer.normalize(&mut normalized).map_err(failed)?;
        }
        let mut split = PreTokenizedString::from(normalized);
        if self.added.has_normalized() {
            split
                .split(|_, part| Ok(self.split_normalized(part, base, sink.options)))
                .map_err(failed)?;
        }
        let later = self.later_pre_tokenizer.as_ref().filter(|_| base > 0);
        if let Some(pre_tokenizer) = later.or(tokenizer.get_pre_tokenizer()) {
            pre_tokenizer.pre_tokenize(&mut split).map_err(failed)?;
        }
        let model = tokenizer.get_model();
        split
            .tokenize(|part| model.tokenize(part.get()))
            .map_err(failed)?;
        let kind = if sink.options.offsets {
            OffsetType::Byte
        } else {
            OffsetType::None
        };
        let encoding = split.into_encoding(None, 0, kind).map_err(failed)?;
        let tokens = encoding.get_ids().iter().zip(encoding.get_offsets());
        for ((id, offsets), token) in tokens.zip(encoding.get_tokens()) {
            sink.push(*id, base + offsets.0, base + offsets.1, token);
        }
        Ok(())
    }

    fn split_normalized(
        &self,
        text: NormalizedString,
        base: usize,
        options: &Options,
    ) -> Vec<(NormalizedString, Option<Vec<Token>>)> {
        let found = self
            .added
            .find_normalized(&text, base, options.breaks, options.control_tokens);
        let mut out = Vec::with_capacity(2 * found.len() + 1);
        let mut done = 0;
        let slice = |begin, end| {
            text.slice(Range::Normalized(begin..end))
                .unwrap_or_default()
        };
        for (begin, end, id) in found {
            if done < begin {
                out.push((slice(done, begin), None));
            }
            let token = slice(begin, end);
            let written = token.get().to_owned();
            let bytes = written.len();
            out.push((token, Some(vec![Token::new(id, written, (0, bytes))])));
            done = end;
        }
        if done < text.get().len() {
            out.push((slice(done, text.get().len()), None));
        }
        out
    }
}

/// The ids that the post-processor puts around a text.
fn around(tokenizer: &Tokenizer) -> Outcome<(Vec<u32>, Vec<u32>)> {
    let text = Encoding::from_tokens(vec![Token::new(TEXT_ID, "x".to_string(), (0, 1))], 0);
    let processed = tokenizer
        .post_process(text, None, true)
        .map_err(|error| Failure::invalid(format!("post_processor: {error}")))?;
    let parts: Vec<&[u32]> = processed.get_ids().split(|id| *id == TEXT_ID).collect();
    match parts[..] {
        [before, behind] => Ok((before.to_vec(), behind.to_vec())),
        _ => Err(Failure::invalid(
            "post_processor: expected one that has the text once and adds tokens around it",
        )),
    }
}

/// Whether the post-processor takes white space out of offsets, and its add_prefix_space.
fn trims(tokenizer: &Tokenizer) -> Option<bool> {
    let processors = serde_json::to_value(tokenizer.get_post_processor());
    let processors = steps(processors, "processors")?;
    let trims = |step: &&Value| {
        matches!(
            step["type"].as_str(),
            Some("ByteLevel" | "RobertaProcessing")
        ) && step["trim_offsets"] == true
    };
    processors
        .iter()
        .find(trims)
        .map(|step| step["add_prefix_space"] == true)
}

/// The normalizer without its Prepend steps; None when it has none.
fn later_normalizer(tokenizer: &Tokenizer) -> Outcome<Option<NormalizerWrapper>> {
    let all = steps(
        serde_json::to_value(tokenizer.get_normalizer()),
        "normalizers",
    );
    let Some(all) = all.filter(|all| all.iter().any(|step| step["type"] == "Prepend")) else {
        return Ok(None);
    };
    let kept: Vec<Value> = all
        .into_iter()
        .filter(|step| step["type"] != "Prepend")
        .collect();
    serde_json::from_value(json!({"type": "Sequence", "normalizers": kept}))
        .map(Some)
        .map_err(|error| Failure::invalid(format!("normalizer: {error}")))
}

/// The pre-tokenizer as it works behind the beginning of a text; None when that is the same.
fn later_pre_tokenizer(tokenizer: &Tokenizer) -> Outcome<Option<PreTokenizerWrapper>> {
    let all = steps(
        serde_json::to_value(tokenizer.get_pre_tokenizer()),
        "pretokenizers",
    );
    let Some(mut all) = all.filter(|all| all.iter().any(|step| step["prepend_scheme"] == "first"))
    else {
        return Ok(None);
    };
    for step in &mut all {
        if step["prepend_scheme"] == "first" {
            step["prepend_scheme"] = json!("never");
        }
    }
    serde_json::from_value(json!({"type": "Sequence", "pretokenizers": all}))
        .map(Some)
        .map_err(|error| Failure::invalid(format!("pre_tokenizer: {error}")))
}

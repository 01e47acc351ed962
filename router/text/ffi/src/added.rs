//! Added tokens (control tokens and other written forms that are taken out of a text before its
//! words are cut): where they stand in a text, as the `tokenizers` crate finds them, and where a
//! text must be broken so that none is found. The crate's own search is not used because it knows
//! no breaks, and because its search for white space beside a token reads the text from its start.

use ahash::AHashMap;
use daachorse::{DoubleArrayAhoCorasick, DoubleArrayAhoCorasickBuilder, MatchKind};
use tokenizers::normalizer::Range;
use tokenizers::{AddedToken, NormalizedString, Normalizer, Tokenizer};

use crate::abi::{Failure, Outcome};
use crate::marks::PUNCTUATION;

type Matcher = DoubleArrayAhoCorasick<u32>;

/// So far from its ends a text is compared with parts of forms.
const LOOK_BYTES_MAX: usize = 256;

/// What an added token may stand beside.
#[derive(Clone, Copy)]
struct Flags {
    /// Nothing but white space: part of ordinary text (indentation), which forges nothing.
    blank: bool,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
}

pub struct Added {
    flags: AHashMap<u32, Flags>,
    /// Found in the text as it is, and in the normalized text.
    raw: Option<Matcher>,
    normalized: Option<Matcher>,
    /// All forms but blank ones, for `breaks`: every occurrence, overlapping ones too.
    forms: Option<Matcher>,
    normalized_forms: Option<Matcher>,
    /// These forms in byte order, and reversed ones in byte order.
    sorted: Vec<Vec<u8>>,
    reversed: Vec<Vec<u8>>,
    /// The punctuation that forms begin and end with, each once.
    pub edges: String,
    /// These forms one after another, and the bytes that occur in them.
    joined: String,
    bytes: [bool; 256],
    /// Bytes of the longest of them.
    longest: usize,
}

/// White space and SentencePiece's blank.
pub fn is_blank(text: &str) -> bool {
    text.chars().all(|c| c.is_whitespace() || c == '\u{2581}')
}

/// As the regular expression \w: letters, marks, decimal digits, connecting punctuation. Numbers
/// that are no decimal digits are taken for words too; no published token stands on that.
fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '\u{200c}' | '\u{200d}' | '\u{203f}' | '\u{2040}')
}

fn matcher(patterns: &[(&str, u32)], kind: MatchKind) -> Outcome<Option<Matcher>> {
    if patterns.is_empty() {
        return Ok(None);
    }
    DoubleArrayAhoCorasickBuilder::new()
        .match_kind(kind)
        .build_with_values(patterns.iter().copied())
        .map(Some)
        .map_err(|error| Failure::invalid(format!("added_tokens: {error}")))
}

/// Each form once: the matchers take no form twice.
fn unique<'a>(forms: impl Iterator<Item = &'a str>) -> Vec<(&'a str, u32)> {
    let mut forms: Vec<&str> = forms.collect();
    forms.sort_unstable();
    forms.dedup();
    forms.into_iter().map(|form| (form, 0)).collect()
}

/// `text` as the tokenizer's normalizer leaves it.
pub fn normalize(tokenizer: &Tokenizer, text: &str) -> Outcome<NormalizedString> {
    let mut normalized = NormalizedString::from(text);
    if let Some(normalizer) = tokenizer.get_normalizer() {
        normalizer
            .normalize(&mut normalized)
            .map_err(|error| Failure::invalid(format!("normalizer: {error}")))?;
    }
    Ok(normalized)
}

impl Added {
    pub fn of(tokenizer: &Tokenizer) -> Outcome<Added> {
        let tokens = tokenizer.get_added_tokens_decoder();
        let mut flags = AHashMap::with_capacity(tokens.len());
        let mut normalized = Vec::new();
        for (id, token) in &tokens {
            flags.insert(*id, Flags::of(token));
            if token.normalized {
                let form = normalize(tokenizer, &token.content)?.get().to_string();
                if !form.is_empty() {
                    normalized.push((form, *id));
                }
            }
        }
        let mut taken: Vec<(&str, u32)> = Vec::new();
        for (form, id) in &normalized {
            taken.push((form.as_str(), *id));
        }
        taken.sort_unstable();
        taken.dedup_by_key(|(form, _)| *form);
        let raw: Vec<(&str, u32)> = tokens
            .iter()
            .filter(|(_, token)| !token.normalized)
            .map(|(id, token)| (token.content.as_str(), *id))
            .collect();
        let written = tokens.values().map(|token| token.content.as_str());
        let forms = unique(written.filter(|form| !is_blank(form)));
        let normalized_forms = unique(taken.iter().map(|t| t.0).filter(|form| !is_blank(form)));
        let mut bytes = [false; 256];
        let mut joined = String::new();
        for (form, _) in forms.iter().chain(&normalized_forms) {
            form.bytes().for_each(|byte| bytes[byte as usize] = true);
            joined.push_str(form);
            joined.push('\n');
        }
        let sorted: Vec<Vec<u8>> = forms
            .iter()
            .map(|(form, _)| form.as_bytes().to_vec())
            .collect();
        let is_edge = |c: char| {
            let at_an_end = |(form, _): &(&str, u32)| form.starts_with(c) || form.ends_with(c);
            forms.iter().chain(&normalized_forms).any(at_an_end)
        };
        let edges = PUNCTUATION.chars().filter(|c| is_edge(*c)).collect();
        let mut reversed: Vec<Vec<u8>> = sorted
            .iter()
            .map(|form| form.iter().rev().copied().collect())
            .collect();
        reversed.sort_unstable();
        Ok(Added {
            raw: matcher(&raw, MatchKind::LeftmostLongest)?,
            normalized: matcher(&taken, MatchKind::LeftmostLongest)?,
            forms: matcher(&forms, MatchKind::Standard)?,
            normalized_forms: matcher(&normalized_forms, MatchKind::Standard)?,
            flags,
            longest: sorted.iter().map(Vec::len).max().unwrap_or(0),
            sorted,
            reversed,
            edges,
            joined,
            bytes,
        })
    }

    pub fn has_normalized(&self) -> bool {
        self.normalized.is_some()
    }

    /// Calls `found` with (begin, end, id) of each token in the unnormalized text, in order. None
    /// spans a place of `breaks` (ascending byte offsets), and a token of one character is not
    /// found between two of them. Without `control_tokens` only blank ones are found.
    pub fn find<E>(
        &self,
        text: &str,
        breaks: &[u32],
        control_tokens: bool,
        mut found: impl FnMut(usize, usize, u32) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(raw) = &self.raw else {
            return Ok(());
        };
        let mut done = 0;
        let mut begin = 0;
        let places = breaks.iter().map(|place| (*place as usize, true));
        let mut after_break = false;
        for (end, is_break) in places.chain([(text.len(), false)]) {
            if end < begin || !text.is_char_boundary(end) {
                continue;
            }
            let alone = after_break && is_break && text[begin..end].chars().nth(1).is_none();
            for m in raw.leftmost_find_iter(&text[begin..end]) {
                let flags = self.flags[&m.value()];
                if (alone || !control_tokens) && !flags.blank {
                    continue;
                }
                if let Some((start, stop)) =
                    flags.widen(text, begin + m.start(), begin + m.end(), done)
                {
                    found(start, stop, m.value())?;
                    done = stop;
                }
            }
            begin = end;
            after_break = true;
        }
        Ok(())
    }

    /// The tokens of normalized text: (begin, end, id) in bytes of it. `base` is the place of the
    /// text in the whole one that `breaks` belong to.
    pub fn find_normalized(
        &self,
        text: &NormalizedString,
        base: usize,
        breaks: &[u32],
        control_tokens: bool,
    ) -> Vec<(usize, usize, u32)> {
        let mut out = Vec::new();
        let Some(matcher) = &self.normalized else {
            return out;
        };
        let normalized = text.get();
        let base = base + text.offsets_original().0;
        let mut done = 0;
        let mut from = 0;
        'search: while from < normalized.len() {
            for m in matcher.leftmost_find_iter(&normalized[from..]) {
                let (start, stop) = (from + m.start(), from + m.end());
                let flags = self.flags[&m.value()];
                let alone = normalized[start..stop].chars().nth(1).is_none();
                let broken = !flags.blank
                    && text
                        .convert_offsets(Range::Normalized(start..stop))
                        .is_some_and(|r| spans(breaks, base + r.start, base + r.end, alone));
                if broken {
                    let first = normalized[start..].chars().next().map_or(1, char::len_utf8);
                    from = start + first;
                    continue 'search;
                }
                if !control_tokens && !flags.blank {
                    continue;
                }
                if let Some((start, stop)) = flags.widen(normalized, start, stop, done) {
                    out.push((start, stop, m.value()));
                    done = stop;
                }
            }
            break;
        }
        out
    }

    /// Places (ascending byte offsets) at which `text` must be broken so that no token is found in
    /// it, nor with text before or behind it when `ends` is set. Blank tokens are left alone.
    pub fn breaks(&self, tokenizer: &Tokenizer, text: &str, ends: bool) -> Outcome<Vec<u32>> {
        let mut places = Vec::new();
        if let Some(forms) = &self.forms {
            for m in forms.find_overlapping_iter(text) {
                break_form(text, m.start(), m.end(), &mut places);
            }
        }
        if let Some(forms) = &self.normalized_forms {
            if tokenizer.get_normalizer().is_some() {
                let normalized = normalize(tokenizer, text)?;
                let mut more = Vec::new();
                for m in forms.find_overlapping_iter(normalized.get()) {
                    let range = Range::Normalized(m.start()..m.end());
                    if let Some(range) = normalized.convert_offsets(range) {
                        break_form(text, range.start, range.end, &mut more);
                    }
                }
                places.extend(more);
            }
        }
        if ends && !text.is_empty() {
            self.break_ends(text, &mut places);
        }
        places.sort_unstable();
        places.dedup();
        Ok(places)
    }

    /// A form may be put together from this text and what stands beside it. Templates strip white
    /// space, so the ends without it count as well.
    fn break_ends(&self, text: &str, places: &mut Vec<u32>) {
        // Published tokens have at most about 40 bytes; of longer ones the beginning breaks them.
        let look = self.longest.min(LOOK_BYTES_MAX);
        let bare_end = text.trim_end().len();
        for end in [bare_end, text.len()] {
            if end > 0 && begins_form(&self.sorted, text[..end].bytes().rev().take(look)) {
                places.push(end as u32);
            }
        }
        let bare_begin = text.len() - text.trim_start().len();
        for begin in [0, bare_begin] {
            if begin < text.len() && begins_form(&self.reversed, text[begin..].bytes().take(look)) {
                places.push(begin as u32);
            }
        }
        let bare = text.trim();
        let inside = bare.len() < self.longest
            && !bare.is_empty()
            && bare.bytes().all(|byte| self.bytes[byte as usize])
            && self.joined.contains(bare);
        if inside {
            places.push(bare_begin as u32);
        }
    }
}

impl Flags {
    fn of(token: &AddedToken) -> Flags {
        Flags {
            blank: is_blank(&token.content),
            single_word: token.single_word,
            lstrip: token.lstrip,
            rstrip: token.rstrip,
        }
    }

    /// The range with the white space that the token takes along; None when it is no word alone.
    /// `done` is the end of the token before.
    fn widen(self, text: &str, start: usize, stop: usize, done: usize) -> Option<(usize, usize)> {
        let (mut start, mut stop) = (start, stop);
        if self.single_word {
            let before = text[..start].chars().next_back().is_some_and(is_word);
            let behind = text[stop..].chars().next().is_some_and(is_word);
            if before || behind {
                return None;
            }
        }
        if self.lstrip {
            start = text[..start].trim_end().len().max(done);
        }
        if self.rstrip {
            stop += text[stop..].len() - text[stop..].trim_start().len();
        }
        Some((start, stop))
    }
}

/// True when a place of `breaks` lies strictly inside the range, or at both ends of it where it is
/// of one character (`alone`): the template's own tokens may stand between broken strings.
fn spans(breaks: &[u32], begin: usize, end: usize, alone: bool) -> bool {
    let first = breaks.partition_point(|place| *place as usize <= begin);
    let inside = breaks
        .get(first)
        .is_some_and(|place| (*place as usize) < end);
    let at = |place: usize| breaks.binary_search(&(place as u32)).is_ok();
    inside || (alone && at(begin) && at(end))
}

/// Breaks the occurrence [begin, end) unless it is broken already; occurrences come in the order of
/// their ends, so the last place tells. One of a single character is broken at both sides.
fn break_form(text: &str, begin: usize, end: usize, places: &mut Vec<u32>) {
    let first = text[begin..].chars().next().map_or(1, char::len_utf8);
    if begin + first >= end {
        places.extend([begin as u32, end as u32]);
        return;
    }
    if !places.last().is_some_and(|place| *place as usize > begin) {
        places.push((begin + first) as u32);
    }
}

/// True when the bytes at the end of a text (`backwards`, last one first) begin a form and the form
/// goes on beyond them. With reversed forms and a text read forwards: when its first bytes end one.
fn begins_form(sorted: &[Vec<u8>], backwards: impl Iterator<Item = u8>) -> bool {
    let mut tail: Vec<u8> = backwards.collect();
    tail.reverse();
    (0..tail.len()).any(|from| {
        let part = &tail[from..];
        let at = sorted.partition_point(|form| form.as_slice() <= part);
        sorted.get(at).is_some_and(|form| form.starts_with(part))
    })
}

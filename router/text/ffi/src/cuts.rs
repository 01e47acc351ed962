//! Places at which a text may be cut and encoded in pieces, with exactly the ids of the whole text.
//! A place is proven, never guessed: from the pre-tokenizer's rules (no match of them holds the
//! characters on both sides, and none looks across), or, where no pre-tokenizer cuts, from the
//! vocabulary (no token holds the character before the place followed by a blank, so no merge
//! crosses it). Normalizers that could change anything across the place, rules that are not known,
//! and added tokens that could span it leave no place: such a text runs whole.
//!
//! The known rules, with classes L letters, D ASCII digits, P other ASCII characters, X other
//! characters, S blank and tab, N line breaks:
//! - GPT-2's: a match is an optional blank and characters of one class, a contraction, or white
//!   space alone. So a match ends before white space, and wherever the class changes but between an
//!   apostrophe and a letter.
//! - Llama 3's and Qwen 2's: as above, but one character that is no letter may precede letters, and
//!   line breaks may follow P and X. A line break always ends its match when no white space
//!   follows.
//! - o200k's: only "no match goes on with a blank or tab behind something else" is used.

use ahash::AHashSet;
use serde_json::Value;
use tokenizers::{Model, ModelWrapper, Tokenizer};

use crate::added;
use crate::bound::{has_all_byte_tokens, steps};
use crate::bpe::{LLAMA3, QWEN2};

const CL100K: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

#[derive(Clone, Copy, PartialEq)]
pub enum Rules {
    Gpt2,
    Llama3,
    O200k,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Class {
    Letter,
    Digit,
    Other,
    /// Neither white space nor of the classes above for sure.
    Wide,
    Blank,
    Line,
    Unknown,
}

/// Blocks whose characters are all letters, stand for themselves in every normal form that composes,
/// and never combine with the character before them.
fn is_sure_letter(c: char) -> bool {
    matches!(c,
        '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}' | '\u{f8}'..='\u{17f}' // Latin
        | '\u{391}'..='\u{3a1}' | '\u{3b1}'..='\u{3c9}' // Greek
        | '\u{410}'..='\u{44f}' // Cyrillic
        | '\u{5d0}'..='\u{5ea}' // Hebrew
        | '\u{3041}'..='\u{3096}' | '\u{30a1}'..='\u{30fa}' // Kana
        | '\u{4e00}'..='\u{9fa5}' // Chinese
        | '\u{ac00}'..='\u{d7a3}') // Hangul
}

fn class(c: char) -> Class {
    match c {
        'a'..='z' | 'A'..='Z' => Class::Letter,
        '0'..='9' => Class::Digit,
        ' ' | '\t' => Class::Blank,
        '\n' | '\r' => Class::Line,
        '\u{1}'..='\u{8}' | '!'..='~' => Class::Other,
        _ if is_sure_letter(c) => Class::Letter,
        // Invisible characters that libraries disagree on.
        '\u{180e}' | '\u{2000}'..='\u{206f}' | '\u{feff}' => Class::Unknown,
        _ if (c as u32) > 0xa0 && !c.is_whitespace() => Class::Wide,
        _ => Class::Unknown,
    }
}

pub enum Cuts {
    Words {
        rules: Rules,
        /// Each digit is a piece of its own.
        single_digits: bool,
        /// Digits are taken by threes from the beginning of a run.
        digits_by_three: bool,
    },
    /// SentencePiece: characters that some token has before a blank.
    Blanks(AHashSet<char>),
}

impl Cuts {
    pub fn of(tokenizer: &Tokenizer) -> Option<Cuts> {
        let normalizers = steps(
            serde_json::to_value(tokenizer.get_normalizer()),
            "normalizers",
        )?;
        let pre = serde_json::to_value(tokenizer.get_pre_tokenizer());
        let pre = steps(pre, "pretokenizers")?;
        let mut cuts = if pre.is_empty() || pre[0]["type"] == "Metaspace" {
            of_blanks(tokenizer, &normalizers, &pre)?
        } else {
            of_words(&normalizers, &pre)?
        };
        cuts.respect_added(tokenizer)?;
        Some(cuts)
    }

    /// None when a token that is found in normalized text could span a place, or looks at what
    /// stands beside it.
    fn respect_added(&mut self, tokenizer: &Tokenizer) -> Option<()> {
        for token in tokenizer.get_added_tokens_decoder().values() {
            if !token.normalized {
                continue; // found before the text is cut
            }
            if token.single_word || token.lstrip || token.rstrip {
                return None;
            }
            let form = added::normalize(tokenizer, &token.content).ok()?;
            let pairs = form.get().chars().zip(form.get().chars().skip(1));
            for (before, behind) in pairs {
                let behind = if behind == '\u{2581}' { ' ' } else { behind };
                if self.may_cut(before, behind) {
                    return None;
                }
                if before.is_ascii_digit() && behind.is_ascii_digit() {
                    if let Cuts::Words {
                        digits_by_three, ..
                    } = self
                    {
                        *digits_by_three = false;
                    }
                }
            }
        }
        Some(())
    }

    /// True when a text may be cut between these characters wherever they stand.
    fn may_cut(&self, before: char, behind: char) -> bool {
        use Class::*;
        let (rules, single_digits) = match self {
            Cuts::Blanks(barred) => {
                return behind == ' '
                    && before != ' '
                    && before != '\u{2581}'
                    && !barred.contains(&before)
            }
            Cuts::Words {
                rules,
                single_digits,
                ..
            } => (*rules, *single_digits),
        };
        let (a, b) = (class(before), class(behind));
        let solid = matches!(a, Letter | Digit | Other | Wide);
        match rules {
            Rules::O200k => solid && b == Blank,
            _ if single_digits && a == Digit && b == Digit => true,
            _ => match (a, b) {
                (Letter, Digit) | (Digit, Letter) | (Other, Digit) => true,
                (Letter | Digit, Other) => true,
                (Other, Letter) => rules == Rules::Gpt2 && before != '\'',
                (_, Blank) => solid,
                (Letter | Digit, Line) => true,
                (_, Line) => solid && rules == Rules::Gpt2,
                (Line, Letter | Digit | Other | Wide) => rules == Rules::Llama3,
                _ => false,
            },
        }
    }

    /// The first place at or behind `target` at which `text` may be cut; its end when there is
    /// none. `text` begins at such a place.
    pub fn next(&self, text: &str, target: usize) -> usize {
        if let Cuts::Words {
            digits_by_three: true,
            ..
        } = self
        {
            // A blank before digits is a piece of its own there.
            let begin = usize::from(text.starts_with(' '));
            let target = target.min(text.len());
            if target >= begin + 3
                && text.as_bytes()[begin..target]
                    .iter()
                    .all(u8::is_ascii_digit)
            {
                return begin + (target - begin) / 3 * 3;
            }
        }
        let mut at = target;
        while at > 0 && !text.is_char_boundary(at) {
            at -= 1;
        }
        let Some(mut before) = text[..at].chars().next_back() else {
            return text.len();
        };
        for (i, behind) in text[at..].char_indices() {
            if self.may_cut(before, behind) {
                return at + i;
            }
            before = behind;
        }
        text.len()
    }
}

/// Pre-tokenizers that cut words by known rules.
fn of_words(normalizers: &[Value], pre: &[Value]) -> Option<Cuts> {
    // Composition stops before every character of the classes that stand behind a place.
    if !normalizers.iter().all(|step| step["type"] == "NFC") {
        return None;
    }
    let mut found: Option<Rules> = None;
    let mut single_digits = false;
    let mut by_three = false;
    for step in pre {
        let isolated = step["behavior"] == "Isolated" && step["invert"] == false;
        match step["type"].as_str()? {
            // These cut by single characters; white space and words stay together.
            "Digits" => single_digits |= step["individual_digits"] == true,
            "Punctuation"
                if matches!(step["behavior"].as_str(), Some("Isolated" | "Contiguous")) => {}
            "ByteLevel" if step["add_prefix_space"] == true => return None,
            "ByteLevel" if step["use_regex"] == true => {
                found = found.or(Some(Rules::Gpt2));
            }
            "ByteLevel" => {}
            "Split" if found.is_some() => {} // inside the pieces of the step before
            "Split" if isolated => {
                let rules = match step["pattern"]["Regex"].as_str()? {
                    LLAMA3 | CL100K => {
                        by_three = true;
                        Rules::Llama3
                    }
                    QWEN2 => {
                        single_digits = true;
                        Rules::Llama3
                    }
                    O200K => Rules::O200k,
                    _ => return None,
                };
                found = Some(rules);
            }
            _ => return None,
        }
    }
    Some(Cuts::Words {
        rules: found?,
        single_digits,
        digits_by_three: by_three && !single_digits,
    })
}

/// SentencePiece's form of BPE: no word is cut, but merges stay within what tokens hold.
fn of_blanks(tokenizer: &Tokenizer, normalizers: &[Value], pre: &[Value]) -> Option<Cuts> {
    let known = |step: &Value| match step["type"].as_str() {
        Some("Prepend") => step["prepend"] == "\u{2581}",
        Some("Replace") => step["pattern"]["String"] == " " && step["content"] == "\u{2581}",
        _ => false,
    };
    if !normalizers.iter().all(known) || pre.len() > 1 {
        return None;
    }
    let replaces = normalizers.iter().any(|step| step["type"] == "Replace")
        || pre
            .first()
            .is_some_and(|step| step["replacement"] == "\u{2581}");
    let ModelWrapper::BPE(bpe) = tokenizer.get_model() else {
        return None;
    };
    let affixed = |affix: &Option<String>| affix.as_ref().is_some_and(|a| !a.is_empty());
    if !replaces
        || bpe.dropout.is_some_and(|share| share > 0.0)
        || affixed(&bpe.continuing_subword_prefix)
        || affixed(&bpe.end_of_word_suffix)
        || bpe.token_to_id("\u{2581}").is_none()
        // Else characters without a token are dropped, and what stood around them may merge.
        || !(bpe.unk_token.is_some() || has_all_byte_tokens(bpe))
    {
        return None;
    }
    let mut barred = AHashSet::new();
    for token in bpe.get_vocab().keys() {
        let pairs = token.chars().zip(token.chars().skip(1));
        barred.extend(pairs.filter(|pair| pair.1 == '\u{2581}').map(|pair| pair.0));
    }
    Some(Cuts::Blanks(barred))
}

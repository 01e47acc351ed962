// C ABI of the Rust static library in this folder: the `tokenizers` and `minijinja` crates as
// weft uses them. Only router/text/*.cc include it. Every call is thread-safe on a const handle;
// none keeps a pointer it was given. A Rust panic never crosses: it becomes WEFT_TEXT_PANIC.
//
// What a call hands out belongs to the caller, who gives it back to the *_free of its type (null
// handles and empty values are fine). On any status but WEFT_TEXT_OK the outputs are untouched and
// `error` holds a message for people; free it.

#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct WeftTokenizer WeftTokenizer;
typedef struct WeftTemplate WeftTemplate;

typedef enum {
  WEFT_TEXT_OK = 0,
  // Input that the callee refuses: broken file contents, invalid UTF-8, a template's exception.
  WEFT_TEXT_INVALID = 1,
  // A bound given by the caller was reached.
  WEFT_TEXT_LIMIT = 2,
  // A bug in this library or below it.
  WEFT_TEXT_PANIC = 3,
  // weft_tokenizer_encode ended early; there is no `error`.
  WEFT_TEXT_TOO_MANY = 4,
  WEFT_TEXT_CANCELLED = 5,
} WeftTextStatus;

// Borrowed bytes; `data` may be null when `size` is 0. UTF-8 unless said otherwise.
typedef struct {
  const char* data;
  size_t size;
} WeftSlice;

// Owned bytes; free with weft_text_free.
typedef struct {
  char* data;
  size_t size;
} WeftText;

void weft_text_free(WeftText text);

// -- Tokenizer ---------------------------------------------------------------------------------

// What a token is, by GGUF's tokenizer.ggml.token_type.
typedef enum {
  WEFT_TOKEN_NORMAL = 0,
  // Matched in the text before everything else and skipped in answers (GGUF 2 and 3).
  WEFT_TOKEN_CONTROL = 1,
  // Matched in the text before everything else, a part of answers (GGUF 4).
  WEFT_TOKEN_USER_DEFINED = 2,
} WeftTokenKind;

// A byte-level BPE vocabulary, index = id. `token_kinds` has `token_count` WeftTokenKind bytes. A
// merge is its two tokens with a blank between. `pre` is GGUF's tokenizer.ggml.pre.
typedef struct {
  const WeftSlice* tokens;
  const uint8_t* token_kinds;
  size_t token_count;
  const WeftSlice* merges;
  size_t merge_count;
  WeftSlice pre;
} WeftBpe;

// A SentencePiece BPE vocabulary, index = id: of two neighbours those are merged first whose piece
// has the highest score. `unknown` is the id for what has no piece, token_count when there is none.
// `blank_first`: a blank goes before each text between control tokens.
typedef struct {
  const WeftSlice* tokens;
  const uint8_t* token_kinds;
  const float* scores;
  size_t token_count;
  uint32_t unknown;
  bool blank_first;
} WeftPieces;

// From the contents of a tokenizer.json. WEFT_TEXT_INVALID also when its decoder is none of
// WeftDecoderKind, or when it has an id >= ids_max.
WeftTextStatus weft_tokenizer_from_json(WeftSlice json, uint32_t ids_max, WeftTokenizer** out,
                                        WeftText* error);
WeftTextStatus weft_tokenizer_from_bpe(const WeftBpe* bpe, WeftTokenizer** out, WeftText* error);
WeftTextStatus weft_tokenizer_from_pieces(const WeftPieces* pieces, WeftTokenizer** out,
                                          WeftText* error);
void weft_tokenizer_free(WeftTokenizer* tokenizer);

typedef struct {
  // Ascending byte offsets in the text that no added token may span. An added token of one
  // character is not found between two of them. Blank ones (white space alone) always are.
  const uint32_t* breaks;
  size_t break_count;
  // WEFT_TEXT_TOO_MANY as soon as there are more ids; `count` of the result is the number so far.
  size_t tokens_max;
  // A longer text between two added tokens is encoded in pieces of about so many bytes, cut only
  // where that changes no id (cuts.rs).
  size_t piece_bytes;
  // An atomic flag or null; WEFT_TEXT_CANCELLED soon after it is set.
  const bool* cancelled;
  bool add_special_tokens;
  // False: added tokens that are written out in the text stay text, but for blank ones.
  bool control_tokens;
  bool offsets;
} WeftEncodeOptions;

typedef struct {
  uint32_t* ids;
  // Begin and end of each token in bytes of the text; none when they are not wanted.
  uint32_t* offsets;
  size_t count;
  size_t offset_count;
} WeftEncoding;

WeftTextStatus weft_tokenizer_encode(const WeftTokenizer* tokenizer, WeftSlice text,
                                     const WeftEncodeOptions* options, WeftEncoding* out,
                                     WeftText* error);
void weft_encoding_free(WeftEncoding encoding);

// Bytes that encoding `text` needs at most. With an empty text: any text of `text_bytes` bytes.
size_t weft_tokenizer_work_bytes_max(const WeftTokenizer* tokenizer, WeftSlice text,
                                     size_t text_bytes, size_t piece_bytes);

// Where `text` must be broken so that no added token is found in it (blank ones aside), as `ids` of
// `out`: ascending byte offsets. `ends`: nor together with text before or behind it.
WeftTextStatus weft_tokenizer_breaks(const WeftTokenizer* tokenizer, WeftSlice text, bool ends,
                                     WeftEncoding* out, WeftText* error);

// The ASCII punctuation, each character once, with which the written forms of added tokens begin or
// end (blank ones aside). No quotes, no backslash, no '_'. Borrowed: it lives as long as the
// tokenizer.
WeftSlice weft_tokenizer_form_edges(const WeftTokenizer* tokenizer);

// `text` has at least so many tokens: a sound bound from its bytes, without encoding it (bound.rs).
// 0 where nothing is known of the tokenizer.
size_t weft_tokenizer_tokens_min(const WeftTokenizer* tokenizer, WeftSlice text);

typedef enum { WEFT_DECODER_BYTE_LEVEL = 0, WEFT_DECODER_SENTENCE_PIECE = 1 } WeftDecoderKind;

// The raw bytes behind all ids; token i is bytes [starts[i], starts[i + 1]). Borrowed: lives as
// long as the tokenizer.
typedef struct {
  const char* bytes;
  const uint32_t* starts;   // size + 1
  const uint8_t* specials;  // size; 1 = special
  uint32_t size;            // largest id + 1
  uint8_t decoder;          // WeftDecoderKind
  bool strip_leading_blank;
} WeftVocab;

WeftVocab weft_tokenizer_vocab(const WeftTokenizer* tokenizer);

// True and the id when `token` is the written form of a token.
bool weft_tokenizer_find(const WeftTokenizer* tokenizer, WeftSlice token, uint32_t* id);

// -- Chat template -----------------------------------------------------------------------------

WeftTextStatus weft_template_compile(WeftSlice source, WeftSlice bos_token, WeftSlice eos_token,
                                     WeftTemplate** out, WeftText* error);
void weft_template_free(WeftTemplate* chat_template);

typedef struct {
  // Of the engine's instructions.
  uint64_t fuel;
  size_t output_bytes_max;
  // What the template takes for now; 0 = the clock's.
  uint32_t now_unix_s;
} WeftTemplateLimits;

// `values` holds the template's variables but BOS and EOS, as ../chat_values.h writes them.
// WEFT_TEXT_LIMIT above a limit.
WeftTextStatus weft_template_render(const WeftTemplate* chat_template, WeftSlice values,
                                    const WeftTemplateLimits* limits, WeftText* out,
                                    WeftText* error);

// -- Grammars ----------------------------------------------------------------------------------
// The `llguidance` crate. An environment and a grammar may be used by many threads at once, a
// matcher by one at a time.

typedef struct WeftGrammarEnv WeftGrammarEnv;
typedef struct WeftGrammar WeftGrammar;
typedef struct WeftMatcher WeftMatcher;
typedef struct WeftCancel WeftCancel;

typedef struct {
  // Of all texts of a source.
  size_t source_bytes;
  // In the productions of a grammar.
  size_t symbols;
  // Nodes of regular expressions that a compilation and a mask may make.
  uint64_t compile_fuel;
  // Of the thread that compiles; what took more is refused behind it.
  uint64_t compile_cpu_us;
  uint64_t mask_fuel;
  // Items of the parser for a mask, and behind a token.
  size_t mask_items;
  size_t row_items;
  // A lexer that has more is left for a new one.
  size_t lexer_bytes;
  // Matchers of one grammar share so many lexers, whose states they find out together and for which
  // they wait: more wait less, fewer know more. > 0.
  size_t lexers;
} WeftGrammarLimits;

// `vocab`: what weft_tokenizer_vocab gives, or a table of the same shape; it is copied. A token of
// more than 1,000 bytes is never allowed. `eos`: tokens that end an answer, at least one.
WeftTextStatus weft_grammar_env_new(const WeftVocab* vocab, const uint32_t* eos, size_t eos_count,
                                    const WeftGrammarLimits* limits, WeftGrammarEnv** out,
                                    WeftText* error);
void weft_grammar_env_free(WeftGrammarEnv* env);

typedef enum {
  WEFT_GRAMMAR_JSON_SCHEMA = 0,
  // Any JSON object; no text.
  WEFT_GRAMMAR_JSON_OBJECT = 1,
  WEFT_GRAMMAR_LARK = 2,
  // Of the `regex` crate; it fits the whole answer.
  WEFT_GRAMMAR_REGEX = 3,
  // One of the texts, whole.
  WEFT_GRAMMAR_CHOICE = 4,
  // A JSON document of type structural_tag.
  WEFT_GRAMMAR_STRUCTURAL_TAG = 5,
} WeftGrammarKind;

typedef struct {
  const WeftSlice* texts;
  size_t text_count;
  uint8_t kind;  // WeftGrammarKind
  // A schema's objects that list properties and do not speak of others take no others.
  bool closed_objects;
} WeftGrammarSource;

// WEFT_TEXT_INVALID with what is wrong, WEFT_TEXT_LIMIT. Not to be interrupted; the limits bound
// it.
WeftTextStatus weft_grammar_compile(const WeftGrammarEnv* env, const WeftGrammarSource* source,
                                    WeftGrammar** out, WeftText* error);
void weft_grammar_free(WeftGrammar* grammar);
// Memory that it holds, matchers aside: an estimate for caches.
size_t weft_grammar_bytes(const WeftGrammar* grammar);

// A matcher keeps its grammar alive. After WEFT_TEXT_LIMIT, which says that the grammar is too
// complex, and after WEFT_TEXT_PANIC a matcher says the same for ever.
WeftTextStatus weft_matcher_new(const WeftGrammar* grammar, WeftMatcher** out, WeftText* error);
WeftTextStatus weft_matcher_fork(const WeftMatcher* matcher, WeftMatcher** out, WeftText* error);
void weft_matcher_free(WeftMatcher* matcher);

// Bit i % 32 of words[i / 32] is 1 when token i may come next; 0 beyond the vocabulary.
WeftTextStatus weft_matcher_mask(WeftMatcher* matcher, uint32_t* words, size_t word_count,
                                 WeftText* error);
// `fits` is false, and nothing has changed, for a token that may not come next.
WeftTextStatus weft_matcher_consume(WeftMatcher* matcher, uint32_t id, bool* fits, WeftText* error);
// Forgets the last `count` tokens.
WeftTextStatus weft_matcher_rollback(WeftMatcher* matcher, size_t count, WeftText* error);

typedef struct {
  size_t tokens;
  size_t lexer_bytes;
  // Of the last mask.
  uint64_t mask_fuel;
  uint64_t mask_items;
  // The text is complete; nothing but an end may come.
  bool may_stop;
  bool must_stop;
} WeftMatcherState;

WeftTextStatus weft_matcher_state(WeftMatcher* matcher, WeftMatcherState* out, WeftText* error);
// The text that comes next whatever is chosen.
WeftTextStatus weft_matcher_forced(const WeftMatcher* matcher, WeftText* out, WeftText* error);

// Ends the matcher's running call, and all that follow, with WEFT_TEXT_LIMIT. Made by the matcher's
// thread, set by any, also after the matcher is gone.
WeftCancel* weft_matcher_cancel_new(const WeftMatcher* matcher);
void weft_cancel_set(const WeftCancel* cancel);
void weft_cancel_free(WeftCancel* cancel);

#ifdef __cplusplus
}
#endif

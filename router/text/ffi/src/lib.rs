//! The C ABI of ../weft_text.h over the `tokenizers` and `minijinja` crates. `abi` holds what every
//! entry point shares (slices, owned buffers, the panic guard); the rest is one file a subject.

mod abi;
mod added;
mod bound;
mod bpe;
mod cuts;
mod decoder;
mod encode;
mod grammar;
mod grammar_cost;
mod grammar_format;
mod grammar_lark;
mod grammar_matcher;
mod grammar_schema;
mod grammar_tags;
mod load;
mod marks;
mod pieces;
mod python;
mod python_json;
mod python_methods;
mod template;
mod tokenizer;
mod values;

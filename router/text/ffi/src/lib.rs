//! The C ABI of ../weft_text.h over the `tokenizers` and `minijinja` crates. `abi` holds what every
//! entry point shares (slices, owned buffers, the panic guard); the rest is one file a subject.

mod abi;
mod added;
mod bound;
mod bpe;
mod cuts;
mod decoder;
mod encode;
mod load;
mod marks;
mod pieces;
mod python_json;
mod template;
mod tokenizer;

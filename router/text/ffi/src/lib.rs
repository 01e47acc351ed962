//! The C ABI of ../weft_text.h over the `tokenizers` and `minijinja` crates. `abi` holds what every
//! entry point shares (slices, owned buffers, the panic guard); the rest is one file a subject.

mod abi;
mod bound;
mod bpe;
mod decoder;
mod python_json;
mod template;
mod tokenizer;

//! What language models come with: GGUF files, tokenizers and chat templates.
//!
//! Depends on `tensor` and `io`. The models themselves are modules of Python's `lucid.llm`, made of this crate's ops.
//! Invariant: a file of any bytes gives an error or what it says, never a panic.

pub mod blocks;
pub mod gguf;
#[cfg(feature = "llm")]
pub mod template;
#[cfg(feature = "llm")]
pub mod tokenizer;

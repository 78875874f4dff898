//! What language models come with: GGUF files, tokenizers, chat templates, constraints and a server's HTTP side.
//!
//! Depends on `tensor` and `io`. The models themselves are modules of Python's `lucid.llm`, made of this crate's ops.
//! Invariant: a file of any bytes gives an error or what it says, never a panic.

pub mod blocks;
#[cfg(feature = "llm")]
pub mod constraint;
pub mod gguf;
pub mod gguf_writer;
#[cfg(feature = "serve")]
pub mod http;
#[cfg(feature = "llm")]
pub mod template;
#[cfg(feature = "llm")]
pub mod tokenizer;

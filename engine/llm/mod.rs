//! Language models: a decoder, GGUF files, tokenizers, chat templates, constraints and a server's HTTP side.
//!
//! Depends on `tensor` and `io`. The decoder infers; Python's `lucid.llm` trains too, and shares the rotations and
//! the sampling that are here.
//! Invariant: a file of any bytes gives an error or what it says, never a panic.

#[cfg(feature = "safetensors")]
mod batch;
pub mod blocks;
#[cfg(feature = "safetensors")]
mod cache;
pub mod config;
#[cfg(feature = "llm")]
pub mod constraint;
#[cfg(feature = "safetensors")]
pub mod decoder;
#[cfg(feature = "safetensors")]
mod draft;
#[cfg(feature = "safetensors")]
mod experts;
pub mod gguf;
pub mod gguf_writer;
#[cfg(feature = "serve")]
pub mod http;
#[cfg(feature = "safetensors")]
mod layer;
pub mod rope;
pub mod sampling;
#[cfg(feature = "llm")]
pub mod template;
#[cfg(all(feature = "llm", feature = "safetensors"))]
pub mod text;
#[cfg(feature = "llm")]
pub mod tokenizer;
#[cfg(feature = "safetensors")]
pub mod weights;

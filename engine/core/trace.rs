//! What an error says, with the calls that led to it where `RUST_BACKTRACE` asks for these.
//!
//! A backtrace is taken where the message becomes an error's. Without the variable that costs one look at a flag.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The calls that led to an error, if they were asked for.
#[derive(Clone, Default)]
pub struct Trace(Option<Arc<Backtrace>>);

impl Trace {
    /// Those that led here.
    #[cold]
    pub fn here() -> Trace {
        let calls = Backtrace::capture();
        Trace((calls.status() == BacktraceStatus::Captured).then(|| Arc::new(calls)))
    }

    /// The calls.
    pub fn backtrace(&self) -> Option<&Backtrace> {
        self.0.as_deref()
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Trace(..)" } else { "Trace" })
    }
}

/// An error's text: a `str` to those who read it, made of anything that becomes a `String`.
#[derive(Clone)]
pub struct Message {
    text: String,
    trace: Trace,
}

impl Message {
    /// Where it was made.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }
}

impl From<String> for Message {
    #[cold]
    fn from(text: String) -> Message {
        Message { text, trace: Trace::here() }
    }
}

impl From<&str> for Message {
    #[cold]
    fn from(text: &str) -> Message {
        Message::from(text.to_string())
    }
}

impl From<Message> for String {
    fn from(message: Message) -> String {
        message.text
    }
}

impl Deref for Message {
    type Target = str;
    fn deref(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

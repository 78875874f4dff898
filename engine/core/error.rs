//! The one error type of the engine.
//!
//! Every message names the op, what it was given and what to do. The Python crate maps each variant to an exception
//! that also derives from the builtin which PyTorch raises in the same place. Where `RUST_BACKTRACE` asks for it, an error
//! has the calls that led to it ([`Error::backtrace`]), which `{:?}` shows.

pub use crate::trace::{Message, Trace};
use crate::{DType, Device};
use std::backtrace::Backtrace;
use std::fmt;

/// What can go wrong.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Shapes that do not fit together, or do not fit the op.
    #[error("{op}: {why} (shapes: {})", List(shapes))]
    ShapeMismatch {
        /// The op's name.
        op: &'static str,
        /// What is wrong, and what would be right.
        why: Message,
        /// The shapes given.
        shapes: Vec<Vec<usize>>,
    },
    /// Dtypes that differ where they must not, or do not fit.
    #[error("{op}: {why} (dtypes: {})", Names(dtypes))]
    DtypeMismatch {
        /// The op's name.
        op: &'static str,
        /// What is wrong, and what would be right.
        why: Message,
        /// The dtypes given.
        dtypes: Vec<DType>,
    },
    /// A dtype that the op is not made for.
    #[error("{op}: {why} (dtypes: {})", Names(dtypes))]
    UnsupportedDtype {
        /// The op's name.
        op: &'static str,
        /// Which dtypes it takes.
        why: Message,
        /// The dtypes given.
        dtypes: Vec<DType>,
    },
    /// Tensors of different devices in one op, or a device that the op or dtype does not exist on.
    #[error("{op}: {why} (devices: {})", Names(devices))]
    DeviceMismatch {
        /// The op's name.
        op: &'static str,
        /// What is wrong, and what would be right.
        why: Message,
        /// The devices given.
        devices: Vec<Device>,
    },
    /// A dimension or an element index out of range.
    #[error("{op}: {why}")]
    IndexOutOfRange {
        /// The op's name.
        op: &'static str,
        /// Which index, and the range allowed.
        why: Message,
    },
    /// An argument of the right kind with a value that makes no sense.
    #[error("{op}: {why}")]
    InvalidValue {
        /// The op's name.
        op: &'static str,
        /// Which argument, its value, and what is allowed.
        why: Message,
    },
    /// An argument of the wrong kind.
    #[error("{op}: {why}")]
    InvalidType {
        /// The op's name.
        op: &'static str,
        /// Which argument, its kind, and what is allowed.
        why: Message,
    },
    /// Something that the state of the tensors or of the graph forbids.
    #[error("{op}: {why}")]
    Runtime {
        /// The op's name.
        op: &'static str,
        /// What is wrong, and what to do.
        why: Message,
    },
    /// A matrix that cannot be factored: singular, not positive-definite, or of numbers that are not finite.
    #[error("{op}: {why}")]
    LinAlg {
        /// The op's name.
        op: &'static str,
        /// What is wrong with the matrix.
        why: Message,
    },
    /// A tensor needed by backward was changed in place after it was saved.
    #[error(
        "one of the variables needed for gradient computation has been modified by an inplace operation: {op} saved a \
         tensor of shape {shape:?} at version {saved}, and it is at version {found} now; clone it before the in-place op"
    )]
    VersionMismatch {
        /// The op that saved the tensor.
        op: &'static str,
        /// The saved tensor's shape.
        shape: Vec<usize>,
        /// The version when saved.
        saved: u32,
        /// The version now.
        found: u32,
        /// Where that was noticed.
        trace: Trace,
    },
    /// The GPU device was asked for and cannot be had.
    #[error("{0}")]
    GpuNotAvailable(Message),
    /// An allocation failed.
    #[error("{device} is out of memory: {why}")]
    OutOfMemory {
        /// Where.
        device: Device,
        /// The size asked for, and what to do.
        why: Message,
    },
    /// Sizes that a backend cannot count: MLX's numbers have 32 bits.
    #[error("{op}: {why}")]
    BackendLimit {
        /// The op's name.
        op: &'static str,
        /// Which size, the limit, and what to do.
        why: Message,
    },
    /// A combination that exists in PyTorch and not here; listed in the support table.
    #[error("{op}: not implemented: {why}")]
    NotImplemented {
        /// The op's name.
        op: &'static str,
        /// What, and what to use instead.
        why: Message,
    },
    /// A file could not be read or written, or is not what it should be.
    #[error("{path}: {why}")]
    Io {
        /// The path, verbatim.
        path: String,
        /// The cause.
        why: Message,
        /// Does the file not exist?
        missing: bool,
    },
    /// Processes that compute together could not: one is gone, late, or does something else.
    #[error("{op}: {why}")]
    Distributed {
        /// The op's name.
        op: &'static str,
        /// Which rank, in which operation of which group.
        why: Message,
    },
    /// A backend reported an error of its own.
    #[error("{op}: {why}")]
    Backend {
        /// The op's name.
        op: &'static str,
        /// The backend's message, verbatim.
        why: Message,
    },
    /// An error of a layer of a Rust model.
    #[error("{path}: {cause}")]
    Module {
        /// Where the layer is in the model, such as `encoder.layers.3.attn`, or its kind where it is in none.
        path: String,
        /// What went wrong there: part of the message, and therefore no `source` that would say it again.
        cause: Box<Error>,
    },
}

/// Result with the engine's [`Error`], boxed so that the happy path stays two words wide.
pub type Result<T, E = Box<Error>> = std::result::Result<T, E>;

struct List<'a>(&'a [Vec<usize>]);
impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, s) in self.0.iter().enumerate() {
            write!(f, "{}{s:?}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

struct Names<'a, T>(&'a [T]);
impl<T: fmt::Display> fmt::Display for Names<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, s) in self.0.iter().enumerate() {
            write!(f, "{}{s}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

macro_rules! constructors {
    ($($name:ident => $var:ident;)*) => {
        impl Error {
            $(#[doc = concat!("[`Error::", stringify!($var), "`] of an op.")] #[cold] pub fn $name(op: &'static str, why: impl Into<String>) -> Box<Error> {
                Box::new(Error::$var { op, why: why.into().into() })
            })*
        }
    };
}
constructors! {
    index => IndexOutOfRange;
    value => InvalidValue;
    kind => InvalidType;
    runtime => Runtime;
    lin_alg => LinAlg;
    not_implemented => NotImplemented;
    backend => Backend;
    distributed => Distributed;
    limit => BackendLimit;
}

/// The kind, the message, and the backtrace where there is one: what a `main` that fails prints.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {self}", self.kind_name())?;
        match self.backtrace() {
            Some(backtrace) => write!(f, "\n\nstack backtrace:\n{backtrace}"),
            None => Ok(()),
        }
    }
}

impl Error {
    /// The calls that led to the error, where the environment variables `RUST_BACKTRACE` or `RUST_LIB_BACKTRACE` ask for them.
    pub fn backtrace(&self) -> Option<&Backtrace> {
        let trace = match self {
            Error::ShapeMismatch { why, .. }
            | Error::DtypeMismatch { why, .. }
            | Error::UnsupportedDtype { why, .. }
            | Error::DeviceMismatch { why, .. }
            | Error::IndexOutOfRange { why, .. }
            | Error::InvalidValue { why, .. }
            | Error::InvalidType { why, .. }
            | Error::Runtime { why, .. }
            | Error::LinAlg { why, .. }
            | Error::OutOfMemory { why, .. }
            | Error::BackendLimit { why, .. }
            | Error::NotImplemented { why, .. }
            | Error::Io { why, .. }
            | Error::Distributed { why, .. }
            | Error::Backend { why, .. }
            | Error::GpuNotAvailable(why) => why.trace(),
            Error::VersionMismatch { trace, .. } => trace,
            Error::Module { cause, .. } => return cause.backtrace(),
        };
        trace.backtrace()
    }

    /// The variant's name; that of its cause where a layer's path stands before it.
    fn kind_name(&self) -> &'static str {
        match self {
            Error::ShapeMismatch { .. } => "ShapeMismatch",
            Error::DtypeMismatch { .. } => "DtypeMismatch",
            Error::UnsupportedDtype { .. } => "UnsupportedDtype",
            Error::DeviceMismatch { .. } => "DeviceMismatch",
            Error::IndexOutOfRange { .. } => "IndexOutOfRange",
            Error::InvalidValue { .. } => "InvalidValue",
            Error::InvalidType { .. } => "InvalidType",
            Error::Runtime { .. } => "Runtime",
            Error::LinAlg { .. } => "LinAlg",
            Error::VersionMismatch { .. } => "VersionMismatch",
            Error::GpuNotAvailable(_) => "GpuNotAvailable",
            Error::OutOfMemory { .. } => "OutOfMemory",
            Error::BackendLimit { .. } => "BackendLimit",
            Error::NotImplemented { .. } => "NotImplemented",
            Error::Io { .. } => "Io",
            Error::Distributed { .. } => "Distributed",
            Error::Backend { .. } => "Backend",
            Error::Module { cause, .. } => cause.kind_name(),
        }
    }

    /// Shapes that do not fit together, or do not fit the op.
    #[cold]
    pub fn shape(op: &'static str, why: impl Into<String>, shapes: &[&[usize]]) -> Box<Error> {
        let shapes = shapes.iter().map(|s| s.to_vec()).collect();
        Box::new(Error::ShapeMismatch { op, why: why.into().into(), shapes })
    }

    /// Dtypes that differ where they must not, or do not fit.
    #[cold]
    pub fn dtype(op: &'static str, why: impl Into<String>, dtypes: &[DType]) -> Box<Error> {
        Box::new(Error::DtypeMismatch { op, why: why.into().into(), dtypes: dtypes.to_vec() })
    }

    /// Devices that differ where they must not.
    #[cold]
    pub fn device(op: &'static str, why: impl Into<String>, devices: &[Device]) -> Box<Error> {
        Box::new(Error::DeviceMismatch { op, why: why.into().into(), devices: devices.to_vec() })
    }

    /// A matrix whose pivot of that number, counted from 1, is zero.
    #[cold]
    pub fn singular(op: &'static str, pivot: impl fmt::Display) -> Box<Error> {
        let why = format!(
            "The diagonal element {pivot} is zero, the inversion could not be completed because the input matrix is \
             singular."
        );
        Error::lin_alg(op, why)
    }

    /// This error as one of the layer at `path`; one that names its layer already stays as it is.
    #[cold]
    pub fn in_module(self: Box<Error>, path: &str) -> Box<Error> {
        match *self {
            Error::Module { .. } => self,
            _ => Box::new(Error::Module { path: path.to_string(), cause: self }),
        }
    }

    /// This error as one of the field `name` of a model that is being made: the path of what failed there goes on from it, and
    /// the name of the field stands in the place of a layer's kind.
    #[cold]
    pub fn in_field(self: Box<Error>, name: &str) -> Box<Error> {
        match *self {
            Error::Module { path, cause } => {
                let is_kind = path.starts_with(|first: char| first.is_ascii_uppercase());
                let path = if is_kind { name.to_string() } else { format!("{name}.{path}") };
                Box::new(Error::Module { path, cause })
            }
            _ => self.in_module(name),
        }
    }

    /// The error itself, without the layer that it comes from.
    pub fn root(&self) -> &Error {
        match self {
            Error::Module { cause, .. } => cause.root(),
            other => other,
        }
    }

    /// A failure of the file system.
    #[cold]
    pub fn io(path: &std::path::Path, cause: std::io::Error) -> Box<Error> {
        let missing = cause.kind() == std::io::ErrorKind::NotFound;
        Box::new(Error::Io { path: path.display().to_string(), why: cause.to_string().into(), missing })
    }

    /// A file that is not what it should be.
    #[cold]
    pub fn file(path: &std::path::Path, why: impl Into<String>) -> Box<Error> {
        Box::new(Error::Io { path: path.display().to_string(), why: why.into().into(), missing: false })
    }
}

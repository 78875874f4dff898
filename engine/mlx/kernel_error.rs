//! What goes wrong inside of a kernel, before the op's name is known to it.
//!
//! Depends on `error` and mlx-ffi. Invariant: MLX's message reaches the user verbatim.

use crate::{Device, Error};

/// An error of MLX's, or one of ours.
#[derive(Debug)]
pub(super) enum Fault {
    Mlx(mlx_ffi::Error),
    Engine(Box<Error>),
}

/// Result of a kernel's inside.
pub(super) type Made<T> = std::result::Result<T, Fault>;

impl From<mlx_ffi::Error> for Fault {
    fn from(e: mlx_ffi::Error) -> Fault {
        Fault::Mlx(e)
    }
}

impl From<Box<Error>> for Fault {
    fn from(e: Box<Error>) -> Fault {
        Fault::Engine(e)
    }
}

impl Fault {
    /// The engine's error for it, in the name of an op.
    #[cold]
    pub(super) fn of(self, op: &'static str) -> Box<Error> {
        let e = match self {
            Fault::Engine(mut e) => {
                // Sizes are looked at where no op is known.
                if let Error::BackendLimit { op: named @ "gpu", .. } = &mut *e {
                    *named = op;
                }
                return e;
            }
            Fault::Mlx(e) => e,
        };
        // A collective that failed says more than who evaluates its result.
        if let mlx_ffi::Error::Mlx(text) = &e
            && let Some((_, why)) = text.split_once(mlx_ffi::distributed::MARK)
        {
            return Error::distributed(op, why);
        }
        match e {
            mlx_ffi::Error::OutOfMemory(why) => Box::new(Error::OutOfMemory { device: Device::Gpu, why: why.into() }),
            mlx_ffi::Error::ForkedProcess => {
                let why = "the GPU was used before this process was forked, and cannot be used here; start worker \
                           processes with the 'spawn' method";
                Error::runtime(op, why)
            }
            mlx_ffi::Error::Exiting => Error::runtime(op, e.to_string()),
            e @ (mlx_ffi::Error::VersionMismatch { .. } | mlx_ffi::Error::Forbidden(_)) => {
                Box::new(Error::GpuNotAvailable(e.to_string().into()))
            }
            e => Error::backend(op, e.to_string()),
        }
    }
}

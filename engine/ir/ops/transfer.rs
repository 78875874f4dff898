//! Casts, copies and moves between devices: the rows of the family, and the primitives and arguments that they make.

use super::macros::define_primitives;
use lucid_core::{DType, Device};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! transfer_ops {
    ($cb:ident) => {
        $crate::rows! { $cb "transfer" TransferOp :
            /// The tensor in another dtype; itself where it has that dtype already. Floats are truncated towards zero
            /// to
            /// integers, anything but zero is true.
            method cast(dtype: Dtype) -> Tensor {
                python: method, dtypes: ALL, result: Own,
                primitive: Cast { dtype: DType }, gradient: |c, g| [Ok(g.clone())],
                run: cast_body, node: "to_copy", torch: "Tensor.to",
                samples: ["N(3, 4), DT.float64", "N(3, 4), DT.int32", "I(0, 2, 3), DT.bool"],
                example: [
                    "assert_close(tensor([1.7, -1.7])?.cast(DType::I32)?, [1, -1]);",
                    "assert_close(tensor([0, 2])?.cast(DType::Bool)?, [false, true]);",
                ],
            }
            /// The tensor on another device; itself where it is there already. Evaluates. Devices with one memory copy
            /// large tensors only when one side is written to.
            method to_device(device: DeviceArg) -> Tensor {
                python: method, flags: [internal], dtypes: ALL, result: Same,
                primitive: Move { device: Device }, gradient: |c, g| [g.to_device(c.device(0))],
                run: move_body, torch: "-",
                samples: [],
                example: [
                    "let x = tensor([1.0, 2.0])?.to_device(Device::Gpu)?;",
                    "assert_eq!(x.device(), Device::Gpu);",
                    "assert_close(x.to_device(Device::Cpu)?, [1.0, 2.0]);",
                ],
            }
            /// A row-major copy in memory of its own; gradients pass through.
            method copy() -> Tensor {
                python: method, dtypes: ALL, result: Same,
                primitive: Copy, gradient: |c, g| [Ok(g.clone())],
                run: copy_body, node: "clone", torch: "clone",
                samples: ["N(3, 4)", "N()"],
                example: ["let x = tensor([1, 2])?;", "assert!(!x.copy()?.shares_storage(&x));"],
            }
        }
    };
}
transfer_ops!(define_primitives);

//! Collectives: the rows of the family, and the primitives and arguments that they make.
//!
//! A primitive names its group of processes by [`GroupName`]; the engine's `distributed` has the groups. Every member runs the
//! same primitives of a group in the same order.

use super::macros::define_primitives;
use crate::codec::{Arg, Codec};
use std::sync::Arc;

/// How elements of several processes become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// Their sum.
    Sum,
    /// Their mean; of floating point and complex numbers.
    Avg,
    /// Their product.
    Product,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// Bits that all have; of integers and Booleans, as the two below.
    BitAnd,
    /// Bits that one has.
    BitOr,
    /// Bits that an odd number has.
    BitXor,
}

impl Reduce {
    const ALL: [Reduce; 8] = [
        Reduce::Sum,
        Reduce::Avg,
        Reduce::Product,
        Reduce::Min,
        Reduce::Max,
        Reduce::BitAnd,
        Reduce::BitOr,
        Reduce::BitXor,
    ];

    /// By PyTorch's name: `SUM`, `AVG`, `PRODUCT`, `MIN`, `MAX`, `BAND`, `BOR`, `BXOR`.
    pub fn from_name(name: &str) -> Option<Reduce> {
        Reduce::ALL.into_iter().find(|how| how.name() == name)
    }

    /// PyTorch's name.
    pub fn name(self) -> &'static str {
        match self {
            Reduce::Sum => "SUM",
            Reduce::Avg => "AVG",
            Reduce::Product => "PRODUCT",
            Reduce::Min => "MIN",
            Reduce::Max => "MAX",
            Reduce::BitAnd => "BAND",
            Reduce::BitOr => "BOR",
            Reduce::BitXor => "BXOR",
        }
    }
}

impl Codec for Reduce {
    fn encode(&self) -> Arg {
        Arg::Str(self.name().to_string())
    }

    fn decode(arg: &Arg) -> Option<Reduce> {
        match arg {
            Arg::Str(name) => Reduce::from_name(name),
            Arg::Null | Arg::Bool(_) | Arg::Int(_) | Arg::Float(_) | Arg::List(_) | Arg::Size { .. } => None,
        }
    }
}

/// A group of processes by its name, which is the same in all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupName {
    /// The name.
    pub name: Arc<str>,
    /// The group's number in this process, where several have the name; 0 for the newest one.
    pub serial: u64,
}

impl GroupName {
    /// The newest group of a name.
    pub fn newest(name: &str) -> GroupName {
        GroupName { name: name.into(), serial: 0 }
    }
}

impl Codec for GroupName {
    fn encode(&self) -> Arg {
        Arg::Str(self.name.to_string())
    }

    fn decode(arg: &Arg) -> Option<GroupName> {
        match arg {
            Arg::Str(name) => Some(GroupName::newest(name)),
            Arg::Null | Arg::Bool(_) | Arg::Int(_) | Arg::Float(_) | Arg::List(_) | Arg::Size { .. } => None,
        }
    }
}

impl CommunicationOp {
    /// The group whose members run it.
    pub fn group(&self) -> &GroupName {
        match self {
            CommunicationOp::AllReduce { group, .. }
            | CommunicationOp::AllReduceExtreme { group, .. }
            | CommunicationOp::AllGather { group }
            | CommunicationOp::ReduceScatter { group, .. }
            | CommunicationOp::Broadcast { group, .. }
            | CommunicationOp::AllToAll { group } => group,
        }
    }
}

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! communication_ops {
    ($cb:ident) => {
        $crate::rows! { $cb "communication" CommunicationOp :
            /// `how` over the tensors of all members of a group: `y = how(x_0, …, x_{n-1})` on each. Gradients are
            /// reduced as the tensors were, of sums and means.
            function all_reduce(input: Tensor, group: Text, how: Text) -> Tensor {
                flags: [internal], dtypes: ALL, result: Same,
                primitive: AllReduce {
                    group: $crate::ops::communication::GroupName, how: $crate::ops::communication::Reduce,
                },
                gradient: |c, g| [all_reduce_gradient(g, group, *how)],
                run: all_reduce_body, torch: "-",
                samples: [],
                example: [
                    "let (_store, group) = lucid::distributed::Job::alone()?;",
                    "let x = tensor([1.0, 2.0])?;",
                    "assert_close(all_reduce(&x, group.name(), lucid::distributed::Reduce::Sum)?, [1.0, 2.0]);",
                ],
            }
            /// The smallest or the largest element of all members' tensors, on each. Those that have it share the
            /// gradient.
            function all_reduce_extreme(input: Tensor, group: Text, how: Text) -> Tensor {
                flags: [internal], dtypes: ORDERED, result: Same,
                primitive: AllReduceExtreme {
                    group: $crate::ops::communication::GroupName, how: $crate::ops::communication::Reduce,
                },
                saves: Both, gradient: |c, g| [extreme_gradient(c, g, group)],
                run: extreme_body, torch: "-",
                samples: [],
                example: [
                    "let (_store, group) = lucid::distributed::Job::alone()?;",
                    "let x = tensor([1.0, 2.0])?;",
                    "assert_close(all_reduce_extreme(&x, group.name(), lucid::distributed::Reduce::Max)?, [1.0, 2.0]);",
                ],
            }
            /// The tensors of all members along a new first dimension, of shape `(n, *s)`, on each. A member's gradient
            /// is the sum of all members' for its part.
            function all_gather(input: Tensor, group: Text) -> Tensor {
                flags: [internal], dtypes: ALL, result: Same,
                primitive: AllGather { group: $crate::ops::communication::GroupName },
                gradient: |c, g| [scattered(g, group, Reduce::Sum)],
                run: all_gather_body, torch: "-",
                samples: [],
                example: [
                    "let (_store, group) = lucid::distributed::Job::alone()?;",
                    "assert_close(all_gather(&tensor([1.0, 2.0])?, group.name())?, [[1.0, 2.0]]);",
                ],
            }
            /// Part `rank` of `how` over the tensors of all members, each of shape `(n, *s)`.
            function reduce_scatter(input: Tensor, group: Text, how: Text) -> Tensor {
                flags: [internal], dtypes: ALL, result: Same,
                primitive: ReduceScatter {
                    group: $crate::ops::communication::GroupName, how: $crate::ops::communication::Reduce,
                },
                gradient: |c, g| [reduce_scatter_gradient(g, group, *how)],
                run: reduce_scatter_body, torch: "-",
                samples: [],
                example: [
                    "let (_store, group) = lucid::distributed::Job::alone()?;",
                    "let x = tensor([[1.0, 2.0]])?;",
                    "assert_close(reduce_scatter(&x, group.name(), lucid::distributed::Reduce::Sum)?, [1.0, 2.0]);",
                ],
            }
            /// Member `src`'s tensor on every member. Its gradient is the sum of all members'; that of others is zero.
            function broadcast(input: Tensor, group: Text, src: Int) -> Tensor {
                flags: [internal], dtypes: ALL, result: Same,
                primitive: Broadcast { group: $crate::ops::communication::GroupName, src: usize },
                gradient: |c, g| [broadcast_gradient(g, group, *src)],
                run: broadcast_body, torch: "-",
                samples: [],
                example: [
                    "let (_store, group) = lucid::distributed::Job::alone()?;",
                    "assert_close(broadcast(&tensor([1.0, 2.0])?, group.name(), 0)?, [1.0, 2.0]);",
                ],
            }
            /// `y[i] = x_i[rank]`, of tensors of shape `(n, …)`. Gradients travel the other way.
            function all_to_all(input: Tensor, group: Text) -> Tensor {
                flags: [internal], dtypes: ALL, result: Same,
                primitive: AllToAll { group: $crate::ops::communication::GroupName },
                gradient: |c, g| [exchanged(g, group)],
                run: all_to_all_body, torch: "-",
                samples: [],
                example: [
                    "let (_store, group) = lucid::distributed::Job::alone()?;",
                    "assert_close(all_to_all(&tensor([[1.0, 2.0]])?, group.name())?, [[1.0, 2.0]]);",
                ],
            }
        }
    };
}
communication_ops!(define_primitives);

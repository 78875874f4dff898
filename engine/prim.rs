//! The rows of primitives: schema and gradient of a [`Prim`].

use crate::autograd::{Ctx, Grads};
use crate::ops::{OpRow, Schema};
use crate::Result;

pub(crate) use lucid_ir::{Meta, Metas, Prim};

macro_rules! define_prim_row {
    ($($Family:ident $module:ident $Op:ident;)*) => {
        impl OpRow for Prim {
            fn schema(&self) -> &'static Schema {
                match self {
                    $(Prim::$Family(op) => op.schema(),)*
                    Prim::Reduce(op, _) => op.schema(),
                }
            }

            fn gradient(&self, ctx: &Ctx<'_>) -> Result<Grads> {
                match self {
                    $(Prim::$Family(op) => op.gradient(ctx),)*
                    Prim::Reduce(op, _) => op.gradient(ctx),
                }
            }
        }
    };
}
lucid_ir::for_each_family!(define_prim_row);

//! The in-place forms of rows, by the row's `in_place`.
//!
//! Part of what [`define_ops`](super::define_ops) makes of a row; what the words mean is said in `engine/rows`.

macro_rules! define_in_place {
    // The result of complex numbers is real, which is not written over them.
    (of_reals $name:ident $run:tt ($($p:ident: $k:ident,)*)) => {
        impl $crate::Tensor {
            $crate::ops::macros::in_place_method!{ $name ($($p: $k,)*) $crate::in_place::refuse_complex }
        }
    };
    // Of doubles is the result, of narrower numbers it is not.
    (of_doubles $name:ident $run:tt ($($p:ident: $k:ident,)*)) => {
        impl $crate::Tensor {
            $crate::ops::macros::in_place_method!{ $name ($($p: $k,)*) $crate::in_place::refuse_narrower }
        }
    };
    (yes $name:ident $run:tt ($($p:ident: $k:ident,)*)) => {
        impl $crate::Tensor {
            $crate::ops::macros::in_place_method!{ $name ($($p: $k,)*) }
        }
    };
    // The body itself writes in place where its first argument says so.
    (body $name:ident ($run:path) ($($p:ident: $k:ident,)*)) => {
        impl $crate::Tensor {
            pastey::paste! {
                #[doc = concat!("In-place form of [`Tensor::", stringify!($name), "`]: the result is written to `self`.")]
                #[allow(clippy::too_many_arguments, clippy::extra_unused_lifetimes)]
                pub fn [<$name _>]<'op>(&self, $($p: $crate::ops::macros::given!($name $k $p),)*) -> $crate::Result<()> {
                    $(let $p = $crate::ops::macros::held!($name $k $p $p);)*
                    $(let $p = $crate::ops::macros::lent!($k $p);)*
                    let _name = $crate::compat::call_macros::naming!([] $name $(, $p: $k)*);
                    $run($crate::ops::index::Target::Itself, self, $($p),*).map(drop)
                }
            }
        }
    };
    (comparison $name:ident $run:tt ($p:ident: Operand,)) => {
        impl $crate::Tensor {
            pastey::paste! {
                #[doc = concat!("In-place form of [`Tensor::", stringify!($name), "`]: the result is written to `self`.")]
                pub fn [<$name _>]<'op>(&self, $p: $crate::ops::macros::given!($name Operand $p)) -> $crate::Result<()> {
                    let named = (&schema::$name, concat!(stringify!($name), "_"));
                    write_compared(named, self, $p.into(), |x, other| $name(x, other))
                }
            }
        }
    };
    (unrecorded $name:ident $run:tt ($($p:ident: $k:ident,)*)) => {
        impl $crate::Tensor {
            pastey::paste! {
                #[doc = concat!("In-place form of [`Tensor::", stringify!($name), "`]: the result is written to `self`. As in PyTorch the tape has nothing of it, and leaves that require gradients are taken too.")]
                #[allow(clippy::extra_unused_lifetimes)]
                pub fn [<$name _>]<'op>(&self, $($p: $crate::ops::macros::given!($name $k $p),)*) -> $crate::Result<()> {
                    $(let $p = $crate::ops::macros::held!($name $k $p $p);)*
                    $(let $p = $crate::ops::macros::lent!($k $p);)*
                    $($crate::ops::macros::apart!($k self $p concat!(stringify!($name), "_"));)*
                    let write = || self.write_in_place(concat!(stringify!($name), "_"), $name(self, $($crate::ops::macros::again!($k $p)),*)?);
                    $crate::no_grad(write)
                }
            }
        }
    };
    // Nothing is written: the tensor itself becomes the view.
    (view $name:ident $run:tt ($($p:ident: $k:ident,)*)) => {
        impl $crate::Tensor {
            pastey::paste! {
                #[doc = concat!("In-place form of [`Tensor::", stringify!($name), "`]: this handle becomes the view. Other handles on the tensor keep its former shape.")]
                #[allow(clippy::too_many_arguments, clippy::extra_unused_lifetimes)]
                pub fn [<$name _>]<'op>(&mut self, $($p: $crate::ops::macros::given!($name $k $p),)*) -> $crate::Result<()> {
                    $(let $p = $crate::ops::macros::held!($name $k $p $p);)*
                    $(let $p = $crate::ops::macros::lent!($k $p);)*
                    let _name = $crate::compat::call_macros::naming!([] [<$name _>] $(, $p: $k)*);
                    self.become_view(concat!(stringify!($name), "_"), |x| self::$name(x, $($crate::ops::macros::again!($k $p)),*))
                }
            }
        }
    };
    (none $name:ident $run:tt $sig:tt) => {};
}

macro_rules! in_place_method {
    ($name:ident ($($p:ident: $k:ident,)*) $($check:path)?) => {
        pastey::paste! {
            #[doc = concat!("In-place form of [`Tensor::", stringify!($name), "`]: the result is written to `self`.")]
            #[allow(clippy::too_many_arguments, clippy::extra_unused_lifetimes)]
            pub fn [<$name _>]<'op>(&self, $($p: $crate::ops::macros::given!($name $k $p),)*) -> $crate::Result<()> {
                $($check(concat!(stringify!($name), "_"), self)?;)?
                $(let $p = $crate::ops::macros::held!($name $k $p $p);)*
                $(let $p = $crate::ops::macros::lent!($k $p);)*
                $($crate::ops::macros::apart!($k self $p concat!(stringify!($name), "_"));)*
                let read = $crate::autograd::rewritten(self);
                let read = read.as_ref().unwrap_or(self);
                let over = $crate::output_donation::offered(self, read, &schema::$name);
                let mut value = $name(over.as_ref().unwrap_or(read), $($crate::ops::macros::again!($k $p)),*)?;
                drop(over);
                if self.is_saved_by(&schema::$name, &value) {
                    value = $name(&read.copy()?, $($crate::ops::macros::again!($k $p)),*)?;
                }
                let _name = $crate::autograd::OpScope::of($crate::ops::macros::plain(stringify!($name)), 0);
                self.write_in_place(concat!(stringify!($name), "_"), value)
            }
        }
    };
}

/// Refuses an argument that does not go with the tensor that is written: its memory overlaps that of the tensor in part.
macro_rules! apart {
    (Tensor $x:ident $p:ident $op:expr) => {
        $x.refuse_shared($op, $p, false)?
    };
    // A number, or a tensor that holds one: it is read first.
    (Operand $x:ident value $op:expr) => {};
    (Operand $x:ident $p:ident $op:expr) => {
        if let $crate::ops::Operand::Tensor(t) = $p {
            $x.refuse_shared($op, t, false)?
        }
    };
    (OptOperand $x:ident $p:ident $op:expr) => {
        if let Some($crate::ops::Operand::Tensor(t)) = $p {
            $x.refuse_shared($op, t, false)?
        }
    };
    (SomeOperand $x:ident $p:ident $op:expr) => {
        $crate::ops::macros::apart!(OptOperand $x $p $op)
    };
    // What is written in place cannot have another dtype.
    (OptDtype $x:ident $p:ident $op:expr) => {
        if let Some(dtype) = $p.filter(|d| *d != $x.dtype()) {
            let why = format!(
                "Bad in-place call: input tensor dtype {} and output tensor dtype {dtype} should match",
                $x.dtype()
            );
            return Err($crate::Error::runtime($op, why));
        }
    };
    ($other:ident $x:ident $p:ident $op:expr) => {};
}

pub(crate) use {apart, define_in_place, in_place_method};

//! What the functions and methods of a row share: their arguments, the call, and what becomes of its result.
//!
//! Macros, whose names are those of the module that uses them.

/// A row's default as the engine takes it.
macro_rules! default {
    (Number $d:expr) => {
        Scalar::from($d)
    };
    ($k:ident $d:expr) => {
        $d
    };
}

/// A converted argument: with its default if it has one.
macro_rules! convert_arg {
    ($py:ident $op:ident $p:ident $k:ident) => {
        required::<kinds::$k>($py, At { op: $op, arg: stringify!($p) }, $p)?
    };
    ($py:ident $op:ident $p:ident $k:ident $d:expr) => {
        optional::<kinds::$k>(At { op: $op, arg: stringify!($p) }, $p, default!($k $d))?
    };
}

/// The default of an argument in the Python signature, whatever the row says: none given.
macro_rules! missing {
    ($d:expr) => {
        Arg::MISSING
    };
}

/// An argument as the engine takes it. Names of kinds are checked by the op, which has PyTorch's error for others.
macro_rules! lend_arg {
    (Text $p:ident) => {
        lucid::ops::arguments::Named(<kinds::Text as Kind>::lend(&$p))
    };
    (OptText $p:ident) => {
        lucid::ops::arguments::MaybeNamed(<kinds::OptText as Kind>::lend(&$p))
    };
    (SomeText $p:ident) => {
        lucid::ops::arguments::MaybeNamed(<kinds::SomeText as Kind>::lend(&$p))
    };
    ($k:ident $p:ident) => {
        <kinds::$k as Kind>::lend(&$p)
    };
}

/// The call of the engine, with converted arguments.
macro_rules! run {
    ($py:ident, $op:ident, $call:path, ($($p:ident: $k:ident),* $(,)?)) => {{
        let weight = 0usize $(.max(<kinds::$k as Kind>::weight(&$p)))*;
        crate::engine_call::op($py, weight, || $call($(lend_arg!($k $p)),*))
    }};
}

/// Finds the parameters that also go by NumPy's names, or by those of PyTorch's other overloads, and calls `$cb` with
/// `head… signature [(other name, the row's)…]`.
macro_rules! with_others {
    (@next $cb:ident $head:tt $sig:tt [$($found:tt)*] $input:ident : Tensor , $p:ident : Sections $($rest:tt)*) => {
        with_others! { @next $cb $head $sig [$($found)* (tensor $input)] $p : Sections $($rest)* }
    };
    (@next $cb:ident $head:tt $sig:tt [$($found:tt)*] $a:ident : Dim , $b:ident : Dim $($rest:tt)*) => {
        with_others! { @next $cb $head $sig [$($found)* (axis0 $a) (axis1 $b)] $($rest)* }
    };
    (@next $cb:ident $head:tt $sig:tt [$($found:tt)*] $p:ident : $($rest:tt)*) => {
        with_others! { @name $cb $head $sig [$($found)*] ($p $p) $($rest)* }
    };
    (@next $cb:ident $head:tt $sig:tt $found:tt $skipped:tt $($rest:tt)*) => {
        with_others! { @next $cb $head $sig $found $($rest)* }
    };
    (@next $cb:ident ($($head:tt)*) $sig:tt $found:tt) => { $cb! { $($head)* $sig $found } };
    (@name $cb:ident $head:tt $sig:tt [$($found:tt)*] (dim $p:ident) $($rest:tt)*) => {
        with_others! { @next $cb $head $sig [$($found)* (axis $p)] $($rest)* }
    };
    (@name $cb:ident $head:tt $sig:tt [$($found:tt)*] (keepdim $p:ident) $($rest:tt)*) => {
        with_others! { @next $cb $head $sig [$($found)* (keepdims $p)] $($rest)* }
    };
    (@name $cb:ident $head:tt $sig:tt [$($found:tt)*] (split_size_or_sections $p:ident) $($rest:tt)*) => {
        with_others! { @next $cb $head $sig [$($found)* (split_size $p)] $($rest)* }
    };
    (@name $cb:ident $head:tt $sig:tt [$($found:tt)*] (indices_or_sections $p:ident) $($rest:tt)*) => {
        with_others! { @next $cb $head $sig [$($found)* (indices $p) (sections $p) (tensor_indices_or_sections $p)] $($rest)* }
    };
    (@name $cb:ident $head:tt $sig:tt [$($found:tt)*] (L $p:ident) $($rest:tt)*) => {
        with_others! { @next $cb $head $sig [$($found)* (input2 $p)] $($rest)* }
    };
    (@name $cb:ident $head:tt $sig:tt $found:tt ($p:ident $same:ident) $($rest:tt)*) => {
        with_others! { @next $cb $head $sig $found $($rest)* }
    };
    ($cb:ident $head:tt ($($sig:tt)*)) => { with_others! { @next $cb $head ($($sig)*) [] $($sig)* } };
}

/// Arguments under the row's name or another.
macro_rules! convert_either {
    ($py:ident $op:ident $(($other:ident $p:ident))*) => {
        $(let $p = At { op: $op, arg: stringify!($p) }.either($py, $p, $other)?;)*
    };
}

/// Refuses an `out` whose memory overlaps some argument's in part.
macro_rules! apart {
    ($py:ident $op:ident [] $($rest:tt)*) => {};
    ($py:ident $op:ident [$out:ident] $($p:ident: $k:ident)*) => {
        if let Some(out) = $out.0.filter(|o| !o.is_none()) {
            #[allow(unused_mut)]
            let mut tensors = Vec::new();
            $(<kinds::$k as Kind>::gather(&$p, &mut tensors);)*
            crate::out::check_apart($py, $op, out, &tensors)?;
        }
    };
}

/// The result, written to `out` where one is given.
macro_rules! finish {
    ($py:ident $op:ident $ret:ident $made:ident $given:ident) => {{
        let _ = &$given;
        results::$ret($py, $op, $made)
    }};
    ($py:ident $op:ident $ret:ident $made:ident $given:ident $out:ident) => {
        match $out.0 {
            None => results::$ret($py, $op, $made),
            Some(out) if out.is_none() => results::$ret($py, $op, $made),
            Some(out) => crate::out::store($py, $op, out, $made, &$given),
        }
    };
}

/// The first argument itself where it is a tensor that the op gave back as it was.
macro_rules! given_back {
    ($made:expr, ($input:ident: Tensor $($rest:tt)*)) => {
        $made.map(|made| results::or_argument(made, $input))
    };
    ($made:expr, $sig:tt) => {
        $made
    };
}

/// What the rule for `out=` sees of the arguments, where one is given.
macro_rules! given {
    ([] $($rest:tt)*) => {
        [] as [Given; 0]
    };
    ([$out:ident] $($p:ident: $k:ident)*) => {
        match $out.0 {
            None => Vec::new(),
            Some(_) => vec![$(<kinds::$k as Kind>::given(&$p)),*],
        }
    };
}

/// A number before a tensor, `pow(2, x)`, as a tensor that promotes as the number does.
macro_rules! convert_leading_number {
    ($py:ident ($input:ident: Tensor, $other:ident: Operand $($rest:tt)*)) => {
        let lead = crate::args::lead($py, OP, $input, $other)?;
        let _led = lead.as_ref().map(|_| lucid::autograd::led_by_number(OP));
        let $input = lead.as_ref().map_or($input, |t| Arg(Some(t.as_borrowed())));
    };
    ($py:ident $sig:tt) => {};
}

/// The first where there is one, else the second.
macro_rules! first {
    ([$a:expr] $b:expr) => {
        $a
    };
    ([] $b:expr) => {
        $b
    };
}

/// Where the row makes its result in the `dtype` that it is told, that of `out`.
macro_rules! convert_out_dtype {
    ($py:ident $op:ident [$($out:ident)?]) => {};
    ($py:ident $op:ident []  $($rest:tt)*) => {};
    ($py:ident $op:ident [$out:ident] (dtype $p:ident: OptDtype) $($rest:tt)*) => {
        let $p = crate::out::asked($py, $op, $out, $p)?;
        convert_out_dtype! { $py $op [$out] $($rest)* }
    };
    ($py:ident $op:ident [$out:ident] (device $p:ident: OptDevice) $($rest:tt)*) => {
        let $p = crate::out::placed($out, $p);
        convert_out_dtype! { $py $op [$out] $($rest)* }
    };
    ($py:ident $op:ident [$out:ident] $other:tt $($rest:tt)*) => {
        convert_out_dtype! { $py $op [$out] $($rest)* }
    };
}

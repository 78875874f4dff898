//! Python functions and `Tensor` methods from the op table.
//!
//! [`bind`] is handed to the table's macros and gets their rows; nothing here names an op. A row gives a function, with
//! PyTorch's signature, and where it is a method row the method too, and its in-place form. All go through one body.

#[macro_use]
mod calls;

use crate::args::{kinds, optional, required, Arg, At, Flag, Kind};
use crate::results;
use crate::tensor::PyTensor;
use lucid::ops::out::Given;
use lucid::Scalar;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

type Object<'py> = PyResult<Bound<'py, PyAny>>;

/// The sizes or dimensions of a call that may list them one by one: `x.reshape(2, 3)`, `x.reshape((2, 3))`.
pub fn listed(at: At, args: &Bound<'_, PyTuple>, named: Arg<'_, '_>) -> PyResult<crate::args::Ints> {
    let expected = "int or a tuple of ints";
    match (args.len(), named.0) {
        // By its name one integer is no sequence.
        (0, Some(given)) => crate::args::sizes_of(at, given, "a tuple of ints"),
        (0, None) => Err(at.missing(args.py())),
        (_, Some(_)) => Err(at.twice(args.py())),
        (1, None) => crate::args::ints_of(at, args.get_borrowed_item(0)?, expected),
        (_, None) => crate::args::ints_of(at, args.as_any().as_borrowed(), expected),
    }
}

/// The Python function of a row.
macro_rules! function_item {
    // What the row requires PyO3 requires, unless it may come under another name.
    ($docs:tt $name:ident $ret:ident []
        ($($p:ident: $k:ident $(= $d:expr)?),* $(; $($kp:ident: $kk:ident = $kd:expr),* $(,)?)?) []) => {
        function_item! { @item $docs $name $ret []
            [#[pyo3(signature = ($($p $(= missing!($d))?,)* $(*, $($kp = missing!($kd),)*)?))]]
            ($($p: $k $(= $d)?),* $(; $($kp: $kk = $kd),*)?) }
    };
    ($docs:tt $name:ident $ret:ident [$out:ident $($with:ident)?]
        ($($p:ident: $k:ident $(= $d:expr)?),* $(; $($kp:ident: $kk:ident = $kd:expr),* $(,)?)?) []) => {
        function_item! { @item $docs $name $ret [$out $($with)?]
            [#[pyo3(signature = ($($p $(= missing!($d))?,)* *, $($($kp = missing!($kd),)*)? $out = Arg::MISSING))]]
            ($($p: $k $(= $d)?),* $(; $($kp: $kk = $kd),*)?) }
    };
    ($docs:tt $name:ident $ret:ident [$($out:ident $($with:ident)?)?]
        ($($p:ident: $k:ident $(= $d:expr)?),* $(; $($kp:ident: $kk:ident = $kd:expr),* $(,)?)?) [$(($other:ident $of:ident))+]) => {
        function_item! { @item $docs $name $ret [$($out $($with)?)?]
            [#[pyo3(signature = ($($p = Arg::MISSING,)* *, $($($kp = missing!($kd),)*)? $($other = Arg::MISSING,)+ $($out = Arg::MISSING)?))]]
            ($($p: $k $(= $d)?),* $(; $($kp: $kk = $kd),*)?) $(($other $of))+ }
    };
    (@item [$($doc:tt)*] $name:ident $ret:ident [$($out:ident $($with:ident)?)?] [$($attr:tt)*]
        ($($p:ident: $k:ident $(= $d:expr)?),* $(; $($kp:ident: $kk:ident = $kd:expr),*)?) $(($other:ident $of:ident))*) => {
        $($doc)*
        #[pyfunction]
        $($attr)*
        #[allow(clippy::too_many_arguments)]
        pub fn $name<'py>(
            py: Python<'py>,
            $($p: Arg<'_, 'py>,)*
            $($($kp: Arg<'_, 'py>,)*)?
            $($other: Arg<'_, 'py>,)*
            $($out: Arg<'_, 'py>,)?
        ) -> Object<'py> {
            const OP: &str = stringify!($name);
            convert_either! { py OP $(($other $of))* }
            convert_leading_number! { py ($($p: $k),*) }
            $($(crate::out::check_with(py, OP, $out, $with)?;)?)?
            let (made, given) = {
                $(let $p = convert_arg!(py OP $p $k $($d)?);)*
                $($(let $kp = convert_arg!(py OP $kp $kk $kd);)*)?
                convert_out_dtype! { py OP [$($out)?] $(($p $p: $k))* $($(($kp $kp: $kk))*)? }
                $(crate::out::check_kind(py, OP, $out, stringify!($ret))?;)?
                apart! { py OP [$($out)?] $($p: $k)* }
                let given = given! { [$($out)?] $($p: $k)* };
                (run!(py, OP, ops::$name, ($($p: $k),* $($(, $kp: $kk)*)?))?, given)
            };
            given_back!(finish!(py OP $ret made given $($out)?), ($($p: $k),*))
        }
    };
}

/// The row's function: body and, unless it is for methods only, the Python function.
macro_rules! bind_function {
    // What makes new tensors also takes requires_grad. Sizes may be listed: zeros(2, 3).
    ($docs:tt $name:ident ($p:ident: Sizes $(; $($kp:ident: $kk:ident = $kd:expr),* $(,)?)?) $ret:ident creates [$($out:ident)?]) => {
        bind_function! { @new $docs $name py [$($out)?] [*args, $p = Arg::MISSING,] [args: &Bound<'py, PyTuple>, $p: Arg<'_, 'py>,]
            [let $p = listed(At { op: OP, arg: stringify!($p) }, args, $p)?;] ($p: Sizes) ($($($kp: $kk = $kd),*)?) }
    };
    ($docs:tt $name:ident ($($p:ident: $k:ident $(= $d:expr)?),* $(; $($kp:ident: $kk:ident = $kd:expr),* $(,)?)?) $ret:ident creates [$($out:ident)?]) => {
        bind_function! { @new $docs $name py [$($out)?] [$($p $(= missing!($d))?,)* *,] [$($p: Arg<'_, 'py>,)*]
            [$(let $p = convert_arg!(py OP $p $k $($d)?);)*] ($($p: $k),*) ($($($kp: $kk = $kd),*)?) }
    };
    // With the signature's head, its parameters, and what makes arguments of them.
    (@new [$($doc:tt)*] $name:ident $py:ident [$($out:ident)?] [$($head:tt)*] [$($taken:tt)*] [$($held:tt)*] ($($p:ident: $k:ident),*)
        ($($kp:ident: $kk:ident = $kd:expr),*)) => {
        $($doc)*
        #[pyfunction]
        #[pyo3(signature = ($($head)* $($kp = missing!($kd),)* $($out = Arg::MISSING,)? layout = Arg::MISSING, pin_memory = Arg::MISSING, requires_grad = Flag::OFF))]
        #[allow(clippy::too_many_arguments)]
        pub fn $name<'py>(
            $py: Python<'py>,
            $($taken)*
            $($kp: Arg<'_, 'py>,)*
            $($out: Arg<'_, 'py>,)?
            layout: Arg<'_, 'py>,
            pin_memory: Arg<'_, 'py>,
            requires_grad: Flag,
        ) -> Object<'py> {
            const OP: &str = stringify!($name);
            crate::sparse::check_dense($py, OP, layout, pin_memory)?;
            let made = {
                $($held)*
                $(let $kp = convert_arg!($py OP $kp $kk $kd);)*
                convert_out_dtype! { $py OP [$($out)?] $(($kp $kp: $kk))* }
                run!($py, OP, ops::$name, ($($p: $k,)* $($kp: $kk),*))?
            };
            made_new($py, OP, made, first!([$($out)?] Arg::MISSING), requires_grad.of($py, OP)?)
        }
    };
    // The tensors one by one, or as one sequence: atleast_1d(x, y).
    ([$($doc:tt)*] $name:ident ($p:ident: Tensors $(; $($kp:ident: $kk:ident = $kd:expr),* $(,)?)?) $ret:ident variadic [$($out:ident)?]) => {
        $($doc)*
        #[pyfunction]
        #[pyo3(signature = (*$p, $($($kp = missing!($kd),)*)? $($out = Arg::MISSING)?))]
        pub fn $name<'py>(py: Python<'py>, $p: &Bound<'py, PyTuple>, $($($kp: Arg<'_, 'py>,)*)? $($out: Arg<'_, 'py>)?) -> Object<'py> {
            const OP: &str = stringify!($name);
            let (at, alone) = (At { op: OP, arg: stringify!($p) }, $p.len() == 1);
            let alone = if alone { Some($p.get_item(0)?) } else { None };
            let alone_sequence = alone.as_ref().filter(|a| !a.is_instance_of::<PyTensor>());
            let arguments = alone_sequence.unwrap_or($p.as_any());
            let $p = crate::args::tensors_of(at, arguments.as_borrowed())?;
            $($(let $kp = convert_arg!(py OP $kp $kk $kd);)*)?
            $(let count = $p.len();
            apart! { py OP [$out] $p: Tensors })?
            let made = run!(py, OP, ops::$name, ($p: Tensors $($(, $kp: $kk)*)?))?;
            $(if let Some(out) = $out.0.filter(|o| !o.is_none()) {
                return crate::out::store(py, OP, out, made, &[Given::Tensors(count)]);
            })?
            // One tensor by itself gives one tensor.
            let made = results::variadic::$ret(py, OP, made, alone.is_some() && alone_sequence.is_none())?;
            results::or_arguments(made, arguments)
        }
    };
    // An equation, then the tensors one by one or as one sequence.
    ([$($doc:tt)*] $name:ident ($t:ident: Text, $p:ident: Tensors) $ret:ident variadic $out:tt) => {
        $($doc)*
        #[pyfunction]
        #[pyo3(signature = ($t, *$p))]
        pub fn $name<'py>(py: Python<'py>, $t: Arg<'_, 'py>, $p: &Bound<'py, PyTuple>) -> Object<'py> {
            const OP: &str = stringify!($name);
            if let Some(first) = $t.0.filter(|t| t.is_instance_of::<PyTensor>()) {
                let ($t, $p) = crate::args::sublists(OP, first, $p)?;
                let weight = $p.iter().map(crate::args::weight_of).sum();
                let made = crate::engine_call::op(py, weight, || ops::$name(&$t, &$p))?;
                return results::$ret(py, OP, made);
            }
            let $t = convert_arg!(py OP $t Text);
            let alone = if $p.len() == 1 { Some($p.get_item(0)?) } else { None };
            let sequence = alone.as_ref().filter(|a| !a.is_instance_of::<PyTensor>());
            let at = At { op: OP, arg: stringify!($p) };
            let $p = crate::args::tensors_of(at, sequence.unwrap_or($p.as_any()).as_borrowed())?;
            let made = run!(py, OP, ops::$name, ($t: Text, $p: Tensors))?;
            results::$ret(py, OP, made)
        }
    };
    ($docs:tt $name:ident $sig:tt $ret:ident $call:ident $out:tt) => {
        with_others! { function_item ($docs $name $ret $out) $sig }
    };
}

/// A new tensor: a leaf, or written to `out`.
pub fn made_new<'py>(
    py: Python<'py>,
    op: &'static str,
    made: lucid::Tensor,
    out: Arg<'_, 'py>,
    requires_grad: bool,
) -> Object<'py> {
    match out.0.filter(|o| !o.is_none()) {
        None => results::leaf(py, made, requires_grad),
        Some(out) => {
            let out = crate::out::store_new(py, op, out, made)?;
            if requires_grad {
                out.cast::<PyTensor>()?.call_method1("requires_grad_", (true,))?;
            }
            Ok(out)
        }
    }
}

/// A method of a row.
macro_rules! method_item {
    ($docs:tt $name:ident $ret:ident
        ($($p:ident: $k:ident $(= $d:expr)?),* $(; $($kp:ident: $kk:ident = $kd:expr),* $(,)?)?) []) => {
        method_item! { @item $docs $name $ret
            [#[pyo3(signature = ($($p $(= missing!($d))?,)* $(*, $($kp = missing!($kd),)*)?))]]
            ($($p: $k $(= $d)?),* $(; $($kp: $kk = $kd),*)?) }
    };
    ($docs:tt $name:ident $ret:ident
        ($($p:ident: $k:ident $(= $d:expr)?),* $(; $($kp:ident: $kk:ident = $kd:expr),* $(,)?)?) [$(($other:ident $of:ident))+]) => {
        method_item! { @item $docs $name $ret
            [#[pyo3(signature = ($($p = Arg::MISSING,)* *, $($($kp = missing!($kd),)*)? $($other = Arg::MISSING),+))]]
            ($($p: $k $(= $d)?),* $(; $($kp: $kk = $kd),*)?) $(($other $of))+ }
    };
    (@item [$($doc:tt)*] $name:ident $ret:ident [$($attr:tt)*]
        ($($p:ident: $k:ident $(= $d:expr)?),* $(; $($kp:ident: $kk:ident = $kd:expr),*)?) $(($other:ident $of:ident))*) => {
        #[pymethods]
        impl PyTensor {
            $($doc)*
            $($attr)*
            #[allow(clippy::too_many_arguments)]
            fn $name<'py>(slf: &Bound<'py, Self>, $($p: Arg<'_, 'py>,)* $($($kp: Arg<'_, 'py>,)*)? $($other: Arg<'_, 'py>,)*) -> Object<'py> {
                const OP: &str = stringify!($name);
                let py = slf.py();
                convert_either! { py OP $(($other $of))* }
                $(let $p = convert_arg!(py OP $p $k $($d)?);)*
                $($(let $kp = convert_arg!(py OP $kp $kk $kd);)*)?
                let input = slf.get().read();
                let made = run!(py, OP, ops::$name, (input: Tensor $(, $p: $k)* $($(, $kp: $kk)*)?))?;
                results::same_or(slf, &input, made, |made| results::$ret(py, OP, made))
            }
        }
    };
}

/// The row's method.
macro_rules! bind_method {
    // Sizes and dimensions alone may be listed: x.reshape(2, 3), x.permute(1, 0).
    ([$($doc:tt)*] $name:ident ($p:ident: Sizes) $ret:ident) => {
        bind_method! { @listed [$($doc)*] $name $p $ret }
    };
    ([$($doc:tt)*] $name:ident ($p:ident: Dims) $ret:ident) => {
        bind_method! { @listed [$($doc)*] $name $p $ret }
    };
    (@listed [$($doc:tt)*] $name:ident $p:ident $ret:ident) => {
        #[pymethods]
        impl PyTensor {
            $($doc)*
            #[pyo3(signature = (*args, $p = Arg::MISSING))]
            fn $name<'py>(slf: &Bound<'py, Self>, args: &Bound<'py, PyTuple>, $p: Arg<'_, 'py>) -> Object<'py> {
                const OP: &str = stringify!($name);
                let py = slf.py();
                let $p = listed(At { op: OP, arg: stringify!($p) }, args, $p)?;
                let input = slf.get().read();
                let made = run!(py, OP, ops::$name, (input: Tensor, $p: Sizes))?;
                results::same_or(slf, &input, made, |made| results::$ret(py, OP, made))
            }
        }
    };
    ($docs:tt $name:ident $sig:tt $ret:ident) => {
        with_others! { method_item ($docs $name $ret) $sig }
    };
}

/// The row's in-place method, `name_`, which gives the tensor itself back.
macro_rules! bind_in_place {
    ($name:ident $sig:tt) => {
        pastey::paste! {
            bind_in_place! {
                [#[doc = concat!("In-place form of `", stringify!($name), "`: the result is written to the tensor, which is given back.")]
                    #[doc = lucid::op_doc!(in_place $name)]]
                $name $sig
            }
        }
    };
    ([$($doc:tt)*] $name:ident ($($p:ident: $k:ident $(= $d:expr)?),* $(; $($kp:ident: $kk:ident = $kd:expr),* $(,)?)?)) => {
        pastey::paste! {
            #[pymethods]
            impl PyTensor {
                $($doc)*
                #[pyo3(signature = ($($p $(= missing!($d))?,)* $(*, $($kp = missing!($kd),)*)?))]
                #[allow(clippy::too_many_arguments)]
                fn [<$name _>]<'py>(slf: &Bound<'py, Self>, $($p: Arg<'_, 'py>,)* $($($kp: Arg<'_, 'py>,)*)?) -> PyResult<Bound<'py, Self>> {
                    #[allow(dead_code)]
                    const OP: &str = concat!(stringify!($name), "_");
                    let py = slf.py();
                    $(let $p = convert_arg!(py OP $p $k $($d)?);)*
                    $($(let $kp = convert_arg!(py OP $kp $kk $kd);)*)?
                    let input = slf.get().read();
                    crate::engine_call::quick(py, || input.refuse_captured(OP))?;
                    run!(py, OP, lucid::Tensor::[<$name _>], (input: Tensor $(, $p: $k)* $($(, $kp: $kk)*)?))?;
                    Ok(slf.clone())
                }
            }
        }
    };
}

/// The in-place method of a view, which writes nothing: the object gets the view in its tensor's place.
macro_rules! bind_restride {
    ($name:ident ($($p:ident: $k:ident $(= $d:expr)?),* $(; $($kp:ident: $kk:ident = $kd:expr),* $(,)?)?)) => {
        pastey::paste! {
            #[pymethods]
            impl PyTensor {
                #[doc = concat!("In-place form of `", stringify!($name), "`: the tensor itself, which is given back, becomes the view.")]
                #[doc = lucid::op_doc!(in_place $name)]
                #[pyo3(signature = ($($p $(= missing!($d))?,)* $(*, $($kp = missing!($kd),)*)?))]
                fn [<$name _>]<'py>(slf: &Bound<'py, Self>, $($p: Arg<'_, 'py>,)* $($($kp: Arg<'_, 'py>,)*)?) -> PyResult<Bound<'py, Self>> {
                    #[allow(dead_code)]
                    const OP: &str = concat!(stringify!($name), "_");
                    let py = slf.py();
                    $(let $p = convert_arg!(py OP $p $k $($d)?);)*
                    $($(let $kp = convert_arg!(py OP $kp $kk $kd);)*)?
                    let mut t = slf.get().share();
                    crate::engine_call::quick(py, || t.refuse_captured(OP))?;
                    crate::engine_call::quick(py, || t.[<$name _>]($(<kinds::$k as Kind>::lend(&$p),)* $($(<kinds::$kk as Kind>::lend(&$kp),)*)?))?;
                    slf.get().replace(py, t);
                    Ok(slf.clone())
                }
            }
        }
    };
}

/// What a row gives Python: a function, a method, a method that writes in place. `$out` is `[out]` where the function writes
/// to one, `[out parameter]` where it does so only with that parameter.
macro_rules! bind_row {
    (function $docs:tt $name:ident $sig:tt $ret:ident $call:ident $in_place:ident $python:ident $out:tt) => {
        bind_function! { $docs $name $sig $ret $call $out }
    };
    (method $docs:tt $name:ident $sig:tt $ret:ident $call:ident $in_place:ident all $out:tt) => {
        bind_row! { @function $docs $name $sig $ret $out }
        bind_method! { $docs $name $sig $ret }
        bind_row! { @in_place $in_place $name $sig }
    };
    (method $docs:tt $name:ident $sig:tt $ret:ident $call:ident $in_place:ident function $out:tt) => {
        bind_row! { @function $docs $name $sig $ret $out }
        bind_row! { @in_place $in_place $name $sig }
    };
    (method $docs:tt $name:ident $sig:tt $ret:ident $call:ident $in_place:ident method $out:tt) => {
        bind_method! { $docs $name $sig $ret }
        bind_row! { @in_place $in_place $name $sig }
    };
    (method $docs:tt $name:ident $sig:tt $ret:ident $call:ident $in_place:ident in_place $out:tt) => {
        bind_in_place! { $docs $name $sig }
    };
    // The function of a method row: its first parameter is `input`.
    (@function $docs:tt $name:ident () $ret:ident $out:tt) => {
        bind_function! { $docs $name (input: Tensor) $ret plain $out }
    };
    (@function $docs:tt $name:ident (; $($kw:tt)*) $ret:ident $out:tt) => {
        bind_function! { $docs $name (input: Tensor; $($kw)*) $ret plain $out }
    };
    (@function $docs:tt $name:ident ($($sig:tt)*) $ret:ident $out:tt) => {
        bind_function! { $docs $name (input: Tensor, $($sig)*) $ret plain $out }
    };
    (@in_place none $name:ident $sig:tt) => {};
    (@in_place view $name:ident $sig:tt) => { bind_restride! { $name $sig } };
    (@in_place $writes:ident $name:ident $sig:tt) => { bind_in_place! { $name $sig } };
}

/// Adds a row's function to the module, if it has one.
macro_rules! add_row {
    ($m:ident method $name:ident method) => {};
    ($m:ident method $name:ident in_place) => {};
    ($m:ident $form:ident $name:ident $python:ident) => {
        $m.add_function(wrap_pyfunction!(self::$name, $m)?)?;
    };
}

/// The rows of one family, from the op table.
macro_rules! bind {
    ($family:tt $($Enum:ident)? :
        $(
            $(#[doc = $doc:literal])+
            $form:ident $name:ident $sig:tt -> $ret:ident {
                $flags:tt $call:ident $in_place:ident $python:ident $out:tt $($rest:tt)*
            }
        )*
    ) => {
        $(bind_row! { $form [$(#[doc = $doc])+ #[doc = lucid::op_doc!(python $name)]] $name $sig $ret $call $in_place $python $out })*

        // PyTorch has functions whose names say that they are not safe.
        #[allow(clippy::unsafe_removed_from_name)]
        pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
            let _ = m;
            $(add_row! { m $form $name $python })*
            Ok(())
        }
    };
}

macro_rules! families {
    ($($family:ident $rows:ident $path:path;)*) => {
        $(pastey::paste! {
            mod [<$family _family>] {
                use super::*;
                use $path as ops;
                lucid::$rows! { bind }
            }
        })*

        /// Adds every op's function to the module.
        pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
            $(pastey::paste! { [<$family _family>]::register(m)?; })*
            Ok(())
        }
    };
}
families! {
    create create_ops lucid::ops::create;
    window window_ops lucid::ops::window;
    random random_ops lucid::ops::random;
    transfer transfer_ops lucid::ops::transfer;
    unary unary_ops lucid::ops::unary;
    binary binary_ops lucid::ops::binary;
    pointwise pointwise_ops lucid::ops::pointwise;
    orthogonal orthogonal_ops lucid::ops::orthogonal;
    complex complex_ops lucid::ops::complex;
    compare compare_ops lucid::ops::compare;
    select select_ops lucid::ops::compare::select;
    reduce reduce_ops lucid::ops::reduce;
    scan scan_ops lucid::ops::scan;
    view view_ops lucid::ops::view;
    shape shape_ops lucid::ops::shape;
    calculus calculus_ops lucid::ops::calculus;
    index index_ops lucid::ops::index;
    scatter scatter_ops lucid::ops::scatter;
    sort sort_ops lucid::ops::sort;
    order order_ops lucid::ops::order;
    search search_ops lucid::ops::search;
    segment segment_ops lucid::ops::segment;
    contract contract_ops lucid::ops::contract;
    einsum einsum_ops lucid::ops::einsum;
    metric metric_ops lucid::ops::distance;
    linalg linalg_ops lucid::ops::linalg;
    decomposition decomposition_ops lucid::ops::linalg::decomposition;
    factor factor_ops lucid::ops::linalg::factor;
    solve solve_ops lucid::ops::linalg::solve;
    reflect reflect_ops lucid::ops::linalg::reflect;
    lowrank lowrank_ops lucid::ops::linalg::lowrank;
    matrix matrix_ops lucid::ops::matrix;
    fft fft_ops lucid::ops::fft;
    transform transform_ops lucid::ops::fft::transforms;
    stft stft_ops lucid::ops::fft::stft;
    conv conv_ops lucid::ops::conv;
    pool pool_ops lucid::ops::pool;
    norm norm_ops lucid::ops::norm;
    normalization normalization_ops lucid::ops::normalization;
    nn nn_ops lucid::ops::nn;
    activation activation_ops lucid::ops::activation;
    recurrent recurrent_ops lucid::ops::recurrent;
    rnn rnn_ops lucid::ops::rnn;
    loss loss_ops lucid::ops::loss;
    quantize quantize_ops lucid::ops::quantize;
    quantized quantized_ops lucid::ops::quantized;
    communication communication_ops lucid::ops::communication;
}

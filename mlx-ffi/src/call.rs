//! The macro that makes a safe function of an mlx-c function in one line. Depends on the array and stream modules.
//! Invariant: every argument is passed as a valid handle or as pointer and length of a live slice, every status checked.
//!
//! An argument is `name: kind`; the kinds and the Rust types they stand for:
//! `arr` [`crate::Array`], `opt` an optional one, `arrs` a slice of them, `ints` and `longs` slices of integers, `int`,
//! `size`, `f32`, `f64`, `flag` (bool), `dtype`, `text` (&str), `oint`, `oflt` and `odt` optional numbers and dtype, `key` a random
//! key, `norm` an FFT's scaling.

use std::ffi::CString;

use crate::error::{Error, Result};
use crate::{sys, Dtype};

/// A terminated copy of the text.
pub(crate) fn c_text(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::Mismatch(format!("{text:?} has a zero byte in it")))
}

pub(crate) fn optional_int(value: Option<i32>) -> sys::mlx_optional_int {
    sys::mlx_optional_int { value: value.unwrap_or_default(), has_value: value.is_some() }
}

pub(crate) fn optional_float(value: Option<f32>) -> sys::mlx_optional_float {
    sys::mlx_optional_float { value: value.unwrap_or_default(), has_value: value.is_some() }
}

pub(crate) fn optional_dtype(value: Option<Dtype>) -> sys::mlx_optional_dtype {
    sys::mlx_optional_dtype { value: value.unwrap_or(Dtype::Float32).raw(), has_value: value.is_some() }
}

/// See the module's documentation. A line is `name = c_name(args) [on cpu];`, with `unsafe` before it for a function that trusts
/// the elements of index arrays, `vec` for one that returns several arrays, `pair` for one that returns two, and
/// `kept` for a function of arrays alone that works element by element: its primitive is made once; `kept axes` for a
/// reduction, likewise for each choice of a few dimensions.
macro_rules! wrap {
    () => {};
    ($(#[$doc:meta])* vec $name:ident = $c:ident($($arg:ident: $kind:ident),*) $(on $where:ident)?; $($more:tt)*) => {
        wrap!(@args vec [$($where)?] [$(#[$doc])*] $name $c [$($arg $kind)*] [] [] []);
        wrap!($($more)*);
    };
    ($(#[$doc:meta])* pair $name:ident = $c:ident($($arg:ident: $kind:ident),*) $(on $where:ident)?; $($more:tt)*) => {
        wrap!(@args pair [$($where)?] [$(#[$doc])*] $name $c [$($arg $kind)*] [] [] []);
        wrap!($($more)*);
    };
    ($(#[$doc:meta])* kept axes $name:ident = $c:ident; $($more:tt)*) => {
        #[doc = concat!("MLX's `", stringify!($name), "`.")]
        #[doc = ""]
        $(#[$doc])*
        pub fn $name(a: &$crate::Array, axes: &[i32], keepdims: bool) -> $crate::Result<$crate::Array> {
            static KEPT: $crate::primitive::KeptAxes = $crate::primitive::KeptAxes::new();
            // SAFETY: see the invariant of `call`: valid handles, a live slice, a null out-parameter for MLX to fill.
            KEPT.reduced(a, axes, keepdims, |out, keepdims, stream| unsafe {
                $crate::sys::$c(out, a.raw(), axes.as_ptr(), axes.len(), keepdims, stream)
            })
        }
        wrap!($($more)*);
    };
    ($(#[$doc:meta])* kept $name:ident = $c:ident($($arg:ident: arr),*); $($more:tt)*) => {
        #[doc = concat!("MLX's `", stringify!($name), "`.")]
        #[doc = ""]
        $(#[$doc])*
        #[inline]
        pub fn $name($($arg: &$crate::Array),*) -> $crate::Result<$crate::Array> {
            static KEPT: $crate::primitive::Kept = $crate::primitive::Kept::new();
            // SAFETY: see the invariant of `call`: valid handles, a null out-parameter for MLX to fill.
            KEPT.alike([$($arg),*], |out, stream| unsafe { $crate::sys::$c(out, $($arg.raw(),)* stream) })
        }
        wrap!($($more)*);
    };
    ($(#[$doc:meta])* unsafe $name:ident = $c:ident($($arg:ident: $kind:ident),*) $(on $where:ident)?; $($more:tt)*) => {
        wrap!(@args indexed [$($where)?] [$(#[$doc])*] $name $c [$($arg $kind)*] [] [] []);
        wrap!($($more)*);
    };
    ($(#[$doc:meta])* $name:ident = $c:ident($($arg:ident: $kind:ident),*) $(on $where:ident)?; $($more:tt)*) => {
        wrap!(@args one [$($where)?] [$(#[$doc])*] $name $c [$($arg $kind)*] [] [] []);
        wrap!($($more)*);
    };

    // One argument at a time: [parameters of the Rust function] [statements before the call] [arguments of the C function].
    (@args $n:ident $w:tt $d:tt $f:ident $c:ident [$a:ident arr $($r:tt)*] [$($p:tt)*] [$($s:tt)*] [$($x:tt)*]) => {
        wrap!(@args $n $w $d $f $c [$($r)*] [$($p)* $a: &$crate::Array,] [$($s)*] [$($x)* $a.raw(),]);
    };
    (@args $n:ident $w:tt $d:tt $f:ident $c:ident [$a:ident opt $($r:tt)*] [$($p:tt)*] [$($s:tt)*] [$($x:tt)*]) => {
        wrap!(@args $n $w $d $f $c [$($r)*] [$($p)* $a: Option<&$crate::Array>,] [$($s)*]
            [$($x)* $a.map_or($crate::sys::mlx_array { ctx: std::ptr::null_mut() }, $crate::Array::raw),]);
    };
    (@args $n:ident $w:tt $d:tt $f:ident $c:ident [$a:ident arrs $($r:tt)*] [$($p:tt)*] [$($s:tt)*] [$($x:tt)*]) => {
        wrap!(@args $n $w $d $f $c [$($r)*] [$($p)* $a: &[&$crate::Array],]
            [$($s)* let $a = $crate::vector::Arrays::from_refs($a)?;] [$($x)* $a.raw(),]);
    };
    (@args $n:ident $w:tt $d:tt $f:ident $c:ident [$a:ident ints $($r:tt)*] [$($p:tt)*] [$($s:tt)*] [$($x:tt)*]) => {
        wrap!(@args $n $w $d $f $c [$($r)*] [$($p)* $a: &[i32],] [$($s)*] [$($x)* $a.as_ptr(), $a.len(),]);
    };
    (@args $n:ident $w:tt $d:tt $f:ident $c:ident [$a:ident longs $($r:tt)*] [$($p:tt)*] [$($s:tt)*] [$($x:tt)*]) => {
        wrap!(@args $n $w $d $f $c [$($r)*] [$($p)* $a: &[i64],] [$($s)*] [$($x)* $a.as_ptr(), $a.len(),]);
    };
    (@args $n:ident $w:tt $d:tt $f:ident $c:ident [$a:ident dtype $($r:tt)*] [$($p:tt)*] [$($s:tt)*] [$($x:tt)*]) => {
        wrap!(@args $n $w $d $f $c [$($r)*] [$($p)* $a: $crate::Dtype,] [$($s)*] [$($x)* $a.raw(),]);
    };
    (@args $n:ident $w:tt $d:tt $f:ident $c:ident [$a:ident text $($r:tt)*] [$($p:tt)*] [$($s:tt)*] [$($x:tt)*]) => {
        wrap!(@args $n $w $d $f $c [$($r)*] [$($p)* $a: &str,]
            [$($s)* let $a = $crate::call::c_text($a)?;] [$($x)* $a.as_ptr(),]);
    };
    (@args $n:ident $w:tt $d:tt $f:ident $c:ident [$a:ident oint $($r:tt)*] [$($p:tt)*] [$($s:tt)*] [$($x:tt)*]) => {
        wrap!(@args $n $w $d $f $c [$($r)*] [$($p)* $a: Option<i32>,] [$($s)*] [$($x)* $crate::call::optional_int($a),]);
    };
    (@args $n:ident $w:tt $d:tt $f:ident $c:ident [$a:ident oflt $($r:tt)*] [$($p:tt)*] [$($s:tt)*] [$($x:tt)*]) => {
        wrap!(@args $n $w $d $f $c [$($r)*] [$($p)* $a: Option<f32>,] [$($s)*]
            [$($x)* $crate::call::optional_float($a),]);
    };
    (@args $n:ident $w:tt $d:tt $f:ident $c:ident [$a:ident odt $($r:tt)*] [$($p:tt)*] [$($s:tt)*] [$($x:tt)*]) => {
        wrap!(@args $n $w $d $f $c [$($r)*] [$($p)* $a: Option<$crate::Dtype>,] [$($s)*]
            [$($x)* $crate::call::optional_dtype($a),]);
    };
    (@args $n:ident $w:tt $d:tt $f:ident $c:ident [$a:ident int $($r:tt)*] [$($p:tt)*] [$($s:tt)*] [$($x:tt)*]) => {
        wrap!(@args $n $w $d $f $c [$($r)*] [$($p)* $a: i32,] [$($s)*] [$($x)* $a,]);
    };
    (@args $n:ident $w:tt $d:tt $f:ident $c:ident [$a:ident size $($r:tt)*] [$($p:tt)*] [$($s:tt)*] [$($x:tt)*]) => {
        wrap!(@args $n $w $d $f $c [$($r)*] [$($p)* $a: usize,] [$($s)*] [$($x)* $a,]);
    };
    (@args $n:ident $w:tt $d:tt $f:ident $c:ident [$a:ident flag $($r:tt)*] [$($p:tt)*] [$($s:tt)*] [$($x:tt)*]) => {
        wrap!(@args $n $w $d $f $c [$($r)*] [$($p)* $a: bool,] [$($s)*] [$($x)* $a,]);
    };
    (@args $n:ident $w:tt $d:tt $f:ident $c:ident [$a:ident key $($r:tt)*] [$($p:tt)*] [$($s:tt)*] [$($x:tt)*]) => {
        wrap!(@args $n $w $d $f $c [$($r)*] [$($p)* $a: &$crate::Array,] [$($s)*] [$($x)* $a.raw(),]);
    };
    (@args $n:ident $w:tt $d:tt $f:ident $c:ident [$a:ident norm $($r:tt)*] [$($p:tt)*] [$($s:tt)*] [$($x:tt)*]) => {
        wrap!(@args $n $w $d $f $c [$($r)*] [$($p)* $a: $crate::fft::Norm,] [$($s)*] [$($x)* $a.raw(),]);
    };
    (@args $n:ident $w:tt $d:tt $f:ident $c:ident [$a:ident $num:ident $($r:tt)*] [$($p:tt)*] [$($s:tt)*] [$($x:tt)*]) => {
        wrap!(@args $n $w $d $f $c [$($r)*] [$($p)* $a: $num,] [$($s)*] [$($x)* $a,]);
    };

    // All arguments are done: the function itself.
    (@args one $w:tt [$(#[$doc:meta])*] $f:ident $c:ident [] [$($p:tt)*] [$($s:tt)*] [$($x:tt)*]) => {
        #[doc = concat!("MLX's `", stringify!($f), "`.")]
        #[doc = ""]
        $(#[$doc])*
        #[inline]
        #[allow(clippy::too_many_arguments)]
        pub fn $f($($p)*) -> $crate::Result<$crate::Array> {
            $($s)*
            let stream = wrap!(@stream $w);
            $crate::counters::count_op();
            // SAFETY: see the invariant of `call`: valid handles, live slices, a null out-parameter for MLX to fill.
            $crate::Array::build(|out| unsafe { $crate::sys::$c(out, $($x)* stream) })
        }
    };
    (@args indexed $w:tt [$(#[$doc:meta])*] $f:ident $c:ident [] [$($p:tt)*] [$($s:tt)*] [$($x:tt)*]) => {
        #[doc = concat!("MLX's `", stringify!($f), "`.")]
        #[doc = ""]
        $(#[$doc])*
        ///
        /// # Safety
        /// Every element of an index array must be in `-n..n` for the size `n` of the dimension that it indexes, and whole slices
        /// that begin there must be inside of the array.
        #[inline]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $f($($p)*) -> $crate::Result<$crate::Array> {
            $($s)*
            let stream = wrap!(@stream $w);
            $crate::counters::count_op();
            // SAFETY: as above; the indices are the caller's promise.
            $crate::Array::build(|out| unsafe { $crate::sys::$c(out, $($x)* stream) })
        }
    };
    (@args vec $w:tt [$(#[$doc:meta])*] $f:ident $c:ident [] [$($p:tt)*] [$($s:tt)*] [$($x:tt)*]) => {
        #[doc = concat!("MLX's `", stringify!($f), "`.")]
        #[doc = ""]
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        pub fn $f($($p)*) -> $crate::Result<Vec<$crate::Array>> {
            $($s)*
            let stream = wrap!(@stream $w);
            $crate::counters::count_op();
            $crate::eval::expect_siblings();
            let mut out = $crate::vector::Arrays::new();
            // SAFETY: as above.
            $crate::error::check(unsafe { $crate::sys::$c(out.out(), $($x)* stream) })?;
            out.to_vec()
        }
    };
    (@args pair $w:tt [$(#[$doc:meta])*] $f:ident $c:ident [] [$($p:tt)*] [$($s:tt)*] [$($x:tt)*]) => {
        #[doc = concat!("MLX's `", stringify!($f), "`.")]
        #[doc = ""]
        $(#[$doc])*
        pub fn $f($($p)*) -> $crate::Result<($crate::Array, $crate::Array)> {
            $($s)*
            let stream = wrap!(@stream $w);
            $crate::counters::count_op();
            $crate::eval::expect_siblings();
            $crate::Array::build_pair(|first, second| {
                // SAFETY: as above, with two null out-parameters.
                unsafe { $crate::sys::$c(first, second, $($x)* stream) }
            })
        }
    };
    (@stream []) => { $crate::stream::stream()? };
    (@stream [cpu]) => {{ $crate::eval::expect_siblings(); $crate::stream::cpu_stream()? }};
    (@stream [siblings]) => {{ $crate::eval::expect_siblings(); $crate::stream::stream()? }};
}

pub(crate) use wrap;

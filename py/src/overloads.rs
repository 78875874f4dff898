//! Functions and methods with several of PyTorch's signatures, which one row cannot state.
//!
//! Each reads its arguments with [`Call`], by position, by name or by NumPy's name, and picks the op by what it found.

use crate::args::{kind_name, kinds, optional, required, weight_of, Arg, At, Kind};
use crate::tensor::{nonzero_of, wrap, PyTensor};
use crate::{engine_call, errors, out, results};
use lucid::ops::out::Given;
use lucid::ops::{binary, compare, distance, matrix, order, reduce, NormOrder};
use lucid::{Scalar, Tensor};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyString, PyTuple};
use smallvec::SmallVec;

type Object<'py> = PyResult<Bound<'py, PyAny>>;

/// The arguments of a call, by the names of one signature.
pub struct Call<'py> {
    op: &'static str,
    pub py: Python<'py>,
    names: &'static [&'static str],
    pub given: SmallVec<[Option<Bound<'py, PyAny>>; 8]>,
}

impl<'py> Call<'py> {
    /// `names` are the parameters, the first `positional` of which may come by position. `slf` is the first of a method.
    pub fn read(
        op: &'static str,
        (names, positional): (&'static [&'static str], usize),
        slf: Option<&Bound<'py, PyTensor>>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Call<'py>> {
        let py = args.py();
        let mut given: SmallVec<[Option<Bound<'py, PyAny>>; 8]> = SmallVec::from_elem(None, names.len());
        let first = usize::from(slf.is_some());
        if let Some(slf) = slf {
            given[0] = Some(slf.clone().into_any());
        }
        if args.len() + first > positional {
            let text =
                format!("{op}() takes {} positional arguments but {} were given", positional - first, args.len());
            return Err(errors::type_error(py, text));
        }
        for (slot, arg) in given[first..].iter_mut().zip(args.iter()) {
            *slot = Some(arg);
        }
        for (key, value) in kwargs.into_iter().flat_map(|k| k.iter()) {
            let key: String = key.extract()?;
            let own = match key.as_str() {
                "axis" => "dim",
                "keepdims" => "keepdim",
                own => own,
            };
            match names.iter().position(|n| *n == own) {
                Some(i) if given[i].is_none() => given[i] = Some(value),
                Some(i) => return Err(At { op, arg: names[i] }.twice(py)),
                None => {
                    return Err(errors::type_error(py, format!("{op}() got an unexpected keyword argument '{key}'")))
                }
            }
        }
        Ok(Call { op, py, names, given })
    }

    pub fn get(&self, name: &'static str) -> Option<&Bound<'py, PyAny>> {
        self.names.iter().position(|n| *n == name).and_then(|i| self.given[i].as_ref())
    }

    pub fn arg(&self, name: &'static str) -> Arg<'_, 'py> {
        Arg(self.get(name).map(Bound::as_borrowed))
    }

    pub fn at(&self, arg: &'static str) -> At {
        At { op: self.op, arg }
    }

    /// Was the argument given, and not as `None`?
    pub fn has(&self, name: &'static str) -> bool {
        self.get(name).is_some_and(|v| !v.is_none())
    }

    pub fn tensor(&self, name: &'static str) -> PyResult<Tensor> {
        Ok(required::<kinds::Tensor>(self.py, self.at(name), self.arg(name))?.clone())
    }

    pub fn flag(&self, name: &'static str, default: bool) -> PyResult<bool> {
        optional::<kinds::Bool>(self.at(name), self.arg(name), default)
    }

    /// A flag for which `None` stands for false.
    pub fn loose(&self, name: &'static str) -> PyResult<bool> {
        optional::<kinds::Whether>(self.at(name), self.arg(name), false)
    }

    /// The result, or `out` with the result written to it.
    fn finish<T: out::Store>(&self, made: T, results: impl FnOnce(T) -> Object<'py>) -> Object<'py> {
        match self.get("out").filter(|o| !o.is_none()) {
            Some(out) => {
                let given = self.tensor("input").as_ref().map(Given::tensor).into_iter().collect::<Vec<_>>();
                out::store(self.py, self.op, out.as_borrowed(), made, &given)
            }
            None => results(made),
        }
    }

    /// Refuses an `out` whose memory overlaps a tensor's in part.
    fn apart(&self) -> PyResult<()> {
        let Some(out) = self.get("out").filter(|o| !o.is_none()) else { return Ok(()) };
        let read: Vec<Tensor> = ["input", "other", "index"]
            .iter()
            .filter(|n| self.get(n).is_some())
            .filter_map(|n| self.tensor(n).ok())
            .collect();
        out::check_apart(self.py, self.op, out.as_borrowed(), &read)
    }

    fn wrong(&self, name: &'static str, expected: &str) -> PyErr {
        let got = self.get(name).map_or_else(|| "nothing".into(), |v| kind_name(v));
        errors::type_error(self.py, format!("{}(): argument '{name}' must be {expected}, not {got}", self.op))
    }
}

// ---- max and min -----------------------------------------------------------------------------------------------------

/// `max(x)`, `max(x, dim, keepdim)`, `max(x, other)`; likewise `min`.
fn extremum<'py>(
    largest: bool,
    slf: Option<&Bound<'py, PyTensor>>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> Object<'py> {
    const NAMES: &[&str] = &["input", "dim", "keepdim", "other", "out"];
    let op = if largest { "max" } else { "min" };
    let mut call = Call::read(op, (NAMES, 3), slf, args, kwargs)?;
    if call.given[1].as_ref().is_some_and(|v| v.is_instance_of::<PyTensor>()) {
        if call.given[3].is_some() {
            return Err(call.at("other").twice(call.py));
        }
        call.given[3] = call.given[1].take();
    }
    let t = call.tensor("input")?;
    call.apart()?;
    let weight = weight_of(&t);
    let py = call.py;
    if call.get("other").is_some() {
        if call.get("dim").is_some() || call.get("keepdim").is_some() {
            let why = format!("{op}(): another tensor goes with neither 'dim' nor 'keepdim'");
            return Err(errors::type_error(py, why));
        }
        let other = call.tensor("other")?;
        let run = if largest { binary::maximum } else { binary::minimum };
        return call.finish(engine_call::op(py, weight, || run(&t, &other))?, |made| wrap(py, made));
    }
    if call.get("dim").is_some() {
        let dim = required::<kinds::Dim>(py, call.at("dim"), call.arg("dim"))?;
        let keepdim = call.flag("keepdim", false)?;
        let run = if largest { order::max_dim } else { order::min_dim };
        let pair = engine_call::op(py, weight, || run(&t, dim, keepdim))?;
        // Its row says which `out` is taken.
        call.op = if largest { "max_dim" } else { "min_dim" };
        return call.finish(pair, |pair| results::ValuesIndices(py, op, pair));
    }
    if call.get("keepdim").is_some() {
        return Err(errors::type_error(py, format!("{op}(): 'keepdim' goes with 'dim'")));
    }
    if t.numel() == 0 {
        let why = format!("{op}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument.");
        return Err(errors::runtime_error(py, why));
    }
    let made = engine_call::op(py, weight, || {
        let _name = lucid::autograd::named(if largest { "max_all" } else { "min_all" });
        if largest {
            t.amax(None, false)
        } else {
            t.amin(None, false)
        }
    })?;
    call.finish(made, |made| wrap(py, made))
}

// ---- std and var -----------------------------------------------------------------------------------------------------

/// What `std`, `var`, `std_mean` and `var_mean` compute.
#[derive(Clone, Copy)]
struct Spread {
    op: &'static str,
    root: bool,
    mean: bool,
}

/// `std(x, dim, *, correction, keepdim)`, `std(x, dim, unbiased, keepdim)`, `std(x, unbiased)`, and so on.
fn spread<'py>(
    what: Spread,
    slf: Option<&Bound<'py, PyTensor>>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> Object<'py> {
    const NAMES: &[&str] = &["input", "dim", "unbiased", "keepdim", "correction", "out"];
    // With the mean there is no `out`.
    let names = if what.mean { &NAMES[..5] } else { NAMES };
    let mut call = Call::read(what.op, (names, 4), slf, args, kwargs)?;
    let py = call.py;
    if call.given[1].as_ref().is_some_and(|v| v.is_instance_of::<PyBool>()) {
        // By its name it is no flag.
        let named = |name: &str| kwargs.is_some_and(|k| k.contains(name).unwrap_or(false));
        if named("dim") || named("axis") {
            return Err(call.wrong("dim", "int, a tuple of ints or None"));
        }
        if call.given[2].is_some() {
            return Err(call.wrong("dim", "int, a tuple of ints or None"));
        }
        call.given[2] = call.given[1].take();
    }
    if call.get("unbiased").is_some() && call.get("correction").is_some() {
        return Err(errors::type_error(py, format!("{}(): takes 'unbiased' or 'correction', not both", what.op)));
    }
    if call.get("unbiased").is_some() && call.get("dim").is_none() && call.has("out") {
        return Err(errors::type_error(
            py,
            format!("{}(): 'out' goes with 'unbiased' where there is a 'dim'", what.op),
        ));
    }
    let t = call.tensor("input")?;
    let dim = optional::<kinds::OptDims>(call.at("dim"), call.arg("dim"), None)?;
    let keepdim = call.flag("keepdim", false)?;
    let unbiased = call.flag("unbiased", true)?;
    let correction = optional::<kinds::OptNumber>(call.at("correction"), call.arg("correction"), None)?;
    let correction = correction.unwrap_or(Scalar::Int(i64::from(unbiased)));
    let (dim, weight) = (dim.as_deref(), weight_of(&t));
    let run = |t: &Tensor| match what.root {
        true => reduce::std(t, dim, correction, keepdim),
        false => reduce::var(t, dim, correction, keepdim),
    };
    if !what.mean {
        let made = engine_call::op(py, weight, || run(&t))?;
        return call.finish(made, |made| wrap(py, made));
    }
    let pair = engine_call::op(py, weight, || {
        let _name = lucid::autograd::named(what.op);
        Ok((run(&t)?, t.mean(dim, keepdim, None)?))
    })?;
    call.finish(pair, |pair| results::Pair(py, what.op, pair))
}

// ---- norm ------------------------------------------------------------------------------------------------------------

/// `norm(x, p, dim, keepdim, dtype)` with `p` a number, `"fro"` or `"nuc"`.
fn norm_of<'py>(
    slf: Option<&Bound<'py, PyTensor>>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> Object<'py> {
    const NAMES: &[&str] = &["input", "p", "dim", "keepdim", "out", "dtype"];
    const METHOD: &[&str] = &["input", "p", "dim", "keepdim", "dtype"];
    const NUCLEAR: Option<NormOrder> = Some(NormOrder::Nuc);
    let names = if slf.is_some() { METHOD } else { NAMES };
    let call = Call::read("norm", (names, names.len()), slf, args, kwargs)?;
    let py = call.py;
    let t = call.tensor("input")?;
    let p = match call.get("p").filter(|p| !p.is_none()) {
        None => Some(Scalar::Int(2)),
        Some(text) if text.is_instance_of::<PyString>() => match text.extract::<String>()?.as_str() {
            "fro" => Some(Scalar::Int(2)),
            "nuc" => None,
            other => {
                let why = format!("norm(): p must be a number, 'fro' or 'nuc', got '{other}'");
                return Err(errors::runtime_error(py, why));
            }
        },
        Some(_) => Some(required::<kinds::Number>(py, call.at("p"), call.arg("p"))?),
    };
    let dim = optional::<kinds::OptDims>(call.at("dim"), call.arg("dim"), None)?;
    let keepdim = call.flag("keepdim", false)?;
    let dtype = optional::<kinds::OptDtype>(call.at("dtype"), call.arg("dtype"), None)?;
    let made = engine_call::op(py, weight_of(&t), || match (p, dim) {
        (Some(p), dim) => distance::norm(&t, p, dim.as_deref(), keepdim, dtype),
        (None, Some(dim)) => matrix::linalg_matrix_norm(&t, NUCLEAR, &dim, keepdim, dtype),
        (None, None) => {
            let all: Vec<isize> = (0..t.ndim() as isize).collect();
            matrix::linalg_matrix_norm(&t, NUCLEAR, &all, keepdim, dtype)
        }
    })?;
    call.finish(made, |made| wrap(py, made))
}

// ---- gather ----------------------------------------------------------------------------------------------------------

/// `gather(x, dim, index, *, sparse_grad)`.
fn gathered<'py>(
    slf: Option<&Bound<'py, PyTensor>>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> Object<'py> {
    const NAMES: &[&str] = &["input", "dim", "index", "sparse_grad", "out"];
    let call = Call::read("gather", (if slf.is_some() { &NAMES[..4] } else { NAMES }, 3), slf, args, kwargs)?;
    let py = call.py;
    let (t, index) = (call.tensor("input")?, call.tensor("index")?);
    let dim = required::<kinds::Dim>(py, call.at("dim"), call.arg("dim"))?;
    optional::<kinds::Bool>(call.at("sparse_grad"), call.arg("sparse_grad"), false)?;
    call.apart()?;
    let made = engine_call::op(py, weight_of(&t).max(weight_of(&index)), || t.gather(dim, &index))?;
    call.finish(made, |made| wrap(py, made))
}

// ---- tolerances of matrices ------------------------------------------------------------------------------------------

/// `pinv(A, *, atol, rtol, hermitian)` and `pinv(A, rcond, hermitian)`; `matrix_rank` likewise, with `tol`.
fn tolerant<'py>(
    rank: bool,
    slf: Option<&Bound<'py, PyTensor>>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> Object<'py> {
    const PINV: &[&str] = &["input", "rcond", "hermitian", "atol", "rtol", "out"];
    const RANK: &[&str] = &["input", "tol", "hermitian", "atol", "rtol", "out"];
    let (op, names) = if rank { ("linalg_matrix_rank", RANK) } else { ("linalg_pinv", PINV) };
    let call = Call::read(op, (names, 3), slf, args, kwargs)?;
    let (py, one) = (call.py, names[1]);
    let t = call.tensor("input")?;
    if call.get(one).is_some() && (call.get("atol").is_some() || call.get("rtol").is_some()) {
        return Err(errors::type_error(py, format!("{op}(): takes '{one}', or 'atol' and 'rtol', not both")));
    }
    if call.get(one).is_none() && args.len() > 1 {
        return Err(call.at(one).missing(py));
    }
    call.apart()?;
    let hermitian = optional::<kinds::Bool>(call.at("hermitian"), call.arg("hermitian"), false)?;
    let atol = optional::<kinds::OptOperand>(call.at("atol"), call.arg("atol"), None)?;
    let rtol = optional::<kinds::OptOperand>(call.at("rtol"), call.arg("rtol"), None)?;
    let (atol, rtol) = (kinds::OptOperand::lend(&atol), kinds::OptOperand::lend(&rtol));
    let run = if rank { matrix::linalg_matrix_rank } else { matrix::linalg_pinv };
    let made = match call.get(one) {
        None => engine_call::op(py, weight_of(&t), || run(&t, atol, rtol, hermitian))?,
        Some(_) => {
            let given = required::<kinds::Operand>(py, call.at(one), call.arg(one))?;
            let (given, none) = (given.lend(), Some(Scalar::Float(0.0).into()));
            let (atol, rtol) = if rank { (Some(given), none) } else { (none, Some(given)) };
            engine_call::op(py, weight_of(&t), || run(&t, atol, rtol, hermitian))?
        }
    };
    call.finish(made, |made| wrap(py, made))
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident |$slf:ident, $args:ident, $kwargs:ident| $run:expr;)*) => {
        $(
            $(#[$doc])*
            #[pyfunction]
            #[pyo3(signature = (*args, **kwargs))]
            fn $name<'py>(args: &Bound<'py, PyTuple>, kwargs: Option<&Bound<'py, PyDict>>) -> Object<'py> {
                let ($slf, $args, $kwargs) = (None, args, kwargs);
                $run
            }
        )*
    };
}

macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident |$slf:ident, $args:ident, $kwargs:ident| $run:expr;)*) => {
        #[pymethods]
        impl PyTensor {
            $(
                $(#[$doc])*
                #[pyo3(signature = (*args, **kwargs))]
                fn $name<'py>(slf: &Bound<'py, Self>, args: &Bound<'py, PyTuple>, kwargs: Option<&Bound<'py, PyDict>>) -> Object<'py> {
                    let ($slf, $args, $kwargs) = (Some(slf), args, kwargs);
                    $run
                }
            )*
        }
    };
}

/// The rows of both, once.
macro_rules! both {
    ($($rows:tt)*) => {
        functions! { $($rows)* }
        methods! { $($rows)* }
    };
}
both! {
    /// `out[i][j] = input[index[i][j]][j]` for `dim` 0, and so on. Differs from PyTorch: the gradient is dense also with
    /// `sparse_grad`.
    #[doc = lucid::op_doc!(python gather_of)]
    gather |slf, args, kwargs| gathered(slf, args, kwargs);
    /// The `p`-norm over `dim` (all by default); `p` may be a number, ±∞, `"fro"` or `"nuc"` (the sum of the
    /// singular values of matrices).
    #[doc = lucid::op_doc!(python norm_of)]
    norm |slf, args, kwargs| norm_of(slf, args, kwargs);
    /// The largest element; with `dim` the largest along it and their indices; with `other` the larger of each two.
    #[doc = lucid::op_doc!(python max_of)]
    max |slf, args, kwargs| extremum(true, slf, args, kwargs);
    /// The smallest element; with `dim` the smallest along it and their indices; with `other` the smaller of each two.
    #[doc = lucid::op_doc!(python min_of)]
    min |slf, args, kwargs| extremum(false, slf, args, kwargs);
    /// The standard deviation over `dim` (all by default): the square root of `var`. `unbiased` is `correction` as a flag.
    #[doc = lucid::op_doc!(python std_of)]
    std |slf, args, kwargs| spread(Spread { op: "std", root: true, mean: false }, slf, args, kwargs);
    /// The variance over `dim` (all by default), divided by `n - correction`. `unbiased` is `correction` as a flag.
    #[doc = lucid::op_doc!(python var_of)]
    var |slf, args, kwargs| spread(Spread { op: "var", root: false, mean: false }, slf, args, kwargs);
}
functions! {
    /// The pseudoinverse of each matrix: singular values up to the larger of `atol` and `rtol` times the largest count as 0.
    /// By default `rtol` is the larger side times the dtype's rounding; `rcond` is `rtol` with an `atol` of 0. With
    /// `hermitian` the matrices are symmetric: the lower half is read, and the gradient is that of matrices that stay so.
    #[doc = lucid::op_doc!(python pinv_of)]
    linalg_pinv |slf, args, kwargs| tolerant(false, slf, args, kwargs);
    /// The number of singular values above the tolerance that `linalg.pinv` has, as int64; `tol` is `atol` with an `rtol` of 0.
    #[doc = lucid::op_doc!(python matrix_rank_of)]
    linalg_matrix_rank |slf, args, kwargs| tolerant(true, slf, args, kwargs);
    /// `std` and the mean over the same dimensions.
    #[doc = lucid::op_doc!(python std_mean_of)]
    std_mean |slf, args, kwargs| spread(Spread { op: "std_mean", root: true, mean: true }, slf, args, kwargs);
    /// `var` and the mean over the same dimensions.
    #[doc = lucid::op_doc!(python var_mean_of)]
    var_mean |slf, args, kwargs| spread(Spread { op: "var_mean", root: false, mean: true }, slf, args, kwargs);
}

// ---- where and nonzero -----------------------------------------------------------------------------------------------

/// Elements of `input` where `condition` holds, of `other` elsewhere. With the condition alone, the indices where it holds.
#[doc = lucid::op_doc!(python where_of)]
#[pyfunction]
#[pyo3(signature = (condition, input=Arg::MISSING, other=Arg::MISSING, *, out=Arg::MISSING))]
fn r#where<'py>(
    py: Python<'py>,
    condition: Arg<'_, 'py>,
    input: Arg<'_, 'py>,
    other: Arg<'_, 'py>,
    out: Arg<'_, 'py>,
) -> Object<'py> {
    let op = "where";
    let made = {
        let c = required::<kinds::Tensor>(py, At { op, arg: "condition" }, condition)?.clone();
        if input.0.is_none() && other.0.is_none() {
            return nonzero_of(py, c, true);
        }
        let a = required::<kinds::Operand>(py, At { op, arg: "input" }, input)?;
        let b = required::<kinds::Operand>(py, At { op, arg: "other" }, other)?;
        if let Some(out) = out.0.filter(|o| !o.is_none()) {
            // Numbers are for the form without `out`.
            drop(required::<kinds::Tensor>(py, At { op, arg: "input" }, input)?);
            drop(required::<kinds::Tensor>(py, At { op, arg: "other" }, other)?);
            let mut read = vec![c.clone()];
            <kinds::Operand as Kind>::gather(&a, &mut read);
            <kinds::Operand as Kind>::gather(&b, &mut read);
            out::check_apart(py, op, out, &read)?;
        }
        let weight = weight_of(&c).max(a.weight()).max(b.weight());
        engine_call::op(py, weight, || compare::select::r#where(&c, a.lend(), b.lend()))?
    };
    match out.0.filter(|o| !o.is_none()) {
        None => wrap(py, made),
        Some(out) => out::store(py, op, out, made, &[]),
    }
}

/// The indices of the elements that are not zero: one row each, or with `as_tuple` one vector per dimension.
#[doc = lucid::op_doc!(python nonzero_of)]
#[pyfunction]
#[pyo3(signature = (input, *, out=Arg::MISSING, as_tuple=false))]
fn nonzero<'py>(py: Python<'py>, input: Arg<'_, 'py>, out: Arg<'_, 'py>, as_tuple: bool) -> Object<'py> {
    let t = required::<kinds::Tensor>(py, At { op: "nonzero", arg: "input" }, input)?.clone();
    match out.0.filter(|o| !o.is_none() && !as_tuple) {
        None => nonzero_of(py, t, as_tuple),
        Some(out) => {
            out::check_apart(py, "nonzero", out, ::std::slice::from_ref(&t))?;
            out::store(py, "nonzero", out, engine_call::long(py, || t.nonzero())?, &[])
        }
    }
}

static ARANGE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Numbers from `start` to before `end`, `step` apart. The one number of a call is the end, by either name.
#[doc = lucid::op_doc!(python arange_of)]
#[pyfunction]
#[pyo3(signature = (*args, **kwargs))]
fn arange<'py>(args: &Bound<'py, PyTuple>, kwargs: Option<&Bound<'py, PyDict>>) -> Object<'py> {
    let py = args.py();
    let row = ARANGE.get(py).ok_or_else(|| errors::runtime_error(py, "arange(): the module is not complete"))?.bind(py);
    match kwargs {
        Some(named)
            if args.is_empty() && named.contains("end")? && !named.contains("start")? && !named.contains("step")? =>
        {
            let named = named.copy()?;
            named.set_item("start", 0)?;
            row.call(args, Some(&named))
        }
        kwargs => row.call(args, kwargs),
    }
}

/// Adds the functions. Those that share a row's name come after the table's and take its place.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let row = m.getattr("arange")?;
    macro_rules! add {
        ($($name:ident)*) => { $(m.add_function(wrap_pyfunction!(self::$name, m)?)?;)* };
    }
    ARANGE.get_or_init(m.py(), || row.unbind());
    add! { arange gather linalg_matrix_rank linalg_pinv max min norm std var std_mean var_mean r#where nonzero }
    Ok(())
}

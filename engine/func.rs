//! Functions of functions: gradients, products with Jacobians, and batches, over closures.
//!
//! Depends on `autograd` and `batching`. Closures take a slice of tensors; transforms nest in any way. What they compute is
//! on the tape, so results can be differentiated again.
//!
//! ```
//! use lucid::prelude::*;
//! # fn main() -> Result<()> {
//! // The second derivative of x³ is 6x.
//! let cube = |x: &[Tensor]| x[0].pow(3.0);
//! let slope = |x: &[Tensor]| Ok(func::grad(cube, x)?.remove(0));
//! assert_close(func::grad(slope, &[tensor!(2.0)?])?.remove(0), 12.0);
//!
//! // Gradients per sample: of (w · xᵢ)² by w, for each row xᵢ.
//! let w = tensor!([1.0, 2.0])?;
//! let rows = tensor!([[1.0, 0.0], [0.0, 1.0]])?;
//! let loss = |w: &[Tensor], x: &Tensor| w[0].dot(x)?.square();
//! let each = |x: &[Tensor]| func::grad(|w| loss(w, &x[1]), &x[..1]);
//! let grads = func::vmap(each, &[w, rows], &[None, Some(0)])?.remove(0);
//! assert_close(grads, [[2.0, 0.0], [0.0, 4.0]]);
//! # Ok(())
//! # }
//! ```

use crate::autograd::{self, BackwardOptions};
use crate::batching::{self, Randomness};
use crate::{enable_grad, grad_enabled, Error, Result, Tensor};

/// Ends a transform also where the function returns early.
struct InTransform(Option<autograd::Transform>);

impl InTransform {
    fn enter(reverse: bool) -> Result<InTransform> {
        Ok(InTransform(Some(autograd::enter_transform(reverse)?)))
    }
}

impl Drop for InTransform {
    fn drop(&mut self) {
        if let Some(former) = self.0.take() {
            autograd::leave_transform(former);
        }
    }
}

/// A call of a function on inputs made to be differentiated by.
struct Traced {
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
    recording: bool,
}

impl Traced {
    fn of(f: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>, inputs: &[Tensor]) -> Result<Traced> {
        let recording = grad_enabled();
        let (inputs, outputs) = enable_grad(|| {
            let _running = InTransform::enter(true)?;
            let inputs = inputs.iter().map(batching::fresh).collect::<Result<Vec<_>>>()?;
            inputs.iter().for_each(Tensor::adopt);
            let outputs = f(&inputs)?;
            Ok::<_, Box<Error>>((inputs, outputs))
        })?;
        // What goes on from here asks for other gradients; this call's own are asked for by name.
        autograd::retire(&inputs);
        Ok(Traced { inputs, outputs, recording })
    }

    /// The results as the caller sees them: without a history that only this call has made.
    fn outside(&self, tensors: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let one = |t: Tensor| {
            let kept = self.recording && t.requires_grad() && leads_elsewhere(&t);
            if kept || !t.requires_grad() {
                Ok(t)
            } else {
                autograd::cut(&t)
            }
        };
        tensors.into_iter().map(one).collect()
    }

    /// The gradients of the weighted outputs by the inputs; zeros where they do not depend on them.
    fn pulled(&self, weights: &[Option<Tensor>]) -> Result<Vec<Tensor>> {
        let mut all = self.outputs.clone();
        all.extend(weights.iter().flatten().cloned());
        let record = grad_enabled() && self.recording && autograd::leads_elsewhere(&all, true);
        let live = |y: &Tensor| y.requires_grad() && (!y.is_leaf() || self.inputs.iter().any(|x| x.is_same(y)));
        let pairs = self.outputs.iter().zip(weights).filter(|(y, _)| live(y));
        let (ys, ws): (Vec<Tensor>, Vec<Option<Tensor>>) = pairs.map(|(y, w)| (y.clone(), w.clone())).unzip();
        let found = match ys.is_empty() {
            true => self.inputs.iter().map(|_| None).collect(),
            false => {
                let keep = BackwardOptions { graph: true, create_graph: record };
                autograd::grad_apart(&ys, &self.inputs, &ws, keep)?
            }
        };
        let filled = self.inputs.iter().zip(found).map(|(x, g)| g.map_or_else(|| x.zeros_like(), Ok));
        self.outside(filled.collect::<Result<Vec<_>>>()?)
    }
}

fn leads_elsewhere(t: &Tensor) -> bool {
    autograd::leads_elsewhere(std::slice::from_ref(t), false)
}

/// The gradients of a scalar function by each of the inputs.
///
/// # Errors
/// Where the function gives other than one number, and what it reports.
pub fn grad(f: impl FnOnce(&[Tensor]) -> Result<Tensor>, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(value_and_grad(f, inputs)?.1)
}

/// The value of a scalar function, and its gradients by each of the inputs.
///
/// # Errors
/// As [`grad`].
pub fn value_and_grad(f: impl FnOnce(&[Tensor]) -> Result<Tensor>, inputs: &[Tensor]) -> Result<(Tensor, Vec<Tensor>)> {
    let call = Traced::of(|x| Ok(vec![f(x)?]), inputs)?;
    let Some(value) = call.outputs.first().filter(|y| y.ndim() == 0) else {
        let shapes: Vec<&[usize]> = call.outputs.iter().map(Tensor::shape).collect();
        return Err(Error::shape("grad", "the function should give a scalar; vjp and jacobian take others", &shapes));
    };
    let grads = call.pulled(&[None])?;
    let value = call.outside(vec![value.clone()])?.remove(0);
    Ok((value, grads))
}

/// The products of cotangents with a Jacobian.
pub struct Pullback(Traced);

impl Pullback {
    /// `cotangentsᵀ J`: a tensor for each input, from one for each output.
    ///
    /// # Errors
    /// Where there are not as many cotangents as outputs, or of other shapes.
    pub fn call(&self, cotangents: &[Tensor]) -> Result<Vec<Tensor>> {
        let shapes = |list: &[Tensor]| list.iter().map(|t| t.shape().to_vec()).collect::<Vec<_>>();
        if shapes(cotangents) != shapes(&self.0.outputs) {
            let (given, own) = (shapes(cotangents), shapes(&self.0.outputs));
            return Err(Error::value("vjp", format!("cotangents of shapes {given:?} for outputs of {own:?}")));
        }
        self.0.pulled(&cotangents.iter().cloned().map(Some).collect::<Vec<_>>())
    }
}

/// The function's results, and what gives products of cotangents with its Jacobian.
///
/// # Errors
/// For results without gradients, and what the function reports.
pub fn vjp(f: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>, inputs: &[Tensor]) -> Result<(Vec<Tensor>, Pullback)> {
    let call = Traced::of(f, inputs)?;
    if let Some(y) = call.outputs.iter().find(|y| !y.dtype().is_differentiable()) {
        return Err(Error::dtype("vjp", "all outputs must be of floating or complex dtype", &[y.dtype()]));
    }
    let values = call.outside(call.outputs.clone())?;
    Ok((values, Pullback(call)))
}

/// The function's results, and the products of its Jacobian with tangents of the inputs, in forward mode.
///
/// # Errors
/// Where tangents and inputs do not fit together, and what the function reports.
pub fn jvp(
    f: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
    inputs: &[Tensor],
    tangents: &[Tensor],
) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
    if inputs.len() != tangents.len() {
        let why = format!("{} inputs, but {} tangents", inputs.len(), tangents.len());
        return Err(Error::value("jvp", why));
    }
    struct Level(u64);
    impl Drop for Level {
        fn drop(&mut self) {
            autograd::close_level(self.0);
        }
    }
    let _level = Level(autograd::open_level(false)?);
    let _running = InTransform::enter(false)?;
    let duals = inputs.iter().zip(tangents).map(|(x, v)| autograd::make_dual(x, v)).collect::<Result<Vec<_>>>()?;
    duals.iter().for_each(Tensor::adopt);
    let (mut values, mut pushed) = (Vec::new(), Vec::new());
    for y in f(&duals)? {
        let (value, tangent) = autograd::unpack_dual(&y)?;
        let tangent = tangent.map_or_else(|| value.zeros_like(), Ok)?;
        let kept = !tangent.requires_grad() || leads_elsewhere(&tangent);
        pushed.push(if kept { tangent } else { autograd::cut(&tangent)? });
        values.push(value);
    }
    Ok((values, pushed))
}

/// Runs a function of samples on all samples at once: `in_dims` says which dimension of each input counts them, `None` for
/// what all share. In each result they are counted by the first dimension. Random ops are refused inside.
///
/// # Errors
/// Where the inputs do not have the same number of samples, and what the function reports.
pub fn vmap(
    f: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
    inputs: &[Tensor],
    in_dims: &[Option<isize>],
) -> Result<Vec<Tensor>> {
    mapped(f, inputs, in_dims, Randomness::Error)
}

/// [`vmap`] in which every sample draws random numbers of its own.
///
/// # Errors
/// As [`vmap`].
pub fn vmap_random(
    f: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
    inputs: &[Tensor],
    in_dims: &[Option<isize>],
) -> Result<Vec<Tensor>> {
    mapped(f, inputs, in_dims, Randomness::Different)
}

fn mapped(
    f: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
    inputs: &[Tensor],
    in_dims: &[Option<isize>],
    randomness: Randomness,
) -> Result<Vec<Tensor>> {
    if inputs.len() != in_dims.len() {
        return Err(Error::value("vmap", format!("{} inputs, but {} in_dims", inputs.len(), in_dims.len())));
    }
    let mut size = None;
    for (x, dim) in inputs.iter().zip(in_dims).filter_map(|(x, dim)| Some((x, (*dim)?))) {
        let axis = if dim < 0 { dim + x.ndim() as isize } else { dim };
        let own = usize::try_from(axis).ok().and_then(|axis| x.shape().get(axis)).copied();
        let own = own.ok_or_else(|| Error::shape("vmap", format!("no dimension {dim} to map over"), &[x.shape()]))?;
        if *size.get_or_insert(own) != own {
            let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
            return Err(Error::shape("vmap", "all inputs must have the same size in the mapped dimension", &shapes));
        }
    }
    let size = size.ok_or_else(|| Error::value("vmap", "at least one input must be mapped over"))?;
    struct Level(u64);
    impl Drop for Level {
        fn drop(&mut self) {
            batching::exit(self.0);
        }
    }
    let level = Level(batching::enter(size, randomness, false));
    let hide = |(x, dim): (&Tensor, &Option<isize>)| match dim {
        Some(dim) => batching::hide(x, *dim, level.0),
        None => Ok(x.clone()),
    };
    let hidden = inputs.iter().zip(in_dims).map(hide).collect::<Result<Vec<_>>>()?;
    f(&hidden)?.iter().map(|y| batching::show(y, level.0, 0)).collect()
}

fn real(op: &'static str, tensors: &[Tensor]) -> Result<()> {
    match tensors.iter().find(|t| !t.dtype().is_float()) {
        Some(t) => Err(Error::dtype(op, "inputs and outputs must be of a real floating dtype", &[t.dtype()])),
        None => Ok(()),
    }
}

/// The Jacobian of a function of one tensor: from (B…) to (A…) it is (A…, B…), row by row in reverse, all rows at once.
///
/// # Errors
/// For complex tensors, and what the function reports.
///
/// # Examples
/// ```
/// use lucid::prelude::*;
/// # fn main() -> Result<()> {
/// let x = tensor!([1.0, 2.0])?;
/// assert_close(func::jacobian(|x| x.square(), &x)?, [[2.0, 0.0], [0.0, 4.0]]);
/// assert_close(func::hessian(|x| x.pow(3.0)?.sum_all(), &x)?, [[6.0, 0.0], [0.0, 12.0]]);
/// # Ok(())
/// # }
/// ```
pub fn jacobian(f: impl FnOnce(&Tensor) -> Result<Tensor>, input: &Tensor) -> Result<Tensor> {
    real("jacobian", std::slice::from_ref(input))?;
    let (values, pullback) = vjp(|x| Ok(vec![f(&x[0])?]), std::slice::from_ref(input))?;
    real("jacobian", &values)?;
    let y = &values[0];
    let rows = basis(y)?;
    let blocks = vmap(|v| pullback.call(v), &[rows], &[Some(0)])?;
    let mut shape = crate::tensor::signed(y.shape());
    shape.extend(input.shape().iter().map(|&n| n as isize));
    blocks[0].reshape(&shape)
}

/// The Jacobian, column by column in forward mode: for functions of few numbers to many.
///
/// # Errors
/// As [`jacobian`].
pub fn jacobian_forward(f: impl Fn(&Tensor) -> Result<Tensor>, input: &Tensor) -> Result<Tensor> {
    real("jacobian_forward", std::slice::from_ref(input))?;
    let columns =
        vmap(|v| Ok(jvp(|x| Ok(vec![f(&x[0])?]), std::slice::from_ref(input), v)?.1), &[basis(input)?], &[Some(0)])?;
    real("jacobian_forward", &columns)?;
    let out = &columns[0].shape()[1..];
    let mut shape = crate::tensor::signed(out);
    shape.extend(input.shape().iter().map(|&n| n as isize));
    columns[0].movedim(&[0], &[-1])?.reshape(&shape)
}

/// The matrix of second derivatives of a scalar function: from (B…) it is (B…, B…).
///
/// # Errors
/// Where the function gives other than one number, and as [`jacobian`].
pub fn hessian(f: impl Fn(&Tensor) -> Result<Tensor>, input: &Tensor) -> Result<Tensor> {
    jacobian(|x| Ok(grad(|x| f(&x[0]), std::slice::from_ref(x))?.remove(0)), input)
}

/// The standard basis of a tensor's elements: (n, shape…).
fn basis(like: &Tensor) -> Result<Tensor> {
    let n = like.numel();
    let eye = crate::ops::create::eye(n as i64, None, Some(like.dtype()), Some(like.device()))?;
    let mut shape = crate::tensor::signed(like.shape());
    shape.insert(0, n as isize);
    eye.reshape(&shape)
}

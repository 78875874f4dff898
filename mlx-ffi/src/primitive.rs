//! Primitives taken from one node of a graph and used for more: MLX's functions check shapes and dtypes, look for casts
//! and broadcasts and make a primitive at every call, which costs more than the node itself.
//!
//! A primitive holds parameters and no arrays, so that any number of nodes may share it. Depends on the array type and the
//! shim. Invariant: a primitive is used only for inputs and outputs like those of the call that it was taken from, as far
//! as its parameters and MLX's checks of them say.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

use smallvec::SmallVec;

use crate::{counters, eval, stream, sys, Array, Dtype, Result};

type Handles = SmallVec<[sys::mlx_array; 8]>;

static SHARED: AtomicBool = AtomicBool::new(true);

/// Whether functions without parameters take the primitives of earlier calls; if not, each call is MLX's own function, for
/// comparing both.
pub fn share_primitives(on: bool) {
    SHARED.store(on, Ordering::Relaxed);
}

fn handles(arrays: &[&Array]) -> Handles {
    arrays.iter().map(|a| a.raw()).collect()
}

/// An output's shape and dtype, as the shim takes them while the slice lives.
fn raw_output(shape: &[i32], dtype: Dtype) -> sys::lucid_output {
    sys::lucid_output { shape: shape.as_ptr(), ndim: shape.len(), dtype: dtype.raw() }
}

/// The same of several.
pub(crate) fn raw_outputs(outputs: &[(&[i32], Dtype)]) -> SmallVec<[sys::lucid_output; 8]> {
    outputs.iter().map(|&(shape, dtype)| raw_output(shape, dtype)).collect()
}

/// A primitive with its parameters and its stream.
#[derive(Debug)]
pub struct Primitive(sys::lucid_primitive);

// SAFETY: a shared pointer to what MLX does not change once it is made; evaluating it is serialised (see `eval`).
unsafe impl Send for Primitive {}
// SAFETY: as above.
unsafe impl Sync for Primitive {}

impl Primitive {
    /// The primitive of an array that was made just now from these inputs and nothing else; `None` where MLX put other
    /// nodes between, or made none.
    ///
    /// # Safety
    /// No other thread may evaluate the array or an array that is made of it meanwhile.
    pub unsafe fn of(made: &Array, inputs: &[&Array]) -> Option<Primitive> {
        let inputs = handles(inputs);
        // SAFETY: valid handles; nobody changes the array meanwhile (the caller's promise).
        let raw = unsafe { sys::lucid_primitive_of(made.raw(), inputs.as_ptr(), inputs.len()) };
        (!raw.ctx.is_null()).then_some(Primitive(raw))
    }

    /// The array of this shape and dtype that the primitive makes of the inputs.
    #[inline]
    pub(crate) fn repeat<const N: usize>(&self, inputs: [&Array; N], shape: &[i32], dtype: Dtype) -> Result<Array> {
        let inputs = inputs.map(Array::raw);
        let output = raw_output(shape, dtype);
        // SAFETY: valid handles, a live slice and a null out-parameter for MLX to fill.
        Array::build(|made| unsafe { sys::lucid_repeat(made, &output, 1, self.0, inputs.as_ptr(), N) })
    }

    /// The arrays of these shapes and dtypes that the primitive makes of the inputs, as many and of the kinds that it has
    /// parameters for: MLX does not check them again.
    ///
    /// # Safety
    /// The inputs and outputs must be as many as those of the call that the primitive was taken from, of the same dtypes, and of
    /// shapes for which that call's parameters (of a kernel, its grid) lead to no element outside of them.
    pub unsafe fn repeat_all(&self, inputs: &[&Array], outputs: &[(&[i32], Dtype)]) -> Result<Vec<Array>> {
        counters::count_op();
        if outputs.len() > 1 {
            eval::expect_siblings();
        }
        let inputs = handles(inputs);
        let outputs = raw_outputs(outputs);
        // SAFETY: valid handles, live slices and as many null out-parameters as there are outputs.
        Array::build_all(outputs.len(), |made| unsafe {
            sys::lucid_repeat(made, outputs.as_ptr(), outputs.len(), self.0, inputs.as_ptr(), inputs.len())
        })
    }
}

impl Drop for Primitive {
    fn drop(&mut self) {
        // SAFETY: owned, freed once.
        unsafe { sys::lucid_primitive_free(self.0) };
    }
}

/// What a function without parameters makes of inputs of one dtype: its primitive and the result's dtype, if it makes one
/// node of them.
type Learned = OnceLock<Option<(Primitive, Dtype)>>;

/// The primitives of a function without parameters, by the dtype that all its inputs have.
pub(crate) struct Kept([Learned; Dtype::ALL.len()]);

impl Kept {
    pub(crate) const fn new() -> Kept {
        Kept([const { OnceLock::new() }; Dtype::ALL.len()])
    }

    /// The function of inputs of one shape and one dtype, which is the result's shape; other inputs go to `call`.
    #[inline]
    pub(crate) fn alike<const N: usize>(
        &self,
        inputs: [&Array; N],
        call: impl FnOnce(*mut sys::mlx_array, sys::mlx_stream) -> std::os::raw::c_int,
    ) -> Result<Array> {
        let first = inputs[0];
        let same = inputs[1..].iter().all(|a| a.shape() == first.shape());
        self.shaped(inputs, same.then(|| first.shape()), call)
    }

    /// The function of inputs of one dtype, whose result has this shape; other inputs, and those without it, go to `call`.
    #[inline]
    pub(crate) fn shaped<const N: usize>(
        &self,
        inputs: [&Array; N],
        shape: Option<&[i32]>,
        call: impl FnOnce(*mut sys::mlx_array, sys::mlx_stream) -> std::os::raw::c_int,
    ) -> Result<Array> {
        let stream = stream::stream()?;
        counters::count_op();
        let dtype = inputs[0].dtype();
        let alike = |_: &_| SHARED.load(Ordering::Relaxed) && inputs[1..].iter().all(|a| a.dtype() == dtype);
        let shape = shape.filter(alike);
        let learned = &self.0[dtype as usize];
        match (shape, learned.get()) {
            (Some(shape), Some(Some((primitive, dtype)))) => primitive.repeat(inputs, shape, *dtype),
            (Some(_), None) => {
                let made = Array::build(|out| call(out, stream))?;
                // SAFETY: nobody else has the array yet.
                let _ = learned.set(unsafe { Primitive::of(&made, &inputs) }.map(|p| (p, made.dtype())));
                Ok(made)
            }
            _ => Array::build(|out| call(out, stream)),
        }
    }
}

/// The primitives of transforms along the last dimensions, by the array's dimensions and how many of these are the last.
pub(crate) struct KeptLast([[Learned; LAST]; LAST]);

/// Of arrays of so many dimensions transforms are kept.
const LAST: usize = 4;

impl KeptLast {
    pub(crate) const fn new() -> KeptLast {
        KeptLast([const { [const { OnceLock::new() }; LAST] }; LAST])
    }

    /// The transform of `a`, of the one dtype that it takes, along the last `count` dimensions, to this shape; with 0 none is
    /// kept. `call` is MLX's own.
    pub(crate) fn shaped(
        &self,
        a: &Array,
        count: usize,
        shape: &[i32],
        call: impl FnOnce(*mut sys::mlx_array, sys::mlx_stream) -> std::os::raw::c_int,
    ) -> Result<Array> {
        let stream = stream::stream()?;
        counters::count_op();
        let of = |n: usize| n.checked_sub(1).filter(|_| SHARED.load(Ordering::Relaxed));
        let learned = of(shape.len()).and_then(|ndim| self.0.get(ndim)).and_then(|of_ndim| of_ndim.get(of(count)?));
        match learned.map(OnceLock::get) {
            Some(Some(Some((primitive, dtype)))) => primitive.repeat([a], shape, *dtype),
            Some(None) => {
                let made = Array::build(|out| call(out, stream))?;
                // SAFETY: nobody else has the array yet.
                let found = unsafe { Primitive::of(&made, &[a]) }.map(|p| (p, made.dtype()));
                let _ = learned.map(|slot| slot.set(found));
                Ok(made)
            }
            _ => Array::build(|out| call(out, stream)),
        }
    }
}

/// Of so many first dimensions every choice is kept.
const AXES: usize = 4;

/// The dimensions as bits, if there are any, none is named twice and all are among those whose choices are kept.
fn choice(axes: &[i32]) -> Option<usize> {
    let bit = |&axis: &i32| usize::try_from(axis).ok().filter(|&a| a < AXES).map(|a| 1 << a);
    let with = |bits, axis| bit(axis).filter(|bit| bits & bit == 0).map(|bit| bits | bit);
    axes.iter().try_fold(0, with).filter(|&bits| bits != 0)
}

/// The primitives that leave out dimensions of one element, by their choice.
static SQUEEZES: [OnceLock<Option<Primitive>>; 1 << AXES] = [const { OnceLock::new() }; 1 << AXES];

/// Learns the primitive for this choice from an array whose dimensions of it have one element each.
fn learn_squeeze(choice: usize, kept: &Array, stream: sys::mlx_stream) -> Result<()> {
    let axes: SmallVec<[i32; AXES]> = (0..AXES as i32).filter(|a| choice >> a & 1 == 1).collect();
    // SAFETY: a valid handle, a live slice and a null out-parameter for MLX to fill.
    let made =
        Array::build(|out| unsafe { sys::mlx_squeeze_axes(out, kept.raw(), axes.as_ptr(), axes.len(), stream) })?;
    // SAFETY: nobody else has the array yet.
    let _ = SQUEEZES[choice].set(unsafe { Primitive::of(&made, &[kept]) });
    Ok(())
}

/// The primitives of a reduction, by the input's dtype and the dimensions.
pub(crate) struct KeptAxes([[Learned; 1 << AXES]; Dtype::ALL.len()]);

impl KeptAxes {
    pub(crate) const fn new() -> KeptAxes {
        KeptAxes([const { [const { OnceLock::new() }; 1 << AXES] }; Dtype::ALL.len()])
    }

    /// The reduction over these dimensions. `call` is MLX's own, with the dimensions kept or not.
    pub(crate) fn reduced(
        &self,
        a: &Array,
        axes: &[i32],
        keep: bool,
        call: impl Fn(*mut sys::mlx_array, bool, sys::mlx_stream) -> std::os::raw::c_int,
    ) -> Result<Array> {
        let stream = stream::stream()?;
        counters::count_op();
        let shape = a.shape();
        // Over dimensions of one element MLX makes no reduction, and of none it refuses extrema.
        let many = |&bits: &usize| {
            let reduced = |i: usize| i < AXES && bits >> i & 1 == 1;
            bits >> shape.len().min(AXES) == 0
                && !shape.contains(&0)
                && shape.iter().enumerate().any(|(i, &n)| reduced(i) && n > 1)
        };
        let bits = choice(axes).filter(|bits| SHARED.load(Ordering::Relaxed) && many(bits));
        let Some(bits) = bits else { return Array::build(|out| call(out, keep, stream)) };
        let learned = &self.0[a.dtype() as usize][bits];
        let (primitive, dtype) = match learned.get() {
            Some(Some(known)) => known,
            Some(None) => return Array::build(|out| call(out, keep, stream)),
            None => {
                let kept = Array::build(|out| call(out, true, stream))?;
                // SAFETY: nobody else has the array yet.
                let _ = learned.set(unsafe { Primitive::of(&kept, &[a]) }.map(|p| (p, kept.dtype())));
                learn_squeeze(bits, &kept, stream)?;
                return Array::build(|out| call(out, keep, stream));
            }
        };
        let (mut whole, mut rest) = (SmallVec::<[i32; 8]>::from_slice(shape), SmallVec::<[i32; 8]>::new());
        for (i, n) in whole.iter_mut().enumerate() {
            match i < AXES && bits >> i & 1 == 1 {
                true => *n = 1,
                false => rest.push(*n),
            }
        }
        if keep {
            return primitive.repeat([a], &whole, *dtype);
        }
        let Some(Some(last)) = SQUEEZES[bits].get() else { return Array::build(|out| call(out, keep, stream)) };
        let outputs = [raw_output(&whole, *dtype), raw_output(&rest, *dtype)];
        // SAFETY: valid handles, live slices and a null out-parameter for MLX to fill.
        Array::build(|out| unsafe { sys::lucid_repeat_twice(out, outputs.as_ptr(), primitive.0, last.0, a.raw()) })
    }
}

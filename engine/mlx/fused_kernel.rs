//! Fused element-wise kernels of a graph: one launch for a group of ops, its text made of theirs.
//!
//! Depends on `custom_kernel`, and on what the graph's fuser puts together. Texts hold no sizes, so that groups of one form
//! share a kernel whatever their shapes. Optional, for speed: an op that has no text here runs by itself. Invariant: the
//! primitives stay beside it, for other dtypes and devices and as its reference; each instruction is rounded to its dtype.

use super::array::GpuArray;
use super::convert::{self, int};
use super::custom_kernel::{self, numbers, Text, GROUP};
use super::element_fn;
use super::kernel_error::Made;
use super::kernel_name::KernelName;
use super::kernel_text::type_name;
use super::value::{physical, Perm, Value};
use crate::shape::{numel, Layout, Shape};
use crate::DType;
use lucid_ir::backend::Array as _;
use lucid_ir::fused::{is_narrow, ElementOp, FusedKernel, Instruction, Operand};
use lucid_ir::ops::binary::BinaryOp;
use lucid_ir::ops::compare::CompareOp;
use lucid_ir::ops::unary::UnaryOp;
use mlx_ffi::{ops, Array};
use smallvec::SmallVec;
use std::fmt::Write;

/// How an input's elements are found from the number of a result's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// It has the result's shape.
    Each,
    /// It is one number.
    One,
    /// It broadcasts: by strides, the number of which is given.
    Strided(usize),
}

/// May an op of these dtypes be an instruction?
pub(super) fn fuses(op: &ElementOp, inputs: &[DType], out: DType) -> bool {
    custom_kernel::room().is_some() && expression(op, inputs, out, &["a", "b", "c"]).is_some()
}

/// What the instruction computes of its operands; `None` where that has no short form in both languages.
pub(super) fn expression(op: &ElementOp, inputs: &[DType], out: DType, args: &[&str]) -> Option<String> {
    use DType::{Bool, F32};
    let (inputs, out) = op.in_float32(inputs, out)?;
    let text = match (op, &inputs[..], out, args) {
        (ElementOp::Unary(UnaryOp::LogicalNot), [Bool], Bool, [a, ..]) => format!("!{a}"),
        (ElementOp::Unary(op), [F32], F32, [a, ..]) => unary(op, a)?,
        (ElementOp::Binary(op), [F32, F32], F32, [a, b, ..]) => binary(op, a, b)?,
        (ElementOp::Compare(op), [F32, F32], Bool, [a, b, ..]) => format!("{a} {} {b}", of_floats(op)?),
        (ElementOp::Compare(op), [Bool, Bool], Bool, [a, b, ..]) => format!("{a} {} {b}", of_truths(op)?),
        (ElementOp::Where, [Bool, F32, F32], F32, [c, a, b, ..]) => format!("{c} ? {a} : {b}"),
        (ElementOp::Cast, [Bool], F32, [a, ..]) => format!("{a} ? 1.0f : 0.0f"),
        // What it is rounded to is all that changes.
        (ElementOp::Cast, [F32], F32, [a, ..]) => a.to_string(),
        (ElementOp::Gelu { tanh: true }, [F32], F32, [x, ..]) => {
            format!("0.5f * {x} * (1.0f + tanh(0.7978845608028654f * ({x} + 0.044715f * {x} * {x} * {x})))")
        }
        (ElementOp::GeluGradient { tanh: true }, [F32, F32], F32, [g, x, ..]) => {
            let inner = format!("tanh(0.7978845608028654f * ({x} + 0.044715f * {x} * {x} * {x}))");
            let slope = format!("0.7978845608028654f * (1.0f + 0.134145f * {x} * {x})");
            format!("{g} * (0.5f * (1.0f + {inner}) + 0.5f * {x} * (1.0f - {inner} * {inner}) * {slope})")
        }
        (ElementOp::Curve(f, numbers), [F32], F32, [x, ..]) => element_fn::value_text(*f, *numbers, x)?,
        (ElementOp::CurveGradient(f, numbers), [F32, F32], F32, [g, x, ..]) => {
            element_fn::gradient_text(*f, *numbers, g, x)?
        }
        (
            ElementOp::Unary(_)
            | ElementOp::Binary(_)
            | ElementOp::Compare(_)
            | ElementOp::Where
            | ElementOp::Cast
            | ElementOp::Gelu { .. }
            | ElementOp::GeluGradient { .. }
            | ElementOp::Curve(..)
            | ElementOp::CurveGradient(..),
            _,
            _,
            _,
        ) => return None,
    };
    Some(text)
}

fn unary(op: &UnaryOp, a: &str) -> Option<String> {
    use UnaryOp as U;
    Some(match op {
        U::Neg => format!("-{a}"),
        U::Square => format!("{a} * {a}"),
        U::Abs => format!("fabs({a})"),
        U::Reciprocal => format!("1.0f / {a}"),
        U::Exp => format!("exp({a})"),
        U::Log => format!("log({a})"),
        U::Sqrt => format!("sqrt({a})"),
        U::Rsqrt => format!("1.0f / sqrt({a})"),
        U::Sin => format!("sin({a})"),
        U::Cos => format!("cos({a})"),
        U::Tanh => format!("tanh({a})"),
        U::Floor => format!("floor({a})"),
        U::Ceil => format!("ceil({a})"),
        U::Sigmoid => format!("1.0f / (1.0f + exp(-{a}))"),
        U::Silu => format!("{a} / (1.0f + exp(-{a}))"),
        // NaN stays, and -0 becomes 0.
        U::Relu => format!("{a} <= 0.0f ? 0.0f : {a}"),
        // The rest runs by itself: nothing to do here for a new op.
        _ => return None,
    })
}

fn binary(op: &BinaryOp, a: &str, b: &str) -> Option<String> {
    use BinaryOp as B;
    Some(match op {
        B::Add => format!("{a} + {b}"),
        B::Sub => format!("{a} - {b}"),
        B::Mul => format!("{a} * {b}"),
        B::Div => format!("{a} / {b}"),
        // A NaN in `b` fails the comparison and is chosen.
        B::Maximum => format!("({a} != {a} || {a} > {b}) ? {a} : {b}"),
        B::Minimum => format!("({a} != {a} || {a} < {b}) ? {a} : {b}"),
        B::ReluGradient => format!("{b} <= 0.0f ? 0.0f : {a}"),
        // As above.
        _ => return None,
    })
}

fn of_floats(op: &CompareOp) -> Option<&'static str> {
    Some(match op {
        CompareOp::Eq => "==",
        CompareOp::Ne => "!=",
        CompareOp::Lt => "<",
        CompareOp::Le => "<=",
        CompareOp::Gt => ">",
        CompareOp::Ge => ">=",
        CompareOp::And | CompareOp::Or | CompareOp::Xor => return None,
    })
}

fn of_truths(op: &CompareOp) -> Option<&'static str> {
    Some(match op {
        CompareOp::And => "&&",
        CompareOp::Or => "||",
        CompareOp::Xor => "!=",
        CompareOp::Eq | CompareOp::Ne | CompareOp::Lt | CompareOp::Le | CompareOp::Gt | CompareOp::Ge => return None,
    })
}

/// What elements of a dtype are called where they are computed with.
fn computed(dtype: DType) -> &'static str {
    if dtype == DType::Bool {
        "bool"
    } else {
        "float"
    }
}

/// What they are called in memory; `None` where kernels do not take them.
fn stored(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::Bool => Some("bool"),
        dtype => type_name(convert::dtype(dtype).ok()?),
    }
}

/// The kernel's text; `rank` is the number of dimensions that strided inputs are found by. `d` holds the number of elements,
/// the sizes, and of each strided input its first element and its strides.
pub(super) fn text(kernel: &FusedKernel, reaches: &[Reach], rank: usize) -> Option<Text> {
    let mut inputs: Vec<String> = (0..reaches.len()).map(|k| format!("x{k}")).collect();
    inputs.push("d".into());
    let mut body = String::from("if (i >= (unsigned int)d[0]) return;\n");
    let strided = reaches.iter().filter(|r| matches!(r, Reach::Strided(_))).count();
    if strided > 0 {
        let place = |j| format!("j{j} = (unsigned int)d[{}]", 1 + rank + (rank + 1) * j);
        let places: Vec<String> = (0..strided).map(place).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(body, "unsigned int r = i, q, {};", places.join(", "));
        for axis in (0..rank).rev() {
            let _ = write!(body, "q = r % (unsigned int)d[{0}]; r /= (unsigned int)d[{0}];", 1 + axis);
            for j in 0..strided {
                let _ = write!(body, " j{j} += q * (unsigned int)d[{}];", 2 + rank + (rank + 1) * j + axis);
            }
            body.push('\n');
        }
    }
    for (k, (reach, dtype)) in reaches.iter().zip(&kernel.inputs).enumerate() {
        let (kind, own) = (computed(*dtype), stored(*dtype)?);
        let at = match reach {
            Reach::Each => "i".to_string(),
            Reach::One => "0".to_string(),
            Reach::Strided(j) => format!("j{j}"),
        };
        // The comment tells texts over other dtypes apart.
        let _ = writeln!(body, "{kind} a{k} = ({kind})x{k}[{at}]; // {own}");
    }
    let name = |operand: &Operand| match operand {
        Operand::Input(k) => format!("a{k}"),
        Operand::Made(k) => format!("t{k}"),
    };
    for (k, instruction) in kernel.instructions.iter().enumerate() {
        let Instruction { op, args, dtype } = instruction;
        let dtypes: SmallVec<[DType; 3]> = args.iter().filter_map(|&a| kernel.dtype_of(a)).collect();
        let names: SmallVec<[String; 3]> = args.iter().map(name).collect();
        let names: SmallVec<[&str; 3]> = names.iter().map(String::as_str).collect();
        let (kind, made) = (computed(*dtype), expression(op, &dtypes, *dtype, &names)?);
        let made = if is_narrow(*dtype) { format!("(float)({})({made})", stored(*dtype)?) } else { made };
        let _ = writeln!(body, "{kind} t{k} = {made};");
    }
    for (k, made) in kernel.outputs.iter().enumerate() {
        let own = stored(kernel.instructions[usize::from(*made)].dtype)?;
        let _ = writeln!(body, "out{k}[i] = ({own})t{made};");
    }
    let outputs = (0..kernel.outputs.len()).map(|k| format!("out{k}")).collect();
    Some(Text { name: KernelName::Fused, inputs, outputs, body, group: GROUP })
}

/// The outputs of a fused kernel; nothing where the ops have to be run one by one.
pub(super) fn fused(kernel: &FusedKernel, inputs: &[&GpuArray]) -> Made<Option<Vec<GpuArray>>> {
    let dtypes: SmallVec<[DType; 4]> =
        kernel.outputs.iter().map(|&o| kernel.instructions[usize::from(o)].dtype).collect();
    let floats = dtypes.iter().all(|&dtype| dtype != DType::Bool);
    let room = custom_kernel::room().unwrap_or(0);
    let (shape, count) = (&kernel.shape, numel(&kernel.shape));
    let fits = inputs.len() + kernel.outputs.len() < room && (1..=i32::MAX as usize).contains(&count);
    if !floats || !fits || shape.is_empty() || !kernel.layout().is_contiguous() {
        return Ok(None);
    }
    // Views that are not row-major are read where they are in their storage.
    let scattered = |x: &&GpuArray| x.numel() > 1 && !x.layout().is_contiguous();
    let whole = |x: &&GpuArray| if scattered(x) { x.whole() } else { Ok(None) };
    let wholes = inputs.iter().map(whole).collect::<Made<SmallVec<[Option<Array>; 8]>>>()?;
    let held = inputs.iter().zip(&wholes).map(|(x, whole)| match whole {
        Some(_) => Ok(None),
        None => x.value().map(Some),
    });
    let held = held.collect::<Made<SmallVec<[_; 8]>>>()?;
    // Arrays may have their axes in another order: one order for all, or each op for itself.
    let mut order: Option<Option<Perm>> = None;
    for (x, value) in inputs.iter().zip(&held) {
        let Some(value) = value else { continue };
        if x.shape() == &shape[..] && *order.get_or_insert_with(|| value.perm.clone()) != value.perm {
            return Ok(None);
        }
    }
    let order = order.unwrap_or_default();
    let mut arrays: SmallVec<[Array; 8]> = SmallVec::new();
    let mut reaches: SmallVec<[Reach; 8]> = SmallVec::new();
    let domain: Shape = physical(shape, order.as_ref());
    let mut table: SmallVec<[i64; 10]> = SmallVec::from_elem(count as i64, 1);
    table.extend(domain.iter().map(|&n| n as i64));
    let mut strided = 0;
    for ((x, value), whole) in inputs.iter().zip(&held).zip(wholes) {
        let mut reach_by = |layout: &Layout| {
            let wide = layout.broadcast_to(shape);
            table.push(wide.offset as i64);
            table.extend((0..domain.len()).map(|at| wide.strides[axis_at(order.as_ref(), at)] as i64));
            strided += 1;
            Reach::Strided(strided - 1)
        };
        if let Some(whole) = whole {
            reaches.push(reach_by(x.layout()));
            // Numbers without dimensions are handed over in another way.
            arrays.push(if whole.ndim() == 0 { ops::reshape(&whole, &[1])? } else { whole });
            continue;
        }
        let Some(value) = value else { return Ok(None) };
        let reach = if x.numel() == 1 {
            arrays.push(ops::reshape(&*value.logical()?, &[1])?);
            Reach::One
        } else if x.shape() == &shape[..] {
            arrays.push(value.ordered(order.as_ref())?.into_owned());
            Reach::Each
        } else {
            arrays.push(value.logical()?.into_owned());
            reach_by(&Layout::contiguous(x.shape()))
        };
        reaches.push(reach);
    }
    drop(held);
    let rank = if strided > 0 { domain.len() } else { 0 };
    let table = numbers(if strided > 0 { &table[..] } else { &table[..1] })?;
    let Some(text) = text(kernel, &reaches, rank) else { return Ok(None) };
    let key = format!("fused {}", text.body);
    let sizes = domain.iter().map(|&n| int(n)).collect::<Made<SmallVec<[i32; 4]>>>()?;
    let outputs = dtypes.iter().map(|&dtype| Ok((&sizes[..], convert::dtype(dtype)?)));
    let outputs = outputs.collect::<Made<SmallVec<[_; 4]>>>()?;
    let given: SmallVec<[&Array; 8]> = arrays.iter().chain([&table]).collect();
    let made = custom_kernel::launch_typed(&key, || text, &given, &outputs, count)?;
    let wrap = |(array, dtype): (Array, DType)| GpuArray::new(Value::new(array, order.clone()), shape, dtype);
    made.into_iter().zip(dtypes).map(wrap).collect::<Made<Vec<GpuArray>>>().map(Some)
}

/// The dimension that is at a place of a physical order.
fn axis_at(order: Option<&Perm>, at: usize) -> usize {
    order.and_then(|order| order.get(at)).map_or(at, |&axis| usize::from(axis))
}

//! How tensors print: PyTorch's layout, precision and rules, as Python's `repr` does. Prints evaluate; of large tensors only the
//! edges are read.

use crate::dtype::Category;
use crate::ops::index::cat;
use crate::{no_grad, DType, Device, Result, Scalar, Tensor};
use std::fmt;

const PRECISION: usize = 4;
const THRESHOLD: usize = 1000;
const EDGE: usize = 3;
const LINE: usize = 80;

/// How the numbers of one tensor are written, padded to one width.
struct Format {
    floating: bool,
    whole: bool,
    scientific: bool,
    width: usize,
}

impl Format {
    fn of(values: &[Scalar], floating: bool) -> Format {
        let mut format = Format { floating, whole: true, scientific: false, width: 1 };
        if floating {
            let shown: Vec<f64> = values.iter().map(|v| v.to_f64()).filter(|v| *v != 0.0 && v.is_finite()).collect();
            let least = shown.iter().fold(f64::INFINITY, |m, v| m.min(v.abs()));
            let most = shown.iter().fold(0.0f64, |m, v| m.max(v.abs()));
            format.whole = shown.iter().all(|v| *v == v.ceil());
            format.scientific = !shown.is_empty() && (most / least > 1000.0 || most > 1.0e8 || least < 1.0e-4);
            format.width = shown.iter().map(|&v| format.float(v).len()).max().unwrap_or(1);
        } else {
            format.width = values.iter().map(|v| format.text(v).len()).max().unwrap_or(1);
        }
        format
    }

    fn float(&self, v: f64) -> String {
        if !v.is_finite() {
            return if v.is_nan() {
                "nan".into()
            } else if v > 0.0 {
                "inf".into()
            } else {
                "-inf".into()
            };
        }
        if self.scientific {
            let text = format!("{v:.PRECISION$e}");
            let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
            let power: i32 = power.parse().unwrap_or(0);
            return format!("{digits}e{}{:02}", if power < 0 { '-' } else { '+' }, power.abs());
        }
        if self.whole {
            format!("{v:.0}.")
        } else {
            format!("{v:.PRECISION$}")
        }
    }

    fn text(&self, v: &Scalar) -> String {
        match v {
            _ if self.floating => self.float(v.to_f64()),
            Scalar::Bool(true) => "True".into(),
            Scalar::Bool(false) => "False".into(),
            Scalar::Int(n) => n.to_string(),
            other => format!("{:.0}", other.to_f64()),
        }
    }

    fn padded(&self, v: &Scalar) -> String {
        format!("{:>width$}", self.text(v), width = self.width)
    }
}

enum Formats {
    Real(Format),
    Complex(Format, Format),
}

impl Formats {
    fn width(&self) -> usize {
        match self {
            Formats::Real(format) => format.width,
            Formats::Complex(re, im) => re.width + im.width + 1,
        }
    }

    fn padded(&self, v: &Scalar) -> String {
        match (self, v) {
            (Formats::Real(format), v) => format.padded(v),
            (Formats::Complex(re, im), v) => {
                let (a, b) = parts(v);
                let imaginary = im.padded(&Scalar::Float(b));
                let imaginary = imaginary.trim_start();
                let sign = if imaginary.starts_with('-') { "" } else { "+" };
                format!("{}{sign}{imaginary}j", re.padded(&Scalar::Float(a)))
            }
        }
    }
}

fn parts(v: &Scalar) -> (f64, f64) {
    match *v {
        Scalar::Complex(re, im) => (re, im),
        ref other => (other.to_f64(), 0.0),
    }
}

/// The elements that are shown: all, or those at each dimension's edges.
fn edges(t: &Tensor, summarise: bool) -> Result<Tensor> {
    let mut t = t.clone();
    if summarise {
        for d in 0..t.ndim() {
            let size = t.shape()[d];
            if size > 2 * EDGE {
                let (n, d) = (EDGE as i64, d as isize);
                t = cat(&[t.narrow(d, 0, n)?, t.narrow(d, size as i64 - n, n)?], d)?;
            }
        }
    }
    Ok(t)
}

/// The lines of the elements; `shape` is the tensor's, `values` what is shown of it.
fn lines(values: &[Scalar], shape: &[usize], indent: usize, summarise: bool, format: &Formats) -> String {
    let Some((&size, rest)) = shape.split_first() else {
        return values.first().map(|v| format.padded(v)).unwrap_or_default();
    };
    let cut = summarise && size > 2 * EDGE;
    let count = if cut { 2 * EDGE } else { size };
    if rest.is_empty() {
        let per_line = (LINE.saturating_sub(indent) / (format.width() + 2)).max(1);
        let mut items: Vec<String> = values.iter().map(|v| format.padded(v)).collect();
        if cut {
            items.insert(EDGE, " ...".into());
        }
        let rows: Vec<String> = items.chunks(per_line).map(|row| row.join(", ")).collect();
        return format!("[{}]", rows.join(&format!(",\n{}", " ".repeat(indent + 1))));
    }
    let each = values.len() / count.max(1);
    let part = |chunk: &[Scalar]| lines(chunk, rest, indent + 1, summarise, format);
    let mut found: Vec<String> = values.chunks(each.max(1)).map(part).collect();
    if cut {
        found.insert(EDGE, "...".into());
    }
    format!("[{}]", found.join(&format!(",{}{}", "\n".repeat(rest.len()), " ".repeat(indent + 1))))
}

/// The numbers in row-major order.
fn numbers(t: &Tensor) -> Result<Vec<Scalar>> {
    let bytes = t.to_bytes()?;
    crate::with_dtype!(t.dtype(), T => Ok(lucid_cpu::from_bytes::<T>(&bytes)?.into_iter().map(Into::into).collect()))
}

fn sized(shape: &[usize]) -> String {
    let list: Vec<String> = shape.iter().map(usize::to_string).collect();
    format!("({}{})", list.join(", "), if shape.len() == 1 { "," } else { "" })
}

fn body(t: &Tensor, indent: usize) -> Result<String> {
    let summarise = t.numel() > THRESHOLD;
    let values = numbers(&edges(&t.detach()?, summarise)?)?;
    let format = match t.dtype().category() {
        Category::Complex => {
            let (re, im): (Vec<Scalar>, Vec<Scalar>) =
                values.iter().map(parts).map(|(a, b)| (Scalar::Float(a), Scalar::Float(b))).unzip();
            Formats::Complex(Format::of(&re, true), Format::of(&im, true))
        }
        category => Formats::Real(Format::of(&values, category == Category::Float)),
    };
    Ok(lines(&values, t.shape(), indent, summarise, &format))
}

/// The text of `repr`.
fn written(t: &Tensor) -> Result<String> {
    if let Some((level, value)) = crate::batching::parts(t) {
        let inner: Vec<String> = written(&value)?.lines().map(|line| format!("    {line}")).collect();
        return Ok(format!("BatchedTensor(lvl={level}, bdim=0, value=\n{}\n)", inner.join("\n")));
    }
    let mut suffixes = Vec::new();
    if t.device() != Device::Cpu {
        suffixes.push(format!("device='{}'", t.device()));
    }
    let default = crate::default_dtype();
    let plain = [default, default.to_complex(), DType::I64, DType::Bool].contains(&t.dtype());
    let text = if t.is_sparse() {
        suffixes.push(format!("size={}, layout=lucid.sparse_coo", sized(t.shape())));
        "...".to_string()
    } else if t.numel() == 0 {
        if t.ndim() != 1 {
            suffixes.push(format!("size={}", sized(t.shape())));
        }
        "[]".to_string()
    } else {
        body(t, "tensor(".len())?
    };
    if !plain || (t.numel() == 0 && t.dtype() != default) {
        suffixes.push(format!("dtype=lucid.{}", t.dtype()));
    }
    match t.grad_fn() {
        Some(node) => suffixes.push(format!("grad_fn=<{}>", node.name())),
        None if t.requires_grad() => suffixes.push("requires_grad=True".into()),
        None => {}
    }
    let mut out = format!("tensor({text}");
    let mut last = out.len() - out.rfind('\n').map_or(0, |i| i + 1) + usize::from(!out.contains('\n'));
    for suffix in suffixes {
        if last + suffix.len() + 2 > LINE {
            out.push_str(&format!(",\n       {suffix}"));
            last = 7 + suffix.len();
        } else {
            out.push_str(&format!(", {suffix}"));
            last += suffix.len() + 2;
        }
    }
    out.push(')');
    Ok(out)
}

impl fmt::Display for Tensor {
    /// As Python prints it. Evaluates; where that fails, the error stands in place of the numbers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match no_grad(|| written(self)) {
            Ok(text) => f.write_str(&text),
            Err(error) => write!(f, "tensor(<{error}>, {:?}, {}, {})", self.shape(), self.dtype(), self.device()),
        }
    }
}

impl fmt::Debug for Tensor {
    /// The numbers as [`Display`](fmt::Display) has them, and then shape, dtype and device. Evaluates.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} {:?} {} {}", self.shape(), self.dtype(), self.device())
    }
}

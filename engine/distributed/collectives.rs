//! The collectives: what each sends over the ring, and what it makes of the answer.
//!
//! Depends on `group`, on tensor ops, and on the GPU backend's way to MLX's arrays. What MLX's ring lacks is composed
//! of what it has: a broadcast is a sum in which others add zeros, of bits, so that it is exact; a scattered sum is a
//! part of the sum.

use super::group::{Group, Step};
use super::pieces;
use super::work::Work;
use crate::dispatch;
use crate::graph;
use crate::ops::communication as ops;
use crate::ops::view::{view_as_complex, view_as_real};
use crate::profile;
use crate::{DType, Device, Error, Result, Tensor};
use lucid_ir::ops::communication::{GroupName, Reduce};
use lucid_ir::Meta;
use lucid_mlx::communication;
use mlx_ffi::distributed as mlx;
use std::time::Duration;

/// Why a graph has no messages.
const MESSAGE: &str = "a message between two processes";

/// An error where elements of a dtype have no such reduction.
pub(crate) fn ensure_reducible(op: &'static str, how: Reduce, dtype: DType) -> Result<()> {
    let fits = match how {
        // They are moved as their bits.
        _ if dtype.is_float() && dtype.is_stored_only() => false,
        Reduce::Sum | Reduce::Product => true,
        Reduce::Avg => dtype.is_float() || dtype.is_complex(),
        Reduce::Min | Reduce::Max => !dtype.is_complex(),
        Reduce::BitAnd | Reduce::BitOr | Reduce::BitXor => dtype.is_integral() || dtype == DType::Bool,
    };
    match fits {
        true => Ok(()),
        false => Err(Error::dtype(op, format!("ReduceOp.{} does not exist for this dtype", how.name()), &[dtype])),
    }
}

/// A tensor on the same memory, off the tape.
fn plain(op: &'static str, x: &Tensor) -> Result<Tensor> {
    if !x.storage().is_array() {
        return Err(Error::value(op, "sparse tensors, and tensors inside of vmap, cannot be sent; send a dense one"));
    }
    x.detach()
}

fn kind(x: &Tensor) -> String {
    format!("{} {:?}", x.dtype(), x.shape())
}

/// Elements as integers of the same bits.
fn bits(x: &Tensor) -> Result<Tensor> {
    let x = if x.dtype().is_complex() { view_as_real(x)? } else { x.clone() };
    match x.dtype() {
        DType::F64 => x.view_dtype(DType::I64),
        DType::F32 => x.view_dtype(DType::I32),
        DType::F16 | DType::BF16 => x.view_dtype(DType::I16),
        DType::Bool => x.view_dtype(DType::U8),
        stored if stored.is_stored_only() => x.view_dtype(stored.moved_as()),
        _ => Ok(x),
    }
}

/// The elements that [`bits`] were made of.
pub(super) fn unbits(x: &Tensor, dtype: DType) -> Result<Tensor> {
    match x.dtype() == dtype {
        true => Ok(x.clone()),
        false if dtype.is_complex() => view_as_complex(&x.view_dtype(dtype.to_real())?),
        false => x.view_dtype(dtype),
    }
}

fn through_mlx(
    op: &'static str,
    x: &Tensor,
    shape: &[usize],
    run: impl FnOnce(&mlx_ffi::Array) -> mlx_ffi::Result<mlx_ffi::Array>,
) -> Result<Tensor> {
    let there = x.to_device(Device::Gpu)?;
    let out = Meta::new(shape, x.dtype());
    let made = communication::communicate(op, dispatch::gpu_arrays(op, &[&there])?[0], &out, run)?;
    dispatch::of_gpu_array(made).to_device(x.device())
}

/// MPI's and NCCL's own reductions, of any dtype that they have.
fn reduced(op: &'static str, ring: &mlx::Group, x: &Tensor, how: mlx::Reduce) -> Result<Tensor> {
    match x.dtype() {
        DType::C128 => view_as_complex(&reduced(op, ring, &view_as_real(x)?, how)?),
        DType::F64 => {
            let bytes = communication::communicate_f64(op, &x.to_bytes()?, |a| ring.all_reduce(a, how))?;
            Tensor::of_bytes(&bytes, x.shape(), DType::F64, x.device())
        }
        // MPI has no sum of Booleans, and ends the process that asks for one.
        DType::Bool => {
            let how = if matches!(how, mlx::Reduce::Sum) { mlx::Reduce::Max } else { how };
            through_mlx(op, &x.cast(DType::U8)?, x.shape(), |a| ring.all_reduce(a, how))?.cast(DType::Bool)
        }
        _ => through_mlx(op, x, x.shape(), |a| ring.all_reduce(a, how)),
    }
}

/// Elements that the GPU device has, of the same bits.
pub(super) fn carried(x: &Tensor) -> Result<Tensor> {
    if matches!(x.dtype(), DType::F64 | DType::C128) {
        bits(x)
    } else {
        Ok(x.clone())
    }
}

/// All members' tensors, along a new first dimension.
fn gathered(op: &'static str, ring: &mlx::Group, x: &Tensor) -> Result<Tensor> {
    if ring.is_ring() {
        return pieces::gathered(op, ring, x);
    }
    let carried = carried(x)?;
    let mut shape = crate::shape::Shape::from_slice(&[ring.size()]);
    shape.extend_from_slice(carried.shape());
    let one = carried.unsqueeze(0)?;
    let all = through_mlx(op, &one, &shape, |a| ring.all_gather(a))?;
    unbits(&all, x.dtype())
}

fn combined(op: &'static str, ring: &mlx::Group, x: &Tensor, how: Reduce) -> Result<Tensor> {
    if ring.is_ring() {
        return pieces::reduced(op, ring, x, how);
    }
    let fold = |f: &dyn Fn(&Tensor, &Tensor) -> Result<Tensor>| -> Result<Tensor> {
        let all = gathered(op, ring, x)?;
        (1..ring.size() as i64).try_fold(all.select(0, 0)?, |so_far, i| f(&so_far, &all.select(0, i)?))
    };
    match how {
        Reduce::Sum => reduced(op, ring, x, mlx::Reduce::Sum),
        Reduce::Avg => reduced(op, ring, x, mlx::Reduce::Sum)?.div(ring.size() as f64, None),
        Reduce::Min => reduced(op, ring, x, mlx::Reduce::Min),
        Reduce::Max => reduced(op, ring, x, mlx::Reduce::Max),
        Reduce::Product => fold(&|a, b| a.mul(b)),
        Reduce::BitAnd => fold(&|a, b| a.bitwise_and(b)),
        Reduce::BitOr => fold(&|a, b| a.bitwise_or(b)),
        Reduce::BitXor => fold(&|a, b| a.bitwise_xor(b)),
    }
}

/// Member `rank`'s part of the reduction of tensors whose first dimension has one for each.
fn reduced_part(op: &'static str, ring: &mlx::Group, x: &Tensor, how: Reduce, rank: i64) -> Result<Tensor> {
    let direct = match how {
        Reduce::Sum | Reduce::Avg => Some(mlx::Reduce::Sum),
        Reduce::Min => Some(mlx::Reduce::Min),
        Reduce::Max => Some(mlx::Reduce::Max),
        _ => None,
    };
    let plain = matches!(x.dtype(), DType::F16 | DType::BF16 | DType::F32 | DType::I32 | DType::I64);
    match direct {
        Some(direct) if ring.is_on_gpu() && plain => {
            let made = through_mlx(op, x, &x.shape()[1..], |a| ring.reduce_scatter(a, direct))?;
            if how == Reduce::Avg {
                made.div(ring.size() as f64, None)
            } else {
                Ok(made)
            }
        }
        _ => combined(op, ring, x, how)?.select(0, rank)?.copy(),
    }
}

/// The parts that all members' tensors have for member `rank`.
fn exchanged(op: &'static str, ring: &mlx::Group, x: &Tensor, rank: i64) -> Result<Tensor> {
    if !ring.is_on_gpu() {
        return gathered(op, ring, x)?.select(1, rank)?.copy();
    }
    let carried = carried(x)?;
    unbits(&through_mlx(op, &carried, carried.shape(), |a| ring.all_to_all(a))?, x.dtype())
}

/// Writes a result where it is wanted.
fn put(result: Tensor, into: Option<Tensor>) -> Result<Tensor> {
    match into {
        Some(into) => into.copy_(&result).map(|()| into),
        None => Ok(result),
    }
}

fn fitting(op: &'static str, into: Option<&Tensor>, shape: &[usize], dtype: DType) -> Result<Option<Tensor>> {
    let Some(into) = into else { return Ok(None) };
    if into.shape() != shape {
        return Err(Error::shape(op, "the output has another shape than the result", &[into.shape(), shape]));
    }
    if into.dtype() != dtype {
        return Err(Error::dtype(op, "the output has another dtype than the result", &[into.dtype(), dtype]));
    }
    plain(op, into).map(Some)
}

type Made = Result<Work<Tensor>>;

impl Group {
    /// The same as an op of the table, which a graph that the thread records has, too.
    fn as_op(
        &self,
        op: &'static str,
        x: &Tensor,
        into: Option<Tensor>,
        timeout: Option<Duration>,
        run: impl FnOnce(&Tensor, &GroupName) -> Result<Tensor>,
    ) -> Made {
        if let Some(timeout) = timeout {
            self.set_timeout(timeout);
        }
        let taken = |made: Tensor| match into {
            // What was made for this call alone becomes the tensor's memory.
            Some(into) if !graph::recording() => into.take_(made).map(|()| into),
            into => put(made, into),
        };
        Ok(Work::finished(op, run(x, &self.reference()).and_then(taken)))
    }

    fn run(
        &self,
        op: &'static str,
        what: String,
        timeout: Option<Duration>,
        x: Tensor,
        into: Option<Tensor>,
        data: impl FnOnce(&mlx::Group, Tensor) -> Result<Tensor> + Send + 'static,
    ) -> Work<Tensor> {
        let hosts = self.hosts;
        let moved = move |ring: &mlx::Group, _: &dyn Fn() -> Result<()>| {
            let made = data(ring, x)?;
            match hosts {
                true => Tensor::of_bytes(&made.to_bytes()?, made.shape(), made.dtype(), Device::Cpu),
                false => Ok(made),
            }
        };
        self.submit(op, what, timeout, Step::Move(Box::new(moved), Box::new(|made| put(made, into))))
    }

    /// One tensor of all members': `out = reduce(x_0, …, x_{n-1})`, on every one of them. `into`, which may be `x`,
    /// gets it too.
    ///
    /// # Errors
    /// At once where the dtype has no such reduction; from [`Work::wait`], [`Error::Distributed`] where members do not
    /// call the same, with the same shapes and dtypes, in time.
    pub fn all_reduce(&self, x: &Tensor, how: Reduce, into: Option<&Tensor>, timeout: Option<Duration>) -> Made {
        self.reduce_to("all_reduce", x, how, None, into, timeout)
    }

    /// As [`Group::all_reduce`]; only member `dst` writes to `into`.
    ///
    /// # Errors
    /// As there.
    pub fn reduce(
        &self,
        x: &Tensor,
        dst: usize,
        how: Reduce,
        into: Option<&Tensor>,
        timeout: Option<Duration>,
    ) -> Made {
        self.reduce_to("reduce", x, how, Some(dst), into, timeout)
    }

    fn reduce_to(
        &self,
        op: &'static str,
        x: &Tensor,
        how: Reduce,
        dst: Option<usize>,
        into: Option<&Tensor>,
        timeout: Option<Duration>,
    ) -> Made {
        ensure_reducible(op, how, x.dtype())?;
        let mut into = fitting(op, into, x.shape(), x.dtype())?;
        let x = plain(op, x)?;
        let itself = |into: &Tensor| into.storage().shares_storage(x.storage()) && into.layout() == x.layout();
        let over = dst.is_none() && self.is_ring() && pieces::can_be_over(&x) && into.as_ref().is_some_and(itself);
        if let Some(eager) = self.without_ops().filter(|_| over) {
            let begun = profile::begin();
            let made = eager.reduce_to(op, &x, how, None, Some(&x), timeout)?.wait_interruptible()?;
            profile::end(begun, || &ops::schema::all_reduce, [&x], x.shape());
            return Ok(Work::finished(op, Ok(made)));
        }
        if self.runs_ops() {
            into = into.filter(|_| dst.is_none_or(|d| d == self.rank()));
            return self.as_op(op, &x, into, timeout, |x, group| ops::reduced(x, group, how));
        }
        if self.size() == 1 {
            return Ok(Work::finished(op, put(x, into)));
        }
        let to = dst.map(|d| format!(" to rank {d} of the group")).unwrap_or_default();
        let what = format!("{op}({}) of {}{to}", how.name(), kind(&x));
        if dst.is_some_and(|d| d != self.rank()) {
            into = None;
        }
        if x.numel() == 0 {
            return Ok(self.submit(op, what, timeout, Step::Meet(x)));
        }
        if over {
            let data = move |ring: &mlx::Group, agreed: &dyn Fn() -> Result<()>| {
                pieces::reduced_over(op, ring, x, how, agreed)
            };
            return Ok(self.submit(op, what, timeout, Step::Move(Box::new(data), Box::new(Ok))));
        }
        Ok(self.run(op, what, timeout, x, into, move |ring, x| combined(op, ring, &x, how)))
    }

    /// Member `src`'s tensor, bit by bit, on every member. Others give one of the same shape and dtype.
    ///
    /// # Errors
    /// As [`Group::all_reduce`].
    pub fn broadcast(&self, x: &Tensor, src: usize, into: Option<&Tensor>, timeout: Option<Duration>) -> Made {
        let op = "broadcast";
        let into = fitting(op, into, x.shape(), x.dtype())?;
        let x = plain(op, x)?;
        if self.runs_ops() {
            return self.as_op(op, &x, into, timeout, |x, group| ops::sent_by(x, group, src));
        }
        if self.size() == 1 {
            return Ok(Work::finished(op, put(x, into)));
        }
        let what = format!("{op} of {} from rank {src} of the group", kind(&x));
        if x.numel() == 0 {
            return Ok(self.submit(op, what, timeout, Step::Meet(x)));
        }
        let own = self.rank() == src;
        Ok(self.run(op, what, timeout, x, into, move |ring, x| sent_to_all(op, ring, &x, src, own)))
    }

    /// All members' tensors along a new first dimension: `out[i] = x_i`, of shape `(n, *x.shape)`.
    ///
    /// # Errors
    /// As [`Group::all_reduce`].
    pub fn all_gather(&self, x: &Tensor, into: Option<&Tensor>, timeout: Option<Duration>) -> Made {
        let op = "all_gather";
        let mut shape = Vec::from([self.size()]);
        shape.extend_from_slice(x.shape());
        let into = fitting(op, into, &shape, x.dtype())?;
        let x = plain(op, x)?;
        if self.runs_ops() {
            return self.as_op(op, &x, into, timeout, ops::gathered);
        }
        if self.size() == 1 {
            return Ok(Work::finished(op, put(x.unsqueeze(0)?, into)));
        }
        let what = format!("{op} of {}", kind(&x));
        if x.numel() == 0 {
            let signed: Vec<isize> = shape.iter().map(|&n| n as isize).collect();
            return Ok(self.submit(op, what, timeout, Step::Meet(x.reshape(&signed)?)));
        }
        Ok(self.run(op, what, timeout, x, into, move |ring, x| gathered(op, ring, &x)))
    }

    /// This member's part of the reduction of all members' `x` of shape `(n, …)`: `out = reduce(x_0, …)[rank]`.
    ///
    /// # Errors
    /// As [`Group::all_reduce`]; where the first dimension is not the number of members.
    pub fn reduce_scatter(&self, x: &Tensor, how: Reduce, into: Option<&Tensor>, timeout: Option<Duration>) -> Made {
        let op = "reduce_scatter";
        ensure_reducible(op, how, x.dtype())?;
        if self.runs_ops() {
            self.ensure_parts(op, x)?;
            let into = fitting(op, into, &x.shape()[1..], x.dtype())?;
            return self.as_op(op, &plain(op, x)?, into, timeout, |x, group| ops::scattered(x, group, how));
        }
        let rank = self.rank() as i64;
        let data = move |ring: &mlx::Group, x: &Tensor| reduced_part(op, ring, x, how, rank);
        self.scattered(op, x, into, timeout, format!("({})", how.name()), data)
    }

    /// Part `rank` of member `src`'s `x` of shape `(n, …)`. Others give one of the same shape and dtype.
    ///
    /// # Errors
    /// As [`Group::reduce_scatter`].
    pub fn scatter(&self, x: &Tensor, src: usize, into: Option<&Tensor>, timeout: Option<Duration>) -> Made {
        let (op, own) = ("scatter", self.rank() == src);
        if self.runs_ops() {
            self.ensure_parts(op, x)?;
            let (into, rank) = (fitting(op, into, &x.shape()[1..], x.dtype())?, self.rank() as i64);
            let run = |x: &Tensor, group: &GroupName| ops::sent_by(x, group, src)?.select(0, rank)?.copy();
            return self.as_op(op, &plain(op, x)?, into, timeout, run);
        }
        let from = format!(" from rank {src} of the group");
        let rank = self.rank() as i64;
        let data = move |ring: &mlx::Group, x: &Tensor| sent_to_all(op, ring, x, src, own)?.select(0, rank)?.copy();
        self.scattered(op, x, into, timeout, from, data)
    }

    fn scattered(
        &self,
        op: &'static str,
        x: &Tensor,
        into: Option<&Tensor>,
        timeout: Option<Duration>,
        how: String,
        data: impl FnOnce(&mlx::Group, &Tensor) -> Result<Tensor> + Send + 'static,
    ) -> Made {
        self.ensure_parts(op, x)?;
        let into = fitting(op, into, &x.shape()[1..], x.dtype())?;
        let x = plain(op, x)?;
        let rank = self.rank() as i64;
        if self.size() == 1 {
            return Ok(Work::finished(op, put(x.select(0, rank)?, into)));
        }
        let what = format!("{op}{how} of {}", kind(&x));
        if x.numel() == 0 {
            return Ok(self.submit(op, what, timeout, Step::Meet(x.select(0, rank)?)));
        }
        Ok(self.run(op, what, timeout, x, into, move |ring, x| data(ring, &x)))
    }

    pub(crate) fn ensure_parts(&self, op: &'static str, x: &Tensor) -> Result<()> {
        match x.shape().first() == Some(&self.size()) {
            true => Ok(()),
            false => {
                let why = format!("the first dimension has to be the number of members, {}", self.size());
                Err(Error::shape(op, why, &[x.shape()]))
            }
        }
    }

    /// `out[i] = x_i[rank]`, of `x` of shape `(n, …)`.
    ///
    /// # Errors
    /// As [`Group::reduce_scatter`].
    pub fn all_to_all(&self, x: &Tensor, into: Option<&Tensor>, timeout: Option<Duration>) -> Made {
        let op = "all_to_all";
        self.ensure_parts(op, x)?;
        let into = fitting(op, into, x.shape(), x.dtype())?;
        let x = plain(op, x)?;
        let rank = self.rank() as i64;
        if self.runs_ops() {
            return self.as_op(op, &x, into, timeout, ops::exchanged);
        }
        if self.size() == 1 {
            return Ok(Work::finished(op, put(x, into)));
        }
        let what = format!("{op} of {}", kind(&x));
        if x.numel() == 0 {
            return Ok(self.submit(op, what, timeout, Step::Meet(x)));
        }
        Ok(self.run(op, what, timeout, x, into, move |ring, x| exchanged(op, ring, &x, rank)))
    }

    /// Sends a tensor to the other member of a group of two.
    ///
    /// # Errors
    /// As [`Group::all_reduce`].
    pub fn send(&self, x: &Tensor, tag: i64, timeout: Option<Duration>) -> Made {
        let op = "send";
        graph::note_break(op, MESSAGE)?;
        let x = plain(op, x)?;
        let to = self.other(op)?;
        let what = format!("a message of {} with tag {tag}", kind(&x));
        if x.numel() == 0 {
            return Ok(self.submit(op, what, timeout, Step::Meet(x)));
        }
        Ok(self.run(op, what, timeout, x, None, move |ring, x| {
            let carried = bits(&x)?.to_device(Device::Gpu)?;
            let out = Meta::new(carried.shape(), carried.dtype());
            let array = dispatch::gpu_arrays(op, &[&carried])?[0];
            communication::communicate(op, array, &out, |a| ring.send(a, to).map(|()| a.clone()))?;
            Ok(x)
        }))
    }

    /// Receives a tensor of the shape and dtype of `into`, and into it, from the other member of a group of two.
    ///
    /// # Errors
    /// As [`Group::all_reduce`].
    pub fn recv(&self, into: &Tensor, tag: i64, timeout: Option<Duration>) -> Made {
        let op = "recv";
        graph::note_break(op, MESSAGE)?;
        let x = plain(op, into)?;
        let from = self.other(op)?;
        let what = format!("a message of {} with tag {tag}", kind(&x));
        if x.numel() == 0 {
            return Ok(self.submit(op, what, timeout, Step::Meet(x)));
        }
        let into = Some(x.clone());
        Ok(self.run(op, what, timeout, x, into, move |ring, x| {
            let like = bits(&x)?;
            let out = Meta::new(like.shape(), like.dtype());
            let made = communication::receive(op, &out, |shape, dtype| ring.recv(shape, dtype, from))?;
            let there = dispatch::of_gpu_array(made).to_device(x.device())?;
            unbits(&there, x.dtype())
        }))
    }

    fn other(&self, op: &'static str) -> Result<usize> {
        match self.size() {
            2 => Ok(1 - self.rank()),
            n => Err(Error::value(op, format!("a message is for a group of two, not of {n}"))),
        }
    }

    /// Waits until every member has come here.
    pub fn barrier(&self, timeout: Option<Duration>) -> Work<()> {
        if let Err(refused) = graph::note_break("barrier", "a barrier has no data to be ordered by") {
            return Work::finished("barrier", Err(refused));
        }
        match self.size() {
            1 => Work::finished("barrier", Ok(())),
            _ => self.submit("barrier", "barrier".into(), timeout, Step::Meet(())),
        }
    }
}

/// Member `src`'s tensor: on a ring by a sum of bits to which others add zeros.
fn sent_to_all(op: &'static str, ring: &mlx::Group, x: &Tensor, src: usize, own: bool) -> Result<Tensor> {
    if ring.is_on_gpu() {
        let carried = carried(x)?;
        return unbits(&through_mlx(op, &carried, carried.shape(), |a| ring.broadcast(a, src))?, x.dtype());
    }
    let mine = bits(x)?;
    let mine = if own { mine } else { mine.zeros_like()? };
    unbits(&combined(op, ring, &mine, Reduce::Sum)?, x.dtype())
}

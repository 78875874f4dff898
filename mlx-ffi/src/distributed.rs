//! Groups of processes that compute together: MLX's ring over TCP, MPI and JACCL, and NCCL. Depends on the arrays, the
//! evaluation locks, `nccl` and the shim.
//!
//! A collective waits for other processes, so that it runs on a stream of its group and is waited for outside of the
//! lock that other evaluations wait under. Invariants: only collectives run on such a stream, one at a time; their
//! inputs are evaluated before.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::call::c_text;
use crate::error::{self, check, Error, Result};
use crate::eval::{self, Begun};
use crate::nccl::{self, Communicator};
use crate::{counters, device, stream, sys, Array, Dtype};

/// How elements of several processes become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduce {
    /// Their sum; of Booleans, whether one is true.
    Sum,
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

type Reduction = unsafe extern "C" fn(
    *mut sys::mlx_array,
    sys::mlx_array,
    sys::mlx_distributed_group,
    sys::mlx_stream,
) -> std::os::raw::c_int;

impl Reduce {
    fn of_mlx(self) -> Reduction {
        match self {
            Reduce::Sum => sys::mlx_distributed_all_sum,
            Reduce::Max => sys::mlx_distributed_all_max,
            Reduce::Min => sys::mlx_distributed_all_min,
        }
    }
}

/// What begins the text of an error of a collective's, which comes back through MLX as text.
pub const MARK: &str = "[collective] ";

/// Says what is called before each evaluation while elements are expected that other processes send. It is called under
/// no lock, with what gives the names of the primitives that the evaluation would run, one in each line; an error of it
/// ends the evaluation before anything has run. Only the first setting counts.
pub fn set_arrivals(arrivals: fn(&dyn Fn() -> Result<String>) -> Result<()>) {
    eval::set_arrivals(arrivals);
}

/// Says whether elements are expected that other processes send.
pub fn expect_arrivals(expected: bool) {
    eval::expect_arrivals(expected);
}

/// Streams of groups that are gone: MLX never ends a stream's thread.
static IDLE: Mutex<Vec<Stream>> = Mutex::new(Vec::new());

struct Stream(sys::mlx_stream);

// SAFETY: a handle of MLX's thread-unsafe kind, meant to be used from any thread under a lock; see `stream`.
unsafe impl Send for Stream {}

impl Stream {
    fn take() -> Result<Stream> {
        stream::stream()?;
        if let Some(idle) = IDLE.lock().unwrap_or_else(|e| e.into_inner()).pop() {
            return Ok(idle);
        }
        let device = device::Handle::new(sys::MLX_CPU)?;
        // SAFETY: a valid device handle.
        let made = unsafe { sys::mlx_stream_new_thread_unsafe(device.raw()) };
        match made.ctx.is_null() {
            true => Err(error::take()),
            false => Ok(Stream(made)),
        }
    }
}

/// An owned group.
struct Handle(sys::mlx_distributed_group);

// SAFETY: the handle points at an object with an atomic count; collectives, which use it, run under the group's own
// lock.
unsafe impl Send for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.0.ctx.is_null() {
            // SAFETY: owned, freed once.
            unsafe { sys::mlx_distributed_group_free(self.0) };
        }
    }
}

/// What a group's data travels by.
enum Inner {
    Mlx {
        handle: Handle,
        /// Only taken out when the group is dropped.
        stream: Option<Stream>,
    },
    Nccl(Communicator),
}

/// Processes that compute together.
pub struct Group {
    inner: Mutex<Inner>,
    rank: usize,
    size: usize,
    addresses: Vec<String>,
    /// Ends what a group of NCCL's waits for.
    ended: Arc<AtomicBool>,
}

/// A collective that has begun.
pub struct Travelling(Begun);

impl Travelling {
    /// Waits for what it makes.
    ///
    /// # Errors
    /// Where a peer is lost.
    pub fn wait(self) -> Result<Array> {
        self.0.wait()
    }
}

/// Was the backend compiled into the MLX that was loaded, and is what it needs there? `ring`, `mpi`, `nccl` or `jaccl`.
pub fn is_available(backend: &str) -> bool {
    if backend == "nccl" {
        return nccl::is_available();
    }
    // SAFETY: a terminated text.
    c_text(backend).is_ok_and(|name| unsafe { sys::mlx_distributed_is_available(name.as_ptr()) })
}

/// Ends what this process waits for at these addresses of a ring, whose collectives fail from then on. Needs no
/// [`Group`], so that one that is being opened can be ended.
pub fn abort(addresses: &[SocketAddr]) {
    abort_texts(&addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>());
}

fn abort_texts(addresses: &[String]) {
    with_texts(addresses, |texts, n| {
        // SAFETY: as many terminated texts, which live during the call.
        unsafe { sys::lucid_ring_abort(texts, n) };
    });
}

/// Has MLX's threads of a ring sleep while they wait for a peer. MLX leaves them spinning, which takes the cores from whoever
/// they wait for, where there are fewer cores than threads.
fn sleep_while_waiting(addresses: &[String]) {
    with_texts(addresses, |texts, n| {
        // SAFETY: as many terminated texts, which live during the call.
        unsafe { sys::lucid_ring_block(texts, n) };
    });
}

fn with_texts(addresses: &[String], call: impl FnOnce(*const *const std::os::raw::c_char, usize)) {
    let texts: Vec<_> = addresses.iter().filter_map(|a| c_text(a).ok()).collect();
    let pointers: Vec<_> = texts.iter().map(|t| t.as_ptr()).collect();
    call(pointers.as_ptr(), pointers.len());
}

impl Group {
    /// A ring over TCP of as many processes as there are addresses, of which this one is `rank`. Listens at its own
    /// address alone and waits for the others.
    ///
    /// # Errors
    /// Where MLX cannot listen or connect.
    pub fn ring(addresses: &[SocketAddr], rank: usize) -> Result<Group> {
        stream::ensure_not_forked()?;
        if rank >= addresses.len() || addresses.len() < 2 {
            return Err(Error::Mismatch(format!("rank {rank} of a ring of {} processes", addresses.len())));
        }
        let stream = Stream::take()?;
        let listed: Vec<String> = addresses.iter().map(|a| format!("[\"{a}\"]")).collect();
        let failed = |e: std::io::Error| Error::Mlx(format!("[ring] the list of addresses cannot be written: {e}"));
        let mut file = tempfile::NamedTempFile::new().map_err(failed)?;
        write!(file, "[{}]", listed.join(",")).and_then(|()| file.flush()).map_err(failed)?;
        let path = c_text(&file.path().to_string_lossy())?;
        let number = c_text(&rank.to_string())?;
        let mut handle = Handle(sys::mlx_distributed_group { ctx: std::ptr::null_mut() });
        // SAFETY: terminated texts that live during the call, and a null handle to fill. MLX takes these two from the
        // environment alone; they are set when a group is opened, which programs do while they set themselves up.
        check(unsafe { sys::lucid_ring_open(&mut handle.0, path.as_ptr(), number.as_ptr()) })?;
        let group = Group::of(handle, stream, addresses.iter().map(SocketAddr::to_string).collect());
        sleep_while_waiting(&group.addresses);
        Ok(group)
    }

    /// Processes whose data stays in their GPUs' memory. All of them call this with an id that one of them made, and wait for
    /// one another, at most until `ended` says to stop, which ends what the group does later, too.
    ///
    /// # Errors
    /// Where NCCL cannot connect them.
    pub fn nccl(id: &nccl::Id, size: usize, rank: usize, ended: &Arc<AtomicBool>) -> Result<Group> {
        let communicator = Communicator::open(id, size, rank, ended)?;
        let inner = Mutex::new(Inner::Nccl(communicator));
        Ok(Group { inner, rank, size, addresses: Vec::new(), ended: Arc::clone(ended) })
    }

    /// The processes that a launcher of MLX's, or `mpirun`, started: for the backends `mpi` and `jaccl`, which find one
    /// another by environment variables.
    ///
    /// # Errors
    /// Where the backend cannot be set up.
    pub fn launched(backend: &str) -> Result<Group> {
        stream::ensure_not_forked()?;
        let stream = Stream::take()?;
        let name = c_text(backend)?;
        let mut handle = Handle(sys::mlx_distributed_group { ctx: std::ptr::null_mut() });
        // SAFETY: a terminated text, and a null handle to fill.
        check(unsafe { sys::mlx_distributed_init(&mut handle.0, true, name.as_ptr()) })?;
        Ok(Group::of(handle, stream, Vec::new()))
    }

    fn of(handle: Handle, stream: Stream, addresses: Vec<String>) -> Group {
        // SAFETY: a valid handle.
        let (rank, size) = unsafe {
            (sys::mlx_distributed_group_rank(handle.0) as usize, sys::mlx_distributed_group_size(handle.0) as usize)
        };
        let inner = Mutex::new(Inner::Mlx { handle, stream: Some(stream) });
        Group { inner, rank, size, addresses, ended: Arc::default() }
    }

    /// This process's number in the group.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many processes there are.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Does what it moves stay in the GPU's memory, as NCCL's does?
    pub fn is_on_gpu(&self) -> bool {
        matches!(*self.inner.lock().unwrap_or_else(|e| e.into_inner()), Inner::Nccl(_))
    }

    /// Ends what waits for a peer of this ring, or of this group of NCCL's; every collective fails from then on. Without effect
    /// on other backends.
    pub fn abort(&self) {
        self.ended.store(true, Ordering::Release);
        abort_texts(&self.addresses);
    }

    /// Does its data travel by MLX's ring?
    pub fn is_ring(&self) -> bool {
        !self.addresses.is_empty()
    }

    /// Records a collective on the group's stream and has it computed.
    fn begin(
        &self,
        call: impl FnOnce(*mut sys::mlx_array, sys::mlx_distributed_group, sys::mlx_stream) -> std::os::raw::c_int,
    ) -> Result<Travelling> {
        let inner = self.inner.lock().unwrap_or_else(|e| e.into_inner());
        counters::count_op();
        match &*inner {
            Inner::Nccl(_) => Err(Error::Mismatch("a call of MLX's on a group of NCCL's".into())),
            Inner::Mlx { stream: None, .. } => Err(Error::Exiting),
            Inner::Mlx { handle, stream: Some(stream) } => {
                let made = Array::build(|out| call(out, handle.0, stream.0))?;
                eval::begin_apart(made).map(Travelling)
            }
        }
    }

    /// Lets NCCL do it, or MLX, and waits.
    fn run<T>(
        &self,
        input: Option<&Array>,
        nccl: impl FnOnce(&Communicator) -> Result<T>,
        mlx: impl FnOnce(*mut sys::mlx_array, sys::mlx_distributed_group, sys::mlx_stream) -> std::os::raw::c_int,
        of_mlx: impl FnOnce(Array) -> T,
    ) -> Result<T> {
        stream::ensure_not_forked()?;
        if let Some(input) = input {
            eval::eval(&[input])?;
        }
        if !self.is_on_gpu() {
            return self.begin(mlx)?.wait().map(of_mlx);
        }
        counters::count_op();
        match &*self.inner.lock().unwrap_or_else(|e| e.into_inner()) {
            Inner::Nccl(communicator) => nccl(communicator),
            Inner::Mlx { .. } => Err(Error::Mismatch("a call of NCCL's on a group of MLX's".into())),
        }
    }

    /// One array of all processes', element by element.
    ///
    /// # Errors
    /// Where a peer is lost or the dtype cannot be reduced.
    pub fn all_reduce(&self, x: &Array, how: Reduce) -> Result<Array> {
        let call = how.of_mlx();
        // SAFETY: a null out-parameter, an array that is borrowed, and the group's own handles.
        let mlx = |out: *mut _, group, stream| unsafe { call(out, x.raw(), group, stream) };
        self.run(Some(x), |c| c.all_reduce(x, how), mlx, |made| made)
    }

    /// The arrays of all processes, one after another along the first axis.
    ///
    /// # Errors
    /// Where a peer is lost.
    pub fn all_gather(&self, x: &Array) -> Result<Array> {
        // SAFETY: as above.
        let mlx = |out: *mut _, group, stream| unsafe { sys::mlx_distributed_all_gather(out, x.raw(), group, stream) };
        self.run(Some(x), |c| c.all_gather(x), mlx, |made| made)
    }

    /// Begins [`Group::all_reduce`]; several, one after another, wait for nothing but their turn. Memory that nobody but this array
    /// has becomes the result's. For groups that are not [on the GPU](Group::is_on_gpu), as the next one.
    ///
    /// # Errors
    /// Where the dtype cannot be reduced, and on other groups.
    pub fn begin_all_reduce(&self, x: Array, how: Reduce) -> Result<Travelling> {
        stream::ensure_not_forked()?;
        eval::eval(&[&x])?;
        let call = how.of_mlx();
        self.begin(move |out, group, stream| {
            // SAFETY: a null out-parameter, an array that lives during the call, and the group's own handles.
            unsafe { call(out, x.raw(), group, stream) }
        })
    }

    /// Begins [`Group::all_gather`].
    ///
    /// # Errors
    /// On other groups.
    pub fn begin_all_gather(&self, x: Array) -> Result<Travelling> {
        stream::ensure_not_forked()?;
        eval::eval(&[&x])?;
        // SAFETY: as above.
        self.begin(move |out, group, stream| unsafe { sys::mlx_distributed_all_gather(out, x.raw(), group, stream) })
    }

    /// What a group of NCCL's does that MLX's have no call for.
    fn by_nccl(&self, x: &Array, call: impl FnOnce(&Communicator) -> Result<Array>) -> Result<Array> {
        stream::ensure_not_forked()?;
        eval::eval(&[x])?;
        counters::count_op();
        match &*self.inner.lock().unwrap_or_else(|e| e.into_inner()) {
            Inner::Nccl(communicator) => call(communicator),
            Inner::Mlx { .. } => Err(Error::Mismatch("a call of NCCL's on a group of MLX's".into())),
        }
    }

    /// The array of the process `root` on every one. Of groups that [are on the GPU](Group::is_on_gpu) alone, as the next two.
    ///
    /// # Errors
    /// Where a peer is lost, and on other groups.
    pub fn broadcast(&self, x: &Array, root: usize) -> Result<Array> {
        let root = i32::try_from(root).map_err(|_| Error::Mismatch(format!("no rank {root}")))?;
        self.by_nccl(x, |c| c.broadcast(x, root))
    }

    /// This process's part of the reduction of arrays whose first axis has a part for each process.
    ///
    /// # Errors
    /// As [`Group::broadcast`].
    pub fn reduce_scatter(&self, x: &Array, how: Reduce) -> Result<Array> {
        self.by_nccl(x, |c| c.reduce_scatter(x, how))
    }

    /// The parts that the arrays of all processes have for this one along their first axis.
    ///
    /// # Errors
    /// As [`Group::broadcast`].
    pub fn all_to_all(&self, x: &Array) -> Result<Array> {
        self.by_nccl(x, |c| c.all_to_all(x))
    }

    /// Sends an array to a process, on a ring to a neighbour.
    ///
    /// # Errors
    /// Where it is lost, or no neighbour.
    pub fn send(&self, x: &Array, to: usize) -> Result<()> {
        let to = i32::try_from(to).map_err(|_| Error::Mismatch(format!("no rank {to}")))?;
        // SAFETY: as above.
        let mlx = |out: *mut _, group, stream| unsafe { sys::mlx_distributed_send(out, x.raw(), to, group, stream) };
        self.run(Some(x), |c| c.send(x, to), mlx, drop)
    }

    /// Receives an array from a process, on a ring from a neighbour.
    ///
    /// # Errors
    /// Where it is lost, or no neighbour.
    pub fn recv(&self, shape: &[i32], dtype: Dtype, from: usize) -> Result<Array> {
        let from = i32::try_from(from).map_err(|_| Error::Mismatch(format!("no rank {from}")))?;
        let mlx = |out: *mut _, group, stream| {
            // SAFETY: a null out-parameter, pointer and length of a live slice, and the group's own handles.
            unsafe { sys::mlx_distributed_recv(out, shape.as_ptr(), shape.len(), dtype.raw(), from, group, stream) }
        };
        self.run(None, |c| c.recv(shape, dtype, from), mlx, |made| made)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Inner::Mlx { stream, .. } = self.inner.get_mut().unwrap_or_else(|e| e.into_inner()) {
            IDLE.lock().unwrap_or_else(|e| e.into_inner()).extend(stream.take());
        }
    }
}

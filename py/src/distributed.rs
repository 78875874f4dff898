//! Jobs, groups and the store of `lucid.distributed`, whose Python code is all that uses them.
//!
//! Depends on the engine's `distributed`. What waits for other processes releases the GIL, and looks at signals while
//! it waits, so that Ctrl-C ends it.

use crate::tensor::{wrap, PyTensor};
use crate::{engine_call, errors};
use lucid::distributed::{self, Client, Config, Group, Job, Reduce, Store, Work};
use lucid::{Error, Tensor};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a wait may go on before signals are looked at.
const SIGNALS: Duration = Duration::from_millis(100);

fn seconds(py: Python<'_>, s: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(s).map_err(|_| errors::value_error(py, format!("a timeout of {s} s")))
}

fn limit(py: Python<'_>, s: Option<f64>) -> PyResult<Option<Duration>> {
    s.map(|s| seconds(py, s)).transpose()
}

/// The server of a job's store.
#[pyclass(name = "_StoreServer", module = "lucid._C", frozen)]
struct PyStore(Store);

#[pymethods]
impl PyStore {
    #[new]
    fn new(py: Python<'_>, host: &str, port: u16, token: &str) -> PyResult<PyStore> {
        let failed = |why: String| errors::raise(py, &Error::Distributed { op: "init_process_group", why: why.into() });
        let address: SocketAddr = (host, port)
            .to_socket_addrs()
            .map_err(|e| failed(format!("the host '{host}' cannot be resolved: {e}")))?
            .next()
            .ok_or_else(|| failed(format!("the host '{host}' has no address")))?;
        let listened = Store::listen(address, token);
        listened.map(PyStore).map_err(|e| failed(format!("the store cannot listen at {host}:{port}: {e}")))
    }

    /// The port it listens at.
    #[getter]
    fn port(&self) -> u16 {
        self.0.address().port()
    }
}

/// A connection to a job's store.
#[pyclass(name = "_StoreClient", module = "lucid._C", frozen)]
struct PyClient(Arc<Client>);

#[pymethods]
impl PyClient {
    #[new]
    fn new(py: Python<'_>, host: &str, port: u16, token: &str, timeout: f64) -> PyResult<PyClient> {
        let wait = seconds(py, timeout)?;
        engine_call::long(py, || Client::connect(host, port, token, None, wait)).map(PyClient)
    }

    /// Asks the store; `verb` is one of `set`, `get`, `add`, `compare_set`, `delete`, `check_keys` and `count`, or `first`: which of
    /// several groups has an operation that others have come to and this process has not.
    fn call<'py>(
        &self,
        py: Python<'py>,
        verb: &str,
        fields: Vec<Vec<u8>>,
        timeout: f64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        const VERBS: [&str; 8] = ["set", "get", "add", "compare_set", "delete", "check_keys", "count", "first"];
        let Some(verb) = VERBS.into_iter().find(|v| *v == verb) else {
            return Err(errors::value_error(py, format!("the store has no '{verb}'")));
        };
        let wait = seconds(py, timeout)?;
        let fields: Vec<&[u8]> = fields.iter().map(Vec::as_slice).collect();
        let answer = engine_call::long(py, || self.0.call(verb, &fields, wait))?;
        Ok(PyBytes::new(py, answer.first().map(Vec::as_slice).unwrap_or_default()))
    }
}

/// The processes that were started together.
#[pyclass(name = "_Job", module = "lucid._C", frozen)]
struct PyJob(Arc<Job>);

#[pymethods]
impl PyJob {
    #[new]
    #[pyo3(signature = (host, port, token, rank, world_size, generation, timeout, listen, backend))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        host: String,
        port: u16,
        token: String,
        rank: usize,
        world_size: usize,
        generation: u64,
        timeout: f64,
        listen: Option<&str>,
        backend: String,
    ) -> PyResult<PyJob> {
        let timeout = seconds(py, timeout)?;
        let listen = match listen.map(|name| (name, (name, 0).to_socket_addrs())) {
            None => None,
            Some((name, found)) => match found.ok().and_then(|mut all| all.next()) {
                Some(address) => Some(address.ip()),
                None => return Err(errors::value_error(py, format!("the host '{name}' cannot be resolved"))),
            },
        };
        let config = Config { host, port, token, rank, world_size, generation, timeout, listen, backend };
        engine_call::long(py, || Job::connect(config)).map(PyJob)
    }

    /// A group of ranks of the job, named alike by all of them.
    fn group(&self, py: Python<'_>, name: &str, members: Vec<usize>) -> PyResult<PyGroup> {
        engine_call::long(py, || self.0.group(name, &members)).map(PyGroup)
    }

    /// Asks the job's store.
    fn store(&self) -> PyClient {
        PyClient(Arc::clone(self.0.client()))
    }

    /// Leaves the job; what the GPU device has not done yet is waited for, so many seconds at most.
    fn leave(&self, py: Python<'_>, patience: f64) -> PyResult<()> {
        let patience = seconds(py, patience)?;
        py.detach(|| self.0.leave_within(patience));
        Ok(())
    }
}

/// Processes that compute together.
#[pyclass(name = "_Group", module = "lucid._C", frozen)]
struct PyGroup(Group);

type Given<'a, 'py> = &'a Bound<'py, PyTensor>;

fn shared(t: Option<Given<'_, '_>>) -> Option<Tensor> {
    t.map(|t| t.get().share())
}

#[pymethods]
impl PyGroup {
    #[getter]
    fn rank(&self) -> usize {
        self.0.rank()
    }

    #[getter]
    fn size(&self) -> usize {
        self.0.size()
    }

    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// Begins a collective. `peer` is the source or destination as a number in the group, or a message's tag. With `now` it runs
    /// as an op of the table, which is done when this returns, or lazy on the GPU device.
    #[pyo3(signature = (name, x, how="SUM", peer=0, into=None, timeout=None, now=false))]
    #[allow(clippy::too_many_arguments)]
    fn begin(
        &self,
        py: Python<'_>,
        name: &str,
        x: Given<'_, '_>,
        how: &str,
        peer: i64,
        into: Option<Given<'_, '_>>,
        timeout: Option<f64>,
        now: bool,
    ) -> PyResult<PyWork> {
        let Some(how) = Reduce::from_name(how) else {
            return Err(errors::value_error(py, format!("{name}: there is no reduction {how}")));
        };
        let (x, into, t) = (x.get().share(), shared(into), limit(py, timeout)?);
        let g = if now { self.0.as_ops() } else { self.0.clone() };
        let into = into.as_ref();
        let member = usize::try_from(peer).ok().filter(|&p| p < g.size());
        let member = || {
            let why = format!("no member {peer} in a group of {}", g.size());
            member.ok_or_else(|| Box::new(Error::InvalidValue { op: "collective", why: why.into() }))
        };
        let begin = || match name {
            "all_reduce" => g.all_reduce(&x, how, into, t),
            "reduce" => g.reduce(&x, member()?, how, into, t),
            "broadcast" => g.broadcast(&x, member()?, into, t),
            "all_gather" => g.all_gather(&x, into, t),
            "reduce_scatter" => g.reduce_scatter(&x, how, into, t),
            "scatter" => g.scatter(&x, member()?, into, t),
            "all_to_all" => g.all_to_all(&x, into, t),
            "send" => g.send(&x, peer, t),
            "recv" => g.recv(&x, peer, t),
            _ => Err(Box::new(Error::InvalidValue { op: "collective", why: format!("there is no '{name}'").into() })),
        };
        // What a graph records runs here, too.
        let waits = now || lucid::graph::is_recording();
        let work = if waits { engine_call::long(py, begin)? } else { engine_call::quick(py, begin)? };
        Ok(PyWork(Begun::Tensor(work)))
    }

    /// Runs a collective as an op, with gradients, which keep the group's timeout; gives its result.
    #[pyo3(signature = (name, x, how="SUM", peer=0, timeout=None))]
    fn apply<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        x: Given<'_, '_>,
        how: &str,
        peer: usize,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some(how) = Reduce::from_name(how) else {
            return Err(errors::value_error(py, format!("{name}: there is no reduction {how}")));
        };
        let (g, x) = (&self.0, x.get().share());
        if let Some(timeout) = limit(py, timeout)? {
            g.set_timeout(timeout);
        }
        let made = engine_call::long(py, || match name {
            "all_reduce" => distributed::all_reduce(&x, g, how),
            "broadcast" => distributed::broadcast(&x, g, peer),
            "all_gather" => distributed::all_gather(&x, g),
            "reduce_scatter" => distributed::reduce_scatter(&x, g, how),
            "all_to_all" => distributed::all_to_all(&x, g),
            _ => Err(Box::new(Error::InvalidValue { op: "collective", why: format!("there is no '{name}'").into() })),
        })?;
        wrap(py, made)
    }

    /// Begins a barrier.
    #[pyo3(signature = (timeout=None))]
    fn barrier(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<PyWork> {
        let timeout = limit(py, timeout)?;
        Ok(PyWork(Begun::Barrier(self.0.barrier(timeout))))
    }
}

/// An operation that was begun.
#[pyclass(name = "_Work", module = "lucid._C", frozen)]
struct PyWork(Begun);

enum Begun {
    Tensor(Work<Tensor>),
    Barrier(Work<()>),
}

/// Waits, and lets Python see its signals meanwhile.
fn waited<T: Clone + Send + Sync>(py: Python<'_>, work: &Work<T>, timeout: Option<Duration>) -> PyResult<T> {
    let until = timeout.and_then(|t| Instant::now().checked_add(t));
    loop {
        let left = until.map(|u| u.saturating_duration_since(Instant::now()));
        let step = left.map_or(SIGNALS, |l| l.min(SIGNALS));
        let done = py.detach(|| {
            let waited = work.wait(Some(step));
            work.is_completed().then_some(waited)
        });
        py.check_signals()?;
        match done {
            // It may have been completed between the two.
            Some(_) => return engine_call::quick(py, || work.wait(None)),
            None if left.is_some_and(|l| l.is_zero()) => return engine_call::quick(py, || work.wait(left)),
            None => {}
        }
    }
}

#[pymethods]
impl PyWork {
    /// Is it done, or has it failed?
    fn is_completed(&self) -> bool {
        match &self.0 {
            Begun::Tensor(work) => work.is_completed(),
            Begun::Barrier(work) => work.is_completed(),
        }
    }

    /// Waits for the result: a tensor, or `None` of a barrier.
    #[pyo3(signature = (timeout=None))]
    fn wait<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let timeout = limit(py, timeout)?;
        match &self.0 {
            Begun::Tensor(work) => wrap(py, waited(py, work, timeout)?).map(Some),
            Begun::Barrier(work) => waited(py, work, timeout).map(|()| None),
        }
    }
}

/// Does the installed MLX have this backend, and what it needs?
#[pyfunction]
fn _distributed_available(backend: &str) -> bool {
    lucid::distributed::is_available(backend)
}

/// Has the collectives that this thread runs give zeros, without any other process; gives what it was.
#[pyfunction]
fn _rehearse_collectives(on: bool) -> bool {
    distributed::set_rehearsing(on)
}

/// Does the program want a wait for other processes to end?
fn interrupted() -> bool {
    crate::autograd::call_python(|py| py.check_signals()).is_err()
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    distributed::set_interrupt(interrupted);
    m.add_function(wrap_pyfunction!(_rehearse_collectives, m)?)?;
    m.add_class::<PyStore>()?;
    m.add_class::<PyClient>()?;
    m.add_class::<PyJob>()?;
    m.add_class::<PyGroup>()?;
    m.add_class::<PyWork>()?;
    m.add_function(wrap_pyfunction!(_distributed_available, m)?)
}

//! Jobs and groups: who computes together, the thread that runs a group's operations in order, and the watchdog.
//!
//! Depends on the control channel and mlx-ffi's groups, which `open` opens. Each operation is announced on the control
//! channel; over a ring that is open its data travels meanwhile. Invariants: a group's operations run in the order of the calls; nobody
//! gets a result before every member has announced the same; one that cannot be done is ended by the watchdog, with the
//! reason on every rank.

use super::client::{Client, Member, LONGEST};
use super::open::Opening;
use super::pending;
use super::wire::number;
use super::work::Work;
use crate::autograd::no_grad;
use crate::{Error, Result};
use lucid_ir::ops::communication::GroupName;
use mlx_ffi::distributed as mlx;
use parking_lot::{Condvar, Mutex};
use std::cell::OnceCell;
use std::net::{IpAddr, SocketAddr};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{channel, Sender};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The backend whose data stays in the GPUs' memory.
const NCCL: &str = "nccl";
/// The one whose data MLX sends over TCP.
const RING: &str = "ring";
/// How often the watchdog looks where no news wakes it.
const TICK: Duration = Duration::from_millis(200);
/// How long an operation may go on that does not need the member that is gone.
const GRACE: Duration = Duration::from_millis(1000);
/// How long a job that nobody has any more waits for operations that have returned to the program.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long the server may take to say who is to blame.
const VERDICT: Duration = Duration::from_secs(4);

/// What a job is made with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the [`Store`](super::Store) listens.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The job's token.
    pub token: String,
    /// This process's number.
    pub rank: usize,
    /// How many processes there are.
    pub world_size: usize,
    /// Which of the jobs that one after another use the store; 0 for the first.
    pub generation: u64,
    /// How long connecting, and each operation, may take.
    pub timeout: Duration,
    /// The address that rings listen at; by default the one that reaches the store.
    pub listen: Option<IpAddr>,
    /// MLX's backend: `ring`, or `mpi`, `jaccl`, where MLX finds the peers by itself; `nccl`, which needs a CUDA device.
    pub backend: String,
}

/// The processes that were started together.
pub struct Job {
    client: Arc<Client>,
    config: Config,
    groups: Mutex<Vec<Weak<Core>>>,
    threads: Mutex<Vec<(Weak<Queue>, JoinHandle<()>)>>,
    /// MLX's own group of all, for the backends that have one; until this process leaves.
    launched: Mutex<Option<Arc<mlx::Group>>>,
    ended: AtomicBool,
}

/// What runs now.
struct Flight {
    id: u64,
    seq: u64,
    op: &'static str,
    began: Instant,
    timeout: Duration,
    late_since: Option<Instant>,
    aborted: bool,
}

struct Core {
    job: Arc<Job>,
    name: String,
    serial: u64,
    /// How long an operation may take, in milliseconds.
    timeout: AtomicU64,
    members: Vec<usize>,
    rank: usize,
    ring: Mutex<Option<Arc<mlx::Group>>>,
    addresses: Mutex<Vec<SocketAddr>>,
    /// Ends what waits within NCCL.
    ended: Arc<AtomicBool>,
    flight: Mutex<Option<Flight>>,
    next: AtomicU64,
}

type Task = Box<dyn FnOnce(&Core) + Send>;
/// Of a group's thread, which ends at `None`.
type Queue = Mutex<Sender<Option<Task>>>;

/// The groups of this process, for primitives, which name theirs.
static GROUPS: Mutex<Vec<(Weak<Core>, Weak<Queue>)>> = Mutex::new(Vec::new());
static NEXT_SERIAL: AtomicU64 = AtomicU64::new(1);
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

/// Processes of a job that compute together. A clone is the same group.
#[derive(Clone)]
pub struct Group {
    core: Arc<Core>,
    queue: Arc<Queue>,
    /// Are results brought to the host's memory, whatever the device is?
    pub(super) hosts: bool,
    /// Do collectives run as ops of the table?
    ops: bool,
}

impl Job {
    /// A job of this process alone, as a store and the group of all processes: for programs that may run so, and for tests.
    ///
    /// # Errors
    /// As [`Job::connect`]; where no port is free.
    pub fn alone() -> Result<(super::Store, Group)> {
        let token = NEXT_SERIAL.load(Ordering::Relaxed).to_string();
        let store = super::Store::listen(SocketAddr::from(([127, 0, 0, 1], 0)), &token)
            .map_err(|e| Error::distributed("init_process_group", format!("the store cannot listen: {e}")))?;
        let config = Config {
            host: "127.0.0.1".into(),
            port: store.address().port(),
            token,
            rank: 0,
            world_size: 1,
            generation: 0,
            timeout: Duration::from_secs(60),
            listen: None,
            backend: RING.into(),
        };
        let group = Job::connect(config)?.group("alone", &[0])?;
        Ok((store, group))
    }

    /// Connects this process to its job.
    ///
    /// # Errors
    /// [`Error::Distributed`] where that fails; see [`Client::connect`]. For a backend of MLX's own, what MLX says.
    pub fn connect(config: Config) -> Result<Arc<Job>> {
        let Config { host, port, token, rank, world_size, generation, timeout, .. } = &config;
        let op = "init_process_group";
        if *world_size == 0 || rank >= world_size {
            return Err(Error::value(op, format!("rank {rank} of a world of {world_size} processes")));
        }
        if !mlx::is_available(&config.backend) {
            let why = format!("the installed MLX has no backend '{}' that works here", config.backend);
            return Err(Error::distributed(op, why));
        }
        lucid_mlx::communication::prepare();
        let member = Member { rank: *rank, world_size: *world_size, generation: *generation };
        let client = Client::connect(host, *port, token, Some(member), *timeout)?;
        let launched = Mutex::default();
        if config.backend != RING && config.backend != NCCL {
            let group = mlx::Group::launched(&config.backend).map_err(|e| Error::distributed(op, e.to_string()))?;
            if (group.rank(), group.size()) != (*rank, *world_size) {
                let (r, n) = (group.rank(), group.size());
                let why = format!("MLX says rank {r} of {n}, the environment rank {rank} of {world_size}");
                return Err(Error::distributed(op, why));
            }
            *launched.lock() = Some(Arc::new(group));
        }
        let (groups, threads) = Default::default();
        let job = Arc::new(Job { client, config, groups, threads, launched, ended: AtomicBool::new(false) });
        let own = Arc::downgrade(&job);
        thread::Builder::new()
            .name("lucid-watchdog".into())
            .spawn(move || watch(&own))
            .map_err(|e| Error::distributed(op, format!("no thread for the watchdog: {e}")))?;
        Ok(job)
    }

    /// The connection to the store.
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// What it was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// A group of some of the job's processes, named alike by all of them; members are ranks of the job, in the group's
    /// order. This process must be one of them.
    ///
    /// # Errors
    /// Where it is not, or a rank does not exist or is there twice.
    pub fn group(self: &Arc<Self>, name: &str, members: &[usize]) -> Result<Group> {
        let op = "new_group";
        let size = self.config.world_size;
        let twice = |i: usize| members[..i].contains(&members[i]);
        if let Some(i) = (0..members.len()).find(|&i| members[i] >= size || twice(i)) {
            let why = format!("rank {} is there twice, or not below the world size {size}", members[i]);
            return Err(Error::value(op, why));
        }
        let Some(rank) = members.iter().position(|&m| m == self.config.rank) else {
            return Err(Error::value(op, format!("rank {} is none of {members:?}", self.config.rank)));
        };
        if !self.launched_fits(members) {
            let why = format!("the backend '{}' has the group of all processes only", self.config.backend);
            return Err(Error::not_implemented(op, why));
        }
        let core = Arc::new(Core {
            job: Arc::clone(self),
            name: name.to_owned(),
            serial: NEXT_SERIAL.fetch_add(1, Ordering::Relaxed),
            timeout: AtomicU64::new(millis(self.config.timeout)),
            members: members.to_vec(),
            rank,
            ring: Mutex::new(self.launched.lock().clone()),
            addresses: Mutex::default(),
            ended: Arc::default(),
            flight: Mutex::default(),
            next: AtomicU64::new(0),
        });
        let (queue, tasks) = channel::<Option<Task>>();
        let own = Arc::clone(&core);
        let thread = thread::Builder::new()
            .name(format!("lucid-group-{name}"))
            .spawn(move || tasks.iter().map_while(|task| task).for_each(|task| no_grad(|| task(&own))))
            .map_err(|e| Error::distributed(op, format!("no thread for the group: {e}")))?;
        self.groups.lock().push(Arc::downgrade(&core));
        let queue = Arc::new(Mutex::new(queue));
        let mut threads = self.threads.lock();
        threads.retain(|(_, thread)| !thread.is_finished());
        threads.push((Arc::downgrade(&queue), thread));
        drop(threads);
        let mut groups = GROUPS.lock();
        groups.retain(|(_, queue)| queue.strong_count() > 0);
        groups.push((Arc::downgrade(&core), Arc::downgrade(&queue)));
        Ok(Group { core, queue, hosts: false, ops: false })
    }

    fn launched_fits(&self, members: &[usize]) -> bool {
        self.launched.lock().is_none() || members.len() == self.config.world_size || members.len() < 2
    }

    /// Leaves the job: operations that go on are ended, and others are told that this process went in peace. Those on the
    /// GPU device, which have returned to the program, are waited for.
    pub fn leave(&self) {
        self.leave_within(self.config.timeout);
    }

    /// The same; waits so long at most.
    pub fn leave_within(&self, patience: Duration) {
        if self.ended.load(Ordering::Acquire) {
            return;
        }
        pending::drain(patience);
        if self.ended.swap(true, Ordering::AcqRel) {
            return;
        }
        self.client.close(true);
        self.client.with_inbox(|inbox| {
            inbox.failed.entry(String::new()).or_insert_with(|| "this process has left the job".into());
        });
        let cores: Vec<_> = self.groups.lock().drain(..).filter_map(|c| c.upgrade()).collect();
        cores.iter().for_each(|core| core.abort());
        self.end_threads();
        // MLX finalizes MPI where it is destroyed itself, unless somebody has the group then: the watchdog may have job and groups
        // for as long as it waits, and a program has groups that it never drops. One that is still being opened has none.
        for mut ring in cores.iter().filter_map(|core| core.ring.try_lock()) {
            ring.take();
        }
        self.launched.lock().take();
    }

    /// Ends the groups' threads and waits for them, so long as it is reasonable: what MLX keeps for a thread that computed must
    /// not go while the process ends.
    fn end_threads(&self) {
        let until = Instant::now() + PATIENCE;
        for (queue, thread) in self.threads.lock().drain(..) {
            if let Some(queue) = queue.upgrade() {
                let _ = queue.lock().send(None);
            }
            while !thread.is_finished() && Instant::now() < until && thread.thread().id() != thread::current().id() {
                thread::sleep(Duration::from_micros(200));
            }
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.leave_within(PATIENCE);
    }
}

impl Core {
    /// Why no operation of the group can be done any more.
    fn failure(&self) -> Option<String> {
        self.job.client.look(|inbox| {
            let gone = || self.members.iter().find_map(|m| inbox.gone.get(m)).map(|(why, _)| why.clone());
            inbox.failure(&self.name).cloned().or_else(gone)
        })
    }

    /// Ends what waits for peers.
    fn abort(&self) {
        self.ended.store(true, Ordering::Release);
        let addresses = self.addresses.lock().clone();
        if !addresses.is_empty() {
            mlx::abort(&addresses);
        }
    }

    /// What the group's data travels by, which all members open together the first time.
    fn ring(&self, until: Option<Instant>) -> Result<Arc<mlx::Group>, String> {
        let mut ring = self.ring.lock();
        if let Some(ring) = &*ring {
            return Ok(Arc::clone(ring));
        }
        let (client, config) = (&self.job.client, &self.job.config);
        let host = config.listen.unwrap_or(client.local().ip());
        let opening = Opening { client, name: &self.name, members: &self.members, rank: self.rank, host, until };
        let opened = match config.backend == NCCL {
            true => opening.nccl(&self.ended)?,
            false => opening.ring(|addresses| *self.addresses.lock() = addresses.to_vec())?,
        };
        *ring = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Runs one operation on the group's thread.
    fn run<T>(&self, op: &'static str, seq: u64, what: &str, timeout: Duration, step: Step<T>) -> Result<T> {
        let client = &self.job.client;
        let failed = |why: String| {
            let rank = self.job.config.rank;
            Error::distributed(op, format!("on rank {rank} of group '{}': {why}", self.name))
        };
        if let Some(why) = self.failure() {
            return Err(failed(why));
        }
        let members = self.members.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let began = Instant::now();
        let until = began.checked_add(timeout + VERDICT + GRACE);
        let fields: [&[u8]; 4] = [self.name.as_bytes(), &number(seq), members.as_bytes(), what.as_bytes()];
        let id = client.ask("check", &fields);
        *self.flight.lock() = Some(Flight { id, seq, op, began, timeout, late_since: None, aborted: false });
        // What is not the same everywhere arrives as something else, so that nobody gets a result before all have said that it is.
        let told = OnceCell::new();
        let ask = || client.answer(id, Some((self.name.as_str(), self.members.as_slice())), until).map(drop);
        let agreed = || told.get_or_init(ask).clone();
        let agreed_or_error = || agreed().map_err(|why| Error::distributed(op, why));
        let open = self.ring.lock().clone().filter(|ring| ring.is_ring());
        let moved = match (step, open) {
            (Step::Meet(value), _) => agreed().map(|()| Ok(value)),
            // Over a ring that is open data travels meanwhile.
            (Step::Move(data, put), Some(ring)) => {
                let made = data(&ring, &agreed_or_error);
                agreed().map(|()| made.and_then(put))
            }
            (Step::Move(data, put), None) => {
                agreed().and_then(|()| self.ring(until)).map(|ring| data(&ring, &agreed_or_error).and_then(put))
            }
        };
        self.flight.lock().take();
        let why = match moved {
            Ok(Ok(value)) => return Ok(value),
            Err(why) => why,
            Ok(Err(e)) => match *e {
                // The ring's own failure says little; the reason is on its way.
                Error::Backend { why, .. } => {
                    let until = Instant::now() + GRACE;
                    while self.failure().is_none() && Instant::now() < until {
                        client.wait_for_news(TICK);
                    }
                    self.failure().unwrap_or_else(|| why.into())
                }
                _ => {
                    client.ask("broken", &[self.name.as_bytes(), format!("{what}: {e}").as_bytes()]);
                    self.abort();
                    return Err(e);
                }
            },
        };
        let rank = self.job.config.rank;
        let told = self.failure().unwrap_or_else(|| format!("{what}, number {seq}: {why}"));
        // Whoever still waits for this process learns why it does not come.
        client.ask("broken", &[self.name.as_bytes(), format!("rank {rank} gave up: {told}").as_bytes()]);
        client.with_inbox(|inbox| {
            inbox.failed.entry(self.name.clone()).or_insert_with(|| told.clone());
        });
        self.abort();
        Err(failed(told))
    }

    /// What the watchdog does.
    fn watch(&self) {
        let failure = self.failure();
        let mut flight = self.flight.lock();
        let Some(now) = flight.as_mut() else { return };
        let client = &self.job.client;
        if failure.is_some() && !now.aborted {
            let lately = client.look(|inbox| {
                let named = inbox.failure(&self.name).is_some();
                !named && self.members.iter().filter_map(|m| inbox.gone.get(m)).all(|(_, at)| at.elapsed() < GRACE)
            });
            if !lately {
                now.aborted = true;
                self.abort();
            }
            return;
        }
        if now.began.elapsed() < now.timeout || now.aborted {
            return;
        }
        match now.late_since {
            None => {
                now.late_since = Some(Instant::now());
                let waited = format!("{:.1} s", now.timeout.as_secs_f64());
                client.ask("late", &[self.name.as_bytes(), &number(now.seq), waited.as_bytes()]);
            }
            Some(since) if since.elapsed() > VERDICT => {
                let why =
                    format!("{} number {}: timed out, and the store does not answer ({})", now.op, now.seq, now.id);
                client.with_inbox(|inbox| {
                    inbox.failed.entry(self.name.clone()).or_insert(why);
                });
            }
            Some(_) => {}
        }
    }
}

/// What moves data over a ring; it may ask whether all members do the same.
type Transfer<T> = Box<dyn FnOnce(&mlx::Group, &dyn Fn() -> Result<()>) -> Result<T> + Send>;

/// What an operation does once it is its turn.
pub(super) enum Step<T> {
    /// It has no data: all members meet.
    Meet(T),
    /// It moves data, of which something is made, and then done with that.
    Move(Transfer<T>, Box<dyn FnOnce(T) -> Result<T> + Send>),
}

fn watch(job: &Weak<Job>) {
    loop {
        let Some(job) = job.upgrade() else { return };
        if job.ended.load(Ordering::Acquire) {
            return;
        }
        let live: Vec<Arc<Core>> = {
            let mut groups = job.groups.lock();
            groups.retain(|g| g.strong_count() > 0);
            groups.iter().filter_map(Weak::upgrade).collect()
        };
        live.iter().for_each(|core| core.watch());
        job.client.wait_for_news(TICK);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Group {
    /// The group that a primitive names.
    pub(crate) fn named(group: &GroupName) -> Result<Group> {
        let fits = |core: &Core| match group.serial {
            0 => core.name == *group.name,
            serial => core.serial == serial,
        };
        let living = |(core, queue): &(Weak<Core>, Weak<Queue>)| {
            Some(Group { core: core.upgrade()?, queue: queue.upgrade()?, hosts: false, ops: false })
        };
        let found = GROUPS.lock().iter().rev().filter_map(living).find(|g| fits(&g.core));
        found.ok_or_else(|| {
            let why = format!(
                "this process has no group '{}' (any more); it was destroyed, or is of another job",
                group.name
            );
            Error::value("communication", why)
        })
    }

    /// The same group, whose collectives run as ops of the table before the call that begins them returns; on the GPU device
    /// that returns at once, too, with a lazy result.
    pub fn as_ops(&self) -> Group {
        Group { ops: true, ..self.clone() }
    }

    /// The same group, whose collectives do not, if they do now; not while a graph is recorded.
    pub(super) fn without_ops(&self) -> Option<Group> {
        (self.ops && !crate::graph::recording()).then(|| Group { ops: false, ..self.clone() })
    }

    /// Do collectives run as ops of the table here?
    pub(super) fn runs_ops(&self) -> bool {
        crate::graph::recording() || (self.ops && self.size() > 1)
    }

    /// Does what its collectives move stay in the GPU's memory?
    pub(super) fn is_on_gpu(&self) -> bool {
        self.core.job.config.backend == NCCL
    }

    /// Does it travel by MLX's ring?
    pub(super) fn is_ring(&self) -> bool {
        self.core.job.config.backend == RING
    }

    /// Its name in primitives.
    pub(crate) fn reference(&self) -> GroupName {
        GroupName { name: self.name().into(), serial: self.core.serial }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// This process's number in the group.
    pub fn rank(&self) -> usize {
        self.core.rank
    }

    /// How many members there are.
    pub fn size(&self) -> usize {
        self.core.members.len()
    }

    /// The members' ranks in the job.
    pub fn members(&self) -> &[usize] {
        &self.core.members
    }

    /// How long each operation may take, unless it is told otherwise; at first the job's own timeout.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.core.timeout.load(Ordering::Relaxed))
    }

    /// Sets that.
    pub fn set_timeout(&self, timeout: Duration) {
        self.core.timeout.store(millis(timeout), Ordering::Relaxed);
    }

    /// Puts an operation at the end of the group's queue. `what` is what every member must call alike.
    pub(super) fn submit<T: Clone + Send + 'static>(
        &self,
        op: &'static str,
        what: String,
        timeout: Option<Duration>,
        step: Step<T>,
    ) -> Work<T> {
        let timeout = timeout.unwrap_or(self.timeout()).min(LONGEST);
        // Numbers are given in the queue's order.
        let queue = self.queue.lock();
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let work = Work { done: Arc::new((Mutex::new(None), Condvar::new())), op, number };
        let done = Arc::clone(&work.done);
        let seq = self.core.next.fetch_add(1, Ordering::Relaxed);
        let task: Task = Box::new(move |core| {
            // Whoever waits must not wait for a thread that is gone.
            let run = AssertUnwindSafe(|| core.run(op, seq, &what, timeout, step));
            let result = pending::at(number, || catch_unwind(run)).unwrap_or_else(|_| {
                Err(Error::distributed(op, format!("internal error, please report it: {what} panicked")))
            });
            *done.0.lock() = Some(result);
            done.1.notify_all();
        });
        if queue.send(Some(task)).is_err() {
            *work.done.0.lock() = Some(Err(Error::distributed(op, "the group's thread has ended")));
        }
        work
    }
}

//! [`DataLoader`]: batches in order or shuffled, made in the caller's thread or ahead of it in others.

use super::{Collate, Dataset};
use crate::{Error, Generator, Result};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{sync_channel, Receiver};
use std::sync::Arc;
use std::thread::JoinHandle;

type Item<D> = <D as Dataset>::Item;
type Batch<D> = <Item<D> as Collate>::Batch;
type Collator<D> = Arc<dyn Fn(Vec<Item<D>>) -> Result<Batch<D>> + Send + Sync>;

/// Makes batches of a set's samples.
pub struct DataLoader<D: Dataset> {
    dataset: Arc<D>,
    batch_size: usize,
    seed: Option<u64>,
    drop_last: bool,
    workers: usize,
    prefetch: usize,
    collate: Collator<D>,
    epoch: AtomicU64,
}

impl<D: Dataset> DataLoader<D> {
    /// Batches of so many samples, in order, made in the caller's thread.
    pub fn new(dataset: D, batch_size: usize) -> DataLoader<D> {
        DataLoader {
            dataset: Arc::new(dataset),
            batch_size,
            seed: None,
            drop_last: false,
            workers: 0,
            prefetch: 2,
            collate: Arc::new(Item::<D>::collate),
            epoch: AtomicU64::new(0),
        }
    }

    /// Shuffles: every pass has another order, and the same seed gives the same orders again.
    #[must_use]
    pub fn shuffle(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Leaves out a last batch that is not full. Default: false.
    #[must_use]
    pub fn drop_last(mut self, on: bool) -> Self {
        self.drop_last = on;
        self
    }

    /// Makes batches ahead in so many threads. Default: 0, in the caller's.
    #[must_use]
    pub fn workers(mut self, threads: usize) -> Self {
        self.workers = threads.min(256);
        self
    }

    /// How many batches each thread may be ahead. Default: 2.
    #[must_use]
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.prefetch = batches.clamp(1, 1024);
        self
    }

    /// How samples become a batch, where stacking them is not it.
    #[must_use]
    pub fn collate(mut self, f: impl Fn(Vec<Item<D>>) -> Result<Batch<D>> + Send + Sync + 'static) -> Self {
        self.collate = Arc::new(f);
        self
    }

    /// Batches in a pass.
    pub fn len(&self) -> usize {
        let (n, size) = (self.dataset.len(), self.batch_size.max(1));
        if self.drop_last {
            n / size
        } else {
            n.div_ceil(size)
        }
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The samples.
    pub fn dataset(&self) -> &D {
        &self.dataset
    }

    /// A pass over the samples. Threads end when it is dropped.
    ///
    /// # Errors
    /// For a batch size of 0, and where a thread cannot be started.
    pub fn iter(&self) -> Result<Batches<D>> {
        if self.batch_size == 0 {
            return Err(Error::value("data_loader", "batch_size must be above 0"));
        }
        let n = self.dataset.len();
        let epoch = self.epoch.fetch_add(1, Ordering::Relaxed);
        let order = match self.seed {
            Some(seed) => permutation(n, seed.wrapping_add(epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15)))?,
            None => crate::fallible::collected(0..n)?,
        };
        let plan = Arc::new(Plan {
            dataset: self.dataset.clone(),
            order,
            batch_size: self.batch_size,
            collate: self.collate.clone(),
            next: AtomicUsize::new(0),
            count: self.len(),
        });
        let mut batches = Batches { plan, at: 0, ahead: BTreeMap::new(), receiver: None, threads: Vec::new() };
        if self.workers > 0 {
            let (sender, receiver) = sync_channel(self.workers * self.prefetch);
            batches.receiver = Some(receiver);
            for _ in 0..self.workers.min(batches.plan.count) {
                let (plan, sender) = (batches.plan.clone(), sender.clone());
                let run = move || loop {
                    let at = plan.next.fetch_add(1, Ordering::Relaxed);
                    // Nobody receives any more once the pass is dropped.
                    if at >= plan.count || sender.send((at, plan.make(at))).is_err() {
                        return;
                    }
                };
                let thread = std::thread::Builder::new().name("lucid-data".into()).spawn(run);
                let thread = thread.map_err(|e| Error::runtime("data_loader", format!("no thread: {e}")))?;
                batches.threads.push(thread);
            }
        }
        Ok(batches)
    }
}

/// What a pass does, shared by its threads.
struct Plan<D: Dataset> {
    dataset: Arc<D>,
    order: Vec<usize>,
    batch_size: usize,
    collate: Collator<D>,
    next: AtomicUsize,
    count: usize,
}

impl<D: Dataset> Plan<D> {
    fn make(&self, at: usize) -> Result<Batch<D>> {
        let start = at * self.batch_size;
        let end = start.saturating_add(self.batch_size).min(self.order.len());
        let items = self.order[start..end].iter().map(|&i| self.dataset.get(i)).collect::<Result<Vec<_>>>()?;
        (self.collate)(items)
    }
}

/// A pass over a loader's batches, in the order of the samples whatever thread makes them.
pub struct Batches<D: Dataset> {
    plan: Arc<Plan<D>>,
    at: usize,
    ahead: BTreeMap<usize, Result<Batch<D>>>,
    receiver: Option<Receiver<(usize, Result<Batch<D>>)>>,
    threads: Vec<JoinHandle<()>>,
}

impl<D: Dataset> Iterator for Batches<D> {
    type Item = Result<Batch<D>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.plan.count {
            return None;
        }
        let at = self.at;
        self.at += 1;
        let Some(receiver) = &self.receiver else { return Some(self.plan.make(at)) };
        while !self.ahead.contains_key(&at) {
            match receiver.recv() {
                Ok((i, batch)) => drop(self.ahead.insert(i, batch)),
                Err(_) => {
                    self.at = self.plan.count;
                    return Some(Err(Error::runtime("data_loader", "a thread that makes batches has panicked")));
                }
            }
        }
        self.ahead.remove(&at)
    }
}

impl<D: Dataset> Drop for Batches<D> {
    fn drop(&mut self) {
        // Threads that wait to send go on, and end.
        self.receiver = None;
        self.plan.next.store(self.plan.count, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The numbers below `n` in an order that the seed gives.
pub(super) fn permutation(n: usize, seed: u64) -> Result<Vec<usize>> {
    let generator = Generator::new();
    generator.manual_seed(seed);
    let order = crate::ops::random::randperm(n as i64, Some(&generator), None, Some(crate::Device::Cpu))?;
    Ok(order.to_vec::<i64>()?.into_iter().map(|i| i as usize).collect())
}

//! The engine's random numbers: counter-based, the same for a seed on every device and every thread.
//!
//! Depends on `error` and `device` only. A [`Generator`] is a seed and a counter. Each random op takes one [`Key`],
//! `threefry2x32(key: seed, count: counter)` with both split into (high, low) words, and raises the counter by one. All
//! that an op draws is a function of its key. Invariant: nothing else, MLX's implicit state included, is ever drawn from.
//!
//! # What a key gives
//!
//! Both backends (`cpu/random.rs`, `mlx/random.rs`) follow this recipe. `n` is the number of elements, in row-major
//! order; `bits(m)` are `m` words of 32 bits as MLX's `random::bits({m}, 4, key)` gives them: with `h = m / 2` and
//! `c = m - h`, block `i < h` is `threefry2x32(key, [i, c + i])` and gives words `i` and `c + i`; an odd `m` has its middle
//! word `h` from the first half of `threefry2x32(key, [h, 0])`.
//!
//! With `b = bits(n)`:
//! - uniform, float32: `float32(b >> 8) * 2^-24`, in [0, 1); likewise 11 bits for float16 and 8 for bfloat16, as many as
//!   these hold, so that nothing is rounded up to 1;
//! - normal, float32 (16-bit floats are rounded from it): `erfinv(float32(b >> 8) * 2^-23 - (1 - 2^-24)) * float32(sqrt 2)`. The argument is an odd multiple of
//!   `2^-24`, exact in float32 and never ±1; beyond ±5.42 there is nothing.
//!
//! With `b = bits(2 n)` seen as (2, n), so that element `i` has one block to itself, and
//! `w = uint64(b[0]) << 32 | uint64(b[1])`:
//! - integers: `low + int64(w % (uint64(high) - uint64(low)))`, all modulo 2^64. The bias is below `(high - low) / 2^64`. Equal
//!   bounds mean all of the 2^64 integers;
//! - uniform, float64: `float64(w >> 11) * 2^-53`;
//! - normal, float64: `erfinv(float64(w >> 11) * 2^-52 - (1 - 2^-53)) * sqrt 2`.
//!
//! Other distributions are made of these in tensor ops (`ops/random.rs`, `ops/discrete.rs`). Those that draw more than once
//! do so from [`Key::child`]s. Bits, and integers made of them, are the same on every device; floats are so up to the
//! rounding of the functions (logarithms, tangents) that they went through.

use crate::error::{Error, Result};
use crate::Device;
use once_cell::sync::Lazy;
use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

/// What one random op draws from: the key of threefry, as MLX's ops take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(pub [u32; 2]);

impl Key {
    /// The `i`-th key made from this one. A key that has children is not drawn from itself.
    pub fn child(self, i: u32) -> Key {
        Key(threefry2x32(self.0, [i, u32::MAX]))
    }
}

/// The two words of a number, the high one first.
fn words(x: u64) -> [u32; 2] {
    [(x >> 32) as u32, x as u32]
}

/// Threefry-2x32 with 20 rounds (Salmon et al., 2011): a bijection of the counter for each key.
#[inline(always)]
pub fn threefry2x32(key: [u32; 2], count: [u32; 2]) -> [u32; 2] {
    let keys = [key[0], key[1], key[0] ^ key[1] ^ 0x1BD1_1BDA];
    let mut a = count[0].wrapping_add(keys[0]);
    let mut b = count[1].wrapping_add(keys[1]);
    // Written out: a loop in here would keep the loop around it from being vectorised.
    macro_rules! rounds {
        ($i:literal: $($r:literal)*) => {
            $(
                a = a.wrapping_add(b);
                b = b.rotate_left($r) ^ a;
            )*
            a = a.wrapping_add(keys[$i % 3]);
            b = b.wrapping_add(keys[($i + 1) % 3]).wrapping_add($i);
        };
    }
    rounds!(1: 13 15 26 6);
    rounds!(2: 17 29 16 24);
    rounds!(3: 13 15 26 6);
    rounds!(4: 17 29 16 24);
    rounds!(5: 13 15 26 6);
    [a, b]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    seed: u64,
    counter: u64,
}

impl State {
    fn next(&mut self) -> Key {
        let key = threefry2x32(words(self.seed), words(self.counter));
        self.counter = self.counter.wrapping_add(1);
        Key(key)
    }
}

/// A source of random numbers. Clones share one state.
///
/// The numbers are the same on every device. One made for a device ([`Generator::on`]) refuses to draw on another, as
/// PyTorch's generators do; others draw on any.
#[derive(Clone, Debug)]
pub struct Generator {
    state: Arc<Mutex<State>>,
    device: Option<Device>,
}

/// PyTorch's default seed of a new generator.
const DEFAULT_SEED: u64 = 67_280_421_310_721;
/// Bytes of a saved state.
const STATE_BYTES: usize = 16;

impl Default for Generator {
    fn default() -> Generator {
        Generator::new()
    }
}

impl Generator {
    /// A generator with a fixed seed, the same each time.
    pub fn new() -> Generator {
        Generator::seeded(DEFAULT_SEED)
    }

    /// A generator for one device, with the same seed as [`Generator::new`].
    pub fn on(device: Device) -> Generator {
        Generator { device: Some(device), ..Generator::new() }
    }

    fn seeded(seed: u64) -> Generator {
        Generator { state: Arc::new(Mutex::new(State { seed, counter: 0 })), device: None }
    }

    /// The only device it draws on, if there is one.
    pub fn device(&self) -> Option<Device> {
        self.device
    }

    /// A generator in the same state, which goes its own way from here.
    ///
    /// # Examples
    /// ```
    /// use lucid::{testing::assert_close, Generator};
    /// use lucid::ops::random::rand;
    /// let a = Generator::new();
    /// a.manual_seed(7);
    /// let b = a.clone_state();
    /// assert_close(rand(&[3], Some(&a), None, None)?, &rand(&[3], Some(&b), None, None)?);
    /// # lucid::Result::<()>::Ok(())
    /// ```
    pub fn clone_state(&self) -> Generator {
        Generator { state: Arc::new(Mutex::new(*self.state.lock())), device: self.device }
    }

    /// Starts anew from a seed.
    pub fn manual_seed(&self, seed: u64) {
        was_set();
        *self.state.lock() = State { seed, counter: 0 };
    }

    /// Starts anew from a seed that the system's entropy gives, and returns it.
    pub fn seed(&self) -> u64 {
        let seed = entropy();
        self.manual_seed(seed);
        seed
    }

    /// The seed it started from.
    pub fn initial_seed(&self) -> u64 {
        self.state.lock().seed
    }

    /// The seed and the counter, to be kept: 16 bytes, little-endian.
    pub fn get_state(&self) -> Vec<u8> {
        let State { seed, counter } = *self.state.lock();
        [seed.to_le_bytes(), counter.to_le_bytes()].concat()
    }

    /// Goes on from where `get_state` was called.
    ///
    /// # Errors
    /// [`Error::Runtime`] if these are not such bytes.
    pub fn set_state(&self, state: &[u8]) -> Result<()> {
        let fail = || {
            let why =
                format!("RNG state is wrong size: expected {STATE_BYTES} bytes from get_state, got {}", state.len());
            Error::runtime("set_state", why)
        };
        let bytes: &[u8; STATE_BYTES] = state.try_into().map_err(|_| fail())?;
        was_set();
        let word = |at: usize| bytes[at..at + 8].iter().rev().fold(0, |x, &b| x << 8 | u64::from(b));
        *self.state.lock() = State { seed: word(0), counter: word(8) };
        Ok(())
    }

    /// The key of the next random op.
    pub fn next_key(&self) -> Key {
        let key = self.state.lock().next();
        if LOGGING.get() {
            DRAWS.with_borrow_mut(|draws| draws.push((self.clone(), key)));
        }
        key
    }

    /// Do both share one state?
    pub fn is_same(&self, other: &Generator) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }

    /// The key of the next random op, which runs on `device`.
    ///
    /// # Errors
    /// [`Error::Runtime`] if the generator was made for another device.
    pub fn key_for(&self, op: &'static str, device: Device) -> Result<Key> {
        match self.device {
            Some(own) if own != device => {
                let why = format!("Expected a '{device}' device type for generator but found '{own}'");
                Err(Error::runtime(op, why))
            }
            _ => Ok(self.next_key()),
        }
    }
}

thread_local! {
    static LOGGING: Cell<bool> = const { Cell::new(false) };
    static DRAWS: RefCell<Vec<(Generator, Key)>> = const { RefCell::new(Vec::new()) };
    static SET: Cell<bool> = const { Cell::new(false) };
}

/// Notes that a generator's state was set.
fn was_set() {
    if LOGGING.get() {
        SET.set(true);
    }
}

/// Keeps what the calling thread draws from now on, for [`recent_draws`].
pub fn log_draws() {
    LOGGING.set(true);
}

/// What was drawn since [`log_draws`] or the last call, in order.
pub fn recent_draws() -> Vec<(Generator, Key)> {
    DRAWS.take()
}

/// The same, and no more is kept.
pub fn take_draws() -> Vec<(Generator, Key)> {
    LOGGING.set(false);
    DRAWS.take()
}

/// Was the state of a generator set on the calling thread while draws were kept? Asked once.
pub fn take_set() -> bool {
    SET.take()
}

/// 53 random bits, as many as PyTorch takes: they pass through a float unharmed.
fn entropy() -> u64 {
    // The standard library keys its hashes with the system's entropy, and moves the keys on with every use.
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u128(std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_nanos()));
    hasher.write_u32(std::process::id());
    hasher.finish() >> 11
}

static DEFAULT: Lazy<Generator> = Lazy::new(|| Generator::seeded(entropy()));

/// The process's generator, which ops draw from unless told otherwise. Seeded by the system until `manual_seed`.
pub fn default_generator() -> &'static Generator {
    &DEFAULT
}

/// Seeds the process's generator.
pub fn manual_seed(seed: u64) {
    DEFAULT.manual_seed(seed);
}

/// The next key of the process's generator.
pub fn next_key() -> Key {
    DEFAULT.next_key()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threefry_gives_the_published_vectors() {
        let ones = [u32::MAX; 2];
        assert_eq!(threefry2x32([0, 0], [0, 0]), [0x6b20_0159, 0x99ba_4efe]);
        assert_eq!(threefry2x32(ones, ones), [0x1cb9_96fc, 0xbb00_2be7]);
        let (key, count) = ([0x1319_8a2e, 0x0370_7344], [0x243f_6a88, 0x85a3_08d3]);
        assert_eq!(threefry2x32(key, count), [0xc492_3a9c, 0x483d_f7a0]);
    }

    #[test]
    fn a_seed_gives_the_same_keys() {
        let (a, b) = (Generator::new(), Generator::new());
        assert_eq!(a.next_key(), b.next_key());
        a.manual_seed(7);
        b.manual_seed(7);
        let first = a.next_key();
        assert_eq!(first, Key(threefry2x32([0, 7], [0, 0])));
        assert_ne!(a.next_key(), first);
        assert_eq!((b.next_key(), b.initial_seed()), (first, 7));
        assert_ne!(a.seed(), a.seed());
    }

    #[test]
    fn states_are_saved_and_clones_share_them() {
        let g = Generator::new();
        g.manual_seed(u64::MAX - 5);
        g.next_key();
        let state = g.get_state();
        let want = [g.next_key(), g.clone().next_key(), g.next_key()];
        let other = Generator::new();
        other.set_state(&state).unwrap();
        assert_eq!([other.next_key(), other.next_key(), other.next_key()], want);
        assert_eq!(other.initial_seed(), u64::MAX - 5);
        assert!(matches!(*other.set_state(&state[1..]).unwrap_err(), Error::Runtime { .. }));
    }

    #[test]
    fn a_device_may_be_asked_for() {
        let (any, own) = (Generator::new(), Generator::on(Device::Gpu));
        assert_eq!((any.device(), own.device()), (None, Some(Device::Gpu)));
        assert!(any.key_for("rand", Device::Cpu).is_ok() && any.key_for("rand", Device::Gpu).is_ok());
        let state = own.get_state();
        assert!(matches!(*own.key_for("rand", Device::Cpu).unwrap_err(), Error::Runtime { .. }));
        assert_eq!(own.get_state(), state, "a refused draw takes no key");
        let other = own.clone_state();
        assert_eq!(own.key_for("rand", Device::Gpu).unwrap(), other.next_key());
        assert!(other.key_for("rand", Device::Cpu).is_err());
    }

    #[test]
    fn children_differ() {
        let keys: std::collections::HashSet<Key> = (0..100).map(|i| Key([1, 2]).child(i)).collect();
        assert_eq!(keys.len(), 100);
    }

    #[test]
    fn threads_get_different_keys() {
        let g = Generator::new();
        let draw = |g: Generator| (0..500).map(|_| g.next_key()).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| g.clone()).map(|g| std::thread::spawn(move || draw(g))).collect();
        let keys: std::collections::HashSet<Key> = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
        assert_eq!(keys.len(), 2000);
    }
}

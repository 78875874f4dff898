//! The control channel's server: values that processes share, checks that all do the same, and who of them is gone.
//!
//! Depends on `wire`. One thread per connection; all state is under one lock, which is never held while reading.
//! Invariants: a connection that has not shown the token changes nothing; what one group's members wait for is
//! answered, or the group has failed and all of them know why.

use super::wire::{self, number, parse, text, Fields};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// How long a peer may take to read what it is sent, and to answer when it is asked whether it lives.
const PATIENCE: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_millis(1500);

/// A member of a group that waits for an answer: its connection, and the number of its question.
struct Waiting {
    rank: usize,
    peer: u64,
    id: u64,
    what: String,
}

/// One operation of a group, of which its members say that they have come to it.
struct Check {
    members: Vec<usize>,
    arrived: Vec<Waiting>,
    asked: bool,
}

/// A ring that its members want to open.
struct Opening {
    size: usize,
    arrived: Vec<(usize, u64, u64, Vec<u8>)>,
}

struct Peer {
    stream: TcpStream,
    /// None for who only uses the values.
    rank: Option<usize>,
    /// Which of the jobs that one after another use the store.
    generation: u64,
    left: bool,
    gone: bool,
    answered: bool,
    last: String,
}

#[derive(Default)]
struct State {
    values: HashMap<Vec<u8>, Vec<u8>>,
    gets: Vec<(Vec<u8>, u64, u64)>,
    /// Who asked for an operation that others have come to: the groups, the peer and the question's number.
    waits: Vec<(Vec<String>, u64, u64)>,
    checks: BTreeMap<(String, u64), Check>,
    openings: BTreeMap<String, Opening>,
    /// The ring that is being opened, and how many of its members are not done.
    opening: Option<(String, usize)>,
    peers: BTreeMap<u64, Peer>,
    world: HashMap<u64, (u64, usize)>,
    failed: HashMap<String, String>,
}

struct Shared {
    state: Mutex<State>,
    token: Vec<u8>,
    ended: AtomicBool,
}

/// The server of a job's control channel. It ends when it is dropped.
pub struct Store {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Store {
    /// Listens at an address; port 0 takes one that is free.
    ///
    /// # Errors
    /// What the system says, such as that the port is taken.
    pub fn listen(address: SocketAddr, token: &str) -> io::Result<Store> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let token = token.as_bytes().to_vec();
        let shared = Arc::new(Shared { state: Mutex::default(), token, ended: AtomicBool::new(false) });
        let own = Arc::clone(&shared);
        thread::Builder::new().name("lucid-store".into()).spawn(move || accept(&listener, &own))?;
        Ok(Store { address, shared })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        // Wakes the thread that accepts.
        drop(TcpStream::connect_timeout(&self.address, Duration::from_secs(1)));
        for peer in self.shared.state.lock().peers.values() {
            let _ = peer.stream.shutdown(Shutdown::Both);
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for (key, stream) in (0u64..).zip(listener.incoming()) {
        if shared.ended.load(Ordering::Acquire) {
            return;
        }
        let Ok(stream) = stream else { continue };
        let own = Arc::clone(shared);
        // Where there is no thread for it, the connection is closed, which its peer reports.
        let _ = thread::Builder::new().name("lucid-store".into()).spawn(move || serve(key, stream, &own));
    }
}

/// Talks to one peer until it is gone.
fn serve(key: u64, mut stream: TcpStream, shared: &Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let _ = stream.set_write_timeout(Some(PATIENCE));
    let _ = stream.set_read_timeout(Some(PATIENCE));
    match greeted(key, &mut stream, shared) {
        Ok(()) => {}
        Err(why) => {
            let _ = wire::send(&mut stream, &[b"error", why.as_bytes()]);
            return;
        }
    }
    let _ = stream.set_read_timeout(None);
    while let Ok(fields) = wire::receive(&mut stream, wire::LIMIT) {
        let mut state = shared.state.lock();
        if let Some(late) = state.handle(key, fields) {
            drop(state);
            let own = Arc::clone(shared);
            let _ = thread::Builder::new().name("lucid-store".into()).spawn(move || {
                thread::sleep(ANSWER);
                own.state.lock().blame(&late);
            });
        }
    }
    shared.state.lock().gone(key);
}

/// Lets a peer in, or says why not.
fn greeted(key: u64, stream: &mut TcpStream, shared: &Shared) -> Result<(), String> {
    let hello = wire::receive(stream, wire::GREETING).map_err(|e| format!("no greeting: {e}"))?;
    let [verb, token, version, world, rank, generation] = hello.as_slice() else {
        return Err("not a greeting of Lucid's".into());
    };
    if verb != b"hello" || !same(token, &shared.token) {
        return Err("the token is not this job's: LUCID_DISTRIBUTED_TOKEN must be the same everywhere".into());
    }
    let stated = parse(Some(version));
    if stated != Some(wire::PROTOCOL) {
        let (own, other) = (wire::PROTOCOL, stated.unwrap_or_default());
        return Err(format!("the store speaks version {own} of the protocol and this process version {other}"));
    }
    let numbers = (parse(Some(world)), parse(Some(rank)), parse(Some(generation)));
    let (Some(world), Some(rank), Some(generation)) = numbers else { return Err("no numbers".into()) };
    let copy = stream.try_clone().map_err(|e| e.to_string())?;
    let mut state = shared.state.lock();
    let member = world > 0;
    let rank = rank as usize;
    if member {
        match state.world.get(&generation).copied() {
            Some((size, first)) if size != world => {
                let why = format!(
                    "world sizes disagree: rank {first} says that there are {size} processes, rank {rank} that there \
                     are {world}"
                );
                state.push(generation, &[b"failed", b"", why.as_bytes()]);
                return Err(why);
            }
            _ if rank as u64 >= world => return Err(format!("rank {rank} of a world of {world} processes")),
            _ if state
                .peers
                .values()
                .any(|p| p.generation == generation && p.rank == Some(rank) && !p.left && !p.gone) =>
            {
                return Err(format!("two processes say that they are rank {rank}"));
            }
            Some(_) => {}
            None => {
                state.world.insert(generation, (world, rank));
            }
        }
    }
    let peer = Peer {
        stream: copy,
        rank: member.then_some(rank),
        generation,
        left: false,
        gone: false,
        answered: true,
        last: String::new(),
    };
    state.peers.insert(key, peer);
    state.send(key, &[b"ok"]);
    Ok(())
}

/// Are the bytes the same? Takes as long wherever they differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |d, (x, y)| d | (x ^ y)) == 0
}

/// An operation that took too long, and how long that was.
struct Late {
    generation: u64,
    group: String,
    seq: u64,
    waited: String,
}

impl State {
    fn send(&mut self, peer: u64, fields: &[&[u8]]) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            // Who cannot be written to is found gone by the thread that reads from it.
            if wire::send(&mut peer.stream, fields).is_err() {
                let _ = peer.stream.shutdown(Shutdown::Both);
            }
        }
    }

    fn reply(&mut self, peer: u64, id: u64, fields: &[&[u8]]) {
        let id = number(id);
        let mut all: Vec<&[u8]> = Vec::from([b"re".as_slice(), &id]);
        all.extend_from_slice(fields);
        self.send(peer, &all);
    }

    /// Tells all members of a job.
    fn push(&mut self, generation: u64, fields: &[&[u8]]) {
        let here = |p: &Peer| p.rank.is_some() && !p.gone && p.generation == generation;
        let members: Vec<u64> = self.peers.iter().filter(|(_, p)| here(p)).map(|(&k, _)| k).collect();
        for key in members {
            self.send(key, fields);
        }
    }

    /// Tells everybody why a group cannot go on; the first reason counts.
    fn push_failed(&mut self, generation: u64, group: &str, why: &str) {
        if !self.failed.contains_key(group) {
            self.failed.insert(group.to_owned(), why.to_owned());
            self.push(generation, &[b"failed", group.as_bytes(), why.as_bytes()]);
        }
        if self.opening.as_ref().is_some_and(|(name, _)| name == group) {
            self.opening = None;
            self.open_next();
        }
    }

    /// Handles a message; returns an operation whose members have to be asked whether they live.
    fn handle(&mut self, key: u64, fields: Fields) -> Option<Late> {
        let id = parse(fields.get(1)).unwrap_or_default();
        let at = |i: usize| fields.get(i).cloned().unwrap_or_default();
        let generation = self.peers.get(&key).map(|p| p.generation).unwrap_or_default();
        match fields.first().map(Vec::as_slice).unwrap_or_default() {
            b"set" => {
                self.set(at(2), at(3));
                self.reply(key, id, &[b"ok"]);
            }
            b"get" => match self.values.get(&at(2)).cloned() {
                Some(value) => self.reply(key, id, &[b"ok", &value]),
                None => self.gets.push((at(2), key, id)),
            },
            b"add" => {
                let now = text(self.values.get(&at(2))).parse::<i64>().unwrap_or_default();
                let sum = now.wrapping_add(parse(fields.get(3)).unwrap_or_default() as i64);
                self.set(at(2), sum.to_string().into_bytes());
                self.reply(key, id, &[b"ok", sum.to_string().as_bytes()]);
            }
            b"compare_set" => {
                let (name, expected, wanted) = (at(2), at(3), at(4));
                let swaps = self.values.get(&name).map_or(expected.is_empty(), |v| *v == expected);
                if swaps {
                    self.set(name.clone(), wanted);
                }
                let value = self.values.get(&name).cloned().unwrap_or(expected);
                self.reply(key, id, &[b"ok", &value]);
            }
            b"delete" => {
                let there = self.values.remove(&at(2)).is_some();
                self.reply(key, id, &[b"ok", if there { b"1" } else { b"0" }]);
            }
            b"check_keys" => {
                let all = fields.iter().skip(2).all(|k| self.values.contains_key(k));
                self.reply(key, id, &[b"ok", if all { b"1" } else { b"0" }]);
            }
            b"count" => self.reply(key, id, &[b"ok", self.values.len().to_string().as_bytes()]),
            b"check" => self.check(key, id, &fields),
            b"first" => {
                self.waits.push((fields.iter().skip(2).map(|group| text(Some(group))).collect(), key, id));
                self.answer_waits();
            }
            b"open" => self.open(key, id, &fields),
            b"opened" => {
                if let Some((name, left)) = &mut self.opening
                    && *name == text(fields.get(2))
                {
                    *left = left.saturating_sub(1);
                    if *left == 0 {
                        self.opening = None;
                        self.open_next();
                    }
                }
            }
            b"broken" => self.push_failed(generation, &text(fields.get(2)), &text(fields.get(3))),
            b"late" => {
                let (group, seq) = (text(fields.get(2)), parse(fields.get(3)).unwrap_or_default());
                let late = Late { generation, group, seq, waited: text(fields.get(4)) };
                return self.late(late);
            }
            b"alive" => {
                if let Some(peer) = self.peers.get_mut(&key) {
                    peer.answered = true;
                }
            }
            b"bye" => {
                if let Some(peer) = self.peers.get_mut(&key) {
                    peer.left = true;
                }
                self.reply(key, id, &[b"ok"]);
            }
            _ => {}
        }
        None
    }

    fn set(&mut self, name: Vec<u8>, value: Vec<u8>) {
        let (asked, rest) = std::mem::take(&mut self.gets).into_iter().partition(|(k, ..)| *k == name);
        self.gets = rest;
        for (_, peer, id) in asked {
            self.reply(peer, id, &[b"ok", &value]);
        }
        self.values.insert(name, value);
    }

    /// Tells those who wait for one of several groups which of them has an operation that others have come to and they have not.
    fn answer_waits(&mut self) {
        for (groups, peer, id) in std::mem::take(&mut self.waits) {
            let open = |group: &&String| {
                self.checks.range((String::clone(group), 0)..=(String::clone(group), u64::MAX)).any(|(_, check)| {
                    let own = |w: &Waiting| w.peer == peer;
                    check.arrived.len() < check.members.len() && !check.arrived.iter().any(own)
                })
            };
            match groups.iter().find(open).cloned() {
                Some(group) => self.reply(peer, id, &[b"ok", group.as_bytes()]),
                None => self.waits.push((groups, peer, id)),
            }
        }
    }

    /// A member of a group has come to an operation.
    fn check(&mut self, key: u64, id: u64, fields: &Fields) {
        let (group, seq) = (text(fields.get(2)), parse(fields.get(3)).unwrap_or_default());
        let members: Vec<usize> = text(fields.get(4)).split(',').filter_map(|r| r.parse().ok()).collect();
        let what = text(fields.get(5));
        let Some(Peer { rank: Some(rank), generation, .. }) = self.peers.get(&key) else { return };
        let (rank, generation) = (*rank, *generation);
        if let Some(why) = self.failed.get(&group).cloned() {
            return self.reply(key, id, &[b"error", why.as_bytes()]);
        }
        if let Some(peer) = self.peers.get_mut(&key) {
            peer.last = format!("{what}, number {seq} of group '{group}'");
        }
        let size = members.len();
        let check =
            self.checks.entry((group.clone(), seq)).or_insert(Check { members, arrived: Vec::new(), asked: false });
        let other = check.arrived.iter().find(|w| w.what != what).map(|w| (w.rank, w.what.clone()));
        check.arrived.push(Waiting { rank, peer: key, id, what: what.clone() });
        if let Some((first, theirs)) = other {
            let why = format!(
                "operation {seq} of group '{group}' is not the same on every rank: rank {first} calls {theirs}, rank \
                 {rank} calls {what}"
            );
            self.push_failed(generation, &group, &why);
        } else if check.arrived.len() >= size {
            let all: Vec<(u64, u64)> = check.arrived.iter().map(|w| (w.peer, w.id)).collect();
            for (peer, id) in all {
                self.reply(peer, id, &[b"ok"]);
            }
            // A member may still be found late in it; the ones before are done.
            let done = |k: &(String, u64)| k.0 == group && k.1 + 8 < seq;
            self.checks.retain(|k, c| !done(k) || c.arrived.len() < c.members.len());
        }
        self.answer_waits();
    }

    /// A member is ready to open its group's ring.
    fn open(&mut self, key: u64, id: u64, fields: &Fields) {
        let group = text(fields.get(2));
        let size = parse(fields.get(3)).unwrap_or_default() as usize;
        let rank = parse(fields.get(4)).unwrap_or_default() as usize;
        let address = fields.get(5).cloned().unwrap_or_default();
        let opening = self.openings.entry(group).or_insert(Opening { size, arrived: Vec::new() });
        opening.arrived.push((rank, key, id, address));
        self.open_next();
    }

    /// Lets the members of one ring open it, if none is being opened and one has all of them: MLX opens one at a time.
    fn open_next(&mut self) {
        if self.opening.is_some() {
            return;
        }
        let Some(name) = self.openings.iter().find(|(_, o)| o.arrived.len() >= o.size).map(|(n, _)| n.clone()) else {
            return;
        };
        let Some(mut ready) = self.openings.remove(&name) else { return };
        ready.arrived.sort_by_key(|(rank, ..)| *rank);
        self.opening = Some((name, ready.size));
        let addresses: Vec<&[u8]> = ready.arrived.iter().map(|(.., address)| address.as_slice()).collect();
        let mut answer: Vec<&[u8]> = Vec::from([b"ok".as_slice()]);
        answer.extend(addresses);
        for (_, peer, id, _) in &ready.arrived {
            self.reply(*peer, *id, &answer);
        }
    }

    /// A member has waited too long. Names who did not come, or asks who lives.
    fn late(&mut self, late: Late) -> Option<Late> {
        let check = self.checks.get_mut(&(late.group.clone(), late.seq))?;
        let Check { members, arrived, asked } = check;
        let missing: Vec<usize> = members.iter().copied().filter(|m| !arrived.iter().any(|w| w.rank == *m)).collect();
        let members = members.clone();
        let what = arrived.first().map(|w| w.what.clone()).unwrap_or_default();
        if missing.is_empty() {
            if std::mem::replace(asked, true) {
                return None;
            }
            let asked = |p: &&mut Peer| {
                p.generation == late.generation && !p.gone && p.rank.is_some_and(|r| members.contains(&r))
            };
            for peer in self.peers.values_mut().filter(asked) {
                peer.answered = false;
            }
            self.push(late.generation, &[b"ping"]);
            return Some(late);
        }
        let told: Vec<String> = missing.iter().map(|&m| self.told(m)).collect();
        let (group, seq) = (&late.group, late.seq);
        let why =
            format!("{what}, number {seq} of group '{group}', timed out after {}: {}", late.waited, told.join("; "));
        self.push_failed(late.generation, group, &why);
        None
    }

    fn told(&self, rank: usize) -> String {
        match self.peers.values().rev().find(|p| p.rank == Some(rank)) {
            None => format!("rank {rank} never connected"),
            Some(p) if p.left => format!("rank {rank} has left the job"),
            Some(p) if p.last.is_empty() => format!("rank {rank} did not call it, nor anything before"),
            Some(p) => format!("rank {rank} did not call it; its last call was {}", p.last),
        }
    }

    /// All members came to an operation and it was not done in time: names those that did not answer either.
    fn blame(&mut self, late: &Late) {
        let Some(check) = self.checks.get(&(late.group.clone(), late.seq)) else { return };
        let silent: Vec<String> = self
            .peers
            .values()
            .filter(|p| !p.answered)
            .filter_map(|p| p.rank.filter(|r| check.members.contains(r)))
            .map(|r| format!("rank {r} does not answer"))
            .collect();
        let what = check.arrived.first().map(|w| w.what.clone()).unwrap_or_default();
        let members: Vec<String> = check.members.iter().map(|r| format!("rank {r}")).collect();
        let told = match silent.is_empty() {
            true => format!("all called it, and its data did not come through between {}", members.join(", ")),
            false => silent.join("; "),
        };
        let (group, seq, waited) = (&late.group, late.seq, &late.waited);
        let why = format!("{what}, number {seq} of group '{group}', timed out after {waited}: {told}");
        self.push_failed(late.generation, &late.group, &why);
    }

    /// A connection has ended. Its peer stays known, for what it did last.
    fn gone(&mut self, key: u64) {
        let Some(peer) = self.peers.get_mut(&key) else { return };
        peer.gone = true;
        let (rank, left, last, generation) = (peer.rank, peer.left, peer.last.clone(), peer.generation);
        self.gets.retain(|(_, k, _)| *k != key);
        self.waits.retain(|(_, k, _)| *k != key);
        let Some(rank) = rank else {
            self.peers.remove(&key);
            return;
        };
        let why = match (left, last.is_empty()) {
            (true, _) => format!("rank {rank} has left the job"),
            (false, true) => format!("rank {rank} has ended"),
            (false, false) => format!("rank {rank} has ended; its last call was {last}"),
        };
        self.push(generation, &[b"gone", &number(rank as u64), why.as_bytes()]);
        if !left {
            self.opening = None;
            self.open_next();
        }
    }
}

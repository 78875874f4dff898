//! A process's end of the control channel: questions and their answers, and what the server tells unasked.
//!
//! Depends on `wire`. One thread reads; whoever waits is woken by each message. Invariant: once the connection has
//! ended every question is answered by why.

use super::wire::{self, number, parse, text, Fields};
use crate::{Error, Result};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, HashMap};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How long a message may take to be taken by the system.
const PATIENCE: Duration = Duration::from_secs(10);
/// Ten years: what is longer is cut to that, so that times can be added.
pub(super) const LONGEST: Duration = Duration::from_secs(315_360_000);
/// Between attempts to connect to a server that is not there yet.
const RETRY: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(super) struct Inbox {
    replies: HashMap<u64, Fields>,
    /// Why groups cannot go on, by name; the empty name is all of them.
    pub(super) failed: HashMap<String, String>,
    /// Ranks that are gone, why, and since when.
    pub(super) gone: BTreeMap<usize, (String, Instant)>,
    closed: Option<String>,
}

impl Inbox {
    /// Why a group cannot go on.
    pub(super) fn failure(&self, group: &str) -> Option<&String> {
        self.failed.get(group).or_else(|| self.failed.get("")).or(self.closed.as_ref())
    }
}

/// Who a process of a job is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Member {
    /// Its number.
    pub rank: usize,
    /// How many processes there are.
    pub world_size: usize,
    /// Which of the jobs that one after another use the store.
    pub generation: u64,
}

/// A connection to a [`Store`](super::Store).
pub struct Client {
    writer: Mutex<TcpStream>,
    inbox: Mutex<Inbox>,
    news: Condvar,
    next: AtomicU64,
    local: SocketAddr,
}

fn failed(op: &'static str, why: impl Into<String>) -> Box<Error> {
    Error::distributed(op, why)
}

impl Client {
    /// Connects, trying again until the time is over. Who is no member uses the values only.
    ///
    /// # Errors
    /// [`Error::Distributed`] where the host does not resolve, nobody listens there, or the server refuses: for the
    /// token, the protocol's version, or a world size or rank that do not fit those of others.
    pub fn connect(host: &str, port: u16, token: &str, member: Option<Member>, wait: Duration) -> Result<Arc<Client>> {
        let op = "init_process_group";
        let wait = wait.min(LONGEST);
        let until = Instant::now() + wait;
        let addresses: Vec<SocketAddr> = match (host, port).to_socket_addrs() {
            Ok(found) => found.collect(),
            Err(e) => return Err(failed(op, format!("the host '{host}' cannot be resolved: {e}"))),
        };
        let mut stream = loop {
            let mut why = format!("the host '{host}' has no address");
            let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            let connected = addresses.iter().find_map(|a| match TcpStream::connect_timeout(a, left) {
                Ok(stream) => Some(stream),
                Err(e) => {
                    why = format!("no store answers at {host}:{port}, where rank 0 or the launcher should listen: {e}");
                    None
                }
            });
            match connected {
                Some(stream) => break stream,
                None if Instant::now() >= until => {
                    return Err(failed(op, format!("{why} (tried for {:.1} s)", wait.as_secs_f64())));
                }
                None => thread::sleep(RETRY),
            }
        };
        let setup = |e: std::io::Error| failed(op, format!("the connection to the store at {host}:{port} failed: {e}"));
        stream.set_nodelay(true).map_err(setup)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(setup)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(setup)?;
        let Member { rank, world_size, generation } = member.unwrap_or_default();
        let (version, world) = (number(wire::PROTOCOL), number(world_size as u64));
        let (rank, generation) = (number(rank as u64), number(generation));
        let hello: [&[u8]; 6] = [b"hello", token.as_bytes(), &version, &world, &rank, &generation];
        wire::send(&mut stream, &hello).map_err(setup)?;
        let answer = wire::receive(&mut stream, wire::GREETING)
            .map_err(|e| failed(op, format!("what listens at {host}:{port} is no store of Lucid's: {e}")))?;
        if answer.first().map(Vec::as_slice) != Some(b"ok") {
            return Err(failed(op, text(answer.get(1))));
        }
        stream.set_read_timeout(None).map_err(setup)?;
        let local = stream.local_addr().map_err(setup)?;
        let reader = stream.try_clone().map_err(setup)?;
        let client = Arc::new(Client {
            writer: Mutex::new(stream),
            inbox: Mutex::default(),
            news: Condvar::new(),
            next: AtomicU64::new(1),
            local,
        });
        let own = Arc::downgrade(&client);
        let named = thread::Builder::new().name("lucid-store-client".into());
        named.spawn(move || read(reader, &own)).map_err(setup)?;
        Ok(client)
    }

    /// This end's address.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Sends a question without waiting for its answer, and returns its number.
    pub(super) fn ask(&self, verb: &str, fields: &[&[u8]]) -> u64 {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let id_field = number(id);
        let mut all: Vec<&[u8]> = Vec::from([verb.as_bytes(), &id_field]);
        all.extend_from_slice(fields);
        let sent = wire::send(&mut *self.writer.lock(), &all);
        if let Err(e) = sent {
            let mut inbox = self.inbox.lock();
            inbox.closed.get_or_insert_with(|| format!("the connection to the store has ended: {e}"));
            self.news.notify_all();
        }
        id
    }

    /// Looks at the news, changes what it knows, and wakes who waits.
    pub(super) fn with_inbox<T>(&self, f: impl FnOnce(&mut Inbox) -> T) -> T {
        let value = f(&mut self.inbox.lock());
        self.news.notify_all();
        value
    }

    /// Looks at the news.
    pub(super) fn look<T>(&self, f: impl FnOnce(&Inbox) -> T) -> T {
        f(&self.inbox.lock())
    }

    /// Waits for news, for so long at most.
    pub(super) fn wait_for_news(&self, at_most: Duration) {
        self.news.wait_for(&mut self.inbox.lock(), at_most);
    }

    /// Waits for an answer: its fields, or why there is none. Ends early where the group, given by its name and members,
    /// has failed or lost a member: what all members have to call gets no answer then.
    pub(super) fn answer(
        &self,
        id: u64,
        group: Option<(&str, &[usize])>,
        until: Option<Instant>,
    ) -> Result<Fields, String> {
        let mut inbox = self.inbox.lock();
        loop {
            if let Some(mut fields) = inbox.replies.remove(&id) {
                return match fields.first().map(Vec::as_slice) {
                    Some(b"ok") => {
                        fields.remove(0);
                        Ok(fields)
                    }
                    _ => Err(text(fields.get(1))),
                };
            }
            let why = match group {
                Some((group, members)) => {
                    let gone = || members.iter().find_map(|m| inbox.gone.get(m)).map(|(why, _)| why);
                    inbox.failure(group).or_else(gone)
                }
                None => inbox.closed.as_ref(),
            };
            if let Some(why) = why {
                return Err(why.clone());
            }
            match until {
                Some(until) if Instant::now() >= until => return Err("no answer in time".into()),
                Some(until) => drop(self.news.wait_until(&mut inbox, until)),
                None => self.news.wait(&mut inbox),
            }
        }
    }

    /// Asks and waits.
    ///
    /// # Errors
    /// [`Error::Distributed`] where no answer comes in time.
    pub fn call(&self, verb: &'static str, fields: &[&[u8]], wait: Duration) -> Result<Vec<Vec<u8>>> {
        let id = self.ask(verb, fields);
        self.answer(id, None, Instant::now().checked_add(wait)).map_err(|why| {
            let key = fields.first().map(|k| String::from_utf8_lossy(k).into_owned()).unwrap_or_default();
            failed("store", format!("{verb}('{key}'): {why} ({:.1} s)", wait.as_secs_f64()))
        })
    }

    /// Ends the connection; with `leave` in peace, so that its peers do not take this process for one that has died.
    pub fn close(&self, leave: bool) {
        if leave {
            let id = self.ask("bye", &[]);
            let _ = self.answer(id, None, Some(Instant::now() + Duration::from_secs(2)));
        }
        let _ = self.writer.lock().shutdown(Shutdown::Both);
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.writer.lock().shutdown(Shutdown::Both);
    }
}

fn read(mut stream: TcpStream, client: &std::sync::Weak<Client>) {
    loop {
        let received = wire::receive(&mut stream, wire::LIMIT);
        let Some(client) = client.upgrade() else { return };
        let fields = match received {
            Ok(fields) => fields,
            Err(e) => {
                let why = format!("the store, in the launcher or in rank 0, has ended ({e})");
                client.with_inbox(|inbox| {
                    inbox.closed.get_or_insert(why);
                });
                return;
            }
        };
        match fields.first().map(Vec::as_slice).unwrap_or_default() {
            b"re" => {
                let id = parse(fields.get(1)).unwrap_or_default();
                client.with_inbox(|inbox| drop(inbox.replies.insert(id, fields.into_iter().skip(2).collect())));
            }
            b"failed" => {
                let (group, why) = (text(fields.get(1)), text(fields.get(2)));
                client.with_inbox(|inbox| {
                    inbox.failed.entry(group).or_insert(why);
                });
            }
            b"gone" => {
                let (rank, why) = (parse(fields.get(1)).unwrap_or_default() as usize, text(fields.get(2)));
                client.with_inbox(|inbox| drop(inbox.gone.insert(rank, (why, Instant::now()))));
            }
            b"ping" => drop(client.ask("alive", &[])),
            _ => {}
        }
    }
}

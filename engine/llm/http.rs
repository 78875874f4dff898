//! The HTTP side of a language-model server: connections, limits, keys, streams and cancellation, on `hyper` and `tokio`.
//!
//! Threads of its own take requests apart and put them into a queue; whoever runs the model takes them out with
//! [`Server::next`] and answers by number, whole or piece by piece. A client that goes away is an event too. Invariants:
//! addresses other than loopback need a key; no body, header, wait or queue is without a limit; a number is answered at
//! most once.

use crate::{Error, Result};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::{
    HeaderName, HeaderValue, AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc as events;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch, Semaphore};
use tokio::time::timeout;

const OP: &str = "serve";
/// How long a client may take for its headers, and then for its body.
const READING: Duration = Duration::from_secs(30);
/// Bytes of a connection's buffer, thus of the headers.
const HEADERS: usize = 1 << 16;

/// What a server listens to and allows.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens; port 0 takes a free one.
    pub address: SocketAddr,
    /// What clients send as `Authorization: Bearer`; needed for addresses that are not loopback.
    pub api_key: Option<String>,
    /// The most bytes of a request's body.
    pub body_limit: usize,
    /// The most requests that wait or run; more get status 429.
    pub most_requests: usize,
    /// The most connections; more wait.
    pub most_connections: usize,
}

impl Options {
    /// Limits for an address: bodies of 4 MiB, 256 requests, 1024 connections.
    pub fn new(address: SocketAddr) -> Options {
        Options { address, api_key: None, body_limit: 4 << 20, most_requests: 256, most_connections: 1024 }
    }
}

/// What happened.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// A client asks.
    Request {
        /// The number by which it is answered.
        id: u64,
        /// `GET`, `POST` and so on.
        method: String,
        /// The path, without a query.
        path: String,
        /// The body.
        body: Vec<u8>,
    },
    /// The client of a request that is not answered to its end went away.
    Gone {
        /// The request's number.
        id: u64,
    },
}

type Pieces = mpsc::UnboundedSender<Bytes>;
type Answer = Response<BoxBody<Bytes, Infallible>>;

/// What is open for a request: its answer, or the rest of it.
enum Open {
    Head(oneshot::Sender<Answer>),
    Rest(Pieces),
}

struct Shared {
    options: Options,
    next: AtomicU64,
    open: Mutex<HashMap<u64, Open>>,
    events: events::SyncSender<Event>,
    room: Arc<Semaphore>,
    places: Arc<Semaphore>,
}

/// Tells that a client went, unless its request was answered.
struct Guard {
    shared: Arc<Shared>,
    id: u64,
    _room: tokio::sync::OwnedSemaphorePermit,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.shared.open.lock().remove(&self.id).is_some() {
            // The queue has room for two events of every request that there may be.
            let _ = self.shared.events.try_send(Event::Gone { id: self.id });
        }
    }
}

/// A body whose pieces come from the model.
struct Stream {
    pieces: mpsc::UnboundedReceiver<Bytes>,
}

impl Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Infallible>>> {
        self.pieces.poll_recv(context).map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
    }
}

fn whole(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Answer {
    let mut made = Response::new(Full::new(Bytes::from(body)).boxed());
    *made.status_mut() = status;
    made.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    made
}

/// An error as OpenAI's API writes it.
fn refusal(status: StatusCode, kind: &str, why: &str) -> Answer {
    let body = serde_json::json!({"error": {"message": why, "type": kind, "param": null, "code": null}});
    whole(status, "application/json", body.to_string().into_bytes())
}

/// Equality that takes as long whether the first or the last byte differs.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0u8, |differ, (x, y)| differ | (x ^ y)) == 0
}

/// Is the host of a `Host` header this machine's own name? Pages of other sites must not reach a server without a key.
fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((inner, _)) => inner,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The answer to a request that is not let in.
fn refused(options: &Options, request: &Request<Incoming>) -> Option<Answer> {
    let header = |name: HeaderName| request.headers().get(name).and_then(|v| v.to_str().ok());
    match &options.api_key {
        Some(key) => {
            let given = header(AUTHORIZATION).and_then(|v| v.strip_prefix("Bearer ")).unwrap_or("");
            if !same(given.as_bytes(), key.as_bytes()) {
                let why = "the API key is missing or wrong; send it as Authorization: Bearer";
                return Some(refusal(StatusCode::UNAUTHORIZED, "authentication_error", why));
            }
        }
        None => {
            if header(HOST).is_some_and(|host| !is_local(host)) {
                let why = "a server without an API key answers to localhost only";
                return Some(refusal(StatusCode::FORBIDDEN, "permission_error", why));
            }
        }
    }
    let json =
        header(CONTENT_TYPE).is_some_and(|v| v.trim_start().to_ascii_lowercase().starts_with("application/json"));
    if request.method() == Method::POST && !json {
        let why = "expected a body with Content-Type: application/json";
        return Some(refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request_error", why));
    }
    None
}

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Answer {
    if let Some(refused) = refused(&shared.options, &request) {
        return refused;
    }
    let Ok(room) = shared.room.clone().try_acquire_owned() else {
        let why = format!("the server has {} requests already; try again later", shared.options.most_requests);
        let mut made = refusal(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", &why);
        made.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        return made;
    };
    let (method, path) = (request.method().to_string(), request.uri().path().to_string());
    let limit = shared.options.body_limit;
    let too_long = || {
        let why = format!("the body has more than {limit} bytes");
        refusal(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", &why)
    };
    let said = request.headers().get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    if said.is_some_and(|n| n > limit as u64) {
        return too_long();
    }
    let body = match timeout(READING, Limited::new(request.into_body(), limit).collect()).await {
        Ok(Ok(body)) => body.to_bytes().to_vec(),
        Ok(Err(e)) if e.is::<http_body_util::LengthLimitError>() => return too_long(),
        Ok(Err(_)) => return refusal(StatusCode::BAD_REQUEST, "invalid_request_error", "the body is damaged"),
        Err(_) => return refusal(StatusCode::REQUEST_TIMEOUT, "invalid_request_error", "the body came too slowly"),
    };
    let id = shared.next.fetch_add(1, Ordering::Relaxed);
    let (to, from) = oneshot::channel();
    shared.open.lock().insert(id, Open::Head(to));
    let guard = Guard { shared: shared.clone(), id, _room: room };
    if shared.events.try_send(Event::Request { id, method, path, body }).is_err() {
        shared.open.lock().remove(&id);
        return refusal(StatusCode::SERVICE_UNAVAILABLE, "server_error", "the server is stopping");
    }
    match from.await {
        Ok(response) => response.map(|body| Held { body, _guard: guard }.boxed()),
        Err(_) => refusal(StatusCode::SERVICE_UNAVAILABLE, "server_error", "the server stopped before it answered"),
    }
}

/// A body with the guard of its request.
struct Held {
    body: BoxBody<Bytes, Infallible>,
    _guard: Guard,
}

impl Body for Held {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

/// Waits until the server is to stop.
async fn stopped(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stop| *stop).await;
}

async fn connection(shared: Arc<Shared>, stream: tokio::net::TcpStream, mut stopping: watch::Receiver<bool>) {
    let service = service_fn(move |request| {
        let shared = shared.clone();
        async move { Ok::<_, Infallible>(answer(shared, request).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(READING).max_buf_size(HEADERS);
    let served = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(served);
    tokio::select! {
        // What a client does wrong ends its connection, nothing else.
        _ = served.as_mut() => {}
        () = stopped(&mut stopping) => {
            served.as_mut().graceful_shutdown();
            let _ = served.await;
        }
    }
}

async fn accept(shared: Arc<Shared>, listener: TcpListener, stopping: watch::Receiver<bool>) {
    let mut stop = stopping.clone();
    loop {
        let Ok(place) = shared.places.clone().acquire_owned().await else { return };
        let stream = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stop) => return,
        };
        match stream {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                let served = connection(shared.clone(), stream, stopping.clone());
                tokio::spawn(async move {
                    served.await;
                    drop(place);
                });
            }
            // Without file descriptors, say: others may end meanwhile.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// A running server.
///
/// # Examples
/// ```
/// use lucid::llm::http::{Options, Server};
/// let server = Server::start(Options::new("127.0.0.1:0".parse().unwrap()))?;
/// assert!(server.next(std::time::Duration::from_millis(1)).is_none());
/// server.stop(std::time::Duration::from_secs(1));
/// # lucid::Result::<()>::Ok(())
/// ```
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    queue: Mutex<events::Receiver<Event>>,
    stopping: watch::Sender<bool>,
    runtime: Mutex<Option<tokio::runtime::Runtime>>,
}

impl Server {
    /// Listens.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for an address that is not loopback without a key, limits of zero, and where nobody can
    /// listen there.
    pub fn start(options: Options) -> Result<Server> {
        let key = options.api_key.as_deref();
        if key.is_some_and(|key| key.is_empty() || !key.bytes().all(|b| b.is_ascii_graphic())) {
            return Err(Error::value(OP, "an API key has visible ASCII characters, and at least one"));
        }
        if key.is_none() && !options.address.ip().is_loopback() {
            let why = format!(
                "{} can be reached from other machines: give an API key, or listen to 127.0.0.1",
                options.address
            );
            return Err(Error::value(OP, why));
        }
        let most = options.most_requests.min(Semaphore::MAX_PERMITS / 2);
        if most == 0 || options.most_connections == 0 || options.body_limit == 0 {
            return Err(Error::value(OP, "limits must be positive"));
        }
        let failed = |e: std::io::Error| Error::value(OP, format!("cannot listen to {}: {e}", options.address));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("lucid-http")
            .enable_all()
            .build()
            .map_err(failed)?;
        let listener = runtime.block_on(TcpListener::bind(options.address)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        // A request's number is freed before its going is told, so that twice the limit is never exceeded by much.
        let (to, queue) = events::sync_channel(4 * most.min(1 << 16) + 16);
        let (stopping, stop) = watch::channel(false);
        let options = Options { most_connections: options.most_connections.min(Semaphore::MAX_PERMITS), ..options };
        let shared = Arc::new(Shared {
            next: AtomicU64::new(1),
            open: Mutex::default(),
            events: to,
            room: Arc::new(Semaphore::new(most)),
            places: Arc::new(Semaphore::new(options.most_connections)),
            options,
        });
        runtime.spawn(accept(shared.clone(), listener, stop));
        Ok(Server { shared, address, queue: Mutex::new(queue), stopping, runtime: Mutex::new(Some(runtime)) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requests that are not answered to their end.
    pub fn open(&self) -> usize {
        self.shared.open.lock().len()
    }

    /// What happens next; `None` where nothing does for so long.
    pub fn next(&self, wait: Duration) -> Option<Event> {
        let queue = self.queue.lock();
        match wait.is_zero() {
            true => queue.try_recv().ok(),
            false => queue.recv_timeout(wait).ok(),
        }
    }

    /// Answers a request; `false` where its client is gone, or was answered.
    pub fn respond(&self, id: u64, status: u16, body: Vec<u8>) -> bool {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let open = self.shared.open.lock().remove(&id);
        match open {
            Some(Open::Head(to)) => to.send(whole(status, "application/json", body)).is_ok(),
            Some(Open::Rest(_)) | None => false,
        }
    }

    /// Begins an answer of server-sent events with its first piece; `false` as for [`respond`](Server::respond).
    pub fn stream(&self, id: u64) -> bool {
        let mut open = self.shared.open.lock();
        if !matches!(open.get(&id), Some(Open::Head(_))) {
            return false;
        }
        let Some(Open::Head(to)) = open.remove(&id) else { return false };
        let (pieces, from) = mpsc::unbounded_channel();
        let mut made = Response::new(Stream { pieces: from }.boxed());
        made.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
        made.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        open.insert(id, Open::Rest(pieces));
        // Who waits for the head drops its guard, which locks.
        drop(open);
        to.send(made).is_ok()
    }

    /// Another piece of a stream; `false` where its client is gone.
    pub fn send(&self, id: u64, piece: Vec<u8>) -> bool {
        match self.shared.open.lock().get(&id) {
            Some(Open::Rest(pieces)) => pieces.send(Bytes::from(piece)).is_ok(),
            Some(Open::Head(_)) | None => false,
        }
    }

    /// Ends a stream.
    pub fn finish(&self, id: u64) {
        self.shared.open.lock().remove(&id);
    }

    /// Takes no more connections; those that are there end after what they ask now.
    pub fn close(&self) {
        let _ = self.stopping.send(true);
    }

    /// Closes, and ends what has not ended after so long.
    pub fn stop(&self, patience: Duration) {
        self.close();
        let Some(runtime) = self.runtime.lock().take() else { return };
        let ended = |patience: Duration| {
            let start = std::time::Instant::now();
            while self.shared.places.available_permits() < self.shared.options.most_connections {
                if start.elapsed() >= patience {
                    return;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        };
        ended(patience);
        // Who still waits is told so.
        let left = std::mem::take(&mut *self.shared.open.lock());
        drop(left);
        ended(Duration::from_millis(200));
        runtime.shutdown_timeout(Duration::from_millis(200));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    fn ask(address: SocketAddr, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    }

    fn post(body: &str, more: &str) -> String {
        format!(
            "POST /v1/x?y HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n{more}\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
    }

    fn rest(mut stream: TcpStream) -> String {
        let mut out = String::new();
        stream.read_to_string(&mut out).unwrap();
        out
    }

    fn next(server: &Server) -> Event {
        server.next(Duration::from_secs(20)).unwrap()
    }

    #[test]
    fn answers_streams_and_tells_who_went() {
        let server = Server::start(Options::new("127.0.0.1:0".parse().unwrap())).unwrap();
        let at = server.address();
        let client = ask(at, &post("{}", ""));
        let Event::Request { id, method, path, body } = next(&server) else { panic!() };
        assert_eq!((method.as_str(), path.as_str(), body.as_slice()), ("POST", "/v1/x", &b"{}"[..]));
        assert!(server.respond(id, 201, b"yes".to_vec()) && !server.respond(id, 200, Vec::new()));
        let said = rest(client);
        assert!(said.starts_with("HTTP/1.1 201") && said.ends_with("yes"), "{said}");

        let client = ask(at, &post("{}", ""));
        let Event::Request { id, .. } = next(&server) else { panic!() };
        assert!(
            server.stream(id) && server.send(id, b"data: 1\n\n".to_vec()) && server.send(id, b"data: 2\n\n".to_vec())
        );
        server.finish(id);
        assert!(!server.send(id, Vec::new()));
        let said = rest(client);
        assert!(said.contains("text/event-stream") && said.contains("data: 1\n\n") && said.contains("data: 2\n\n"));

        for streams in [false, true] {
            let client = ask(at, &post("{}", ""));
            let Event::Request { id, .. } = next(&server) else { panic!() };
            assert!(!streams || server.stream(id));
            drop(client);
            // A client that went while pieces are written is seen at the next ones.
            while streams && server.send(id, vec![b' '; 1 << 16]) {
                std::thread::sleep(Duration::from_millis(2));
            }
            assert_eq!(next(&server), Event::Gone { id });
            assert_eq!(server.open(), 0);
        }
    }

    #[test]
    fn limits_and_keys() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        assert!(Server::start(Options::new("0.0.0.0:0".parse().unwrap())).is_err());
        let small = Options { body_limit: 4, most_requests: 1, api_key: Some("k".into()), ..Options::new(any) };
        let server = Server::start(small).unwrap();
        let at = server.address();
        let key = "Authorization: Bearer k\r\n";
        assert!(rest(ask(at, &post("{}", ""))).starts_with("HTTP/1.1 401"));
        assert!(rest(ask(at, &post("{}", "Authorization: Bearer j\r\n"))).starts_with("HTTP/1.1 401"));
        assert!(rest(ask(at, &post("12345", key))).starts_with("HTTP/1.1 413"));
        let chunked = format!(
            "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json\r\n{key}\
             Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n\r\n"
        );
        assert!(rest(ask(at, &chunked)).starts_with("HTTP/1.1 413"));
        let first = ask(at, &post("{}", key));
        let Event::Request { id, .. } = next(&server) else { panic!() };
        assert!(rest(ask(at, &post("{}", key))).starts_with("HTTP/1.1 429"));
        assert!(server.respond(id, 200, Vec::new()));
        assert!(rest(first).starts_with("HTTP/1.1 200"));
        assert!(rest(ask(at, "nonsense\r\n\r\n")).starts_with("HTTP/1.1 400"));

        let open = Server::start(Options::new(any)).unwrap();
        let plain = "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        assert!(rest(ask(open.address(), plain)).starts_with("HTTP/1.1 415"));
        let foreign = post("{}", "").replace("Host: localhost", "Host: example.org");
        assert!(rest(ask(open.address(), &foreign)).starts_with("HTTP/1.1 403"));
        let waiting = ask(open.address(), &post("{}", ""));
        next(&open);
        open.stop(Duration::from_millis(10));
        let said = rest(waiting);
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 503"), "{said}");
    }

    #[test]
    fn hosts() {
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1:1", "[::1]:8000", "127.3.2.1"] {
            assert!(is_local(host), "{host}");
        }
        for host in ["example.org", "localhost.example.org", "10.0.0.1:80", "[::2]", "", "::1x"] {
            assert!(!is_local(host), "{host}");
        }
    }
}

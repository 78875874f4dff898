//! The HTTP side of `lucid.llm`'s server: requests as they come, answers by number.
//!
//! Depends on the engine's `llm::http`. Waiting releases the GIL.

use crate::engine_call;
use lucid::llm::http::{Event, Options, Server};
use lucid::Error;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::time::Duration;

fn seconds(given: f64) -> Duration {
    Duration::try_from_secs_f64(given.max(0.0)).unwrap_or(Duration::MAX)
}

/// A server of the engine.
#[pyclass(module = "lucid._C", frozen)]
struct _HttpServer(Server);

#[pymethods]
impl _HttpServer {
    #[new]
    #[pyo3(signature = (host, port, api_key, body_limit, most_requests))]
    fn new(
        py: Python<'_>,
        host: &str,
        port: u16,
        api_key: Option<String>,
        body_limit: usize,
        most_requests: usize,
    ) -> PyResult<_HttpServer> {
        engine_call::long(py, || {
            let ip: std::net::IpAddr = match host {
                "localhost" => std::net::Ipv4Addr::LOCALHOST.into(),
                _ => host.parse().map_err(|_| {
                    Error::value("serve", format!("host must be an IP address or localhost, got {host:?}"))
                })?,
            };
            let options = Options::new((ip, port).into());
            Server::start(Options { api_key, body_limit, most_requests, ..options })
        })
        .map(_HttpServer)
    }

    /// Host and port.
    fn address(&self) -> (String, u16) {
        let at = self.0.address();
        (at.ip().to_string(), at.port())
    }

    /// How many requests are not answered to their end.
    fn open(&self) -> usize {
        self.0.open()
    }

    /// What happens within so many seconds: `(id, method, path, body)`, `(id,)` for a client that went, or None.
    fn next<'py>(&self, py: Python<'py>, wait: f64) -> PyResult<Option<Bound<'py, PyTuple>>> {
        Ok(match engine_call::long(py, || Ok(self.0.next(seconds(wait))))? {
            None => None,
            Some(Event::Gone { id }) => Some((id,).into_pyobject(py)?),
            Some(Event::Request { id, method, path, body }) => {
                Some((id, method, path, PyBytes::new(py, &body)).into_pyobject(py)?)
            }
        })
    }

    /// Answers with JSON; False where the client is gone.
    fn respond(&self, id: u64, status: u16, body: &[u8]) -> bool {
        self.0.respond(id, status, body.to_vec())
    }

    /// Begins a stream of events; False where the client is gone.
    fn stream(&self, id: u64) -> bool {
        self.0.stream(id)
    }

    /// Sends a piece of a stream; False where the client is gone.
    fn send(&self, id: u64, piece: &[u8]) -> bool {
        self.0.send(id, piece.to_vec())
    }

    /// Ends a stream.
    fn finish(&self, id: u64) {
        self.0.finish(id);
    }

    /// Takes no more connections.
    fn close(&self) {
        self.0.close();
    }

    /// Ends all within so many seconds.
    fn stop(&self, py: Python<'_>, patience: f64) -> PyResult<()> {
        engine_call::long(py, || {
            self.0.stop(seconds(patience));
            Ok(())
        })
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<_HttpServer>()
}

//! A trained model behind an HTTP endpoint, on the loopback address: `POST /predict` with `{"inputs": [[1, -1], …]}` answers
//! `{"outputs": [0.98, …]}`, and what does not fit is answered with 422 and Lucid's own message.

use axum::extract::State;
use axum::http::{header, StatusCode};
use axum::routing::post;
use axum::Router;
use lucid::prelude::*;
use serde_json::{json, Value};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

struct Served {
    model: nn::Sequential,
    on: Device,
}

/// Learns whether two signs differ.
fn trained(on: Device) -> Result<Served> {
    lucid::manual_seed(0);
    let mut model = nn::Sequential::new()
        .add(nn::Linear::new(2, 16, on)?)
        .add(nn::Tanh::new())
        .add(nn::Linear::new(16, 1, on)?)
        .add(nn::Flatten::new(0, -1));
    let mut adam = optim::Adam::new(model.parameters(), 0.02);
    for _ in 0..200 {
        let x = ((Tensor::rand(dims![64, 2])? - 0.5)? * 4.0)?.to(on)?;
        let y = x.prod(Some(-1), false, None)?.lt(0.0)?.cast(DType::F32)?;
        let loss = nn::BceWithLogitsLoss::new().forward(&model.forward(&x)?, &y)?;
        loss.eval()?;
        adam.zero_grad()?;
        loss.backward()?;
        adam.step()?;
    }
    model.eval();
    Ok(Served { model, on })
}

impl Served {
    fn predict(&self, request: &str) -> Result<Vec<f32>> {
        let bad = || Error::value("predict", "expected {\"inputs\": [[x, y], …]} with rows of one length");
        let request: Value = serde_json::from_str(request).map_err(|_| bad())?;
        let rows: Vec<Vec<f32>> =
            request.get("inputs").and_then(|list| serde_json::from_value(list.clone()).ok()).ok_or_else(bad)?;
        let width = rows.first().map_or(0, Vec::len);
        if rows.iter().any(|row| row.len() != width) {
            return Err(bad());
        }
        let x = Tensor::from_slice(&rows.concat(), &[rows.len(), width], self.on)?;
        no_grad(|| self.model.forward(&x)?.sigmoid())?.to_vec::<f32>()
    }
}

type Answer = (StatusCode, [(header::HeaderName, &'static str); 1], String);

async fn predict(State(served): State<Arc<Served>>, request: String) -> Answer {
    // The model keeps a thread busy; the server's own goes on taking requests.
    let (status, body) = match tokio::task::spawn_blocking(move || served.predict(&request)).await {
        Ok(Ok(outputs)) => (StatusCode::OK, json!({ "outputs": outputs })),
        Ok(Err(error)) => (StatusCode::UNPROCESSABLE_ENTITY, json!({ "error": error.to_string() })),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, json!({ "error": error.to_string() })),
    };
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string())
}

fn failed(error: impl std::fmt::Display) -> Box<Error> {
    Error::runtime("serve", error.to_string())
}

/// What a client sends and gets back: status and body.
fn ask(at: SocketAddr, body: &str) -> Result<(u16, Value)> {
    let mut stream = TcpStream::connect(at).map_err(failed)?;
    let head = "POST /predict HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json";
    write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| failed("an answer without a body"))?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    Ok((status, serde_json::from_str(body).map_err(failed)?))
}

/// Serves a model on this port, for as long as the process runs. Without a port it takes any, answers two requests of its own,
/// and gives the outputs of the first and the error of the second.
pub fn run(on: Device, port: Option<u16>) -> Result<(Vec<f64>, String)> {
    let app = Router::new().route("/predict", post(predict)).with_state(Arc::new(trained(on)?));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(failed)?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port.unwrap_or(0))).await.map_err(failed)?;
        let at = listener.local_addr().map_err(failed)?;
        println!("serving at http://{at}/predict");
        if port.is_some() {
            axum::serve(listener, app).await.map_err(failed)?;
        } else {
            tokio::spawn(async move { axum::serve(listener, app).await });
        }
        let asked = tokio::task::spawn_blocking(move || -> Result<_, Box<Error>> {
            let good = ask(at, r#"{"inputs": [[1, -1], [1, 1], [-1, 1], [-1, -1]]}"#)?;
            Ok((good, ask(at, r#"{"inputs": [[1, -1, 0]]}"#)?))
        });
        let ((status, good), (refused, bad)) = asked.await.map_err(failed)??;
        if (status, refused) != (200, 422) {
            return Err(failed(format!("answers {status} {good} and {refused} {bad}")));
        }
        let outputs = good["outputs"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        Ok((outputs, bad["error"].as_str().unwrap_or_default().to_string()))
    })
}

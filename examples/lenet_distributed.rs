//! Trains LeNet-5 on several processes, each on its part of every batch, and compares with one process.
//!
//! `cargo run --release --example lenet_distributed -- [--world N] [--steps N] [--data FILE]`
//!
//! The first process has the store and starts the others, which are this program again.

use lucid::distributed::{Config, Group, Job, Reduce, Store};
use lucid::prelude::*;
use lucid::Error;
use std::process::{Child, Command};
use std::time::Duration;

const BATCH: usize = 64;

#[derive(Module)]
struct LeNet {
    conv1: nn::Conv2d,
    conv2: nn::Conv2d,
    fc1: nn::Linear,
    fc2: nn::Linear,
    fc3: nn::Linear,
}

impl LeNet {
    fn new() -> Result<LeNet> {
        lucid::manual_seed(0);
        let device = Device::Cpu;
        Ok(LeNet {
            conv1: nn::Conv2d::options(1, 6, 5).padding(2).build(device)?,
            conv2: nn::Conv2d::new(6, 16, 5, device)?,
            fc1: nn::Linear::new(400, 120, device)?,
            fc2: nn::Linear::new(120, 84, device)?,
            fc3: nn::Linear::new(84, 10, device)?,
        })
    }
}

impl Forward for LeNet {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let pool = nn::MaxPool2d::new(2);
        let x = pool.forward(&self.conv1.forward(x)?.relu()?)?;
        let x = pool.forward(&self.conv2.forward(&x)?.relu()?)?.flatten(1, -1)?;
        let x = self.fc2.forward(&self.fc1.forward(&x)?.relu()?)?.relu()?;
        self.fc3.forward(&x)
    }
}

struct Args {
    world: usize,
    rank: usize,
    port: u16,
    steps: usize,
    data: String,
}

fn args() -> std::result::Result<Args, String> {
    let mut args = Args { world: 2, rank: 0, port: 0, steps: 40, data: "target/digits.safetensors".into() };
    let mut given = std::env::args().skip(1);
    while let Some(arg) = given.next() {
        let value = given.next().ok_or(format!("{arg} needs a value"))?;
        let number = || value.parse::<usize>().map_err(|e| format!("{arg}: {e}"));
        match arg.as_str() {
            "--world" => args.world = number()?,
            "--rank" => args.rank = number()?,
            "--port" => args.port = value.parse().map_err(|e| format!("--port: {e}"))?,
            "--steps" => args.steps = number()?,
            "--data" => args.data = value,
            other => return Err(format!("unknown argument {other:?}; takes --world, --steps, --data")),
        }
    }
    Ok(args)
}

/// Trains on rows of each batch; the last loss, over all processes.
fn train(args: &Args, group: Option<&Group>) -> Result<f64> {
    let data = lucid::io::load(&args.data, Device::Cpu)?;
    let part = |name: &str| {
        let missing = || {
            Box::new(Error::Io { path: args.data.clone(), why: format!("has no tensor {name}").into(), missing: false })
        };
        data.get(name).cloned().ok_or_else(missing)
    };
    let (x, y) = (part("train_x")?, part("train_y")?);
    let model = LeNet::new()?;
    // Sums of parts round otherwise than the whole: SGD keeps that small, Adam divides by it where a gradient is 0.
    let mut sgd = optim::Sgd::new(model.parameters(), 0.05);
    let (rank, size) = group.map_or((0, 1), |g| (g.rank(), g.size()));
    let rows = (BATCH / size) as i64;
    let mut last = 0.0;
    for step in 0..args.steps {
        let from = (step * BATCH % (x.shape()[0] - BATCH)) as i64 + rank as i64 * rows;
        let (x, y) = (x.narrow(0, from, rows)?, y.narrow(0, from, rows)?);
        let loss = cross_entropy(&model.forward(&x)?, &y, Reduction::Mean)?;
        sgd.zero_grad()?;
        loss.backward()?;
        let mut loss = loss.detach()?;
        if let Some(group) = group {
            // All begin, then each is waited for: they run on the group's thread, in order.
            let sent: Vec<_> = model
                .parameters()
                .iter()
                .filter_map(Tensor::grad)
                .map(|g| group.all_reduce(&g, Reduce::Avg, Some(&g), None))
                .collect::<Result<_>>()?;
            for work in sent {
                work.wait(None)?;
            }
            loss = group.all_reduce(&loss, Reduce::Avg, None, None)?.wait(None)?;
        }
        no_grad(|| sgd.step())?;
        last = loss.item_f64()?;
    }
    Ok(last)
}

fn connect(args: &Args, port: u16, token: &str) -> Result<std::sync::Arc<Job>> {
    Job::connect(Config {
        host: "127.0.0.1".into(),
        port,
        token: token.into(),
        rank: args.rank,
        world_size: args.world,
        generation: 0,
        timeout: Duration::from_secs(60),
        listen: None,
        backend: "ring".into(),
    })
}

fn run(args: &Args) -> std::result::Result<(), String> {
    let told = |e: Box<Error>| e.to_string();
    let mut others: Vec<Child> = Vec::new();
    let (store, port, token) = match args.rank {
        0 => {
            // Random enough for one machine: whoever can read it could also attach to the process.
            let token = format!("{:?}-{}", std::time::SystemTime::now(), std::process::id());
            let store = Store::listen(([127, 0, 0, 1], 0).into(), &token).map_err(|e| e.to_string())?;
            let port = store.address().port();
            let program = std::env::current_exe().map_err(|e| e.to_string())?;
            for rank in 1..args.world {
                let mut command = Command::new(&program);
                command.env("LUCID_DISTRIBUTED_TOKEN", &token);
                for (name, value) in [("--world", args.world), ("--steps", args.steps), ("--rank", rank)] {
                    command.arg(name).arg(value.to_string());
                }
                command.args(["--port", &port.to_string(), "--data", &args.data]);
                others.push(command.spawn().map_err(|e| e.to_string())?);
            }
            (Some(store), port, token)
        }
        _ => (None, args.port, std::env::var("LUCID_DISTRIBUTED_TOKEN").unwrap_or_default()),
    };
    let job = connect(args, port, &token).map_err(told)?;
    let all: Vec<usize> = (0..args.world).collect();
    let group = job.group("all", &all).map_err(told)?;
    let loss = train(args, Some(&group)).map_err(told)?;
    group.barrier(None).wait(None).map_err(told)?;
    job.leave();
    for mut other in others {
        other.wait().map_err(|e| e.to_string())?;
    }
    drop(store);
    if args.rank == 0 {
        let alone = train(args, None).map_err(told)?;
        println!("{} processes: loss {loss:.6}; one process: {alone:.6}", args.world);
        if (loss - alone).abs() > 1e-3 {
            return Err("the losses differ".into());
        }
    }
    Ok(())
}

fn main() {
    if let Err(message) = args().and_then(|a| run(&a)) {
        eprintln!("error: {message}");
        std::process::exit(1);
    }
}

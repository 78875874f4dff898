//! Examples of Lucid in Rust, each one file to learn from: `cargo run --release --example rust -- NAME [cpu|gpu]`.
#![deny(unsafe_code)]

mod export;
mod gradients;
mod lstm;
mod mnist;
mod resnet;
mod serve;
mod transformer;
mod vae;

use lucid::prelude::*;

fn run() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let (name, on) = (args.next().unwrap_or_default(), args.next().unwrap_or("cpu".into()));
    let parsed = Device::parse(&on)?;
    if let Some(warning) = parsed.warning {
        eprintln!("warning: {warning}");
    }
    let on = parsed.device;
    match name.as_str() {
        "mnist" => println!("accuracy {:.4}", mnist::run(on, 400)?),
        "lstm" => println!("squared error {:.4}", lstm::run(on, 600)?),
        "transformer" => println!("{}", transformer::run(on, 400)?.1),
        "resnet" => println!("accuracy {:.4}", resnet::run(on, 150)?),
        "vae" => println!("loss {:.2} a picture", vae::run(on, 400)?),
        "gradients" => gradients::run(on)?,
        "serve" => {
            let port = args.next().map(|port| port.parse().map_err(|_| Error::value("serve", "the port is no number")));
            println!("{:?}", serve::run(on, port.transpose()?)?);
        }
        "export" => export::run(on, args.next().as_deref())?,
        _ => eprintln!("usage: rust mnist|resnet|lstm|transformer|vae|gradients|export|serve [cpu|gpu] [FILE|PORT]"),
    }
    Ok(())
}

fn main() {
    if let Err(error) = run() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

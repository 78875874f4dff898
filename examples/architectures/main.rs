//! Twelve architectures with PyTorch's parameter names, run on weights from Python and trained on for a step.
//!
//! `architectures DEVICE FOLDER` reads every `NAME.pt` and `NAME.safetensors` in the folder, with tensors `model.…` (a state
//! dict) and `input.…`, and writes `NAME.out` beside it, a safetensors file with `first` (the output for these weights),
//! `model.…` (the state dict after one step of SGD on the mean square of the output) and `second` (the output for that).
//! tests/python/integration/test_architectures.py compares all three with the same models in Python. `architectures modules`
//! runs single layers, see modules.rs.
#![deny(unsafe_code)]

mod generative;
mod modules;
mod sequences;
mod transformers;
mod vision;

use lucid::nn::StateDict;
use lucid::prelude::*;
use std::path::Path;

/// A model of named inputs.
trait Architecture: Module {
    /// The output for the inputs.
    fn run(&self, inputs: &StateDict) -> Result<Tensor>;
}

/// The input of that name.
fn input<'a>(inputs: &'a StateDict, name: &str) -> Result<&'a Tensor> {
    inputs.get(name).ok_or_else(|| Error::value("architectures", format!("there is no input.{name}")))
}

/// Models of one input, `x`.
macro_rules! of_one_input {
    ($($Model:ty),*) => {$(
        impl crate::Architecture for $Model {
            fn run(&self, inputs: &lucid::nn::StateDict) -> lucid::Result<lucid::Tensor> {
                lucid::nn::Forward::forward(self, crate::input(inputs, "x")?)
            }
        }
    )*};
}
use of_one_input;

fn made(name: &str, on: Device) -> Result<Box<dyn Architecture>> {
    Ok(match name {
        "lenet" => Box::new(vision::LeNet::new(on)?),
        "resnet" => Box::new(vision::ResNet::new(on)?),
        "mobilenet" => Box::new(vision::MobileNet::new(on)?),
        "unet" => Box::new(vision::UNet::new(on)?),
        "lstm" => Box::new(sequences::LstmClassifier::new(on)?),
        "gru" => Box::new(sequences::GruRegressor::new(on)?),
        "transformer" => Box::new(transformers::Translator::new(on)?),
        "gpt" => Box::new(transformers::Gpt::new(on)?),
        "bert" => Box::new(transformers::Bert::new(on)?),
        "vit" => Box::new(transformers::Vit::new(on)?),
        "vae" => Box::new(generative::Vae::new(on)?),
        "dcgan" => Box::new(generative::Dcgan::new(on)?),
        _ => return Err(Error::value("architectures", format!("there is no architecture {name:?}"))),
    })
}

fn run(name: &str, file: &Path, on: Device) -> Result<()> {
    let given = checkpoint::load(file, on)?;
    let inputs = checkpoint::section(&given, "input");
    let mut model = made(name, on)?;
    model.load_state_dict(&checkpoint::section(&given, "model"))?;
    model.eval();
    let first = no_grad(|| model.run(&inputs))?;
    model.train();
    let mut sgd = optim::Sgd::new(model.parameters(), 0.1);
    let loss = model.run(&inputs)?.square()?.mean_all()?;
    loss.eval()?;
    loss.backward()?;
    sgd.step()?;
    model.eval();
    let second = no_grad(|| model.run(&inputs))?;
    let mut out = checkpoint::joined([("model", &model.state_dict()?)])?;
    out.insert("first".into(), first);
    out.insert("second".into(), second);
    checkpoint::save(file.with_extension("out"), &out)
}

fn run_all(device: &str, folder: &Path) -> Result<()> {
    let on = Device::parse(device)?.device;
    let entries = std::fs::read_dir(folder).map_err(|e| Error::io(folder, e))?;
    for file in entries.flatten().map(|e| e.path()) {
        let name = file.file_stem().and_then(|s| s.to_str()).unwrap_or_default().to_string();
        if file.extension().is_some_and(|e| e == "pt" || e == "safetensors") {
            run(&name, &file, on)?;
            println!("{name} on {on}");
        }
    }
    Ok(())
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match &args[..] {
        [kind, device, folder] if kind == "modules" => modules::run_all(device, Path::new(folder)),
        [device, folder] => run_all(device, Path::new(folder)),
        _ => Err(Error::value("architectures", "usage: architectures [modules] DEVICE FOLDER")),
    };
    if let Err(error) = result {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

//! Train in Python, run in Rust: reads a state dict that `torch.save` or `lucid.save` wrote, or a safetensors file.
//!
//! ```text
//! model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
//! …
//! lucid.save(model.state_dict(), "model.pt")
//! ```

use lucid::prelude::*;
use std::path::Path;

fn model(on: Device) -> Result<nn::Sequential> {
    Ok(nn::Sequential::new().add(nn::Linear::new(2, 8, on)?).add(nn::Relu::new()).add(nn::Linear::new(8, 1, on)?))
}

/// Runs the model of a file; without one, of a file that it writes first.
pub fn run(on: Device, file: Option<&str>) -> Result<()> {
    let own = std::env::temp_dir().join(format!("lucid-export-{}.safetensors", std::process::id()));
    let path = match file {
        Some(file) => Path::new(file),
        None => {
            model(on)?.save(&own)?;
            own.as_path()
        }
    };
    let mut model = model(on)?;
    let loaded = model.load(path);
    std::fs::remove_file(&own).ok();
    loaded?;
    model.eval();
    println!("{}", no_grad(|| model.forward(&tensor!([[1.0, 2.0]], on)?))?);
    Ok(())
}

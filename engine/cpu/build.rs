//! Links OpenBLAS where Accelerate is not, and gives this package's tests a run path to `libmlx` and OpenBLAS. The arguments go
//! on to the crate `lucid` as `DEP_LUCID_CPU_LINK_ARGS`. It never goes to the network.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    for name in ["OPENBLAS_DIR", "VIRTUAL_ENV"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    let mut args: Vec<String> = env::var("DEP_MLX_LINK_ARGS").unwrap_or_default().split(';').map(Into::into).collect();
    args.retain(|a| !a.is_empty());
    if env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os != "macos") {
        match find_openblas() {
            Ok(lib) => {
                println!("cargo:rustc-link-search=native={}", lib.display());
                println!("cargo:rustc-link-lib=dylib=scipy_openblas");
                println!("cargo:openblas={}", lib.display());
                args.push(format!("-Wl,-rpath,{}", lib.display()));
            }
            Err(message) => {
                eprintln!("\n{message}\n");
                println!("cargo:warning={message}");
                std::process::exit(1);
            }
        }
    }
    for arg in &args {
        println!("cargo:rustc-link-arg={arg}");
    }
    println!("cargo:link_args={}", args.join(";"));
}

/// The folder of `libscipy_openblas.so`: in `OPENBLAS_DIR`, in vendor/, or in the active virtual environment.
fn find_openblas() -> Result<PathBuf, String> {
    const FILE: &str = "libscipy_openblas.so";
    let named = env::var_os("OPENBLAS_DIR").map(PathBuf::from);
    let mut places: Vec<PathBuf> = named.iter().cloned().collect();
    if named.is_none() {
        places.push(Path::new(&env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../../vendor/openblas"));
        let venv = env::var_os("VIRTUAL_ENV").and_then(|v| fs::read_dir(Path::new(&v).join("lib")).ok());
        let pythons = venv.into_iter().flatten().flatten();
        places.extend(pythons.map(|p| p.path().join("site-packages/scipy_openblas32")));
    }
    let found = places.iter().map(|p| p.join("lib")).find(|p| p.join(FILE).exists());
    found.and_then(|p| p.canonicalize().ok()).ok_or_else(|| match named {
        Some(dir) => format!("OPENBLAS_DIR is {} but no lib/{FILE} lies there.", dir.display()),
        None => {
            "OpenBLAS not found: run `make vendor`, or set OPENBLAS_DIR to the folder with scipy-openblas32's lib/."
                .into()
        }
    })
}

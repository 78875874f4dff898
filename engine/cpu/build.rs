//! Links OpenBLAS where Accelerate is not, and gives this package's tests a run path to `libmlx` and OpenBLAS. The arguments go
//! on to the crate `lucid` as `DEP_LUCID_CPU_LINK_ARGS`. It never goes to the network.
//!
//! Sets `cfg(accelerate)` on macOS, and elsewhere with the feature `accelerate-stand-in`: then it compiles tools/accelerate, which
//! has Accelerate's functions over OpenBLAS and libm, so that what is compiled for Apple computes here (docs/macos.md).

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    for name in ["OPENBLAS_DIR", "VIRTUAL_ENV", "DOCS_RS"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-check-cfg=cfg(accelerate)");
    let mac = env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "macos");
    let stands_in = !mac && env::var_os("CARGO_FEATURE_ACCELERATE_STAND_IN").is_some();
    if mac || stands_in {
        println!("cargo:rustc-cfg=accelerate");
    }
    let mut args: Vec<String> = env::var("DEP_MLX_LINK_ARGS").unwrap_or_default().split(';').map(Into::into).collect();
    args.retain(|a| !a.is_empty());
    // docs.rs has no OpenBLAS, and links nothing.
    if !mac && env::var_os("DOCS_RS").is_none() {
        match find_openblas().and_then(|lib| if stands_in { stand_in(&lib, &mut args).map(|()| lib) } else { Ok(lib) })
        {
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

/// Compiles and links what stands in for Accelerate, over the OpenBLAS in `openblas`.
fn stand_in(openblas: &Path, args: &mut Vec<String>) -> Result<(), String> {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let source = here.join("../../tools/accelerate/accelerate.c");
    println!("cargo:rerun-if-changed={}", source.display());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    // As the crate `cc` looks for it: CC of the target first, since the target may be another machine (make arm64-test).
    let of_target = format!("CC_{}", env::var("TARGET").unwrap_or_default().replace('-', "_"));
    for name in [of_target.as_str(), "CC"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    let compiler = env::var(&of_target).or_else(|_| env::var("CC")).unwrap_or_else(|_| "cc".into());
    let status = Command::new(&compiler)
        .args(["-std=gnu11", "-O2", "-fPIC", "-ffp-contract=off", "-shared"])
        .arg(&source)
        .arg("-o")
        .arg(out.join("libaccelerate_stand_in.so"))
        .arg(format!("-L{}", openblas.display()))
        .args(["-lscipy_openblas", "-lm"])
        .arg(format!("-Wl,-rpath,{}", openblas.display()))
        .status();
    if !status.as_ref().is_ok_and(|s| s.success()) {
        return Err(format!("{compiler} does not compile {}: {status:?}", source.display()));
    }
    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rustc-link-lib=dylib=accelerate_stand_in");
    args.push(format!("-Wl,-rpath,{}", out.display()));
    Ok(())
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
        Some(dir) => format!("OPENBLAS_DIR is {} but there is no lib/{FILE}.", dir.display()),
        None => {
            "OpenBLAS not found: run `make vendor`, or set OPENBLAS_DIR to the folder with scipy-openblas32's lib/."
                .into()
        }
    })
}

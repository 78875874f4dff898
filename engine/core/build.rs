//! Gives this package's tests a run path to `libmlx`, and its examples, which use the crate `lucid`, one to OpenBLAS too.

use std::env;
use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=OPENBLAS_DIR");
    for arg in env::var("DEP_MLX_LINK_ARGS").unwrap_or_default().split(';').filter(|a| !a.is_empty()) {
        println!("cargo:rustc-link-arg={arg}");
    }
    if env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os != "macos") {
        let fetched = Path::new(&env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../../vendor/openblas");
        let openblas = env::var_os("OPENBLAS_DIR").map_or(fetched, Into::into).join("lib");
        println!("cargo:rustc-link-arg=-Wl,-rpath,{}", openblas.display());
    }
}

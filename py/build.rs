//! Gives the extension its run path. Installed, it finds MLX and OpenBLAS as their wheels are beside it in
//! site-packages; built for development (without the feature `portable`), also where the engine was linked to them.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    pyo3_build_config::add_extension_module_link_args();
    let on_macos = env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "macos");
    let (origin, parts) =
        if on_macos { ("@loader_path", &["mlx"][..]) } else { ("$ORIGIN", &["mlx", "scipy_openblas32"][..]) };
    for part in parts {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{origin}/../{part}/lib");
    }
    let portable = env::var_os("CARGO_FEATURE_PORTABLE").is_some();
    for arg in env::var("DEP_LUCID_LINK_ARGS").unwrap_or_default().split(';').filter(|a| !a.is_empty()) {
        if !(portable && arg.starts_with("-Wl,-rpath,")) {
            println!("cargo:rustc-link-arg={arg}");
        }
    }
}

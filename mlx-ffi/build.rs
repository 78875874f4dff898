//! Builds the native half of this crate: compiles mlx-c's C++ and our own shim against MLX's headers, generates the
//! raw bindings, and says how to link and find `libmlx`. It never goes to the network: what is missing, or of another
//! version, ends the build with one sentence that says what to do.
//!
//! Without the feature `gpu`, and on docs.rs, the bindings are functions of Rust that fail, so that no MLX is needed.

mod declarations;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[cfg(feature = "gpu")]
const MLX_VERSION: &str = "0.32.2";
const MLX_C_PACKAGE: &str = "mlx-sys-0.6.0";

type Outcome<T> = Result<T, String>;

fn main() {
    if let Err(message) = run() {
        eprintln!("\n{message}\n");
        println!("cargo:warning={message}");
        std::process::exit(1);
    }
}

fn run() -> Outcome<()> {
    for name in ["MLX_DIR", "MLX_C_DIR", "LIBCLANG_PATH", "VIRTUAL_ENV", "CXX", "CC", "LUCID_BUILD_MODE", "DOCS_RS"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=declarations.rs");
    println!("cargo:rerun-if-changed=cpp");
    // What MLX's own wheel needs. Told to the C++ compiler, whose library offers old systems less than MLX's headers use.
    if on_macos() && env::var_os("MACOSX_DEPLOYMENT_TARGET").is_none() {
        // SAFETY: a build script of one thread.
        unsafe { env::set_var("MACOSX_DEPLOYMENT_TARGET", "14.0") };
    }
    let out = PathBuf::from(env::var("OUT_DIR").map_err(|e| e.to_string())?);
    let mlx_c = find_mlx_c()?;
    let write =
        |text: &str| fs::write(out.join("bindings.rs"), text).map_err(|e| format!("cannot write the bindings: {e}"));
    #[cfg(feature = "gpu")]
    if env::var_os("DOCS_RS").is_none() {
        let bindings = bind(&mlx_c)?;
        let mlx = find_mlx()?;
        compile(&mlx, &mlx_c, &out)?;
        write(&bindings)?;
        link(&mlx);
        return Ok(());
    }
    write(&declarations::stand_ins(&mlx_c.join("mlx/c"), &crate_dir().join("cpp/shim.h"))?)
}

fn crate_dir() -> PathBuf {
    PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default())
}

#[cfg(feature = "gpu")]
fn vendor_dir() -> PathBuf {
    crate_dir().join("../vendor")
}

fn on_macos() -> bool {
    env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "macos")
}

#[cfg(feature = "gpu")]
/// The `site-packages` folders of the active virtual environment.
fn site_packages() -> Vec<PathBuf> {
    let Some(venv) = env::var_os("VIRTUAL_ENV") else { return Vec::new() };
    let Ok(entries) = fs::read_dir(Path::new(&venv).join("lib")) else { return Vec::new() };
    entries.flatten().map(|e| e.path().join("site-packages")).filter(|p| p.is_dir()).collect()
}

#[cfg(feature = "gpu")]
/// The version that the headers under `root` state, if `root` holds MLX at all.
fn mlx_version(root: &Path) -> Option<String> {
    let header = fs::read_to_string(root.join("include/mlx/version.h")).ok()?;
    let field = |name: &str| {
        let line = header.lines().find(|l| l.starts_with("#define") && l.contains(name))?;
        line.split_whitespace().nth(2).map(str::to_owned)
    };
    Some(format!("{}.{}.{}", field("VERSION_MAJOR")?, field("VERSION_MINOR")?, field("VERSION_PATCH")?))
}

#[cfg(feature = "gpu")]
/// The folder that holds MLX's `include/` and `lib/`.
fn find_mlx() -> Outcome<PathBuf> {
    let library = if on_macos() { "lib/libmlx.dylib" } else { "lib/libmlx.so" };
    let named = env::var_os("MLX_DIR").map(PathBuf::from);
    let mut places: Vec<PathBuf> = named.iter().cloned().collect();
    if named.is_none() {
        places.push(vendor_dir().join("mlx"));
        places.extend(site_packages().into_iter().map(|p| p.join("mlx")));
    }
    if let Some(place) = places.iter().find(|p| p.join(library).exists()) {
        let place = place.canonicalize().map_err(|e| format!("cannot read {}: {e}", place.display()))?;
        if on_macos() && !place.join("lib/mlx.metallib").exists() {
            return Err(format!(
                "{} has no lib/mlx.metallib, the GPU's code, which MLX looks for beside libmlx.dylib: run `make vendor`.",
                place.display()
            ));
        }
        return match mlx_version(&place) {
            Some(version) if version == MLX_VERSION => {
                println!("cargo:rerun-if-changed={}", place.join("include/mlx/version.h").display());
                Ok(place)
            }
            Some(version) => Err(format!(
                "MLX {MLX_VERSION} is needed but {} holds {version}: run `make vendor`, or set MLX_DIR to the folder \
                 with its include/ and lib/.",
                place.display()
            )),
            None => Err(format!(
                "{} holds {library} but no include/mlx/version.h: set MLX_DIR to a folder with MLX {MLX_VERSION}'s \
                 include/ and lib/, or run `make vendor`.",
                place.display()
            )),
        };
    }
    Err(match named {
        Some(dir) => {
            format!("MLX_DIR is {} but there is no {library} in it: point it at MLX {MLX_VERSION}.", dir.display())
        }
        None => format!(
            "MLX {MLX_VERSION} not found: run `make vendor`, or set MLX_DIR to the folder with its include/ and lib/."
        ),
    })
}

/// The folder of mlx-c's source: `MLX_C_DIR`, or inside the package that Cargo.lock pins.
fn find_mlx_c() -> Outcome<PathBuf> {
    if let Some(dir) = env::var_os("MLX_C_DIR").map(PathBuf::from) {
        return if dir.join("mlx/c/ops.h").exists() {
            Ok(dir)
        } else {
            Err(format!("MLX_C_DIR is {} but there is no mlx/c/ops.h in it.", dir.display()))
        };
    }
    let package = package_from_metadata().or_else(package_from_registry);
    package.map(|p| p.join("src/mlx-c")).filter(|p| p.join("mlx/c/ops.h").exists()).ok_or_else(|| {
        format!("mlx-c's source (package {MLX_C_PACKAGE}) not found: run `cargo fetch` once, or set MLX_C_DIR.")
    })
}

/// Asks cargo, offline, where the package is.
fn package_from_metadata() -> Option<PathBuf> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--frozen", "--manifest-path"])
        .arg(crate_dir().join("Cargo.toml"))
        .stderr(Stdio::null())
        .output()
        .ok()
        .filter(|o| o.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    // A JSON string that ends so: the path needs no unescaping beyond backslashes, which no Unix path here has.
    let end = text.find(&format!("{MLX_C_PACKAGE}/Cargo.toml\""))?;
    let start = text[..end].rfind('"')? + 1;
    Some(PathBuf::from(&text[start..end + MLX_C_PACKAGE.len()]))
}

/// Looks where cargo unpacks its packages; serves when the lock file cannot be used as it is.
fn package_from_registry() -> Option<PathBuf> {
    let home = env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|h| Path::new(&h).join(".cargo")))?;
    let registries = fs::read_dir(home.join("registry/src")).ok()?;
    registries.flatten().map(|r| r.path().join(MLX_C_PACKAGE)).find(|p| p.is_dir())
}

#[cfg(feature = "gpu")]
/// What `LUCID_BUILD_MODE` names: how the C++ here is compiled. `tools/sanitize.py` sets it beside Rust's own flags.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Release,
    Debug,
    Asan,
    Ubsan,
}

#[cfg(feature = "gpu")]
impl Mode {
    fn named(name: &str) -> Outcome<Mode> {
        match name {
            "" | "release" => Ok(Mode::Release),
            "debug" => Ok(Mode::Debug),
            "debug-asan" => Ok(Mode::Asan),
            "debug-ubsan" => Ok(Mode::Ubsan),
            _ => Err(format!(
                "LUCID_BUILD_MODE is {name:?}: set it to release, debug, debug-asan or debug-ubsan, or to nothing."
            )),
        }
    }

    fn compile(self, build: &mut cc::Build) {
        if self == Mode::Release {
            build.opt_level(2).debug(false);
            return;
        }
        build.opt_level(1).debug(true).flag("-fno-omit-frame-pointer");
        match self {
            Mode::Release | Mode::Debug => {}
            Mode::Asan => {
                build.flag("-fsanitize=address");
                // Where rustc sanitizes too, it links the runtime, which is the same for both compilers.
                if !env::var("CARGO_CFG_SANITIZE").is_ok_and(|s| s.contains("address")) {
                    println!("cargo:rustc-link-lib=dylib=asan");
                }
            }
            Mode::Ubsan => {
                // libmlx is not sanitized and hides the type information that the check of vtables reads.
                build.flag("-fsanitize=undefined").flag("-fno-sanitize=vptr").flag("-fno-sanitize-recover=all");
                println!("cargo:rustc-link-lib=dylib=ubsan");
            }
        }
    }
}

#[cfg(feature = "gpu")]
/// Compiles mlx-c (less its error.cpp, which `cpp/error.cpp` replaces) and our shim into one static library.
fn compile(mlx: &Path, mlx_c: &Path, out: &Path) -> Outcome<()> {
    let folder = mlx_c.join("mlx/c");
    let entries = fs::read_dir(&folder).map_err(|e| format!("cannot read {}: {e}", folder.display()))?;
    let mut sources: Vec<String> = entries
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .filter(|n| n.ends_with(".cpp") && n != "error.cpp")
        .collect();
    sources.sort();
    // MLX's headers cost four seconds per file and the code itself little, so the files are joined in two units, one per
    // core: 18 s of compiler time in all where file by file takes 150.
    let (large, rest): (Vec<_>, Vec<_>) = sources.into_iter().partition(|n| n == "ops.cpp" || n == "fast.cpp");
    let mode = Mode::named(&env::var("LUCID_BUILD_MODE").unwrap_or_default())?;
    let mut build = cc::Build::new();
    build.cpp(true).std("gnu++20").warnings(false).pic(true);
    mode.compile(&mut build);
    build.include(mlx_c).include(mlx.join("include")).include(crate_dir().join("cpp"));
    if on_macos() {
        build.include(mlx.join("include/metal_cpp"));
    }
    for (name, files) in [("unit_ops.cpp", &large), ("unit_rest.cpp", &rest)] {
        let text: String = files.iter().map(|f| format!("#include \"mlx/c/{f}\"\n")).collect();
        let path = out.join(name);
        if fs::read_to_string(&path).ok().as_deref() != Some(&text) {
            fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        }
        build.file(path);
    }
    build
        .file("cpp/error.cpp")
        .file("cpp/cuda.cpp")
        .file("cpp/distributed.cpp")
        .file("cpp/driver.cpp")
        .file("cpp/nccl.cpp")
        .file("cpp/process.cpp")
        .file("cpp/shim.cpp")
        .file("cpp/transfer.cpp");
    build.try_compile("mlxc").map_err(|e| {
        format!(
            "mlx-c does not compile: {e}; a C++20 compiler is needed (GCC 12, clang 15 or newer; set CXX to name one)."
        )
    })
}

#[cfg(feature = "gpu")]
/// The raw bindings over mlx-c's headers and our shim's.
fn bind(mlx_c: &Path) -> Outcome<String> {
    if env::var_os("LIBCLANG_PATH").is_none() {
        let file = if cfg!(target_os = "macos") { "libclang.dylib" } else { "libclang.so" };
        let mut places = vec![vendor_dir().join("libclang")];
        places.extend(site_packages().into_iter().map(|p| p.join("clang/native")));
        // None of them: bindgen looks for a system's libclang by itself.
        if let Some(place) = places.iter().find(|p| p.join(file).exists()) {
            // SAFETY: a build script of one thread.
            unsafe { env::set_var("LIBCLANG_PATH", place) };
        }
    }
    let mut builder = bindgen::Builder::default()
        .header("cpp/shim.h")
        .rust_edition(bindgen::RustEdition::Edition2024)
        .clang_arg(format!("-I{}", mlx_c.display()))
        .allowlist_item("_?(mlx|MLX|lucid)_.*")
        // FILE, and the platform's half types, are not needed: the shim has what replaces them.
        .blocklist_item("mlx_(export_to_dot|print_graph)|.*_b?float16|mlx_(io|load|save).*")
        .layout_tests(false)
        .generate_comments(false)
        .merge_extern_blocks(true)
        .prepend_enum_name(false);
    // PyPI's libclang brings no compiler headers (stddef.h, stdbool.h, …): lend it the C compiler's.
    if let Some(dir) = compiler_include() {
        builder = builder.clang_arg("-isystem").clang_arg(dir);
    }
    // Nor does it know where Xcode keeps the system's headers.
    if let Some(sdk) = macos_sdk() {
        builder = builder.clang_arg("-isysroot").clang_arg(sdk);
    }
    let bindings = builder.generate().map_err(|e| {
        format!(
            "bindgen failed: {e}; it needs libclang: run `make vendor`, or set LIBCLANG_PATH to the folder with it."
        )
    })?;
    Ok(bindings.to_string())
}

#[cfg(feature = "gpu")]
/// On a Mac, the folder of the system's headers.
fn macos_sdk() -> Option<String> {
    if !cfg!(target_os = "macos") || env::var_os("SDKROOT").is_some() {
        return None;
    }
    let output = Command::new("xcrun").args(["--sdk", "macosx", "--show-sdk-path"]).output().ok()?;
    let dir = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    Path::new(&dir).is_dir().then_some(dir)
}

#[cfg(feature = "gpu")]
fn compiler_include() -> Option<String> {
    let tool = cc::Build::new().cargo_metadata(false).try_get_compiler().ok()?;
    let output = tool.to_command().arg("-print-file-name=include").output().ok()?;
    let dir = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    Path::new(&dir).is_dir().then_some(dir)
}

#[cfg(feature = "gpu")]
/// Says how to link `libmlx`, and hands our dependents' build scripts what they need to set a run path.
fn link(mlx: &Path) {
    let lib = mlx.join("lib");
    println!("cargo:rustc-link-search=native={}", lib.display());
    println!("cargo:rustc-link-lib=dylib=mlx");
    let mut args = vec![format!("-Wl,-rpath,{}", lib.display())];
    if !on_macos() {
        // Folders such as mlx_cpu.libs beside MLX hold what libmlx itself links to; only the linker asks for them,
        // at run time libmlx finds them by its own relative run path.
        let beside = mlx.parent().and_then(|p| fs::read_dir(p).ok());
        let beside = beside.into_iter().flatten().flatten().map(|e| e.path());
        for dir in beside.filter(|p| p.extension().is_some_and(|e| e == "libs") && p.is_dir()) {
            args.push(format!("-Wl,-rpath-link,{}", dir.display()));
        }
    }
    for arg in &args {
        println!("cargo:rustc-link-arg={arg}");
    }
    println!("cargo:root={}", mlx.display());
    println!("cargo:include={}", mlx.join("include").display());
    println!("cargo:lib={}", lib.display());
    println!("cargo:version={MLX_VERSION}");
    println!("cargo:link_args={}", args.join(";"));
}

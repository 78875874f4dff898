//! Kernels in CUDA's language that are compiled here: without MLX's headers, which are most of the time that compiling takes,
//! and to an image that can be kept. Depends on the shim, which asks the compiler that MLX has loaded. Invariant: without
//! that compiler every call is an error.

use std::ffi::CString;
use std::ptr;

use crate::call::c_text;
use crate::error::check;
use crate::fast::Launch;
use crate::primitive::raw_outputs;
use crate::{counters, eval, stream, sys, Array, Result};

/// The version of CUDA's compiler as 1000 times the major number and the minor one; `None` where MLX has not loaded it.
pub fn compiler_version() -> Option<u32> {
    // SAFETY: no arguments.
    u32::try_from(unsafe { sys::lucid_nvrtc_version() }).ok().filter(|&v| v > 0)
}

/// Compiles a text, whose functions are `extern "C"`, for GPUs of this capability (90 of Hopper's) and gives the image.
/// `name` is what messages call it.
pub fn compile(source: &str, name: &str, capability: u32) -> Result<Vec<u8>> {
    struct Image(sys::lucid_image);
    impl Drop for Image {
        fn drop(&mut self) {
            // SAFETY: null, or what the shim made, freed once.
            unsafe { sys::lucid_image_free(self.0) }
        }
    }
    let (source, name) = (c_text(source)?, c_text(name)?);
    let mut image = Image(sys::lucid_image { ctx: ptr::null_mut(), data: ptr::null(), size: 0 });
    let capability = i32::try_from(capability).unwrap_or_default();
    // SAFETY: terminated strings and an out-parameter.
    check(unsafe { sys::lucid_nvrtc_compile(&mut image.0, source.as_ptr(), name.as_ptr(), capability) })?;
    // SAFETY: the shim gave as many bytes, which live as long as the image.
    Ok(unsafe { std::slice::from_raw_parts(image.0.data.cast::<u8>(), image.0.size) }.to_vec())
}

/// A compiled kernel.
#[derive(Debug)]
pub struct CompiledKernel {
    name: CString,
    image: Vec<u8>,
}

impl CompiledKernel {
    /// The function of this name in an image that [`compile`] made. MLX tells kernels apart by their names alone.
    pub fn new(name: &str, image: Vec<u8>) -> Result<CompiledKernel> {
        Ok(CompiledKernel { name: c_text(name)?, image })
    }

    /// Records a launch and returns its outputs. Inputs that are not row-major are copied. No template, and no value that
    /// outputs are filled with first.
    ///
    /// # Safety
    /// The image must be what [`compile`] made of a text with a function of this name, whose parameters are pointers to the
    /// inputs' elements and then to the outputs'. Launched so over arrays of these sizes it must read and write no element
    /// outside of them.
    pub unsafe fn launch(&self, inputs: &[&Array], launch: &Launch<'_>) -> Result<Vec<Array>> {
        let stream = stream::stream()?;
        counters::count_op();
        if launch.outputs.len() > 1 {
            eval::expect_siblings();
        }
        let inputs: Vec<sys::mlx_array> = inputs.iter().map(|a| a.raw()).collect();
        let outputs = raw_outputs(launch.outputs);
        // SAFETY: valid handles, live slices and strings, and as many null out-parameters as there are outputs.
        Array::build_all(outputs.len(), |made| unsafe {
            sys::lucid_cuda_launch(
                made,
                outputs.as_ptr(),
                outputs.len(),
                self.name.as_ptr(),
                self.image.as_ptr().cast(),
                self.image.len(),
                inputs.as_ptr(),
                inputs.len(),
                launch.grid.as_ptr(),
                launch.thread_group.as_ptr(),
                stream,
            )
        })
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn without_a_compiler_all_is_an_error() {
        if super::compiler_version().is_none() {
            let failed = super::compile("extern \"C\" __global__ void f() {}", "f", 90);
            assert!(failed.unwrap_err().to_string().contains("NVRTC"));
        }
    }
}

//! MLX's fused operations, and kernels written in Metal's or CUDA's language. Depends on the wrapping macro and the
//! vector owners. Invariant: a kernel's handles are freed with it.

use std::os::raw::c_int;

use crate::call::{c_text, wrap};
use crate::error::{self, check, Error, Result};
use crate::vector::{Arrays, Texts};
use crate::{counters, device, eval, stream, sys, Array, Dtype};

wrap! {
    layer_norm = mlx_fast_layer_norm(x: arr, weight: opt, bias: opt, eps: f32) on siblings;
    rms_norm = mlx_fast_rms_norm(x: arr, weight: opt, eps: f32) on siblings;
    cross_entropy = mlx_fast_cross_entropy(logits: arr, targets: arr) on siblings;
    /// With `base` absent, `freqs` gives the frequencies.
    rope = mlx_fast_rope(x: arr, dims: int, traditional: flag, base: oflt, scale: f32, offset: int, freqs: opt) on siblings;
    /// As `rope`, the offset being an array.
    rope_dynamic = mlx_fast_rope_dynamic(x: arr, dims: int, traditional: flag, base: oflt, scale: f32, offset: arr, freqs: opt) on siblings;
    /// `mask_mode` is `""`, `"causal"` or `"array"`, the last with `mask_arr`.
    scaled_dot_product_attention = mlx_fast_scaled_dot_product_attention(queries: arr, keys: arr, values: arr, scale: f32, mask_mode: text, mask_arr: opt, sinks: opt, force_fused: flag) on siblings;
}

/// A value for a template parameter of a kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TemplateArg {
    /// An element type.
    Dtype(Dtype),
    /// An integer.
    Int(i32),
    /// A boolean.
    Bool(bool),
}

/// What one launch of a kernel needs to know.
#[derive(Debug, Clone)]
pub struct Launch<'a> {
    /// Shape and dtype of each output.
    pub outputs: &'a [(&'a [i32], Dtype)],
    /// The number of threads in each direction.
    pub grid: [i32; 3],
    /// The number of threads of one group, or block.
    pub thread_group: [i32; 3],
    /// The kernel's template parameters.
    pub template: &'a [(&'a str, TemplateArg)],
    /// What outputs are filled with first, if with anything.
    pub init_value: Option<f32>,
    /// Whether MLX prints the generated source.
    pub verbose: bool,
}

/// What a kernel is made from: names of inputs and outputs, and the body of its function.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The kernel's name.
    pub name: &'a str,
    /// Names of the inputs in the body.
    pub inputs: &'a [&'a str],
    /// Names of the outputs in the body.
    pub outputs: &'a [&'a str],
    /// The body.
    pub body: &'a str,
    /// What precedes the function: includes and helpers.
    pub header: &'a str,
    /// Whether inputs are copied to row-major memory if they are not so.
    pub ensure_row_contiguous: bool,
}

macro_rules! kernels {
    ($(#[$doc:meta])* $name:ident, $kind:ident, $extra:ident: $extra_type:ty, $extra_doc:literal,
     $raw:ident, $config:ident, $new:ident, $free:ident, $apply:ident,
     $config_new:ident, $config_free:ident, $output:ident, $grid:ident, $group:ident, $init:ident, $verbose:ident,
     $t_dtype:ident, $t_int:ident, $t_bool:ident) => {
        $(#[$doc])*
        pub struct $name(sys::$raw);

        // SAFETY: MLX does not change a kernel after it was made; a launch copies what it needs of it.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}

        impl $name {
            /// Makes the kernel; it is compiled at its first launch.
            #[doc = $extra_doc]
            pub fn new(source: Source<'_>, $extra: $extra_type) -> Result<Self> {
                if device::kind()? != device::Kind::$kind {
                    return Err(Error::Mlx(format!("kernel {}: MLX has no {} device here", source.name, stringify!($kind))));
                }
                let (inputs, outputs) = (Texts::new(source.inputs)?, Texts::new(source.outputs)?);
                let (name, body, header) = (c_text(source.name)?, c_text(source.body)?, c_text(source.header)?);
                // SAFETY: valid handles and terminated strings, all of which MLX copies.
                let raw = unsafe {
                    sys::$new(
                        name.as_ptr(),
                        inputs.raw(),
                        outputs.raw(),
                        body.as_ptr(),
                        header.as_ptr(),
                        source.ensure_row_contiguous,
                        $extra,
                    )
                };
                if raw.ctx.is_null() {
                    return Err(error::take());
                }
                Ok($name(raw))
            }

            /// Records a launch and returns its outputs.
            ///
            /// # Safety
            /// The kernel's source must be valid in its language and, launched so over arrays of these sizes, read and write no
            /// element outside of them.
            pub unsafe fn launch(&self, inputs: &[&Array], launch: &Launch<'_>) -> Result<Vec<Array>> {
                struct Config(sys::$config);
                impl Drop for Config {
                    fn drop(&mut self) {
                        // SAFETY: owned, freed once.
                        unsafe { sys::$config_free(self.0) }
                    }
                }
                let stream = stream::stream()?;
                counters::count_op();
                if launch.outputs.len() > 1 {
                    eval::expect_siblings();
                }
                // SAFETY: no arguments.
                let config = Config(unsafe { sys::$config_new() });
                if config.0.ctx.is_null() {
                    return Err(error::take());
                }
                let ([g0, g1, g2], [t0, t1, t2]) = (launch.grid, launch.thread_group);
                // SAFETY: a valid handle, live slices, terminated strings, which MLX copies.
                unsafe {
                    for (shape, dtype) in launch.outputs {
                        check(sys::$output(config.0, shape.as_ptr(), shape.len(), dtype.raw()))?;
                    }
                    check(sys::$grid(config.0, g0, g1, g2))?;
                    check(sys::$group(config.0, t0, t1, t2))?;
                    if let Some(value) = launch.init_value {
                        check(sys::$init(config.0, value))?;
                    }
                    check(sys::$verbose(config.0, launch.verbose))?;
                    for (name, value) in launch.template {
                        let name = c_text(name)?;
                        let status: c_int = match *value {
                            TemplateArg::Dtype(v) => sys::$t_dtype(config.0, name.as_ptr(), v.raw()),
                            TemplateArg::Int(v) => sys::$t_int(config.0, name.as_ptr(), v),
                            TemplateArg::Bool(v) => sys::$t_bool(config.0, name.as_ptr(), v),
                        };
                        check(status)?;
                    }
                }
                let inputs = Arrays::from_refs(inputs)?;
                let mut out = Arrays::new();
                // SAFETY: valid handles and a null out-parameter for MLX to fill.
                check(unsafe { sys::$apply(out.out(), self.0, inputs.raw(), config.0, stream) })?;
                out.to_vec()
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: owned, freed once.
                unsafe { sys::$free(self.0) };
            }
        }
    };
}

kernels! {
    /// A kernel in Metal's language. Where MLX has no Metal, making one is an error.
    MetalKernel, Metal, atomic_outputs: bool, "With `atomic_outputs` the outputs are of atomic type in the body.",
    mlx_fast_metal_kernel, mlx_fast_metal_kernel_config, mlx_fast_metal_kernel_new, mlx_fast_metal_kernel_free,
    mlx_fast_metal_kernel_apply, mlx_fast_metal_kernel_config_new, mlx_fast_metal_kernel_config_free,
    mlx_fast_metal_kernel_config_add_output_arg, mlx_fast_metal_kernel_config_set_grid,
    mlx_fast_metal_kernel_config_set_thread_group, mlx_fast_metal_kernel_config_set_init_value,
    mlx_fast_metal_kernel_config_set_verbose, mlx_fast_metal_kernel_config_add_template_arg_dtype,
    mlx_fast_metal_kernel_config_add_template_arg_int, mlx_fast_metal_kernel_config_add_template_arg_bool
}

kernels! {
    /// A kernel in CUDA's language. Where MLX has no CUDA, making one is an error.
    CudaKernel, Cuda, shared_memory: i32, "`shared_memory` is the size in bytes of a block's dynamic shared memory.",
    mlx_fast_cuda_kernel, mlx_fast_cuda_kernel_config, mlx_fast_cuda_kernel_new, mlx_fast_cuda_kernel_free,
    mlx_fast_cuda_kernel_apply, mlx_fast_cuda_kernel_config_new, mlx_fast_cuda_kernel_config_free,
    mlx_fast_cuda_kernel_config_add_output_arg, mlx_fast_cuda_kernel_config_set_grid,
    mlx_fast_cuda_kernel_config_set_thread_group, mlx_fast_cuda_kernel_config_set_init_value,
    mlx_fast_cuda_kernel_config_set_verbose, mlx_fast_cuda_kernel_config_add_template_arg_dtype,
    mlx_fast_cuda_kernel_config_add_template_arg_int, mlx_fast_cuda_kernel_config_add_template_arg_bool
}

// MLX's head of CUDA kernels names this; none of our kernels uses it.
#pragma once
namespace cooperative_groups {}

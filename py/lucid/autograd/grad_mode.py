"""PyTorch's place for the grad modes."""

from lucid._grad_mode import enable_grad as enable_grad
from lucid._grad_mode import enforce_grad_layout_policy as enforce_grad_layout_policy
from lucid._grad_mode import inference_mode as inference_mode
from lucid._grad_mode import no_grad as no_grad
from lucid._grad_mode import set_grad_enabled as set_grad_enabled
from lucid._grad_mode import set_multithreading_enabled as set_multithreading_enabled

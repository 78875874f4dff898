"""Tensor parallelism: the columns of one layer and the rows of the next are split over the processes.

python -m lucid.distributed.run --nproc-per-node 2 examples/distributed/tensor_parallel.py
"""

from __future__ import annotations

import common
import lucid.distributed as dist
from lucid.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

if __name__ == "__main__":
    args = common.arguments(__doc__)
    dist.init_process_group()
    mesh = dist.init_device_mesh(args.device, (dist.get_world_size(),))
    net = common.network().to(args.device)
    parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    loss = common.train(net, common.optimizer(net.parameters()), args, lambda t: t)
    common.compare("tensor parallel", loss, args)

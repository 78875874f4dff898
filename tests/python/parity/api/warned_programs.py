"""Programs that PyTorch warns of, and some beside them that it does not: one in each line, then those of several.

They have the names `torch` (a framework), `nn`, `F`, `np`, `io`, and `RO`, an array that cannot be written to.
"""

from __future__ import annotations

_LINES = """
torch.meshgrid(torch.arange(2), torch.arange(3))
torch.ones(2, 3, 4).T
torch.ones(2).T
torch.tensor(1.0).T
torch.tensor(1.0).H
torch.tensor(1.0).mT
torch.tensor(1.0).mH
torch.tensor(1.0).adjoint()
torch.adjoint(torch.tensor(1.0))
torch.cross(torch.ones(3), torch.ones(3))
torch.ones(3).cross(torch.ones(3))
torch.ones(2, dtype=torch.complex64).to(torch.float32)
torch.ones(2, dtype=torch.complex64).float()
torch.ones(2, dtype=torch.complex64).int()
torch.ones(2, dtype=torch.complex64).type(torch.float32)
torch.ones(2, dtype=torch.complex64).type_as(torch.ones(1))
torch.ones(2).copy_(torch.ones(2, dtype=torch.complex64))
torch.ones(2)[:] = torch.ones(2, dtype=torch.complex64)
torch.ones(2)[0] = torch.tensor(1j)
torch.tensor(torch.ones(2, dtype=torch.complex64), dtype=torch.float32)
torch.as_tensor(torch.ones(2, dtype=torch.complex64), dtype=torch.float32)
torch.ones(2, dtype=torch.complex64).sum(dtype=torch.float32)
torch.ones(2, dtype=torch.complex64).mean(dtype=torch.float32)
torch.ones(2, dtype=torch.complex64).prod(dtype=torch.float32)
torch.ones(2, dtype=torch.complex64).cumsum(0, dtype=torch.float32)
torch.tensor(torch.ones(2))
torch.tensor([torch.ones(1, requires_grad=True)])
float(torch.ones(1, requires_grad=True))
torch.ones(2).new_tensor(torch.ones(2))
torch.asarray(torch.ones(2, requires_grad=True))
torch.asarray(torch.ones(2, requires_grad=True), dtype=torch.float64)
torch.asarray(torch.ones(2, requires_grad=True), copy=True)
torch.std(torch.ones(1))
torch.var(torch.ones(1))
torch.ones(1).std()
torch.ones(1).var()
torch.ones(2, 1).std(1)
torch.ones(0, 2).var(0)
torch.ones(2, 0).var(0)
torch.ones(0).var()
torch.ones(3).var(correction=3)
torch.ones(3).var(correction=4)
torch.std_mean(torch.ones(1))
torch.var_mean(torch.ones(1))
torch.var_mean(torch.ones(2, 1), 1)
torch.std_mean(torch.ones(2, 1), dim=1)
torch.var(torch.tensor(1.0))
torch.cov(torch.ones(2, 1))
torch.cov(torch.ones(1))
torch.cov(torch.ones(2, 2), correction=2)
torch.corrcoef(torch.ones(2, 1))
torch.ones(2).masked_scatter(torch.tensor([1, 0], dtype=torch.uint8), torch.ones(2))
torch.ones(2).masked_scatter_(torch.tensor([1, 0], dtype=torch.uint8), torch.ones(2))
torch.ones(2)[torch.tensor([1, 0], dtype=torch.uint8)]
torch.ones(2, 2)[torch.tensor([1, 0], dtype=torch.uint8), 0]
torch.ones(2)[[torch.tensor([1, 0], dtype=torch.uint8)]]
torch.ones(2, 2)[[0, slice(None)]]
torch.ones(2, 2)[[[0, 1], [0, 1]]]
torch.ones(2, 2)[[torch.tensor([0]), torch.tensor([1])]]
torch.ones(2, 2)[[0, None]]
torch.where(torch.tensor([1, 0], dtype=torch.uint8), torch.ones(2), torch.zeros(2))
torch.where(torch.tensor([1, 0], dtype=torch.uint8), 1.0, 2.0)
torch.ones(2).where(torch.tensor([1, 0], dtype=torch.uint8), torch.zeros(2))
torch.add(torch.ones(2), 1, out=torch.ones(3))
torch.sum(torch.ones(2, 2), 0, out=torch.ones(3))
torch.matmul(torch.ones(2, 2), torch.ones(2, 2), out=torch.ones(3))
torch.mm(torch.ones(2, 2), torch.ones(2, 2), out=torch.ones(3))
torch.max(torch.ones(2, 2), 0, out=(torch.ones(3), torch.ones(3, dtype=torch.int64)))
torch.sort(torch.ones(2, 2), 0, out=(torch.ones(3), torch.ones(3, dtype=torch.int64)))
torch.cat([torch.ones(2)], out=torch.ones(3))
torch.stack([torch.ones(2)], out=torch.ones(3))
torch.arange(4, out=torch.ones(3))
torch.range(0, 1, out=torch.ones(3))
torch.nonzero(torch.ones(2), out=torch.ones(3, dtype=torch.int64))
torch.gather(torch.ones(2), 0, torch.tensor([0]), out=torch.ones(3))
torch.index_select(torch.ones(2), 0, torch.tensor([0]), out=torch.ones(3))
torch.masked_select(torch.ones(2), torch.tensor([True, False]), out=torch.ones(3))
torch.svd(torch.ones(2, 2), out=(torch.ones(3), torch.ones(2), torch.ones(2, 2)))
torch.linalg.svd(torch.ones(2, 2), out=(torch.ones(3), torch.ones(2), torch.ones(2, 2)))
torch.linalg.inv(torch.eye(2), out=torch.ones(3))
torch.bmm(torch.ones(1, 2, 2), torch.ones(1, 2, 2), out=torch.ones(3))
torch.cumsum(torch.ones(2), 0, out=torch.ones(3))
torch.topk(torch.ones(2), 1, out=(torch.ones(3), torch.ones(3, dtype=torch.int64)))
torch.var(torch.ones(2, 2), 0, out=torch.ones(3))
torch.clamp(torch.ones(2), 0, out=torch.ones(3))
torch.where(torch.ones(2) > 0, torch.ones(2), torch.ones(2), out=torch.ones(3))
torch.take(torch.ones(2), torch.tensor([0]), out=torch.ones(3))
torch.complex(torch.ones(2), torch.ones(2), out=torch.ones(3, dtype=torch.complex64))
torch.polar(torch.ones(2), torch.ones(2), out=torch.ones(3, dtype=torch.complex64))
torch.isin(torch.ones(2), torch.ones(2), out=torch.ones(3, dtype=torch.bool))
F.softmax(torch.ones(2))
F.softmax(torch.ones(2, 2, 2))
F.softmin(torch.ones(2))
F.log_softmax(torch.ones(2))
nn.Softmax()(torch.ones(2))
nn.LogSoftmax()(torch.ones(2))
nn.Softmin()(torch.ones(2))
F.mse_loss(torch.ones(2), torch.ones(2, 2))
F.l1_loss(torch.ones(2), torch.ones(2, 2))
F.smooth_l1_loss(torch.ones(2), torch.ones(2, 2))
F.huber_loss(torch.ones(2), torch.ones(2, 2))
F.mse_loss(torch.ones(2), torch.ones(2), size_average=True)
F.mse_loss(torch.ones(2), torch.ones(2), reduce=False)
F.mse_loss(torch.ones(2), torch.ones(2), size_average=False, reduce=True)
F.mse_loss(torch.ones(2), torch.ones(2), reduction="elementwise_mean")
F.l1_loss(torch.ones(2), torch.ones(2), reduction="elementwise_mean")
F.nll_loss(torch.zeros(2, 2), torch.tensor([0, 1]), size_average=True)
F.cross_entropy(torch.zeros(2, 2), torch.tensor([0, 1]), reduce=True)
F.binary_cross_entropy(torch.ones(2), torch.ones(2), size_average=False)
F.binary_cross_entropy_with_logits(torch.ones(2), torch.ones(2), size_average=False)
F.kl_div(torch.zeros(2, 2), torch.ones(2, 2))
F.kl_div(torch.zeros(2, 2), torch.ones(2, 2), size_average=True)
F.poisson_nll_loss(torch.ones(2), torch.ones(2), size_average=True)
F.hinge_embedding_loss(torch.ones(2), torch.ones(2), size_average=True)
F.soft_margin_loss(torch.ones(2), torch.ones(2), reduce=False)
F.cosine_embedding_loss(torch.ones(2, 2), torch.ones(2, 2), torch.ones(2), reduce=False)
F.margin_ranking_loss(torch.ones(2), torch.ones(2), torch.ones(2), reduce=False)
F.multi_margin_loss(torch.ones(2, 2), torch.tensor([0, 1]), reduce=False)
F.multilabel_margin_loss(torch.ones(2, 2), torch.tensor([[0, 1], [1, 0]]), reduce=False)
F.multilabel_soft_margin_loss(torch.ones(2, 2), torch.ones(2, 2), reduce=False)
F.triplet_margin_loss(torch.ones(2, 2), torch.ones(2, 2), torch.ones(2, 2), reduce=False)
F.smooth_l1_loss(torch.ones(2), torch.ones(2), size_average=True)
nn.MSELoss(size_average=True)
nn.MSELoss(reduce=True)
nn.MSELoss(reduction="elementwise_mean")(torch.ones(2), torch.ones(2))
nn.CrossEntropyLoss(size_average=True)
nn.CrossEntropyLoss(reduce=False)(torch.zeros(2, 2), torch.tensor([0, 1]))
nn.BCELoss(size_average=True)
nn.L1Loss(reduce=False)
nn.NLLLoss(reduce=False)
nn.KLDivLoss()(torch.zeros(2, 2), torch.ones(2, 2))
nn.KLDivLoss(size_average=True)
F.gumbel_softmax(torch.ones(2), eps=1e-8)
F.dropout2d(torch.ones(2, 2))
F.dropout2d(torch.ones(2, 2, 2))
F.dropout3d(torch.ones(2, 2))
F.dropout3d(torch.ones(2, 2, 2))
nn.Dropout2d()(torch.ones(2, 2, 2))
nn.Dropout3d()(torch.ones(2, 2, 2))
F.embedding_bag(torch.ones(2, 2), torch.tensor([[0, 1]]))
F.upsample(torch.ones(1, 1, 2), scale_factor=2)
F.upsample_nearest(torch.ones(1, 1, 2), scale_factor=2)
F.upsample_bilinear(torch.ones(1, 1, 2, 2), scale_factor=2)
F.grid_sample(torch.ones(1, 1, 2, 2), torch.zeros(1, 2, 2, 2))
F.affine_grid(torch.zeros(1, 2, 3), (1, 1, 2, 2))
F.affine_grid(torch.zeros(1, 2, 3), (1, 1, 1, 1), align_corners=True)
nn.Hardtanh(min_value=-1.0)
nn.Hardtanh(max_value=1.0)
nn.Hardtanh(min_value=-1.0, max_value=1.0)
nn.LSTM(2, 2, dropout=0.5)
nn.GRU(2, 2, dropout=0.5)
nn.RNN(2, 2, dropout=0.5)
nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2), 1)
nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 1, batch_first=True), 1)
nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, batch_first=True, norm_first=True), 1)
nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, batch_first=True, bias=False), 1)
nn.Transformer(4, 2, 1, 1)
nn.InstanceNorm1d(3)(torch.ones(2, 4, 5))
nn.Linear(2, 2).state_dict(None)
nn.Linear(2, 2).state_dict({}, "a")
nn.Linear(2, 2).to(torch.complex64)
nn.Linear(0, 2)
nn.Linear(2, 0)
nn.Conv1d(2, 2, 2, padding="same")(torch.ones(1, 2, 5))
nn.Conv2d(2, 2, 2, padding="same")(torch.ones(1, 2, 5, 5))
nn.Conv2d(2, 2, (2, 3), padding="same")(torch.ones(1, 2, 5, 5))
F.conv1d(torch.ones(1, 2, 5), torch.ones(2, 2, 2), padding="same")
F.conv2d(torch.ones(1, 2, 5, 5), torch.ones(2, 2, 2, 2), padding="same")
nn.init.trunc_normal_(torch.ones(2), 10.0)
nn.init.kaiming_uniform_(torch.ones(0, 2))
nn.init.kaiming_normal_(torch.ones(0, 2))
nn.init.uniform(torch.ones(2))
nn.init.normal(torch.ones(2))
nn.init.constant(torch.ones(2), 1.0)
nn.init.eye(torch.ones(2, 2))
nn.init.dirac(torch.ones(2, 2, 2))
nn.init.xavier_uniform(torch.ones(2, 2))
nn.init.xavier_normal(torch.ones(2, 2))
nn.init.kaiming_uniform(torch.ones(2, 2))
nn.init.kaiming_normal(torch.ones(2, 2))
nn.init.orthogonal(torch.ones(2, 2))
nn.init.sparse(torch.ones(2, 2), 0.5)
nn.utils.clip_grad_norm(nn.Linear(1, 1).parameters(), 1.0)
nn.utils.clip_grad_norm_((p for p in []), 1.0)
nn.utils.weight_norm(nn.Linear(1, 1))
nn.utils.stateless.functional_call(nn.Linear(1, 1), {}, torch.ones(1, 1))
nn.NLLLoss2d()
torch.optim.SGD({torch.ones(1, requires_grad=True)}, lr=0.1)
(torch.ones(1, requires_grad=True) * 2).grad
torch.range(0, 3)
torch.range(0, 3, dtype=torch.int64)
torch.chain_matmul(torch.ones(2, 2), torch.ones(2, 2))
torch.chain_matmul(torch.ones(2, 2))
torch.lu(torch.eye(2))
torch.eye(2).lu()
torch.lu_solve(torch.ones(2, 1), *torch.linalg.lu_factor(torch.eye(2)))
torch.ones(2, 1).lu_solve(*torch.linalg.lu_factor(torch.eye(2)))
torch.triangular_solve(torch.ones(2, 1), torch.eye(2))
torch.ones(2, 1).triangular_solve(torch.eye(2))
torch.searchsorted(torch.ones(2, 4)[:, ::2], torch.ones(2, 1))
torch.searchsorted(torch.ones(2, 2), torch.ones(2, 2)[:, ::2])
torch.searchsorted(torch.ones(2, 2), torch.ones(2, 1), sorter=torch.tensor([[0, 0, 1, 1], [0, 0, 1, 1]])[:, ::2])
torch.bucketize(torch.ones(2, 2).t(), torch.arange(4.0)[::2])
torch.bucketize(torch.ones(2, 2).t(), torch.arange(4.0))
torch.ones(2).scatter(0, torch.tensor([0]), torch.ones(1), reduce="add")
torch.ones(2).scatter_(0, torch.tensor([0]), torch.ones(1), reduce="multiply")
torch.ones(1).expand(3).index_fill_(0, torch.tensor([0]), 1.0)
torch.ones(1).expand(3).index_put_((torch.tensor([0]),), torch.tensor(1.0))
torch.ones(1).expand(3).masked_fill_(torch.tensor([True, False, True]), 1.0)
torch.ones(1).expand(3)[torch.tensor([True, False, True])] = 1.0
torch.ones(1).expand(3)[torch.tensor([0])] = 1.0
torch.ones(1).expand(3)[torch.tensor([0])] = torch.tensor([1.0])
torch.addmm(1, torch.ones(2, 2), 1, torch.ones(2, 2), torch.ones(2, 2))
torch.ones(2).add(1, torch.ones(2))
torch.add(torch.ones(2), 1, torch.ones(2))
torch.ones(2).addcmul(1, torch.ones(2), torch.ones(2))
torch.set_default_tensor_type("torch.FloatTensor")
torch.set_default_tensor_type(torch.FloatTensor)
torch.is_autocast_cpu_enabled()
torch.get_autocast_cpu_dtype()
torch.get_autocast_gpu_dtype()
torch.set_autocast_cpu_dtype(torch.bfloat16)
torch.set_autocast_cpu_enabled(False)
torch.set_autocast_gpu_dtype(torch.float16)
torch.cuda.amp.autocast()
torch.cuda.amp.GradScaler()
torch.autocast("cpu", dtype=torch.float32)
torch.set_float32_matmul_precision("nope")
torch.from_numpy(RO)
torch.as_tensor(RO)
torch.asarray(RO)
torch.frombuffer(b"1234", dtype=torch.uint8)
torch.tensor([np.ones(2), np.ones(2)])
torch.utils.checkpoint.checkpoint(lambda x: x * 2, torch.ones(1, requires_grad=True))
torch.utils.checkpoint.checkpoint(lambda x: x * 2, torch.ones(1), use_reentrant=True)
torch.autograd.backward([torch.ones(1, requires_grad=True)], grad_variables=[torch.ones(1)])
torch.autograd.Function()
torch.autograd.gradcheck(lambda x: x * 2, torch.ones(1, requires_grad=True), raise_exception=False)
torch.autograd.Variable(torch.ones(1), volatile=True)
torch.utils.data.random_split(range(2), [0.9, 0.1])
torch.utils.data.DataLoader([1, 2], num_workers=64)
torch.empty(3).random_(0, 2**30)
torch.empty(3).random_(2**30, 2**31)
torch.empty(3, dtype=torch.float16).random_(0, 2**14)
torch.empty(3, dtype=torch.float16).random_(0, 65504)
torch.empty(3).random_(2**25)
torch.empty(3, dtype=torch.bfloat16).random_(300)
torch.randint(0, 2**30, (2,), dtype=torch.float32)
torch.randint(2**24 + 2, (2,), dtype=torch.float32)
torch.randint(0, 300, (2,), dtype=torch.bfloat16)
torch.ones(2)[torch.tensor([1, 0]).byte(), ...]
torch.index_reduce(torch.ones(2), 0, torch.tensor([0]), torch.ones(1), "prod")
torch.ones(2).index_reduce_(0, torch.tensor([0]), torch.ones(1), "amax")
torch.ones(2)[0:1].T
torch.ones(2, 3, 4, requires_grad=True).T
torch.profiler.schedule(wait=0, warmup=0, active=1)
torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij")
torch.ones(2, 3).T
torch.cross(torch.ones(2, 3), torch.ones(2, 3), dim=1)
torch.ones(2, dtype=torch.complex64).bool()
torch.zeros_like(torch.ones(2, dtype=torch.complex64), dtype=torch.float32)
torch.ones(2, dtype=torch.float16).to(torch.complex64)
torch.ones(1, requires_grad=True).item()
int(torch.ones(1, requires_grad=True))
torch.as_tensor(torch.ones(2))
torch.asarray(torch.ones(2))
torch.asarray(torch.ones(2, requires_grad=True), requires_grad=False)
torch.ones(1).var(unbiased=False)
torch.cov(torch.ones(2))
torch.ones(1).expand(3).masked_fill(torch.tensor([True, False, True]), 1.0)
torch.add(torch.ones(2), 1, out=torch.ones(0))
torch.zeros(2, out=torch.ones(3))
torch.bernoulli(torch.ones(2), out=torch.ones(3))
F.softmax(torch.ones(2), 0)
F.kl_div(torch.zeros(2, 2), torch.ones(2, 2), reduction="sum")
F.dropout1d(torch.ones(2, 2))
nn.Tanh()(torch.ones(1))
nn.LSTM(2, 2, num_layers=2, dropout=0.5)
nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, batch_first=True), 1)
nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2), 1, enable_nested_tensor=False)
nn.Conv1d(2, 2, 3, padding="same")(torch.ones(1, 2, 5))
torch.ones(2).scatter_(0, torch.tensor([0]), 1.0, reduce="add")
torch.bucketize(torch.ones(2, 2), torch.arange(4.0))
torch.tensor(RO)
torch.empty(3).random_(2**24 + 1)
torch.utils.checkpoint.checkpoint(lambda x: x * 2, torch.ones(1), use_reentrant=False)
nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, batch_first=True, activation=torch.tanh), 1)
"""

_BLOCKS = """
m = nn.MultiheadAttention(4, 2)
x = torch.ones(2, 1, 4)
m(x, x, x, key_padding_mask=torch.zeros(1, 2, dtype=torch.bool), attn_mask=torch.zeros(2, 2))

m = nn.MultiheadAttention(4, 2).eval()
x = torch.ones(2, 1, 4)
m(x, x, x, key_padding_mask=torch.zeros(1, 2, dtype=torch.bool), attn_mask=torch.zeros(2, 2))

m = nn.Linear(1, 1)
m.register_backward_hook(lambda m, i, o: None)
m(torch.ones(1, 1)).sum().backward()

m = nn.Linear(1, 1)
m.register_backward_hook(lambda m, i, o: None)
m(torch.ones(1, 1, requires_grad=True)).sum().backward()

m = nn.Sequential(nn.Linear(1, 1), nn.Tanh(), nn.Linear(1, 1))
m.register_backward_hook(lambda m, i, o: None)
m(torch.ones(1, 1, requires_grad=True)).sum().backward()

m = nn.Tanh()
m.register_backward_hook(lambda m, i, o: None)
m(torch.ones(1, 1, requires_grad=True)).sum().backward()

m = nn.Linear(1, 1)
m.register_full_backward_hook(lambda m, i, o: None)
m(torch.ones(1, 1)).sum().backward()

class M(nn.Module):
    def forward(self, x):
        return {"a": x * 2}
m = M()
m.register_full_backward_hook(lambda m, i, o: None)
m(torch.ones(1, requires_grad=True))["a"].sum().backward()

class M(nn.Module):
    def forward(self, x):
        return [x * 2]
m = M()
m.register_full_backward_hook(lambda m, i, o: None)
m(torch.ones(1, requires_grad=True))[0].sum().backward()

class M(nn.Module):
    def forward(self, x):
        return {"a": x * 2}
m = M()
m.register_backward_hook(lambda m, i, o: None)
m(torch.ones(1, requires_grad=True))["a"].sum().backward()

class M(nn.Module):
    def forward(self, x):
        return [x * 2]
m = M()
m.register_backward_hook(lambda m, i, o: None)
m(torch.ones(1, requires_grad=True))[0].sum().backward()

class M(nn.Module):
    def forward(self, x):
        return x * 2, x * 3
m = M()
m.register_backward_hook(lambda m, i, o: None)
m(torch.ones(1, requires_grad=True))[0].sum().backward()

class M(nn.Module):
    def forward(self, x):
        return x[0] * 2
m = M()
m.register_backward_hook(lambda m, i, o: None)
m([torch.ones(1, requires_grad=True)]).sum().backward()

class M(nn.Module):
    def forward(self, x):
        raise ValueError("a")
m = M()
def hook(m, i, o):
    raise TypeError("b")
m.register_forward_hook(hook, always_call=True)
try:
    m(1)
except ValueError:
    pass

p = torch.ones(1, requires_grad=True)
torch.optim.SGD([p, p], lr=0.1)

p = nn.Parameter(torch.ones(1))
o = torch.optim.SGD([p], lr=0.1)
s = torch.optim.lr_scheduler.StepLR(o, 1)
s.step()

p = nn.Parameter(torch.ones(1))
o = torch.optim.SGD([p], lr=0.1)
s = torch.optim.lr_scheduler.StepLR(o, 1)
o.step()
s.step(3)

p = nn.Parameter(torch.ones(1))
o = torch.optim.SGD([p], lr=0.1)
s = torch.optim.lr_scheduler.StepLR(o, 1)
o.step()
s.get_lr()

p = nn.Parameter(torch.ones(1))
o = torch.optim.SGD([p], lr=0.1)
s = torch.optim.lr_scheduler.StepLR(o, 1)
o.step = lambda: None
s.step()

p = nn.Parameter(torch.ones(1))
o = torch.optim.SGD([p], lr=0.1)
s = torch.optim.lr_scheduler.ReduceLROnPlateau(o)
o.step()
s.step(1.0, 3)

p = nn.Parameter(torch.ones(1))
o = torch.optim.SGD([p], lr=0.1)
s = torch.optim.swa_utils.SWALR(o, 0.1)
s.get_lr()

b = io.BytesIO()
torch.save(torch.ones(1), b)
b.seek(0)
torch.load(b, encoding="ascii")

m = nn.Sequential(nn.Tanh(), nn.Tanh())
torch.utils.checkpoint.checkpoint_sequential(m, 2, torch.ones(1, requires_grad=True))

x = torch.ones(1, requires_grad=True)
torch.autograd.grad(x * 2, x, only_inputs=False)

x = torch.ones(1, requires_grad=True)
(x * 2).backward(create_graph=True)

class F2(torch.autograd.Function):
    pass
F2()

class F2(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2
    @staticmethod
    def backward(ctx, g):
        ctx.saved_variables
        return g
F2.apply(torch.ones(1, requires_grad=True)).backward()

class F2(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_shared_storage()
        return x * 2
F2.apply(torch.ones(1, requires_grad=True))

with torch.autograd.detect_anomaly():
    pass

with torch.autograd.detect_anomaly():
    try:
        torch.tensor([-1.0], requires_grad=True).sqrt().backward()
    except RuntimeError:
        pass

class D(torch.utils.data.IterableDataset):
    def __len__(self):
        return 1
    def __iter__(self):
        return iter([1, 2, 3])
d = torch.utils.data.DataLoader(D())
len(d)
list(d)

class S(torch.Tensor):
    def __torch_function__(self, *a, **k):
        return 1
torch.add(torch.ones(2).as_subclass(S), 1)

class S:
    def __torch_function__(self, *a, **k):
        return 1
torch.add(S(), 1)

class S:
    def __torch_function__(self, *a, **k):
        return 1
torch.stack([S()])

class S:
    def __torch_function__(self, *a, **k):
        return 1
F.relu(S())

x = torch.ones(1, requires_grad=True)
torch.autograd.grad(x * 2, x, create_graph=True)

m = nn.Tanh()
m.register_full_backward_hook(lambda m, i, o: None)
m(torch.ones(1, 1, requires_grad=True)).sum().backward()

p = nn.Parameter(torch.ones(1))
o = torch.optim.SGD([p], lr=0.1)
o.step()
torch.optim.lr_scheduler.StepLR(o, 1).step()
"""

PROGRAMS: tuple[str, ...] = (*_LINES.strip().splitlines(), *_BLOCKS.strip().split("\n\n"))

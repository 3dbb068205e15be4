#!/usr/bin/env python3
"""Measures single operations of PyTorch, forward and backward, and writes `gpumem-import/tests/torch_ops.json`.

    scripts/torch_ops.py > gpumem-import/tests/torch_ops.json

Nothing is computed: tensors are fake, so that shapes, strides, types and the graph of autograd are PyTorch's, without data. After every
operation that PyTorch dispatches the bytes of all living storages are added up. For each case the file has the program that
`torch.export` makes of it, and the largest sum in the forward pass, in the loss (the mean of the squares of all outputs) and in the
backward pass. Needs PyTorch 2.15.
"""
import gc
import json
import warnings

import torch
import torch.nn.functional as F
from torch._subclasses import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

warnings.filterwarnings("ignore")


class Tracker(TorchDispatchMode):
    """Adds up living storages after every operation."""

    def __init__(self):
        super().__init__()
        self.live, self.peaks, self.phase = {}, {}, "start"

    def add(self, tensor):
        storage = tensor.untyped_storage()
        known = self.live.get(storage._cdata)
        if known is None or known[0].expired():
            self.live[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for tensor in tree_flatten(out)[0]:
            if isinstance(tensor, torch.Tensor):
                self.add(tensor)
        self.live = {key: entry for key, entry in self.live.items() if not entry[0].expired()}
        total = sum(size for _, size in self.live.values())
        self.peaks[self.phase] = max(total, self.peaks.get(self.phase, 0))
        return out


class Case(torch.nn.Module):
    """A function of parameters, of which some have no gradient."""

    def __init__(self, function, shapes):
        super().__init__()
        self.function, self.count = function, len(shapes)
        for index, spec in enumerate(shapes):
            self.register_parameter(f"p{index}", make(spec)) if is_trained(spec) else self.register_buffer(f"p{index}", make(spec))

    def forward(self, x):
        return self.function(*[getattr(self, f"p{index}") for index in range(self.count)])


def is_trained(spec):
    return not isinstance(spec, dict) or spec.get("grad", True)


def make(spec):
    """A tensor: its shape, or a dictionary of shape, order of dimensions in memory, type, and grad."""
    if not isinstance(spec, dict):
        spec = {"shape": spec}
    shape, dtype = spec["shape"], getattr(torch, spec.get("dtype", "float32"))
    order = spec.get("order", list(range(len(shape))))
    tensor = torch.zeros([shape[dim] for dim in order], dtype=dtype).permute([order.index(dim) for dim in range(len(shape))])
    return torch.nn.Parameter(tensor) if is_trained(spec) else tensor


LAST = [0, 2, 3, 1]
N = [4, 6, 8]
IMAGE = [2, 8, 12, 12]
NHWC = {"shape": IMAGE, "order": LAST}
CASES = {}


def case(name, shapes, function):
    assert name not in CASES, name
    CASES[name] = (shapes, function)


def index(shape):
    return {"shape": shape, "dtype": "int64", "grad": False}


def mask(shape):
    return {"shape": shape, "dtype": "bool", "grad": False}


UNARY = """abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 floor frac lgamma log log10 log1p
log2 logit neg rad2deg reciprocal relu round rsqrt sigmoid sign sin sinc sinh sqrt square tan tanh trunc""".split()
for op in UNARY:
    case(op, [N], getattr(torch, op))
    case(op + " of a transposed tensor", [{"shape": N, "order": [2, 0, 1]}], getattr(torch, op))
for op in "celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu6 selu silu softplus softshrink tanhshrink".split():
    case(op, [N], getattr(F, op))
    case(op + " of a transposed tensor", [{"shape": N, "order": [2, 0, 1]}], getattr(F, op))
for op in "celu elu hardsigmoid hardswish hardtanh leaky_relu mish relu relu6 selu silu".split():
    case(op + " in place", [N], lambda x, op=op: getattr(F, op)(x * 2.0, inplace=True))
for op in "exp sigmoid tanh sqrt".split():
    case(op + "_", [N], lambda x, op=op: getattr(x * 2.0, op + "_")())
case("gelu, tanh", [N], lambda x: F.gelu(x, approximate="tanh"))
case("threshold", [N], lambda x: F.threshold(x, 0.1, 20.0))
case("clamp", [N], lambda x: x.clamp(0.0, 1.0))
case("clamp_min", [N], lambda x: x.clamp_min(0.0))
case("clamp, one side", [N], lambda x: x.clamp(min=0.0))
case("clamp by tensors", [N, [8]], lambda x, y: torch.clamp(x, max=y))
case("glu", [N], lambda x: F.glu(x, -1))
case("prelu", [IMAGE, [8]], F.prelu)
case("nan_to_num", [N], torch.nan_to_num)

for op in "add sub mul div maximum minimum atan2 fmod remainder pow".split():
    function = getattr(torch, op)
    case(op, [N, N], function)
    case(op + ", broadcast", [N, [6, 1]], function)
    case(op + ", one gradient", [N, {"shape": N, "grad": False}], function)
    case(op + ", other gradient", [{"shape": N, "grad": False}, N], function)
case("add of different layouts", [IMAGE, NHWC], torch.add)
case("mul of layouts and a row", [NHWC, [8, 1, 1]], torch.mul)
case("add to itself", [N], lambda x: x + x)
case("add, scaled", [N, N], lambda x, y: torch.add(x, y, alpha=2.0))
case("add of a number", [N], lambda x: x + 1.0)
case("number less tensor", [N], lambda x: 1.0 - x)
case("number by tensor", [N], lambda x: 1.0 / x)
case("pow of a number", [N], lambda x: x**3.0)
case("pow 2", [N], lambda x: x**2)
case("pow 0.5", [N], lambda x: x**0.5)
case("number to a power", [N], lambda x: 2.0**x)
case("div, rounded", [N, N], lambda x, y: torch.div(x, y, rounding_mode="floor") * x)
case("add_", [N, N], lambda x, y: (x * 2.0).add_(y))
case("mul_", [N, N], lambda x, y: (x * 2.0).mul_(y))
case("div_", [N, N], lambda x, y: (x * 2.0).div_(y))
case("add_ on a view", [N, [6]], lambda x, y: add_on_view(x * 2.0, y))
case("relu_ on a view", [N], lambda x: torch.relu_((x * 2.0).view(24, 8)))
case("addcmul", [N, N, [8]], torch.addcmul)
case("addcdiv", [N, N, [8]], torch.addcdiv)
case("lerp", [N, N], lambda x, y: torch.lerp(x, y, 0.3))
case("lerp by a tensor", [N, N, [8]], torch.lerp)
case("where", [mask(N), N, [8]], torch.where)
case("where, number", [mask(N), N], lambda m, x: torch.where(m, x, 0.0))
case("masked_fill", [N, mask([6, 8])], lambda x, m: x.masked_fill(m, -1.0))
case("masked_fill_", [N, mask(N)], lambda x, m: (x * 2.0).masked_fill_(m, -1.0))
case("comparison", [N], lambda x: (x > 0.5).to(torch.float32) * x)


def add_on_view(x, y):
    x[:, :, 0].add_(y)
    return x


for op in "sum mean amax amin logsumexp prod var std".split():
    case(op, [N], lambda x, op=op: getattr(torch, op)(x, 1))
    case(op + ", kept", [N], lambda x, op=op: getattr(torch, op)(x, 1, keepdim=True))
for op in "sum mean prod max min var std".split():
    case(op + " of all", [N], getattr(torch, op))
case("sum of two dimensions", [N], lambda x: x.sum((0, 2)))
case("mean of two dimensions", [IMAGE], lambda x: x.mean((2, 3), keepdim=True))
case("var_mean", [N], lambda x: torch.var_mean(x, 1))
case("var, biased", [N], lambda x: x.var(1, unbiased=False))
case("max along a dimension", [N], lambda x: x.max(1)[0])
case("norm", [N], lambda x: x.norm(dim=-1))
case("vector norm", [N], lambda x: torch.linalg.vector_norm(x, 2, [-1], True))
case("vector norm, 1", [N], lambda x: torch.linalg.vector_norm(x, 1, [-1], True))
case("normalize", [N], lambda x: F.normalize(x, dim=-1))
case("cosine_similarity", [N, N], lambda x, y: F.cosine_similarity(x, y, -1))
case("cumsum", [N], lambda x: x.cumsum(1))
case("cumprod", [N], lambda x: x.cumprod(1))
case("topk", [N], lambda x: x.topk(3, -1)[0])
case("sort", [N], lambda x: x.sort(-1)[0])
case("median", [N], lambda x: x.median(1)[0])
case("argmax", [N], lambda x: x * x.argmax(1, keepdim=True))

case("softmax", [N], lambda x: x.softmax(-1))
case("softmax of a transposed tensor", [{"shape": N, "order": [2, 0, 1]}], lambda x: x.softmax(1))
case("log_softmax", [N], lambda x: x.log_softmax(1))
case("softmax in f64", [N], lambda x: F.softmax(x, -1, dtype=torch.float64))

case("transpose, contiguous", [N], lambda x: x.transpose(1, 2).contiguous())
case("transpose, reshape", [N], lambda x: x.transpose(1, 2).reshape(4, 48))
case("permute", [N], lambda x: x.permute(2, 0, 1))
case("movedim", [N], lambda x: x.movedim(0, 2))
case("view", [N], lambda x: x.view(24, 8))
case("flatten", [IMAGE], lambda x: x.flatten(1))
case("flatten of channels last", [NHWC], lambda x: x.flatten(2))
case("unflatten", [N], lambda x: x.unflatten(2, (2, 4)))
case("unsqueeze, expand", [N], lambda x: x.unsqueeze(1).expand(4, 5, 6, 8))
case("squeeze", [[4, 1, 8]], lambda x: x.squeeze(1))
case("slice", [N], lambda x: x[:, 1:4])
case("slice with steps", [N], lambda x: x[..., ::2])
case("select", [N], lambda x: x[:, 0])
case("narrow", [N], lambda x: x.narrow(1, 2, 3))
case("two slices", [N], lambda x: (x[:, :3], x[:, 3:]))
case("split", [N], lambda x: x.split(4, -1))
case("split, one part", [N], lambda x: x.split(4, -1)[0])
case("split with sizes", [N], lambda x: x.split([2, 6], -1))
case("chunk", [N], lambda x: x.chunk(3, 1))
case("tensor_split", [N], lambda x: x.tensor_split(4, 1))
case("unbind", [N], lambda x: x.unbind(0))
case("unbind, one part", [N], lambda x: x.unbind(0)[1])
case("diagonal", [[4, 8, 8]], lambda x: x.diagonal(dim1=1, dim2=2))
case("diag_embed", [[4, 8]], torch.diag_embed)
case("unfold", [N], lambda x: x.unfold(2, 4, 2))
case("to", [N], lambda x: x.to(torch.float16))
case("type_as", [N, {"shape": [1], "dtype": "float64", "grad": False}], lambda x, y: x.type_as(y))
case("clone", [N], torch.clone)
case("clone in a layout", [IMAGE], lambda x: x.contiguous(memory_format=torch.channels_last))
case("cat", [N, [4, 2, 8]], lambda x, y: torch.cat([x, y], 1))
case("cat of channels last", [NHWC, NHWC], lambda x, y: torch.cat([x, y], 1))
case("cat of two layouts", [NHWC, IMAGE], lambda x, y: torch.cat([x, y], 1))
case("stack", [N, N], lambda x, y: torch.stack([x, y], 1))
case("repeat", [N], lambda x: x.repeat(2, 1, 3))
case("repeat_interleave", [N], lambda x: x.repeat_interleave(2, 1))
case("tile", [N], lambda x: x.tile(2))
case("roll", [N], lambda x: x.roll(2, 1))
case("flip", [N], lambda x: x.flip(1))
case("tril", [[4, 8, 8]], torch.tril)
case("triu", [[4, 8, 8]], lambda x: torch.triu(x, 1))
case("rot90", [IMAGE], lambda x: torch.rot90(x, 1, [2, 3]))
case("meshgrid", [[4], [6]], lambda x, y: torch.meshgrid(x, y, indexing="ij"))
case("pad", [IMAGE], lambda x: F.pad(x, (1, 1, 2, 2)))
case("pad of channels last", [NHWC], lambda x: F.pad(x, (1, 1, 2, 2)))
case("pad, cropped", [IMAGE], lambda x: F.pad(x, (-1, -1, 0, 0)))
case("pad, reflected", [IMAGE], lambda x: F.pad(x, (1, 1, 2, 2), mode="reflect"))
case("pad, replicated", [IMAGE], lambda x: F.pad(x, (1, 1, 2, 2), mode="replicate"))
case("pad, circular", [IMAGE], lambda x: F.pad(x, (1, 1, 2, 2), mode="circular"))
case("pixel_shuffle", [IMAGE], lambda x: F.pixel_shuffle(x, 2))
case("pixel_unshuffle", [IMAGE], lambda x: F.pixel_unshuffle(x, 2))
case("shuffle of channels", [IMAGE], lambda x: getattr(F, "channel" + "_shuffle")(x, 4))
case("im2col", [IMAGE], lambda x: F.unfold(x, 3, padding=1))
case("col2im", [[2, 72, 144]], lambda x: F.fold(x, (12, 12), 3, padding=1))

case("embedding", [[100, 8], index([4, 6])], lambda w, i: F.embedding(i, w))
case("embedding with padding", [[100, 8], index([4, 6])], lambda w, i: F.embedding(i, w, padding_idx=0))
case("embedding, twice", [[100, 8], index([4, 6])], lambda w, i: F.embedding(i, w) @ w.t())
case("gather", [N, index([4, 3, 8])], lambda x, i: x.gather(1, i))
case("take_along_dim", [N, index([4, 3, 8])], lambda x, i: torch.take_along_dim(x, i, 1))
case("index_select", [N, index([3])], lambda x, i: x.index_select(1, i))
case("index", [N, index([5])], lambda x, i: x[:, i])
case("index by two", [N, index([5]), index([5])], lambda x, i, j: x[i, :, j])
case("index_add", [N, index([3]), [4, 3, 8]], lambda x, i, y: x.index_add(1, i, y))
case("index_copy", [N, index([3]), [4, 3, 8]], lambda x, i, y: x.index_copy(1, i, y))
case("scatter", [N, index([4, 3, 8]), [4, 3, 8]], lambda x, i, y: x.scatter(1, i, y))
case("scatter_add", [N, index([4, 3, 8]), [4, 3, 8]], lambda x, i, y: x.scatter_add(1, i, y))
case("index_put", [N, index([3]), [3, 6, 8]], lambda x, i, y: x.index_put((i,), y))
case("index_put, added", [N, index([3]), [3, 6, 8]], lambda x, i, y: x.index_put((i,), y, accumulate=True))
case("slice written", [N, [4, 2, 8]], lambda x, y: write_slice(x * 2.0, y))


def write_slice(x, y):
    x[:, 1:3] = y
    return x


case("linear", [[4, 8], [10, 8], [10]], F.linear)
case("linear without bias", [[4, 8], [10, 8]], F.linear)
case("linear of three dimensions", [N, [10, 8], [10]], F.linear)
case("linear without bias, three dimensions", [N, [10, 8]], F.linear)
case("linear of a transposed tensor", [{"shape": N, "order": [0, 2, 1]}, [10, 8], [10]], F.linear)
case("linear, frozen", [N, {"shape": [10, 8], "grad": False}, {"shape": [10], "grad": False}], F.linear)
case("linear, first", [{"shape": N, "grad": False}, [10, 8], [10]], F.linear)
case("bilinear", [[4, 8], [4, 6], [10, 8, 6], [10]], F.bilinear)
case("matmul", [[4, 6, 8], [4, 8, 5]], torch.matmul)
case("matmul, transposed", [[4, 6, 8], [4, 5, 8]], lambda x, y: x @ y.transpose(1, 2))
case("matmul of heads", [[2, 6, 4, 8], [2, 6, 4, 8]], lambda x, y: x.transpose(1, 2) @ y.transpose(1, 2).transpose(2, 3))
case("matmul, broadcast", [[2, 1, 6, 8], [4, 8, 5]], torch.matmul)
case("matmul by a matrix", [N, [8, 5]], torch.matmul)
case("matmul of a matrix", [[5, 6], N], torch.matmul)
case("matmul of a frozen matrix", [{"shape": [5, 6], "grad": False}, N], torch.matmul)
case("matmul by a vector", [N, [8]], torch.matmul)
case("matmul of a vector", [[6], N], torch.matmul)
case("mv", [[6, 8], [8]], torch.mv)
case("dot", [[8], [8]], torch.dot)
case("outer", [[6], [8]], torch.outer)
case("bmm", [[4, 6, 8], [4, 8, 5]], torch.bmm)
case("baddbmm", [[4, 6, 5], [4, 6, 8], [4, 8, 5]], torch.baddbmm)
case("addmm", [[5], [6, 8], [8, 5]], torch.addmm)
case("einsum", [[2, 6, 4, 8], [2, 5, 4, 8]], lambda x, y: torch.einsum("bihd,bjhd->bhij", x, y))
case("einsum of a matrix", [N, [8, 5]], lambda x, y: torch.einsum("bij,jk->bik", x, y))
case("einsum without a sum", [[4, 6], [4, 8]], lambda x, y: torch.einsum("bi,bj->bij", x, y))
case("einsum of one", [N], lambda x: torch.einsum("bij->bji", x))
case("cdist", [[4, 6, 8], [4, 5, 8]], torch.cdist)

case("conv1d", [[2, 8, 20], [6, 8, 3], [6]], lambda x, w, b: F.conv1d(x, w, b, padding=1))
case("conv2d", [IMAGE, [6, 8, 3, 3], [6]], lambda x, w, b: F.conv2d(x, w, b, padding=1))
case("conv2d of channels last", [NHWC, [6, 8, 3, 3]], lambda x, w: F.conv2d(x, w, stride=2))
case("conv2d, grouped", [IMAGE, [8, 1, 3, 3]], lambda x, w: F.conv2d(x, w, groups=8, padding="same"))
case("conv2d of one sample", [[8, 12, 12], [6, 8, 3, 3]], F.conv2d)
case("conv3d", [[1, 4, 6, 6, 6], [6, 4, 3, 3, 3], [6]], F.conv3d)
case("conv_transpose2d", [IMAGE, [8, 6, 2, 2], [6]], lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2))
case("conv_transpose1d", [[2, 8, 20], [8, 6, 4]], lambda x, w: F.conv_transpose1d(x, w, stride=2, padding=1))
case("max_pool1d", [[2, 8, 20]], lambda x: F.max_pool1d(x, 2))
case("max_pool2d", [IMAGE], lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True))
case("max_pool2d of channels last", [NHWC], lambda x: F.max_pool2d(x, 2))
case("max_pool3d", [[1, 4, 6, 6, 6]], lambda x: F.max_pool3d(x, 2))
case("avg_pool1d", [[2, 8, 20]], lambda x: F.avg_pool1d(x, 2))
case("avg_pool2d", [IMAGE], lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False))
case("avg_pool2d of channels last", [NHWC], lambda x: F.avg_pool2d(x, 2))
case("avg_pool3d", [[1, 4, 6, 6, 6]], lambda x: F.avg_pool3d(x, 2))
case("adaptive_avg_pool1d", [[2, 8, 20]], lambda x: F.adaptive_avg_pool1d(x, 5))
case("adaptive_avg_pool1d to one", [[2, 8, 20]], lambda x: F.adaptive_avg_pool1d(x, 1))
case("adaptive_avg_pool2d", [IMAGE], lambda x: F.adaptive_avg_pool2d(x, 5))
case("adaptive_avg_pool2d to one", [IMAGE], lambda x: F.adaptive_avg_pool2d(x, 1))
case("adaptive_avg_pool2d of channels last", [NHWC], lambda x: F.adaptive_avg_pool2d(x, 5))
case("adaptive_avg_pool3d", [[1, 4, 6, 6, 6]], lambda x: F.adaptive_avg_pool3d(x, 3))
case("adaptive_max_pool2d", [IMAGE], lambda x: F.adaptive_max_pool2d(x, 5))
case("lp_pool2d", [IMAGE], lambda x: F.lp_pool2d(x, 2.0, 2))
for mode in ["nearest", "bilinear", "bicubic"]:
    case("upsample, " + mode, [IMAGE], lambda x, mode=mode: F.interpolate(x, scale_factor=2, mode=mode))
case("upsample of channels last", [NHWC], lambda x: F.interpolate(x, size=(20, 20), mode="bilinear"))
case("upsample of a sequence", [[2, 8, 20]], lambda x: F.interpolate(x, scale_factor=2, mode="linear"))
case("grid_sample", [IMAGE, [2, 5, 5, 2]], lambda x, g: F.grid_sample(x, g, align_corners=False))
case("affine_grid", [[2, 2, 3]], lambda x: F.affine_grid(x, [2, 3, 5, 5], align_corners=False))

STATISTICS = [{"shape": [8], "grad": False}] * 2
case("batch_norm", [IMAGE, [8], [8], *STATISTICS], lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, True))
case("batch_norm of channels last", [NHWC, [8], [8], *STATISTICS], lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, True))
case("batch_norm without weights", [IMAGE, *STATISTICS], lambda x, m, v: F.batch_norm(x, m, v, None, None, True))
case("batch_norm with a computed weight", [IMAGE, [8], [8], *STATISTICS], lambda x, w, b, m, v: F.batch_norm(x, m, v, w * 2.0, b * 2.0, True))
case("batch_norm in eval mode", [IMAGE, [8], [8], *STATISTICS], lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, False))
case("batch_norm of rows", [[16, 8], [8], [8], *STATISTICS], lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, True))
case("instance_norm", [IMAGE, [8], [8]], lambda x, w, b: F.instance_norm(x, None, None, w, b))
case("instance_norm without weights", [IMAGE], F.instance_norm)
case("layer_norm", [N, [8], [8]], lambda x, w, b: F.layer_norm(x, [8], w, b))
case("layer_norm of a transposed tensor", [{"shape": N, "order": [0, 2, 1]}, [8], [8]], lambda x, w, b: F.layer_norm(x, [8], w, b))
case("layer_norm without weights", [N], lambda x: F.layer_norm(x, [6, 8]))
case("layer_norm with a computed weight", [N, [8], [8]], lambda x, w, b: F.layer_norm(x, [8], w * 2.0, b * 2.0))
case("group_norm", [IMAGE, [8], [8]], lambda x, w, b: F.group_norm(x, 4, w, b))
case("group_norm of channels last", [NHWC, [8], [8]], lambda x, w, b: F.group_norm(x, 4, w, b))
case("rms_norm", [N, [8]], lambda x, w: F.rms_norm(x, [8], w))
case("rms_norm without weight", [N], lambda x: F.rms_norm(x, [8]))
case("local_response_norm", [IMAGE], lambda x: F.local_response_norm(x, 3))

HEADS = [2, 4, 16, 8]
INSIDE = {"shape": HEADS, "order": [0, 2, 1, 3]}
attention = F.scaled_dot_product_attention
case("attention", [HEADS] * 3, attention)
case("attention of heads inside", [INSIDE] * 3, attention)
case("causal attention", [INSIDE] * 3, lambda q, k, v: attention(q, k, v, is_causal=True))
case("attention with a mask", [INSIDE] * 3 + [{"shape": [1, 1, 16, 16], "grad": False}], attention)
case("attention with a mask of bools", [INSIDE] * 3 + [mask([1, 1, 16, 16])], attention)
case("attention with a learned bias", [HEADS] * 3 + [[1, 4, 16, 16]], attention)
case("attention to fewer values", [HEADS, [2, 4, 5, 8], [2, 4, 5, 8]], attention)
case("attention of three dimensions", [[4, 16, 8]] * 3, attention)
case("attention with shared keys", [HEADS, [2, 2, 16, 8], [2, 2, 16, 8]], lambda q, k, v: attention(q, k, v, enable_gqa=True))
case("attention, other width", [HEADS, HEADS, [2, 4, 16, 12]], attention)

target = index([4])
case("cross_entropy", [[4, 10], target], F.cross_entropy)
case("cross_entropy, smoothed", [[4, 10], target], lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1))
case("cross_entropy of pixels", [IMAGE, index([2, 12, 12])], F.cross_entropy)
case("nll_loss", [[4, 10], target], lambda x, y: F.nll_loss(x.log_softmax(1), y))
OTHER = {"shape": N, "grad": False}
for op in "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits kl_div".split():
    case(op, [N, OTHER], getattr(F, op))
    case(op + ", not reduced", [N, OTHER], lambda x, y, op=op: getattr(F, op)(x, y, reduction="none"))

case("residual", [N, [8, 8], [8]], lambda x, w, b: x + F.linear(F.relu(x * 2.0), w, b))
case("shared gradient", [N, N, [8, 8]], lambda x, y, w: (x + y) @ w)
case("two readers", [N], lambda x: (x * 2.0).sigmoid() + (x * 2.0).tanh())
case("parameter read twice", [[8, 8], [4, 8]], lambda w, x: F.relu(x @ w) @ w)
case("gate", [IMAGE, [8, 8, 1, 1]], lambda x, w: x * F.conv2d(x.mean((2, 3), keepdim=True), w).sigmoid())
case("branches", [IMAGE, [4, 8, 1, 1], [4, 8, 1, 1]], lambda x, a, b: torch.cat([F.relu(F.conv2d(x, a)), F.conv2d(x, b)], 1))


def number(value):
    return {"float": str(value)} if isinstance(value, float) and (value != value or abs(value) == float("inf")) else value


def argument(value, names):
    """An argument of an operation as JSON: a dictionary of one key, which is its kind."""
    if isinstance(value, torch.fx.Node):
        return {"tensor": names[value]}
    if isinstance(value, (list, tuple)) and any(isinstance(item, torch.fx.Node) for item in value):
        return {"tensors": [names[item] if item is not None else None for item in value]}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, (torch.device, torch.layout, torch.memory_format)):
        return {"other": str(value)}
    if isinstance(value, (list, tuple)):
        return {"list": [number(item) for item in value]}
    return {"value": number(value)}


def tensor(value):
    dtype = str(value.dtype).removeprefix("torch.")
    return {"dtype": dtype, "shape": list(value.shape), "strides": list(value.stride())}


def program(exported):
    """The operations of an exported case."""
    names, values, nodes, state, outputs, inputs = {}, [], [], [], [], []
    kinds = {spec.arg.name: spec for spec in exported.graph_signature.input_specs}

    def define(node, value):
        names[node] = len(values)
        values.append(tensor(value))

    for node in exported.graph.nodes:
        if node.op == "placeholder":
            define(node, node.meta["val"])
            spec = kinds[node.name]
            if spec.kind.name == "USER_INPUT":
                inputs.append(names[node])
            else:
                state.append([names[node], spec.target, spec.kind.name == "PARAMETER"])
        elif node.op == "call_function" and node.target.__name__ == "getitem":
            parent, position = node.args
            names[node] = names[parent][position]
        elif node.op == "call_function":
            made = node.meta["val"]
            if isinstance(made, (list, tuple)):
                names[node] = list(range(len(values), len(values) + len(made)))
                values += [tensor(value) for value in made]
                returned = names[node]
            elif isinstance(made, torch.Tensor):
                define(node, made)
                returned = [names[node]]
            else:
                continue
            schema = node.target._schema
            given = {schema.arguments[index].name: value for index, value in enumerate(node.args)}
            given.update(node.kwargs)
            arguments = [[name, argument(value, names)] for name, value in given.items()]
            nodes.append({"op": schema.name.split("::")[1], "arguments": arguments, "outputs": returned})
        elif node.op == "output":
            outputs = [names[item] for item in node.args[0] if isinstance(item, torch.fx.Node)]
    return {"values": values, "nodes": nodes, "state": state, "inputs": inputs, "outputs": outputs}


def measure(function, shapes):
    with FakeTensorMode(allow_non_fake_inputs=True):
        module, x = Case(function, shapes), torch.zeros([2])
        tracker = Tracker()
        for item in [*module.parameters(), *module.buffers(), x]:
            tracker.add(item)
        tracker.peaks["start"] = sum(size for _, size in tracker.live.values())
        gc.collect()
        with tracker:
            tracker.phase = "forward"
            out = module(x)
            tracker.phase = "loss"
            loss = sum((item * item).mean() for item in tree_flatten(out)[0] if item.is_floating_point())
            tracker.phase = "backward"
            loss.backward()
    return tracker.peaks


def main():
    cases = []
    for name, (shapes, function) in CASES.items():
        try:
            peaks = measure(function, shapes)
            exported = torch.export.export(Case(function, shapes), (torch.zeros([2]),), strict=False)
            cases.append({"name": name, **program(exported), "peaks": [peaks.get(key, 0) for key in ("forward", "loss", "backward")]})
        except Exception as error:  # PyTorch has no derivative, or no shape, of it
            import sys

            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}", file=sys.stderr)
    head = {"made_by": "scripts/torch_ops.py", "torch": torch.__version__}
    lines = ",\n".join(json.dumps(item, separators=(",", ":")) for item in cases)
    print(json.dumps(head)[:-1] + ', "cases": [\n' + lines + "\n]}")


main()

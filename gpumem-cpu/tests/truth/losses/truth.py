"""Losses of pairs, of sequences and of batches in PyTorch, in float64 from float32 inputs: python truth.py"""

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

torch.manual_seed(7)


def save(name, inputs, loss, given):
    """The loss of `inputs`, and the gradient of each that needs one."""
    loss.backward()
    tensors = {f"input.{key}": value.detach().float().contiguous() for key, value in inputs.items()}
    tensors |= {f"grad_input.{key}": value.grad.float().contiguous() for key, value in inputs.items() if value.requires_grad}
    tensors |= {f"input.{key}": value.contiguous() for key, value in given.items()}
    tensors["output"] = loss.detach().float()
    save_file(tensors, f"{name}.safetensors")


def leaf(tensor):
    return tensor.detach().float().double().requires_grad_()


def cosine(name, margin, reduction):
    x, y = leaf(torch.randn(6, 7)), leaf(torch.randn(6, 7))
    with torch.no_grad():
        # Alike, opposite, and too short to have a direction.
        y[0], y[1], x[2] = x[0] * 2, -x[1], x[2] * 2**-22
    target = torch.tensor([1.0, 1.0, 1.0, -1.0, -1.0, -1.0]).double()
    y.data[3] += x.data[3] * 2
    x.data[4] += y.data[4]
    loss = torch.nn.CosineEmbeddingLoss(margin=margin, reduction=reduction)(x, y, target)
    save(name, {"x": x, "y": y, "target": target}, loss, {})


def ctc(name, steps, classes, targets, lengths, **options):
    """`targets` are lists of labels, which are padded with -1."""
    longest = max(map(len, targets))
    padded = torch.tensor([labels + [-1] * (longest - len(labels)) for labels in targets])
    x = leaf(torch.randn(len(targets), steps, classes).double().mul(2).log_softmax(-1))
    lengths = torch.tensor(lengths)
    loss = torch.nn.CTCLoss(**options)(x.transpose(0, 1), padded, lengths, torch.tensor([len(labels) for labels in targets]))
    save(name, {"x": x}, loss, {"target": padded, "lengths": lengths})


cosine("cosine_embedding_mean", 0.0, "mean")
cosine("cosine_embedding_sum", 0.3, "sum")
WORDS = [[1, 2, 3, 4, 5], [1, 1, 2], [], [4, 3, 3, 3]]
ctc("ctc_mean", 12, 6, WORDS, [12, 7, 12, 9])
ctc("ctc_sum", 12, 6, [[5, 0, 1], [0, 0], [3], [1, 3, 1, 3, 1]], [12, 3, 12, 5], blank=2, reduction="sum")
# Labels that need one step more than there are, and no step at all.
ctc("ctc_zero_infinity", 12, 6, WORDS, [5, 3, 12, 0], zero_infinity=True)
ctc("ctc_long", 300, 9, [[(i * 7 + i // 3) % 8 + 1 for i in range(60)]], [300])


def clip(x, y, scale):
    """open_clip.loss.ClipLoss"""
    products = scale * x @ y.T
    right = torch.arange(len(x))
    return (F.cross_entropy(products, right) + F.cross_entropy(products.T, right)) / 2


def siglip(x, y, scale, bias):
    """open_clip.loss.SigLipLoss"""
    signs = 2 * torch.eye(len(x)).double() - 1
    return -F.logsigmoid(signs * (scale * x @ y.T + bias)).sum() / len(x)


def nt_xent(x, y, scale):
    """lightly.loss.NTXentLoss"""
    views = torch.cat([x, y])
    products = (scale * views @ views.T).fill_diagonal_(-torch.inf)
    return F.cross_entropy(products, torch.arange(len(views)).roll(len(x)))


def batch(name, loss, size, length, numbers, **learned):
    """`numbers` are the scale and the bias; those that are learned are named, the scale by its logarithm."""
    directions = F.normalize(torch.randn(size, length), dim=1)
    x, y = leaf(directions), leaf(F.normalize(directions + 0.7 * torch.randn(size, length), dim=1))
    given = {name: leaf(torch.tensor([value])) for name, value in learned.items()}
    numbers = [given["scale"].exp() if "scale" in given and i == 0 else value for i, value in enumerate(numbers)]
    numbers = [given["bias"] if "bias" in given and i == 1 else value for i, value in enumerate(numbers)]
    save(name, {"x": x, "y": y} | given, loss(x, y, *numbers), {})


batch("contrastive", clip, 5, 7, [1 / 0.07])
batch("contrastive_scale", clip, 130, 4, [None], scale=2.6593)
batch("siglip", siglip, 6, 5, [10.0, -10.0])
batch("siglip_learned", siglip, 67, 3, [None, None], scale=2.302585, bias=-9.5)
batch("nt_xent", nt_xent, 7, 6, [1 / 0.5])
batch("nt_xent_scale", nt_xent, 66, 5, [None], scale=1.3)


def triplet(name, shape, **options):
    a = leaf(torch.randn(*shape))
    p, n = leaf(a + 0.8 * torch.randn(*shape)), leaf(a + 0.9 * torch.randn(*shape))
    save(name, {"x": a, "y": p, "z": n}, torch.nn.TripletMarginLoss(**options)(a, p, n), {})


def ranking(name, shape, **options):
    x, y = leaf(torch.randn(*shape)), leaf(torch.randn(*shape))
    target = torch.randint(0, 2, shape).double() * 2 - 1
    save(name, {"x": x, "y": y, "target": target}, torch.nn.MarginRankingLoss(**options)(x, y, target), {})


def mined(name, ids, length, margin):
    """Batch hard: the farthest positive and the nearest negative of each anchor that has both."""
    ids = torch.tensor(ids)
    x = leaf(torch.randn(len(ids), length))
    distances = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
    same, own = ids[:, None] == ids[None, :], torch.eye(len(ids), dtype=torch.bool)
    positive, negative = same & ~own, ~same
    has_both = positive.any(1) & negative.any(1)
    near = distances.masked_fill(~positive, -torch.inf).max(1).values[has_both]
    far = distances.masked_fill(~negative, torch.inf).min(1).values[has_both]
    save(name, {"x": x}, F.relu(near - far + margin).mean(), {"target": ids})


def weighted(name, shape, loss, target, mask, words=None):
    """`(loss * weights).mean()`, or `(loss * mask).sum() / mask.sum()`."""
    x = leaf(torch.randn(*shape))
    terms = loss(x, words if words is not None else target)
    given = {} if words is None else {"target": words}
    numbers = {} if target is None else {"target": target}
    if mask:
        factors = leaf(torch.rand(terms.shape)).detach() * (torch.rand(terms.shape) > 0.3)
        total = (terms * factors).sum() / factors.sum()
    else:
        factors = leaf(torch.rand(shape[0]) * 2).detach()
        total = (terms * factors.view(-1, *[1] * (terms.dim() - 1))).mean()
    save(name, {"x": x, "weights": factors} | numbers, total, given)


triplet("triplet", (6, 5))
triplet("triplet_l1", (3, 2, 7), margin=0.4, p=1)
triplet("triplet_swap", (9, 4), margin=1.5, swap=True, reduction="sum")
triplet("triplet_l3", (5, 6), p=3, swap=True)
ranking("ranking", (5,))
ranking("ranking_margin", (3, 4, 2), margin=0.5, reduction="sum")
mined("mined", [7, 1, 7, 1, 2, 7, 2, 9], 5, 0.2)
mined("mined_many", [i * 7 % 5 for i in range(40)], 3, 1.0)
CLASSES = torch.randint(0, 4, (5, 3))
cross_entropy = lambda x, y: F.cross_entropy(x.flatten(0, 1), y.flatten(), reduction="none", label_smoothing=0.1).view(y.shape)
weighted("weights_cross_entropy", (5, 3, 4), cross_entropy, None, False, CLASSES)
weighted("mask_cross_entropy", (5, 3, 4), cross_entropy, None, True, CLASSES)
weighted("weights_mse", (4, 6), lambda x, y: (x - y) ** 2, torch.randn(4, 6).float().double(), False)
weighted("mask_huber", (4, 6), lambda x, y: F.huber_loss(x, y, reduction="none", delta=0.5), torch.randn(4, 6).float().double(), True)

"""Runs the networks of `onnx_export.rs` with onnxruntime, and compares them with PyTorch on the same weights."""

import sys
from pathlib import Path

try:
    import numpy as np
    import onnx
    import onnxruntime
    import torch
    import torch.nn.functional as F
except ImportError as missing:
    print(f"skipped: {missing.name} is not installed")
    sys.exit(0)


def classifier(x, w):
    x = F.conv2d(x, w["conv1.weight"], stride=2, padding=1)
    x = F.batch_norm(x, w["bn1.running_mean"], w["bn1.running_var"], w["bn1.weight"], w["bn1.bias"])
    x = F.max_pool2d(F.relu(x), 3, stride=2, padding=1)
    y = F.conv2d(x, w["block.0.conv1.weight"], w["block.0.conv1.bias"], padding=1, groups=4)
    y = F.silu(F.group_norm(y, 4, w["block.0.norm.weight"], w["block.0.norm.bias"]))
    y = F.conv2d(y, w["block.0.conv2.weight"], w["block.0.conv2.bias"], padding=2, dilation=2)
    x = F.avg_pool2d(F.hardswish(x + y), 2).mean((2, 3))
    return F.log_softmax(F.linear(x, w["fc.weight"], w["fc.bias"]), -1)


def decoder(x, w):
    down = F.conv2d(x, w["down.weight"], w["down.bias"], padding=1)
    y = F.conv2d(F.pad(down, (1, 1, 1, 1), mode="reflect"), w["inner.conv.weight"], w["inner.conv.bias"])
    y = F.leaky_relu(F.instance_norm(y, weight=w.get("inner.norm.weight"), bias=w.get("inner.norm.bias")), 0.2)
    x = torch.cat([down, y], 1)
    x = F.conv_transpose2d(x, w["up.weight"], w["up.bias"], stride=2, padding=1, output_padding=1)
    x = F.interpolate(F.elu(x), scale_factor=2)
    return torch.tanh(F.interpolate(x, scale_factor=2, mode="bilinear"))


def transformer(tokens, w):
    x = F.embedding(tokens, w["wte.weight"])
    y = F.layer_norm(x, (32,), w["ln_1.weight"], w["ln_1.bias"])
    first = [key for key in w if key.startswith("attn.") and w[key].shape == (96, 32)][0]
    last = [key for key in w if key.startswith("attn.") and w[key].shape == (32, 32)][0]
    bias = lambda key: w[key.removesuffix("weight") + "bias"]
    qkv = F.linear(y, w[first], bias(first)).view(*y.shape[:2], 3, 4, 8).permute(2, 0, 3, 1, 4)
    y = F.scaled_dot_product_attention(*qkv, is_causal=True).transpose(1, 2).flatten(2)
    x = x + F.linear(y, w[last], bias(last))
    y = F.gelu(F.linear(F.rms_norm(x, (32,), w["ln_2.weight"], eps=1e-5), w["fc.weight"], w["fc.bias"]), approximate="tanh")
    return F.linear(x + F.linear(y, w["proj.weight"]), w["head.weight"], w["head.bias"])


NETWORKS = {
    "classifier": (classifier, lambda n: torch.randn(n, 3, 32, 32)),
    "decoder": (decoder, lambda n: torch.randn(n, 4, 7, 9)),
    "transformer": (transformer, lambda n: torch.randint(0, 50, (n, 12))),
}

torch.manual_seed(1)
for name, (reference, example) in NETWORKS.items():
    path = Path(sys.argv[1]) / f"{name}.onnx"
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    weights = {tensor.name: torch.from_numpy(onnx.numpy_helper.to_array(tensor).copy()) for tensor in model.graph.initializer}
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for batch in (1, 3):
        x = example(batch)
        (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        expected = reference(x, weights).numpy()
        assert found.shape == expected.shape, f"{name}: {found.shape} and {expected.shape}"
        error = np.abs(found - expected).max() / np.abs(expected).std()
        assert error < 1e-4, f"{name} at batch {batch}: an error of {error} deviations"
        print(f"{name} at batch {batch}: {error:.1e} of the deviation")

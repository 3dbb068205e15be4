"""What cuDNN's recurrent layers hold: see `cudnn-recurrent` beside this file.

`cudnnGetRNNTempSpaceSizes` fills in both sizes before it finds that there is no device, so that its status is not looked at: sizes that it left
alone would be 0. It wants a handle, which is made only with a device; it reads nothing of it before that, and is given zeros.
"""

import ctypes

NAMES = {"Rnn": 1, "Lstm": 2, "Gru": 3}  # cudnnRNNMode_t, Rnn with tanh
STANDARD, DOUBLE_BIAS, ONE_WAY, LINEAR_INPUT, FLOAT, FULL_MATH, TRAINING = 0, 2, 0, 0, 0, 3, 1
# Samples outermost, as values lie in the arena: a layout that needs the flag for padded values.
BATCH_MAJOR, PADDED = 2, 1
LAYERS = [
    ("Lstm", 20, 35, 650, 2),
    ("Lstm", 64, 128, 512, 1),
    ("Gru", 20, 35, 650, 2),
    ("Gru", 64, 128, 512, 1),
    ("Rnn", 64, 128, 512, 1),
]

cudnn = ctypes.CDLL("libcudnn.so.9")


def call(name, *arguments):
    status = getattr(cudnn, name)(*arguments)
    assert status == 0, f"{name}: {status}"


def sizes(name, samples, steps, units, layers):
    dropout, layer, data = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    call("cudnnCreateDropoutDescriptor", ctypes.byref(dropout))
    call("cudnnCreateRNNDescriptor", ctypes.byref(layer))
    call("cudnnCreateRNNDataDescriptor", ctypes.byref(data))
    kind = [STANDARD, NAMES[name], DOUBLE_BIAS, ONE_WAY, LINEAR_INPUT, FLOAT, FLOAT, FULL_MATH]
    call("cudnnSetRNNDescriptor_v8", layer, *kind, units, units, units, layers, dropout, PADDED)
    lengths, fill = (ctypes.c_int * samples)(*[steps] * samples), ctypes.c_float(0)
    call("cudnnSetRNNDataDescriptor", data, FLOAT, BATCH_MAJOR, steps, samples, units, lengths, ctypes.byref(fill))
    handle = ctypes.create_string_buffer(1 << 20)
    workspace, reserve = ctypes.c_size_t(), ctypes.c_size_t()
    cudnn.cudnnGetRNNTempSpaceSizes(handle, layer, TRAINING, data, ctypes.byref(workspace), ctypes.byref(reserve))
    return reserve.value, workspace.value


for name, *shape in LAYERS:
    reserve, workspace = (size / 2**20 for size in sizes(name, *shape))
    print(f"{name}, {' x '.join(map(str, shape[:3]))}, {shape[3]} layers: reserve {reserve:.1f}, workspace {workspace:.1f}")
